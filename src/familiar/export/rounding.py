"""Numbers in fewer bits: float16, and whole numbers of 8 bits with a scale for each row."""

import numpy as np
from jaxtyping import Float16, Float32, Float64, Int8

from familiar.core.errors import ParityFailed

LARGEST_INT8 = 127


def rows_in_8_bits(
    values: Float32[np.ndarray, "rows ..."], name: str = "of this layer"
) -> tuple[Int8[np.ndarray, "rows ..."], Float16[np.ndarray, "rows ..."]]:
    """(whole numbers in [-127, 127], the scale of each row): their product is near to `values`.

    The scale is rounded up to float16 first, so that the largest of a row is not cut off. The taps of a k x k kernel
    keep their sum to half a step, or an edge detector would answer flat patches too; this moves some of them by up to
    a step. ParityFailed where a number is beyond float16's 65504.
    """
    largest = np.abs(values).max(axis=tuple(range(1, values.ndim)), keepdims=True)
    as_float16(largest, name)  # refused as it would be in float16; no scale can then be beyond it
    scale = (largest / LARGEST_INT8).astype(np.float16)
    up = np.nextafter(scale, np.float16(np.inf))
    scale = np.where(scale.astype(np.float64) * LARGEST_INT8 < largest, up, scale)
    steps = values / np.where(largest > 0, scale, 1).astype(np.float64)
    taps = int(np.prod(values.shape[2:]))
    rounded = rounded_to_the_sum(steps.reshape(-1, taps)) if taps > 1 else np.rint(steps)
    return rounded.reshape(values.shape).astype(np.int8), scale


def rounded_to_the_sum(rows: Float64[np.ndarray, "rows taps"]) -> Float64[np.ndarray, "rows taps"]:
    """Whole numbers less than 1 away whose sum is nearest to the row's: the nearest, but where that takes another.

    >>> rounded_to_the_sum(np.array([[0.4, 0.3, 0.3], [-0.6, 2.0, 0.0]]))
    array([[ 1.,  0.,  0.],
           [-1.,  2.,  0.]])
    """
    nearest = np.rint(rows)
    left = rows - nearest
    missing = np.rint(left.sum(axis=1, keepdims=True))
    # Of the numbers that were rounded down furthest as many go up as are missing, and the other way round.
    from_most = np.argsort(np.argsort(-left, axis=1, kind="stable"), axis=1)
    from_least = np.argsort(np.argsort(left, axis=1, kind="stable"), axis=1)
    return nearest + (from_most < missing) - (from_least < -missing)


def as_float16(values: Float32[np.ndarray, "..."], name: str) -> Float16[np.ndarray, "..."]:
    """ParityFailed, naming the tensor, where a number is beyond float16's 65504."""
    with np.errstate(over="ignore"):  # it is looked for below
        halved = values.astype(np.float16)
    if not np.isfinite(halved).all():
        raise ParityFailed(
            f"the weight {name} reaches {np.abs(values).max():.3g}, and float16 ends at 65504; "
            "nothing was written. Export it in float32"
        )
    return halved
