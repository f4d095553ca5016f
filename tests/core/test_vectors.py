import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from familiar.core.vectors import UNIT_NORM_TOLERANCE, check_unit_rows, cosine_similarity, normalise, prefix

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
matrices = npst.arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 6)), elements=FINITE)


def rows(*vectors: tuple[float, ...]) -> np.ndarray:
    return np.array(vectors, np.float32)


def directions(seed: int, count: int, dim: int) -> np.ndarray:
    return normalise(np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32))


# normalise


def test_the_3_4_5_triangle() -> None:
    assert normalise(rows((3, 4), (0, -2))) == pytest.approx(rows((0.6, 0.8), (0, -1)))


@settings(deadline=None)
@given(matrices)
def test_normalise_agrees_with_doubles_row_by_row(vectors: np.ndarray) -> None:
    assume(vectors.any(axis=1).all())
    for row, unit in zip(vectors, normalise(vectors), strict=True):
        length = math.hypot(*(float(value) for value in row))
        assert unit == pytest.approx([float(value) / length for value in row], abs=1e-6)


@pytest.mark.parametrize("size", [1e-45, 1.5e-22, 1e-10, 1e18, 1e30, 3e38])
def test_rows_as_small_and_as_large_as_float32_goes(size: float) -> None:
    assert normalise(rows((size, 0, -size))) == pytest.approx(rows((math.sqrt(0.5), 0, -math.sqrt(0.5))))


@pytest.mark.parametrize("bad", [(0.0, 0.0), (np.nan, 1.0), (np.inf, 1.0), (-np.inf, 1.0)])
def test_a_row_without_direction_is_refused(bad: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="no direction"):
        normalise(rows((1, 0), bad))


def test_no_rows_stay_no_rows() -> None:
    assert normalise(np.empty((0, 3), np.float32)).shape == (0, 3)


def test_rows_of_no_dimension_have_no_direction() -> None:
    with pytest.raises(ValueError, match="no direction"):
        normalise(np.empty((2, 0), np.float32))


def test_normalise_leaves_its_input_alone() -> None:
    vectors = rows((3, 4))
    normalise(vectors)
    assert vectors.tolist() == [[3, 4]]


# check_unit_rows


@pytest.mark.parametrize("length", [1 - 0.9 * UNIT_NORM_TOLERANCE, 1.0, 1 + 0.9 * UNIT_NORM_TOLERANCE])
def test_unit_rows_pass(length: float) -> None:
    check_unit_rows(rows((1, 0), (0, length)))


def test_unit_rows_stored_as_float16_pass() -> None:
    check_unit_rows(directions(0, 500, 128).astype(np.float16).astype(np.float32))


@pytest.mark.parametrize("length", [0.0, 0.998, 1.002, -2.0, np.nan, np.inf])
def test_the_first_row_that_is_no_unit_vector_is_named(length: float) -> None:
    with pytest.raises(ValueError, match=r"^2 of 4 rows .* row 1$"):
        check_unit_rows(rows((1, 0), (0, length), (0, 1), (length, 0)))


def test_no_rows_are_unit_rows() -> None:
    check_unit_rows(np.empty((0, 3), np.float32))


# cosine_similarity


def test_the_same_the_right_angle_and_the_opposite() -> None:
    similarity = cosine_similarity(rows((1, 0)), rows((1, 0), (0, 1), (-1, 0), (0.5, math.sqrt(0.75))))
    assert similarity == pytest.approx(rows((1, 0, -1, 0.5)))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 5), st.integers(1, 8))
def test_cosine_is_symmetric_bounded_and_half_the_distance_away(seed: int, n: int, m: int, dim: int) -> None:
    left, right = directions(seed, n, dim), directions(seed + 1, m, dim)
    similarity = cosine_similarity(left, right)
    assert similarity.shape == (n, m)
    assert np.abs(similarity).max() <= 1.0
    assert similarity == pytest.approx(cosine_similarity(right, left).T, abs=1e-6)
    distance = ((left[:, None].astype(np.float64) - right[None]) ** 2).sum(axis=2)
    assert 2 - 2 * similarity == pytest.approx(distance, abs=1e-5)


def test_rounding_never_leads_beyond_one() -> None:
    vectors = directions(1, 200, 37)
    assert (np.einsum("nd,nd->n", vectors, vectors) > 1).any()  # or this test would show nothing
    assert cosine_similarity(vectors, vectors).max() == 1.0
    assert cosine_similarity(vectors, -vectors).min() == -1.0


# prefix


def test_a_prefix_is_cut_and_scaled() -> None:
    assert prefix(rows((0.3, 0.4, math.sqrt(0.75))), 2) == pytest.approx(rows((0.6, 0.8)))


def test_a_prefix_of_all_changes_nothing() -> None:
    vectors = directions(2, 5, 8)
    assert prefix(vectors, 8) == pytest.approx(vectors, abs=1e-6)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.integers(1, 7), st.integers(0, 3))
def test_a_prefix_of_a_prefix_is_the_shorter_prefix(seed: int, length: int, more: int) -> None:
    vectors = directions(seed, 3, 10)
    check_unit_rows(prefix(vectors, length))
    assert prefix(prefix(vectors, length + more), length) == pytest.approx(prefix(vectors, length), abs=1e-6)


@pytest.mark.parametrize("length", [-1, 0, 4])
def test_a_prefix_lies_within_the_vector(length: int) -> None:
    with pytest.raises(ValueError, match=f"prefix of 3 dimensions .* not {length}"):
        prefix(rows((1, 0, 0)), length)


def test_a_prefix_of_zeros_has_no_direction() -> None:
    with pytest.raises(ValueError, match="no direction"):
        prefix(rows((0, 0, 1)), 2)
