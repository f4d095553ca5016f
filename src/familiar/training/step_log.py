"""The steps of a run: loss and recall@1 of each batch, one row per step in `steps.csv`."""

import csv
import io
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from familiar.core.errors import CannotWrite
from familiar.core.files import write_atomically
from familiar.loading.blends import NO_LABEL
from familiar.models.network import unit_length

_ROWS_AT_A_TIME = 1024  # so that a batch of 10,000 photos needs no matrix of 10,000 x 10,000


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """One step of training. The fields are the columns of `steps.csv`."""

    step: int  # counts from 1 and goes on over the epochs
    epoch: int  # counts from 1
    loss: float
    batch_recall_at_1: float | None  # as `batch_recall_at_1` computes it
    lr: float


@torch.no_grad()
def batch_recall_at_1(
    embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], rows: Int64[Tensor, " n"]
) -> Float64[Tensor, ""]:
    """Compute recall@1 within a batch: the share of photos whose nearest other photo shows the same identity.

    Args:
        embeddings: of the batch, of any length: they are compared by cosine.
        labels: identities; photos of `NO_LABEL`, which are blended faces, do not count.
        rows: indices of the photos in the dataset. A batch may repeat a photo, which is no other photo then.

    Returns:
        The share among photos with another photo of their identity in the batch; NaN if there are none.
    """
    unit = unit_length(embeddings)
    hits, queries = labels.new_zeros(()), labels.new_zeros(())
    for first in range(0, len(labels), _ROWS_AT_A_TIME):
        query = slice(first, first + _ROWS_AT_A_TIME)
        excluded = (rows[query, None] == rows) | (labels == NO_LABEL)
        positive = (labels[query, None] == labels) & ~excluded
        nearest = (unit[query] @ unit.T).masked_fill_(excluded, -2).argmax(1, keepdim=True)
        hits += positive.gather(1, nearest).sum()
        queries += positive.any(1).sum()
    return hits.double() / queries.double()


def read_steps(path: Path, steps: int) -> list[StepRecord]:
    """Read the first `steps` steps, counted over the epochs; a damaged row, or another table, ends them."""
    records: list[StepRecord] = []
    with (
        suppress(FileNotFoundError, ValueError, csv.Error),
        path.open(encoding="utf-8", errors="replace", newline="") as file,
    ):
        for step, epoch, loss, recall, lr in islice(csv.reader(file), 1, steps + 1):
            records.append(
                StepRecord(
                    step=int(step),
                    epoch=int(epoch),
                    loss=float(loss),
                    batch_recall_at_1=float(recall) if recall else None,
                    lr=float(lr),
                )
            )
    return records


class StepLog:
    """Writer that appends steps to `steps.csv`; use it as a context manager.

    Rows of steps that an interrupted run did not save are removed first: they will be repeated.

    Args:
        path: the file, which is created if it is missing.
        steps: how many steps are saved, counted over the epochs.

    Raises:
        CannotWrite: on creating, adding or saving, if the system refuses.
    """

    def __init__(self, path: Path, steps: int) -> None:
        write_atomically(path, csv_of(StepRecord, read_steps(path, steps)))
        self._file = path.open("ab")

    def __enter__(self) -> "StepLog":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, record: StepRecord) -> None:
        """Append a step, for other programs to see at once."""
        with self._refusals():
            self._file.write(csv_of(StepRecord, [record], header=False))
            self._file.flush()

    def save(self) -> None:
        """Flush the steps to the disk, before the state that a run resumes from."""
        with self._refusals():
            os.fsync(self._file.fileno())

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CannotWrite(f"{self._file.name}: cannot be written ({error.strerror or error})") from error


def csv_of(record_class: Any, records: Iterable[Any], *, header: bool = True) -> bytes:
    """Return records as CSV: the fields of their dataclass are the columns, and None is an empty field."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow(column.name for column in fields(record_class))
    writer.writerows(map(astuple, records))
    return text.getvalue().encode()
