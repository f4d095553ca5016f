import numpy as np
import pytest

from familiar.core.vectors import normalize
from familiar.neighbors.whitening import OUT_OF_DOMAIN_SIMILARITY, SHRINKAGE, domain_shift, whiten_to_domain


def scattered(count: int, dim: int = 8, towards: float = 0.0, seed: int = 0) -> np.ndarray:
    """Draw rows in all directions, or shifted towards the first axis."""
    rows = np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)
    rows[:, 0] += np.float32(towards)
    return normalize(rows)


def test_domain_shift_equals_scaled_mean_pair_similarity():
    rows = scattered(30, towards=1)
    pairs = (rows.astype(np.float64) @ rows.T)[np.triu_indices(30, 1)]
    assert domain_shift(rows) == pytest.approx(pairs.mean() / OUT_OF_DOMAIN_SIMILARITY)
    assert 0 < domain_shift(rows) < 1
    axes = np.eye(4, dtype=np.float32)
    assert domain_shift(axes) == 0  # orthogonal, however few
    assert domain_shift(np.concatenate([axes, -axes])) == 0
    assert domain_shift(axes[[0, 0, 0]]) == 1
    assert domain_shift(axes[:1]) == domain_shift(axes[:0]) == 0


def test_collection_with_low_domain_shift_is_unchanged():
    axes = np.eye(4, dtype=np.float32)
    np.testing.assert_array_equal(whiten_to_domain(np.concatenate([axes, -axes])), np.concatenate([axes, -axes]))
    rows = scattered(2000)
    np.testing.assert_array_equal(whiten_to_domain(rows), rows)


@pytest.mark.parametrize(("shared", "unchanged"), [(0.17, True), (0.2, False)])
def test_whitens_only_above_the_domain_shift_threshold(shared, unchanged):
    """Rows (a, +-b) as below: many, with a mean similarity of a^2 - b^2 / 127, .021 and .032; the threshold is .025."""
    axes = np.eye(65, dtype=np.float32)[1:]
    individual = np.concatenate([axes, -axes])
    rows = normalize(
        np.float32(shared) * np.eye(65, dtype=np.float32)[0] + np.float32((1 - shared**2) ** 0.5) * individual
    )
    assert 0.08 < domain_shift(rows) < 0.13
    assert np.array_equal(whiten_to_domain(rows), rows) == unchanged


def test_removes_the_shared_direction():
    """Rows (a, +-b) along each of the other axes have equal variances there, so only the mean is removed."""
    axes = np.eye(5, dtype=np.float32)[1:]
    individual = np.concatenate([axes, -axes])
    rows = np.float32(0.8) * np.eye(5, dtype=np.float32)[0] + np.float32(0.6) * individual
    np.testing.assert_allclose(whiten_to_domain(rows), individual, atol=1e-6)


def test_matches_whitening_with_shrunk_covariance():
    """Rows (.8, +-.6, 0) twice each and (.8, 0, +-.6): variances 0, .24 and .12, mean (.8, 0, 0)."""
    rows = np.array([[0.8, 0.6, 0], [0.8, -0.6, 0]] * 2 + [[0.8, 0, 0.6], [0.8, 0, -0.6]], np.float32)
    rows = np.concatenate([rows, normalize(np.array([[0.8, 0.36, 0.48], [0.8, -0.36, -0.48]], np.float32))])
    centered = rows.astype(np.float64) - rows.mean(0, dtype=np.float64)
    covariance = centered.T @ centered / len(rows)
    shrunk = (1 - SHRINKAGE) * covariance + SHRINKAGE * np.trace(covariance) / 3 * np.eye(3)
    values, vectors = np.linalg.eigh(shrunk)
    expected = centered @ vectors @ np.diag(values**-0.5) @ vectors.T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(whiten_to_domain(rows), expected, atol=1e-5)
    last, before = whiten_to_domain(rows)[-2], rows[-2]
    assert abs(last[1] / last[2]) < abs(before[1] / before[2])  # the direction with the largest variance counts less


def test_partial_domain_shift_scales_the_whitening():
    rows = scattered(4000, dim=3, towards=0.6)
    mean = rows.mean(0, dtype=np.float64)
    strength = domain_shift(rows)
    assert 0.2 < strength < 0.9
    centered = rows - mean
    covariance = centered.T @ centered / len(rows)
    shrunk = (1 - SHRINKAGE) * covariance + SHRINKAGE * np.trace(covariance) / 3 * np.eye(3)
    values, vectors = np.linalg.eigh(shrunk)
    expected = (rows - strength * mean) @ vectors @ np.diag(values ** (-strength / 2)) @ vectors.T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(whiten_to_domain(rows), expected, atol=1e-5)


def test_returns_unit_rows_without_changing_the_input():
    rows = scattered(50, towards=4)
    before = rows.copy()
    whitened = whiten_to_domain(rows)
    assert whitened.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(whitened, axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(rows, before)


@pytest.mark.parametrize("towards", [1.0, 4.0])
def test_is_equivariant_to_row_order(towards):
    rows = scattered(60, towards=towards)
    order = np.random.default_rng(1).permutation(len(rows))
    np.testing.assert_allclose(whiten_to_domain(rows[order]), whiten_to_domain(rows)[order], atol=1e-5)


def test_is_equivariant_to_rotation():
    rows = scattered(60, towards=4)
    turn = np.linalg.qr(np.random.default_rng(2).normal(size=(8, 8)))[0].astype(np.float32)
    np.testing.assert_allclose(whiten_to_domain(normalize(rows @ turn)), whiten_to_domain(rows) @ turn, atol=1e-4)


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_identical_rows_are_unchanged(count):
    rows = np.tile(scattered(1), (count, 1))
    np.testing.assert_array_equal(whiten_to_domain(rows), rows)


@pytest.mark.parametrize(
    "rows",
    [
        scattered(3, dim=128, towards=30),  # far fewer rows than dimensions
        scattered(5, dim=1, towards=1),
        normalize(np.eye(3, dtype=np.float32)[[0] * 40] + np.float32(1e-6) * scattered(40, dim=3)),
        np.eye(2, dtype=np.float32)[[0, 1]] * np.float32([[1], [-1]]),
        np.repeat(np.eye(2, dtype=np.float32), [99, 1], axis=0),
    ],
    ids=["few", "one dimension", "almost equal", "two", "one outlier"],
)
def test_returns_unit_rows_for_degenerate_input(rows):
    whitened = whiten_to_domain(rows)
    np.testing.assert_allclose(np.linalg.norm(whitened, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("bad", [0.0, float("nan"), 2.0])
def test_rejects_non_unit_rows(bad):
    rows = scattered(3)
    rows[1] = bad
    with pytest.raises(ValueError, match="row 1"):
        whiten_to_domain(rows)
