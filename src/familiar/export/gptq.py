"""Rounding of matrices to 4 bits that compensates for the error of each column in the columns after it.

GPTQ (Frantar et al. 2022, arXiv 2210.17323). Rounded to the nearest, a matrix changes its products with the inputs that
it meets by much more than is necessary: many other roundings are as near to the matrix, and one of them is nearer to
its products.
"""

import numpy as np
from jaxtyping import Float16, Float32, Float64, Int8

from familiar.export.rounding import as_float16

MAX_INT4 = 7  # no weight is -8, so that the sign of a row does not matter
CLIPPED_SHARES = np.linspace(0.4, 1.0, 31)  # of the largest weight of a row, tried as its largest number
DAMPING = 0.01  # added to the moments, in units of their mean: inputs that never occur would be free to change


def round_matrix(
    matrix: Float32[np.ndarray, "o i"], moments: Float64[np.ndarray, "i i"], name: str = "of this layer"
) -> tuple[Int8[np.ndarray, "o i"], Float16[np.ndarray, "o 1"]]:
    """Round a matrix to integers times a scale per row, so that its products with its inputs change little.

    Args:
        matrix: weights, one row per output.
        moments: the mean of the inputs' products with each other, `x x^T`.
        name: of the matrix, for the error message.

    Returns:
        (integers in [-7, 7], the scale of each row); their product approximates `matrix`.

    Raises:
        ParityFailed: a number is beyond float16's 65504.
    """
    scale = row_scales(matrix, name)
    # Columns whose inputs are largest come first: later columns can still compensate for these.
    order = np.argsort(-moments.diagonal(), kind="stable")
    factor = _inverse_factor(moments[np.ix_(order, order)])
    remaining = matrix[:, order].astype(np.float64)
    steps = np.where(scale > 0, scale, 1).astype(np.float64)[:, 0]
    rounded = np.empty_like(remaining)
    for column in range(len(order)):
        rounded[:, column] = np.clip(np.rint(remaining[:, column] / steps), -MAX_INT4, MAX_INT4)
        error = (remaining[:, column] - rounded[:, column] * steps) / factor[column, column]
        remaining[:, column + 1 :] -= np.outer(error, factor[column, column + 1 :])
    integers = np.empty(matrix.shape, np.int8)
    integers[:, order] = rounded.astype(np.int8)
    return integers, scale


def row_scales(matrix: Float32[np.ndarray, "o i"], name: str = "of this layer") -> Float16[np.ndarray, "o 1"]:
    """Return the scale of each row with which rounding to the nearest of its 15 multiples changes the row least.

    Often the largest weights are clipped, so that the many small ones are rounded more finely.

    Args:
        matrix: weights, one row per output.
        name: of the matrix, for the error message.

    Raises:
        ParityFailed: a number is beyond float16's 65504.
    """
    largest = np.abs(matrix).max(axis=1, keepdims=True)
    as_float16(largest, name)  # the same limit as in float16; so no scale can be beyond it
    best = np.zeros(largest.shape, np.float16)
    smallest_error = np.full(largest.shape, np.inf)
    for share in CLIPPED_SHARES:
        scale = (largest * (share / MAX_INT4)).astype(np.float16)
        steps = np.where(scale > 0, scale, 1).astype(np.float32)
        rounded = np.clip(np.rint(matrix / steps), -MAX_INT4, MAX_INT4) * scale.astype(np.float32)
        error = np.square(rounded - matrix, dtype=np.float64).sum(axis=1, keepdims=True)
        better = error < smallest_error
        best, smallest_error = np.where(better, scale, best), np.where(better, error, smallest_error)
    return best


def _inverse_factor(moments: Float64[np.ndarray, "i i"]) -> Float64[np.ndarray, "i i"]:
    """Return the upper triangular U with U^T U = the inverse of the damped moments."""
    damped = moments + np.eye(len(moments)) * max(DAMPING * moments.diagonal().mean(), np.finfo(np.float64).tiny)
    # The inverse's factor from the moments' own, read from the last row to the first: M = L L^T with rows and columns
    # reversed gives M^-1 = U^T U with U the reversed inverse of L.
    lower = np.linalg.cholesky(damped[::-1, ::-1])
    return np.linalg.inv(lower)[::-1, ::-1]
