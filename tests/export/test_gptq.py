import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.errors import ParityFailed
from familiar.export.gptq import CLIPPED_SHARES, DAMPING, MAX_INT4, round_matrix, row_scales

seeds = st.integers(0, 2**32 - 1)


def correlated_inputs(seed, rows=200, columns=12):
    generator = np.random.default_rng(seed)
    return generator.standard_normal((rows, columns)) @ generator.standard_normal((columns, columns)) + 0.5


def moments_of(inputs):
    return inputs.T @ inputs / len(inputs)


def matrix_of(seed, rows=9, columns=12):
    return np.random.default_rng(seed + 1).standard_normal((rows, columns)).astype(np.float32)


def multiplied(integers, scale):
    return integers.astype(np.float64) * scale.astype(np.float64)


def to_nearest(matrix):
    scale = row_scales(matrix).astype(np.float64)
    return np.clip(np.rint(matrix / np.where(scale > 0, scale, 1)), -MAX_INT4, MAX_INT4) * scale


def change_of_products(rounded, matrix, inputs):
    return np.square((rounded - matrix) @ inputs.T).mean()


def slow_round_matrix(matrix, moments):
    """Round column by column; each time solve for the best values of all columns that are not rounded yet."""
    scale = row_scales(matrix).astype(np.float64)[:, 0]
    damped = moments + np.eye(len(moments)) * DAMPING * moments.diagonal().mean()
    rounded, remaining = np.zeros(matrix.shape), matrix.astype(np.float64)
    order = np.argsort(-moments.diagonal(), kind="stable")
    for position, column in enumerate(order):
        rounded[:, column] = np.clip(np.rint(remaining[:, column] / scale), -MAX_INT4, MAX_INT4) * scale
        free, done = order[position + 1 :], order[: position + 1]
        if len(free):
            errors = rounded[:, done] - matrix[:, done]
            remaining[:, free] = (
                matrix[:, free] - errors @ np.linalg.solve(damped[np.ix_(free, free)], damped[np.ix_(free, done)]).T
            )
    return rounded


@given(seeds)
def test_equals_solving_for_the_columns_that_are_left(seed):
    matrix, moments = matrix_of(seed), moments_of(correlated_inputs(seed))
    np.testing.assert_allclose(
        multiplied(*round_matrix(matrix, moments)), slow_round_matrix(matrix, moments), atol=1e-6
    )


@given(seeds)
def test_products_change_less_than_by_rounding_to_the_nearest(seed):
    inputs = correlated_inputs(seed)
    matrix = matrix_of(seed, rows=64)
    rounded = multiplied(*round_matrix(matrix, moments_of(inputs)))
    assert change_of_products(rounded, matrix, inputs) < 0.9 * change_of_products(to_nearest(matrix), matrix, inputs)


@given(seeds)
def test_uncorrelated_inputs_are_rounded_to_the_nearest(seed):
    matrix = matrix_of(seed)
    integers, scale = round_matrix(matrix, np.diag(np.random.default_rng(seed).uniform(0.5, 2, matrix.shape[1])))
    np.testing.assert_allclose(multiplied(integers, scale), to_nearest(matrix), atol=1e-6)
    assert (integers.dtype, scale.dtype, scale.shape) == (np.int8, np.float16, (len(matrix), 1))
    assert np.abs(integers).max() <= MAX_INT4


def test_multiples_of_a_scale_stay_as_they_are():
    integers = np.array([[7, -3, 0, 1], [-7, 7, 2, 5]], np.float32)
    matrix = integers * np.float32([[0.5], [0.125]])
    moments = moments_of(correlated_inputs(0, columns=4))
    np.testing.assert_array_equal(multiplied(*round_matrix(matrix, moments)), matrix)


@pytest.mark.parametrize("moments", [np.zeros((3, 3)), np.ones((3, 3)), np.diag([1.0, 0.0, 0.0])])
def test_inputs_that_never_occur_or_are_all_alike_are_no_problem(moments):
    matrix = np.array([[0.0, 0.0, 0.0], [1.0, -2.0, 0.3]], np.float32)
    integers, scale = round_matrix(matrix, moments)
    assert np.isfinite(scale).all()
    assert not integers[0].any()
    assert np.abs(multiplied(integers, scale)[1] - matrix[1]).max() < 2 * float(scale[1, 0])


@given(seeds)
def test_scale_is_the_best_of_all_that_are_tried(seed):
    row = matrix_of(seed, rows=1, columns=30)
    error = np.square(to_nearest(row) - row).sum()
    for share in CLIPPED_SHARES:
        scale = float(np.float16(np.abs(row).max() * share / MAX_INT4))
        other = np.clip(np.rint(row / scale), -MAX_INT4, MAX_INT4) * scale
        assert error <= np.square(other - row).sum() + 1e-5


def test_rejects_weights_beyond_float16():
    with pytest.raises(ParityFailed, match="the weight 1f reaches 7e\\+04"):
        round_matrix(np.full((2, 2), 70_000, np.float32), np.eye(2), "1f")
