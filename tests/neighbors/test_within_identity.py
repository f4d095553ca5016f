import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.vectors import normalize
from familiar.neighbors.whitening import Whitening
from familiar.neighbors.within_identity import MEASURED_SHARE, MIN_IDENTITIES, Gain, cross_validate, sharpen

DIM = 16


def draw_lit(individuals: int, photos: int, *, light: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Individuals; `light` is how much more the photos of one differ in three directions than in others."""
    rng = np.random.default_rng(seed)
    centers = normalize(rng.normal(size=(individuals, DIM)).astype(np.float32))
    rows = np.repeat(centers, photos, axis=0) + 0.1 * rng.normal(size=(individuals * photos, DIM))
    rows[:, :3] += light * rng.normal(size=(len(rows), 3))
    return normalize(rows.astype(np.float32)), np.repeat(np.arange(individuals), photos)


def slow_sharpening(whitened: np.ndarray, identities: np.ndarray) -> np.ndarray:
    """The formula of `sharpen`, individual by individual, with a matrix root by another way."""
    differences = [
        row - whitened[identities == identity].mean(axis=0, dtype=np.float64)
        for row, identity in zip(whitened.astype(np.float64), identities, strict=True)
    ]
    covariance = sum(np.outer(each, each) for each in differences) / len(whitened)
    shrunk = (1 - MEASURED_SHARE) * np.eye(DIM) + MEASURED_SHARE * covariance / (np.trace(covariance) / DIM)
    directions, values, _ = np.linalg.svd(shrunk)
    return whitened @ directions @ np.diag(values**-0.5) @ directions.T


def slow_average_precision(rows: np.ndarray, identities: np.ndarray, confirmed: np.ndarray, identity: int) -> float:
    relevant = [row for row in range(len(rows)) if confirmed[row] and identities[row] == identity]
    left_out = [row for row in range(len(rows)) if not confirmed[row] and identities[row] == identity]
    precisions: list[float] = []
    for query in relevant:
        candidates = [row for row in range(len(rows)) if row not in (query, *left_out)]
        candidates.sort(key=lambda row: -float(rows[query] @ rows[row]))
        hits = [rank for rank, row in enumerate(candidates, 1) if row in relevant]
        precisions.append(float(np.mean([number / rank for number, rank in enumerate(hits, 1)])))
    return float(np.mean(precisions))


def test_sharpening_matches_its_formula():
    rows, identities = draw_lit(6, 4, light=0.5)
    whitening = Whitening.fit(rows)
    expected = normalize(slow_sharpening(whitening.apply(rows), identities).astype(np.float32))
    np.testing.assert_allclose(sharpen(whitening, rows, identities).apply(rows), expected, atol=2e-5)


@given(st.integers(0, 999), st.floats(0, 100))
def test_no_direction_is_amplified_beyond_the_bound(seed: int, light: float):
    rows, identities = draw_lit(5, 3, light=light, seed=seed)
    whitening = Whitening.fit(rows)
    change = np.linalg.solve(whitening.matrix, sharpen(whitening, rows, identities).matrix)
    assert np.linalg.svd(change, compute_uv=False).max() <= (1 - MEASURED_SHARE) ** -0.5 * (1 + 1e-4)


def test_equal_photos_and_single_ones_teach_nothing():
    rows, identities = draw_lit(6, 1, light=0.5)
    whitening = Whitening.fit(rows)
    assert sharpen(whitening, rows, identities) is whitening
    np.testing.assert_allclose(
        sharpen(whitening, np.repeat(rows, 3, axis=0), np.repeat(identities, 3)).matrix, whitening.matrix, rtol=1e-5
    )


def test_what_photos_of_one_individual_differ_in_is_learned_and_helps_with_others():
    rows, identities = draw_lit(30, 6, light=0.5)
    gain = cross_validate(Whitening.fit(rows), rows, identities, identities < 12)
    assert gain.after > gain.before + 0.05
    assert gain.is_sure


def test_nothing_is_gained_where_all_directions_differ_alike():
    rows, identities = draw_lit(30, 6, light=0.0)
    assert not cross_validate(Whitening.fit(rows), rows, identities, identities < 12).is_sure


@pytest.mark.parametrize(("error", "is_sure"), [(0.05, True), (0.15, False)])
def test_gain_is_sure_beyond_its_standard_error(error: float, is_sure: bool):
    assert Gain(0.5, 0.6, error).is_sure == is_sure
    assert not Gain(0.5, 0.5, 0.0).is_sure


def test_precision_matches_a_loop_and_leaves_out_unconfirmed_faces_of_the_same_individual():
    rows, identities = draw_lit(8, 5, light=0.6, seed=3)
    identities[::7] = -1
    confirmed = (identities >= 0) & (np.arange(len(rows)) % 5 < 3)
    whitening = Whitening.fit(rows)
    expected = [
        slow_average_precision(whitening.apply(rows), identities, confirmed, identity)
        for identity in range(8)
        if (confirmed & (identities == identity)).sum() > 1
    ]
    assert cross_validate(whitening, rows, identities, confirmed).before == pytest.approx(np.mean(expected))


@given(st.integers(0, 999))
def test_gain_does_not_depend_on_the_order_of_the_faces(seed: int):
    rows, identities = draw_lit(9, 3, light=0.4)
    order = np.random.default_rng(seed).permutation(len(rows))
    whitening, confirmed = Whitening.fit(rows), identities < 7
    first = cross_validate(whitening, rows, identities, confirmed)
    second = cross_validate(whitening, rows[order], identities[order], confirmed[order])
    assert (second.before, second.after) == pytest.approx((first.before, first.after), abs=1e-6)


def test_rejects_fewer_than_five_individuals():
    rows, identities = draw_lit(9, 3, light=0.4)
    confirmed = identities < MIN_IDENTITIES
    confirmed[:2] = False
    with pytest.raises(ValueError, match="5 individuals with two confirmed faces are needed, got 4"):
        cross_validate(Whitening.fit(rows), rows, identities, confirmed)
