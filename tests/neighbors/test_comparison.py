import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.calibration import HIGH_PRECISION_FAR, Calibration, Threshold
from familiar.core.vectors import normalize
from familiar.metrics.clustering import contingency
from familiar.neighbors import clustering, comparison
from familiar.neighbors.comparison import (
    MIN_FACES,
    SATURATION_FACES,
    SPREADS_PER_LOG,
    Comparison,
    cluster_album,
    clustering_threshold,
    count_individuals,
    estimate_threshold,
    has_many_groups,
)
from familiar.neighbors.whitening import MAX_MEASURED, PRIOR_FACES, Whitening, evenly_spaced

DIM = 48


def draw_album(individuals: int, photos: int, *, noise: float = 0.8, shared: float = 0.0, seed: int = 0) -> np.ndarray:
    """Individuals around the sphere, in order; `shared` is the length of what all photos have in common."""
    rng = np.random.default_rng(seed)
    centers = normalize(rng.normal(size=(individuals, DIM)).astype(np.float32))
    rows = np.repeat(centers, photos, axis=0) + noise / math.sqrt(DIM) * rng.normal(size=(individuals * photos, DIM))
    rows[:, 0] += shared
    return normalize(rows.astype(np.float32))


def f_scores(truth: np.ndarray, clusters: np.ndarray) -> float:
    table = contingency(truth, clusters)
    return (table.pairwise().f + table.bcubed().f) / 2


def slow_whitening(rows: np.ndarray) -> np.ndarray:
    """The formula, with a matrix square root by another way."""
    centered = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
    share = min(len(rows) / (len(rows) + PRIOR_FACES), MAX_MEASURED)
    covariance = centered.T @ centered / len(rows)
    shrunk = share * covariance + (1 - share) * np.trace(covariance) / rows.shape[1] * np.eye(rows.shape[1])
    directions, values, _ = np.linalg.svd(shrunk)
    whitened = centered @ directions @ np.diag(values**-0.5) @ directions.T
    return whitened / np.linalg.norm(whitened, axis=1, keepdims=True)


