import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.neighbors.closeness import FULL_SIZE, STRICTER, closeness


def of_two(cosine: float, smaller: int) -> float:
    return float(closeness(np.array([cosine]), np.array([smaller]))[0])


def slowly(cosine: float, smaller: int) -> float:
    """Half as large, one step less: until the group is one row."""
    if cosine <= 0 or smaller == 1:
        return cosine
    smaller = min(smaller, FULL_SIZE)
    doublings = math.log(smaller) / math.log(2)
    return cosine - STRICTER * doublings * (cosine - cosine**2)


def test_each_doubling_lowers_closeness_equally():
    assert of_two(0.5, 1) == 0.5
    assert of_two(0.5, 2) == pytest.approx(0.4625)
    assert of_two(0.5, 4) == pytest.approx(0.5 - 2 * STRICTER / 4)
    assert of_two(0.2, 8) == pytest.approx(0.2 - 3 * STRICTER * 0.16)


def test_matches_slow_reference():
    rng = np.random.default_rng(0)
    cosines, sizes = rng.uniform(-1, 1, 500), rng.integers(1, 40, 500)
    expected = [slowly(cosine, size) for cosine, size in zip(cosines.tolist(), sizes.tolist(), strict=True)]
    np.testing.assert_allclose(closeness(cosines, sizes), expected, atol=1e-12)


def test_cluster_size_saturates_at_16():
    assert of_two(0.5, 16) == of_two(0.5, 17) == of_two(0.5, 2**40) == pytest.approx(0.5 - STRICTER)


@pytest.mark.parametrize("size", [1, 2, 1000])
@pytest.mark.parametrize("cosine", [-1.0, -0.3, 0.0, 1.0])
def test_nonpositive_and_unit_cosines_are_unchanged(cosine, size):
    assert of_two(cosine, size) == cosine


def test_accepts_empty_input_and_keeps_dtype():
    assert closeness(np.empty(0), np.empty(0, np.int64)).shape == (0,)
    assert closeness(np.array([0.5], np.float32), np.array([3])).dtype == np.float32


cosines = st.floats(-1, 1, allow_subnormal=False)
sizes = st.integers(1, 2**20)


@given(cosines, cosines, sizes)
def test_closeness_never_decreases_with_cosine(one, other, size):
    low, high = sorted((one, other))
    assert of_two(low, size) <= of_two(high, size) + 1e-15
    assert -1 <= of_two(one, size) <= one


@given(cosines, sizes, sizes)
def test_closeness_never_increases_with_cluster_size(cosine, one, other):
    small, large = sorted((one, other))
    assert of_two(cosine, large) <= of_two(cosine, small)
