"""The steps of a run: loss and recall@1 of each batch, one row per step in `steps.csv`."""

import csv
import io
import os
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import IO

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from familiar.core.errors import CannotWrite
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
) -> float | None:
    """Compute recall@1 within a batch: the share of photos whose nearest other photo shows the same identity.

    Args:
        embeddings: of the batch, of any length: they are compared by cosine.
        labels: identities; photos of `NO_LABEL`, which are blended faces, do not count.
        rows: indices of the photos in the dataset. A batch may repeat a photo, which is no other photo then.

    Returns:
        The share among photos with another photo of their identity in the batch; None if there are none.
    """
    labeled = labels != NO_LABEL
    labels, rows = labels[labeled], rows[labeled]
    unit = unit_length(embeddings[labeled])
    hits, queries = labels.new_zeros(()), labels.new_zeros(())
    for first in range(0, len(labels), _ROWS_AT_A_TIME):
        query = slice(first, first + _ROWS_AT_A_TIME)
        same_photo = rows[query, None] == rows
        positive = (labels[query, None] == labels) & ~same_photo
        nearest = (unit[query] @ unit.T).masked_fill_(same_photo, -2).argmax(1, keepdim=True)
        hits += positive.gather(1, nearest).sum()
        queries += positive.any(1).sum()
    return hits.item() / count if (count := queries.item()) else None


def read_steps(path: Path, steps: int) -> list[StepRecord]:
    """Read the first `steps` steps, counted over the epochs; none if the file is missing or of another version."""
    return _read_steps(path, steps)[0]


class StepLog:
    """Writer that appends steps to `steps.csv`; use it as a context manager.

    Rows of steps that an interrupted run did not save are removed first: they will be repeated.

    Args:
        path: the file, which is created if it is missing.
        steps: how many steps are saved, counted over the epochs.

    Raises:
        CannotWrite: on entering, adding or saving, if the system refuses.
    """

    def __init__(self, path: Path, steps: int) -> None:
        self._path = path
        self._steps = steps
        self._file: IO[bytes]

    def __enter__(self) -> "StepLog":
        end = _read_steps(self._path, self._steps)[1]
        try:
            self._file = self._path.open("r+b" if end else "wb")
            self._file.truncate(end)
            self._file.seek(end)
        except OSError as error:
            raise self._refusal(error) from error
        if not end:
            self._write([_COLUMNS])
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, record: StepRecord) -> None:
        """Append a step, for other programs to see at once."""
        self._write([astuple(record)])

    def save(self) -> None:
        """Flush the steps to the disk, before the state that a run resumes from."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._refusal(error) from error

    def _write(self, rows: Iterable[Iterable[object]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        try:
            self._file.write(text.getvalue().encode())
            self._file.flush()
        except OSError as error:
            raise self._refusal(error) from error

    def _refusal(self, error: OSError) -> CannotWrite:
        return CannotWrite(f"{self._path}: cannot be written ({error.strerror or error})")


_COLUMNS = tuple(field.name for field in fields(StepRecord))


def _read_steps(path: Path, steps: int) -> tuple[list[StepRecord], int]:
    """Return the first steps, and where they end in the file in bytes; a damaged row ends them too."""
    try:
        header, *lines = path.read_bytes().splitlines(keepends=True)
    except (FileNotFoundError, ValueError):  # ValueError: the file is empty
        return [], 0
    if header != f"{','.join(_COLUMNS)}\n".encode():
        return [], 0
    records: list[StepRecord] = []
    end = len(header)
    for line in lines:
        record = _parse(line)
        if record is None or record.step > steps:
            break
        records.append(record)
        end += len(line)
    return records, end


def _parse(line: bytes) -> StepRecord | None:
    """Parse a row; None if the computer went down while it was written."""
    if not line.endswith(b"\n"):
        return None
    try:
        step, epoch, loss, recall, lr = line.decode().rstrip("\n").split(",")
        return StepRecord(
            step=int(step),
            epoch=int(epoch),
            loss=float(loss),
            batch_recall_at_1=float(recall) if recall else None,
            lr=float(lr),
        )
    except ValueError:
        return None
