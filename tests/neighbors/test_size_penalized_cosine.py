import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.neighbors.rounds import SATURATION_SIZE, SIZE_PENALTY, size_penalized_cosine


def penalized(cosine: float, smaller: int) -> float:
    return float(size_penalized_cosine(np.array([cosine]), np.array([smaller]))[0])


def reference(cosine: float, smaller: int) -> float:
    """Compute the formula for one pair, case by case."""
    if cosine <= 0 or smaller == 1:
        return cosine
    smaller = min(smaller, SATURATION_SIZE)
    doublings = math.log(smaller) / math.log(2)
    return cosine - SIZE_PENALTY * doublings * (cosine - cosine**2)


def test_each_doubling_lowers_similarity_equally():
    assert penalized(0.5, 1) == 0.5
    assert penalized(0.5, 2) == pytest.approx(0.4625)
    assert penalized(0.5, 4) == pytest.approx(0.5 - 2 * SIZE_PENALTY / 4)
    assert penalized(0.2, 8) == pytest.approx(0.2 - 3 * SIZE_PENALTY * 0.16)


def test_matches_slow_reference():
    rng = np.random.default_rng(0)
    cosines, sizes = rng.uniform(-1, 1, 500), rng.integers(1, 40, 500)
    expected = [reference(cosine, size) for cosine, size in zip(cosines.tolist(), sizes.tolist(), strict=True)]
    np.testing.assert_allclose(size_penalized_cosine(cosines, sizes), expected, atol=1e-12)


def test_cluster_size_saturates_at_16():
    assert penalized(0.5, 16) == penalized(0.5, 17) == penalized(0.5, 2**40) == pytest.approx(0.5 - SIZE_PENALTY)


@pytest.mark.parametrize("size", [1, 2, 1000])
@pytest.mark.parametrize("cosine", [-1.0, -0.3, 0.0, 1.0])
def test_nonpositive_and_unit_cosines_are_unchanged(cosine, size):
    assert penalized(cosine, size) == cosine


def test_accepts_empty_input_and_keeps_dtype():
    assert size_penalized_cosine(np.empty(0), np.empty(0, np.int64)).shape == (0,)
    assert size_penalized_cosine(np.array([0.5], np.float32), np.array([3])).dtype == np.float32


cosines = st.floats(-1, 1, allow_subnormal=False)
sizes = st.integers(1, 2**20)


@given(cosines, cosines, sizes)
def test_never_decreases_with_cosine(first, second, size):
    low, high = sorted((first, second))
    assert penalized(low, size) <= penalized(high, size) + 1e-15
    assert -1 <= penalized(first, size) <= first


@given(cosines, sizes, sizes)
def test_never_increases_with_cluster_size(cosine, first, second):
    small, large = sorted((first, second))
    assert penalized(cosine, large) <= penalized(cosine, small)
