import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.vectors import normalize
from familiar.neighbors.halves import halve

DIM = 16


def around(axis: int, count: int, noise: float = 0.1, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng((seed, axis)).normal(size=(count, DIM)) * noise
    rows[:, axis] += 1
    return normalize(rows.astype(np.float32))


def mean_of_pairs(first: np.ndarray, second: np.ndarray | None = None) -> float:
    """By a loop over pairs."""
    if second is not None:
        return float(np.mean([one_row @ other for one_row in first for other in second]))
    pairs = [(row, other) for row in range(len(first)) for other in range(row)]
    return float(np.mean([first[row] @ first[other] for row, other in pairs]))


def test_halves_are_the_two_individuals_and_their_similarities_the_means_of_pairs():
    first, second = around(0, 6), around(1, 4)
    order = np.random.default_rng(0).permutation(10)
    rows = np.concatenate([first, second])[order]
    halves = halve(rows)
    assert halves is not None
    assert (halves.is_second == ((order >= 6) != (order[0] >= 6))).all()
    assert halves.across == pytest.approx(mean_of_pairs(first, second), abs=1e-6)
    assert halves.within == pytest.approx(min(mean_of_pairs(first), mean_of_pairs(second)), abs=1e-6)


def test_equal_rows_and_a_single_one_have_no_halves():
    assert halve(around(0, 1)) is None
    assert halve(np.repeat(around(0, 1), 5, axis=0)) is None


def test_part_of_one_face_is_similar_to_itself():
    halves = halve(np.concatenate([around(0, 5, 0.01), around(1, 1)]))
    assert halves is not None
    assert halves.is_second.tolist() == [False] * 5 + [True]
    assert halves.within == pytest.approx(1, abs=0.01)


@given(st.integers(2, 12), st.integers(0, 2**16))
def test_both_halves_have_faces_and_the_first_has_the_first(count: int, seed: int):
    halves = halve(around(0, count, 1.0, seed))
    assert halves is not None
    assert halves.is_second.any()
    assert not halves.is_second[0]