@pytest.mark.parametrize("count", [10, 200, 3000])
def test_whitening_matches_its_formula(count: int):
    rows = draw_album(count // 10, 10, shared=0.7)
    np.testing.assert_allclose(Whitening.fit(rows).apply(rows), slow_whitening(rows), atol=2e-5)


def test_strong_directions_of_a_large_album_are_damped_and_a_small_one_is_nearly_unchanged():
    rng = np.random.default_rng(0)
    scales = np.r_[6.0, 4.0, np.ones(DIM - 2)]
    large, small = (normalize((rng.normal(size=(n, DIM)) * scales).astype(np.float32)) for n in (4000, 24))
    strongest = [np.linalg.eigvalsh(np.cov(rows.T))[-1] for rows in (large, Whitening.fit(large).apply(large))]
    assert strongest[1] < 0.6 * strongest[0]
    centered = normalize(small - small.mean(axis=0))
    assert np.abs(Whitening.fit(small).apply(small) - centered).max() < 0.05


def test_equal_rows_and_rows_at_the_mean_stay_finite():
    same = np.repeat(normalize(np.ones((1, DIM), np.float32)), 5, axis=0)
    np.testing.assert_array_equal(Whitening.fit(same).apply(same), same)
    opposite = np.concatenate([same[:1], -same[:1]])
    whitened = Whitening.fit(opposite).apply(opposite)
    np.testing.assert_allclose(whitened, opposite, atol=1e-6)


@given(st.integers(2, 40), st.integers(0, 2**16))
def test_whitening_keeps_unit_length_and_does_not_depend_on_what_else_is_whitened(count: int, seed: int):
    rows = draw_album(count, 1, seed=seed)
    whitening = Whitening.fit(rows)
    whitened = whitening.apply(rows)
    np.testing.assert_allclose(np.linalg.norm(whitened, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(whitening.apply(rows[:1]), whitened[:1], atol=1e-6)


def test_threshold_matches_its_formula_for_strangers():
    """All pairs show two individuals: similarities are normal, with a spread of 1 / sqrt(d) and a steep tail."""
    rows = draw_album(SATURATION_FACES, 1)
    estimate = estimate_threshold(rows, len(rows))
    assert estimate is not None
    expected = math.tanh(SPREADS_PER_LOG * math.log(SATURATION_FACES) / math.sqrt(DIM))
    assert estimate.threshold == pytest.approx(expected, abs=0.02)
    assert estimate.false_match_rate < 1e-3
    assert estimate.faces == SATURATION_FACES
    assert 0 < estimate.uncertainty < 0.3


def test_a_tail_that_falls_slowly_raises_the_threshold(monkeypatch: pytest.MonkeyPatch):
    """Of breeds, in which nobody is taken for another: counted by a loop over all pairs."""
    rng = np.random.default_rng(1)
    breeds = normalize(rng.normal(size=(40, DIM)).astype(np.float32))[rng.integers(0, 40, 400)]
    rows = normalize(rng.exponential(size=(400, 1)).astype(np.float32) * breeds + draw_album(400, 1))
    monkeypatch.setattr(comparison.Linkage, "clusters_at", lambda *_: [np.arange(400)])
    estimate = estimate_threshold(rows, len(rows))
    assert estimate is not None
    similarities = sorted(math.atanh(float(rows[i] @ rows[j])) for i in range(400) for j in range(i))
    median = (similarities[39899] + similarities[39900]) / 2
    spread = median - similarities[round(0.158655 * 79799)]
    near, far = (sum(each >= median + limit * spread for each in similarities) for limit in (2, 4))
    decay = max(math.log((near + 20) / (far + 20 * math.exp(-2.1))) / 2, 0.55)
    spreads = 2 + math.log(400 * near / 79800) / decay
    assert spreads > SPREADS_PER_LOG * math.log(400) + 0.5
    assert estimate.threshold == pytest.approx(math.tanh(median + spreads * spread), abs=1e-3)
    assert estimate.false_match_rate == pytest.approx(1 / 400, rel=1e-6), "of a face, one stranger"


def test_measuring_an_album_searches_for_its_neighbors_once(monkeypatch: pytest.MonkeyPatch):
    searched: list[np.ndarray] = []
    nearest = clustering.nearest_rows

    def record(rows: np.ndarray, *arguments: Any) -> Any:
        searched.append(rows)
        return nearest(rows, *arguments)

    monkeypatch.setattr(clustering, "nearest_rows", record)
    assert estimate_threshold(draw_album(30, 6), 180) is not None
    assert len(searched) == 1


def test_threshold_rises_with_the_number_of_faces_until_saturation():
    rows = draw_album(100, 1)
    estimates = [estimate_threshold(rows, faces) for faces in (50, 300, SATURATION_FACES, 10**6)]
    thresholds = [estimate.threshold for estimate in estimates if estimate is not None]
    assert len(thresholds) == 4
    assert thresholds[0] < thresholds[1] < thresholds[2] == thresholds[3]


@given(st.integers(2, 12), st.integers(1, 6), st.floats(0, 3), st.integers(0, 2**16))
def test_threshold_is_a_similarity_whatever_the_album(individuals: int, photos: int, noise: float, seed: int):
    rows = draw_album(individuals, photos, noise=noise, seed=seed)
    estimate = estimate_threshold(rows, len(rows))
    if estimate is None:
        return
    assert -1 <= estimate.threshold <= 1
    assert 0 <= estimate.false_match_rate <= 1
    assert estimate.uncertainty >= 0


def test_embeddings_of_few_directions_tell_too_little():
    """Of colors, for example: strangers are often as similar as photos of one individual."""
    rows = normalize(np.abs(np.random.default_rng(0).normal(size=(100, 3))).astype(np.float32))
    assert count_individuals(clustering.cluster(rows, 0.99)) > 4
    assert Comparison.measure(rows, Calibration.fixed(0.99)).estimate is None
    np.testing.assert_array_equal(cluster_album(rows, 0.99), clustering.cluster(rows, 0.99))


def is_measured(rows: np.ndarray, threshold: float = 0.5) -> bool:
    return Comparison.measure(rows, Calibration.fixed(threshold)).estimate is not None


def test_needs_enough_faces_of_enough_individuals():
    assert is_measured(draw_album(6, 4))
    assert not is_measured(draw_album(6, 4)[: MIN_FACES - 1])
    assert not is_measured(draw_album(2, 30))
    unequal = np.concatenate([draw_album(1, 60), draw_album(8, 1, seed=1)])
    assert not is_measured(unequal), "one individual has nearly all photos"


def test_a_species_that_the_model_does_not_know_is_measured_but_one_individual_is_not():
    """The model takes all for one individual: twenty who share much, or one."""
    many, single = draw_album(20, 6, shared=3.0), draw_album(1, 120)
    for rows in (many, single):
        assert count_individuals(clustering.cluster(rows, 0.3)) < 1.1
    assert is_measured(many, 0.3)
    assert not is_measured(single, 0.3)


def test_individuals_count_by_their_shares():
    assert count_individuals(np.array([0, 0, 1, 1])) == 2
    assert count_individuals(np.zeros(5, np.int64)) == 1
    assert count_individuals(np.array([0] * 98 + [1, 2])) < 1.05


def test_many_groups_are_twelve_of_three_with_half_of_the_faces():
    twelve = np.repeat(np.arange(12), 3)
    assert has_many_groups(twelve)
    assert not has_many_groups(twelve[:-1])
    assert has_many_groups(np.concatenate([twelve, 12 + np.arange(36)]))
    assert not has_many_groups(np.concatenate([twelve, 12 + np.arange(37)]))


def test_album_of_few_individuals_is_clustered_at_the_models_threshold():
    rows = draw_album(2, 20)
    np.testing.assert_array_equal(cluster_album(rows, 0.3), clustering.cluster(rows, 0.3))


@pytest.mark.parametrize("shared", [0.0, 2.0])
@pytest.mark.parametrize(("individuals", "photos"), [(8, 10), (30, 6), (120, 2)])
def test_finds_individuals_at_a_threshold_of_the_model_that_fits_or_not(individuals: int, photos: int, shared: float):
    """What all photos share makes all of them similar, and moves the threshold that would fit."""
    rows = draw_album(individuals, photos, shared=shared)
    truth = np.repeat(np.arange(individuals), photos)
    assert f_scores(truth, cluster_album(rows, 0.95)) > 0.9


def test_rejects_rows_that_are_no_unit_vectors():
    with pytest.raises(ValueError, match="unit"):
        cluster_album(np.ones((30, 4), np.float32), 0.5)


@given(st.integers(1, 5000), st.integers(1, 300))
def test_evenly_spaced_rows_are_distinct_and_reach_both_ends(count: int, limit: int):
    rows = evenly_spaced(count, limit)
    assert len(rows) == min(count, limit)
    assert rows[0] == 0
    assert (np.diff(rows) > 0).all()
    assert rows[-1] == (count - 1 if limit > 1 else 0)


CALIBRATED = Calibration(
    Threshold(0.6, 1e-4, 0.5), Threshold(0.4, 0.05, 0.95), Threshold(0.3, 0.1, 0.97), 20.0, -9.0, 0.01, 50, 10**6
)


@pytest.mark.parametrize(
    ("target_far", "faces", "expected"),
    [
        (HIGH_PRECISION_FAR, 10**6, (math.log(500) + 9) / 20),
        (HIGH_PRECISION_FAR, 20, (math.log(20) + 9) / 20),
        (1e-3, 10**6, 0.6),  # calibrated on too few pairs to know what lies above
        (1e-3, 20, (math.log(20) + 9) / 20),
    ],
)
def test_threshold_of_the_model(target_far: float, faces: int, expected: float):
    calibration = replace(CALIBRATED, target_far=target_far)
    assert clustering_threshold(calibration, faces) == pytest.approx(expected)
    compared = Comparison(calibration, faces)
    assert compared.threshold == pytest.approx(expected)
    assert not compared.is_guess
    assert "as the model was calibrated" in compared.sentence


def test_threshold_of_the_model_is_never_below_its_balanced_one():
    assert clustering_threshold(replace(CALIBRATED, intercept=-2.0, target_far=HIGH_PRECISION_FAR), 10) == 0.4


def test_a_threshold_that_nobody_measured_is_a_guess():
    compared = Comparison(Calibration.fixed(0.65), 3)
    assert compared.is_guess
    assert compared.threshold == 0.65
    assert "a guess" in compared.sentence
    assert compared.odds(np.array([0.9]), 3) is None


def test_odds_match_their_formula():
    odds = Comparison(CALIBRATED, 100).odds(np.array([0.3, 0.5, 0.9]), 4)
    assert odds is not None
    np.testing.assert_allclose(odds, [math.exp(20 * each - 9) / 4 for each in (0.3, 0.5, 0.9)])


def test_measured_album_says_how_it_is_compared():
    rows = draw_album(20, 6)
    compared = Comparison.measure(rows, CALIBRATED)
    assert compared.whitening is not None
    assert compared.estimate is not None
    assert compared.threshold == compared.estimate.threshold
    assert f"{compared.threshold:.3f} ± {compared.uncertainty:.3f}" in compared.sentence
    np.testing.assert_array_equal(compared.apply(rows), compared.whitening.apply(rows))
