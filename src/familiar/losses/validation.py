"""Checks of the batches that losses are called with."""

import math
from typing import Any

import torch
from torch import Tensor

UNIT_TOLERANCE = 0.02  # a normalized row of bfloat16 is off by up to 0.004


class NotFiniteError(ValueError):
    """A batch has NaN or infinite values."""


def check_batch(
    embeddings: Tensor,
    labels: Tensor,
    anchors: int | None = None,
    *,
    name: str = "embeddings",
    wait: bool = False,
    unit: bool = False,
    classes: int | None = None,
) -> None:
    """Check what a loss is called with.

    Args:
        embeddings: floats "n d", finite.
        labels: int64 "n", one per row.
        anchors: at most as many as rows.
        name: of the embeddings, in messages.
        wait: as in `check_rows`.
        unit: as in `check_rows`.
        classes: of a classifier: labels are in [0, classes). On a GPU torch reports others, later.

    Raises:
        NotFiniteError: there are NaN or infinite values.
        ValueError: a shape, a dtype, a length or a number is another.
    """
    if getattr(labels, "dtype", None) != torch.int64 or labels.ndim != 1:
        raise ValueError(f"labels must be int64 of one axis, one per row, got {_described(labels)}")
    if getattr(embeddings, "ndim", 0) == 2 and len(labels) != len(embeddings):
        raise ValueError(f"{len(labels)} labels for {len(embeddings)} {name}; pass one label per embedding")
    if anchors is not None and not 0 <= anchors <= len(labels):
        raise ValueError(f"anchors is {anchors}, but it must be between 0 and the {len(labels)} rows of the batch")
    if classes is not None and not labels.is_cuda and len(labels):
        low, high = map(int, labels.aminmax())
        if low < 0 or high >= classes:
            raise ValueError(
                f"label {low if low < 0 else high} is none of the {classes} classes, 0 to {classes - 1}; build the "
                "loss with as many classes as there are labels, and number these from 0"
            )
    named: dict[str, Any] = {name: embeddings}
    check_rows(wait=wait, unit=unit, **named)


def check_rows(*, wait: bool = False, unit: bool = False, same_width: bool = True, **tensors: Any) -> None:
    """Check tensors whose rows belong together.

    Args:
        wait: look at values on a GPU too, which makes the program wait for it. Otherwise NaN shows there in the loss.
        unit: rows need unit length, within the rounding of half precision; zeros, which have no direction, may stay.
        same_width: whether the rows have to be of the same length.
        tensors: floats "n d", finite, by their names for messages.

    Raises:
        NotFiniteError: there are NaN or infinite values.
        ValueError: a shape, a dtype or a length is another.
    """
    are_rows = all(
        isinstance(rows, Tensor) and rows.ndim == 2 and rows.is_floating_point() for rows in tensors.values()
    )
    if not are_rows or len({rows.shape if same_width else rows.shape[:1] for rows in tensors.values()}) > 1:
        described = ", ".join(f"{name} of {_described(rows)}" for name, rows in tensors.items())
        rule = "the same number of them, " if len(tensors) > 1 else ""
        raise ValueError(f"rows of floats are needed, {rule}one per photo; got {described}")
    for name, rows in tensors.items():
        if wait or not rows.is_cuda:
            check = _check_unit if unit else check_finite
            check(name, rows.detach())


def _check_unit(name: str, rows: Tensor) -> None:
    if not rows.numel():
        return
    lengths = row_lengths(rows)
    shortest, longest = torch.aminmax(lengths)
    if shortest.item() > 1 - UNIT_TOLERANCE and longest.item() < 1 + UNIT_TOLERANCE:  # not so if there is a NaN
        return
    check_finite(name, rows)
    bad = (((lengths - 1).abs() > UNIT_TOLERANCE) & (lengths > 0)).nonzero()
    if len(bad):
        row = int(bad[0, 0])
        raise ValueError(
            f"{name} must be rows of unit length, but row {row} has length {lengths[row].item():.4g}; pass "
            "torch.nn.functional.normalize(rows)"
        )


def row_lengths(rows: Tensor) -> Tensor:
    """Return the Euclidean length of each row."""
    return torch.linalg.vector_norm(rows, dim=1)  # pyright: ignore


def check_finite(name: str, values: Tensor) -> None:
    """Raise NotFiniteError for NaN and infinite values."""
    # One pass without a temporary: the sum is finite unless a value is not, or the values are huge.
    if not math.isfinite(values.sum(dtype=torch.promote_types(values.dtype, torch.float32)).item()):
        bad = (~values.isfinite()).nonzero()
        if len(bad):
            row = f"; the first is in row {int(bad[0, 0])}" if values.ndim else ""
            raise NotFiniteError(f"{name} have {len(bad):,} values that are NaN or infinite{row}")


def _described(values: Any) -> str:
    if not isinstance(values, Tensor):
        return f"a {type(values).__name__}; pass a tensor, such as torch.tensor(values)"
    return f"{str(values.dtype).removeprefix('torch.')} {tuple(values.shape)}"
