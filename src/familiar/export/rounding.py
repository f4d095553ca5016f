"""Rounding of weights to fewer bits: float16, and 8-bit integers with a scale per row."""

import numpy as np
from jaxtyping import Float16, Float32, Float64, Int8

from familiar.core.errors import ParityFailed

MAX_INT8 = 127


def quantize_rows(
    values: Float32[np.ndarray, "rows ..."], name: str = "of this layer"
) -> tuple[Int8[np.ndarray, "rows ..."], Float16[np.ndarray, "rows ..."]]:
    """Round each row to integers times a scale.

    The scale is rounded up to float16 first, so that the largest of a row is not clipped. The taps of a k x k kernel
    preserve their sum to half a step, since otherwise an edge detector would respond to flat patches too; this moves
    some of them by up to a step.

    Args:
        values: weights, one row per output channel.
        name: of the tensor, for the error message.

    Returns:
        (integers in [-127, 127], the scale of each row); their product approximates `values`.

    Raises:
        ParityFailed: a number is beyond float16's 65504.
    """
    largest = np.abs(values).max(axis=tuple(range(1, values.ndim)), keepdims=True)
    as_float16(largest, name)  # the same limit as in float16; so no scale can be beyond it
    scale = (largest / MAX_INT8).astype(np.float16)
    up = np.nextafter(scale, np.float16(np.inf))
    scale = np.where(scale.astype(np.float64) * MAX_INT8 < largest, up, scale)
    steps = values / np.where(largest > 0, scale, 1).astype(np.float64)
    taps = int(np.prod(values.shape[2:]))
    rounded = round_preserving_sum(steps.reshape(-1, taps)) if taps > 1 else np.rint(steps)
    return rounded.reshape(values.shape).astype(np.int8), scale


def round_preserving_sum(rows: Float64[np.ndarray, "rows taps"]) -> Float64[np.ndarray, "rows taps"]:
    """Round each row to integers less than 1 away whose sum is nearest to the row's sum.

    To the nearest integers, except as many as the sum requires.

    >>> round_preserving_sum(np.array([[0.4, 0.3, 0.3], [-0.6, 2.0, 0.0]]))
    array([[ 1.,  0.,  0.],
           [-1.,  2.,  0.]])
    """
    nearest = np.rint(rows)
    remainders = rows - nearest
    missing = np.rint(remainders.sum(axis=1, keepdims=True))
    # As many numbers as are missing go up by 1, those first that were rounded down furthest; and vice versa.
    rank_from_largest = np.argsort(np.argsort(-remainders, axis=1, kind="stable"), axis=1)
    rank_from_smallest = np.argsort(np.argsort(remainders, axis=1, kind="stable"), axis=1)
    return nearest + (rank_from_largest < missing) - (rank_from_smallest < -missing)


def as_float16(values: Float32[np.ndarray, "..."], name: str) -> Float16[np.ndarray, "..."]:
    """Convert to float16; ParityFailed, naming the tensor, if a number is beyond float16's 65504."""
    with np.errstate(over="ignore"):  # overflow is checked below
        halved = values.astype(np.float16)
    if not np.isfinite(halved).all():
        raise ParityFailed(
            f"the weight {name} reaches {np.abs(values).max():.3g}, beyond float16's largest number, 65504; "
            "nothing was written. Export it in float32"
        )
    return halved
