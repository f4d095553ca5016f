import dataclasses
import json
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from familiar.core.calibration import Threshold, sigmoid
from familiar.core.errors import NothingToMeasure
from familiar.metrics.calibration import (
    FIXED_THRESHOLDS,
    MIN_SLOPE,
    calibrate,
    calibrate_collections,
    calibration_error,
    fit_probability,
    reliability,
    thresholds,
)
from familiar.metrics.pairs import count_all_pairs
from familiar.metrics.roc import roc_counts
from familiar.metrics.verification import equal_error_rate, rates_at


def scores_of(distance, count_same=400, count_different=4000, seed=0):
    """Draw overlapping scores, `distance` standard deviations apart, and which are of the same identity."""
    rng = np.random.default_rng(seed)
    same = np.arange(count_same + count_different) < count_same
    scores = 0.1 * (rng.normal(size=len(same)) + distance * same)
    return scores.astype(np.float32), same


def test_thresholds_equal_closed_form_for_uniform_scores():
    # Same pairs spread evenly over [0, 1], different ones over [-0.5, 0.5].
    same, different = (np.arange(200_000) + 0.5) / 200_000, (np.arange(200_000) + 0.5) / 200_000 - 0.5
    result = thresholds(roc_counts(same, different))
    assert result.target_far == 1e-4
    assert result.high_precision.similarity == pytest.approx(0.5 - 1e-4, abs=1e-5)
    assert result.high_precision.far == pytest.approx(1e-4, rel=1e-9)
    assert result.balanced.similarity == pytest.approx(0.25, abs=1e-5)
    assert result.balanced.far == pytest.approx(0.25, abs=1e-5)
    assert result.high_recall.similarity == pytest.approx(0.05, abs=1e-5)
    assert result.high_recall.tar == pytest.approx(0.95, abs=1e-9)


@pytest.mark.parametrize(("different", "target_far"), [(50, 0.2), (20_000, 5e-4), (100_000, 1e-4), (5, 1.0)])
def test_target_far_is_lowest_rate_supported_by_pair_count(different, target_far):
    counts = roc_counts(np.linspace(0, 1, 500), np.linspace(-0.5, 0.9, different))
    assert thresholds(counts).target_far == pytest.approx(target_far)


@given(
    distance=st.floats(-2, 8),
    same=st.integers(1, 40),
    different=st.integers(1, 400),
    seed=st.integers(0, 999),
)
def test_thresholds_decrease_from_precision_to_recall(distance, same, different, seed):
    scores, truth = scores_of(distance, same, different, seed)
    counts = roc_counts(scores[truth], scores[~truth])
    result = thresholds(counts)
    points = [result.high_precision, result.balanced, result.high_recall]
    assert [p.similarity for p in points] == sorted([p.similarity for p in points], reverse=True)
    assert [(p.far, p.tar) for p in points] == [rates_at(counts, p.similarity) for p in points]
    assert result.balanced.similarity == equal_error_rate(counts)[1]
    assert result.high_precision.far <= max(result.target_far, 1e-4) + 1e-12
    assert result.high_recall.tar >= 0.95 - 1e-9 or result.high_recall.similarity == result.balanced.similarity


def test_separable_scores_give_equal_thresholds():
    scores, same = scores_of(30)
    result = thresholds(roc_counts(scores[same], scores[~same]))
    assert result.high_precision == result.balanced == result.high_recall
    assert (result.balanced.far, result.balanced.tar) == (0.0, 1.0)


@pytest.mark.parametrize("distance", [0.5, 1.0, 3.0])
def test_fit_matches_scikit_learn(distance):
    scores, same = scores_of(distance)
    slope, intercept = fit_probability(scores, same)
    # Platt's soft targets as two hard ones with weights; no penalty.
    n_same, n_different = same.sum(), (~same).sum()
    target = np.where(same, (n_same + 1) / (n_same + 2), 1 / (n_different + 2))
    weight = np.where(same, 0.5 / n_same, 0.5 / n_different)
    reference = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000, solver="newton-cholesky").fit(
        np.concatenate([scores, scores])[:, None].astype(np.float64),
        np.repeat([1, 0], len(scores)),
        np.concatenate([weight * target, weight * (1 - target)]) * len(scores),
    )
    assert slope == pytest.approx(reference.coef_[0, 0], rel=1e-6)
    assert intercept == pytest.approx(reference.intercept_[0], rel=1e-6)


def test_fit_recovers_true_curve():
    # Two normal distributions of equal spread: log odds are linear, slope distance / spread.
    scores, same = scores_of(2.0, 100_000, 100_000)
    slope, intercept = fit_probability(scores, same)
    assert slope == pytest.approx(2.0 / 0.1, rel=0.02)
    assert sigmoid(slope * 0.1 + intercept) == pytest.approx(0.5, abs=0.005)


def test_fit_weights_same_and_different_pairs_equally():
    scores, same = scores_of(2.0, 1000, 1000)
    times = np.where(same, 1, 50)
    slope, _ = fit_probability(scores, same)
    lopsided_slope, _ = fit_probability(np.repeat(scores, times), np.repeat(same, times))
    assert lopsided_slope == pytest.approx(slope, rel=0.05)  # the smoothing differs a little


def test_separable_scores_give_a_finite_curve():
    slope, intercept = fit_probability(np.repeat([0.9, 0.1], 100), np.repeat([True, False], 100))
    # Two scores, two targets: the curve passes through both.
    assert sigmoid(slope * 0.9 + intercept) == pytest.approx(101 / 102, abs=1e-6)
    assert sigmoid(slope * 0.1 + intercept) == pytest.approx(1 / 102, abs=1e-6)
    scores, same = scores_of(60)
    slope, intercept = fit_probability(scores, same)
    assert sigmoid(slope * 6.0 + intercept) > 0.99
    assert sigmoid(intercept) < 0.01


@pytest.mark.parametrize("scores", [np.full(20, 0.7), np.repeat([0.1, 0.9], 10)])
def test_uninformative_scores_give_minimum_slope(scores):
    slope, intercept = fit_probability(scores, np.repeat([True, False], 10))
    assert slope == MIN_SLOPE
    assert sigmoid(slope * scores.mean() + intercept) == pytest.approx(0.5, abs=1e-9)


@given(
    distance=st.floats(-3, 50),
    same=st.integers(1, 50),
    different=st.integers(1, 50),
    seed=st.integers(0, 999),
)
def test_probability_rises_with_similarity(distance, same, different, seed):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        slope, intercept = fit_probability(*scores_of(distance, same, different, seed))
    probabilities = sigmoid(slope * np.linspace(-1, 1, 201) + intercept)
    assert slope >= MIN_SLOPE
    assert (np.diff(probabilities) >= 0).all()
    assert ((probabilities >= 0) & (probabilities <= 1)).all()


def test_calibration_error_equals_closed_form():
    # Bin [0, .5): same .5 (one of the two), said .2. Bin [.5, 1]: said .8 and 1.0.
    probabilities = np.array([0.2, 0.2, 0.8, 1.0])
    same = np.array([True, False, True, False])
    assert calibration_error(probabilities, same, bins=2) == pytest.approx(0.5 * 0.3 + 0.5 * 0.4)


def test_calibration_error_weights_same_and_different_equally():
    # Nine different pairs for each same one, and p = .5 for all: right, as the kinds weigh the same.
    same = np.arange(100) % 10 == 0
    assert calibration_error(np.full(100, 0.5), same) == pytest.approx(0.0, abs=1e-12)
    assert calibration_error(np.where(same, 0.0, 1.0), same) == pytest.approx(1.0)
    assert calibration_error(np.where(same, 1.0, 0.0), same) == 0.0


def test_reliability_equals_closed_form():
    # Three bins, nothing in the middle one; a same pair weighs 1/4, a different one 1/6.
    probabilities = np.array([0.1, 0.3, 0.7, 1.0, 0.0])
    result = reliability(probabilities, np.array([True, False, True, False, False]), bins=3)
    low, high = 1 / 4 + 2 / 6, 1 / 4 + 1 / 6
    assert result.weight == pytest.approx([low, high])
    assert result.probability == pytest.approx([(0.1 / 4 + 0.3 / 6) / low, (0.7 / 4 + 1.0 / 6) / high])
    assert result.observed == pytest.approx([0.25 / low, 0.25 / high])


@given(
    pairs=st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=2, max_size=50),
    bins=st.integers(1, 20),
    seed=st.integers(0, 99),
)
def test_reliability_matches_slow_reference_in_any_order(pairs, bins, seed):
    probabilities, same = (np.array(column) for column in zip(*pairs, strict=True))
    if same.all() or not same.any():
        return
    weights = np.where(same, 0.5 / same.sum(), 0.5 / (~same).sum())
    which = [min(int(p * bins), bins - 1) for p in probabilities]
    expected = []
    for bin_ in sorted(set(which)):
        inside = np.array(which) == bin_
        share = weights[inside] / weights[inside].sum()
        expected.append((probabilities[inside] @ share, same[inside] @ share, weights[inside].sum()))
    order = np.random.default_rng(seed).permutation(len(same))
    result = reliability(probabilities[order], same[order], bins)
    columns = np.stack([result.probability, result.observed, result.weight], axis=1)
    assert columns == pytest.approx(np.array(expected), abs=1e-12)
    gaps = sum(weight * abs(predicted - observed) for predicted, observed, weight in expected)
    assert calibration_error(probabilities, same, bins) == pytest.approx(gaps, abs=1e-12)
    assert result.error == pytest.approx(gaps, abs=1e-12)


@pytest.mark.parametrize("wrong", [np.nan, 1.5, -0.01])
def test_rejects_invalid_probability(wrong):
    for figure in (reliability, calibration_error):
        with pytest.raises(ValueError, match="the first has index 1"):
            figure(np.array([0.2, wrong]), np.array([True, False]))


def test_fixed_thresholds_have_names_from_fitted_thresholds():
    scores, same = scores_of(2.0)
    fitted = vars(thresholds(roc_counts(scores[same], scores[~same])))
    assert list(FIXED_THRESHOLDS) == [name for name, value in fitted.items() if isinstance(value, Threshold)]
    assert list(FIXED_THRESHOLDS.values()) == sorted(FIXED_THRESHOLDS.values(), reverse=True)


def test_fit_has_lower_calibration_error_than_wrong_curve():
    scores, same = scores_of(2.0, 20_000, 20_000)
    slope, intercept = fit_probability(scores, same)
    assert calibration_error(sigmoid(slope * scores + intercept), same) < 0.01
    assert calibration_error(sigmoid(3 * slope * scores), same) > 0.1


@pytest.mark.parametrize("same", [np.ones(4, bool), np.zeros(4, bool), np.zeros(0, bool)])
def test_rejects_pairs_without_same_or_different(same):
    with pytest.raises(NothingToMeasure):
        fit_probability(np.linspace(0, 1, len(same)), same)
    with pytest.raises(NothingToMeasure):
        calibration_error(np.linspace(0, 1, len(same)), same)


def test_results_round_trip_through_json():
    scores, same = scores_of(2.0)
    stored = dataclasses.asdict(thresholds(roc_counts(scores[same], scores[~same])))
    assert json.loads(json.dumps(stored, allow_nan=False)) == stored


def unit_photos(photos, seed=0, spread=0.6):
    """Return embeddings of identities with so many photos each, and their labels."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(photos)), photos)
    rows = rng.normal(size=(len(photos), 8))[labels] + spread * rng.normal(size=(len(labels), 8))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32), labels


def test_calibration_of_identities_with_equally_many_photos_weights_all_pairs_alike():
    embeddings, labels = unit_photos([4] * 30)
    calibration, points = calibrate(embeddings, labels), thresholds(count_all_pairs(embeddings, labels))
    for name in ("high_precision", "balanced", "high_recall"):
        fitted, expected = getattr(calibration, name), getattr(points, name)
        assert fitted.similarity == expected.similarity
        assert (fitted.far, fitted.tar) == pytest.approx((expected.far, expected.tar))


@given(photos=st.lists(st.integers(1, 9), min_size=8, max_size=20).filter(lambda p: sum(n > 1 for n in p) > 4))
def test_thresholds_equal_those_of_a_slow_reference_in_which_identities_count_alike(photos):
    embeddings, labels = unit_photos(photos)
    calibration = calibrate(embeddings, labels)
    if not calibration.fitted:
        return
    scores, weights, different = [], [], []
    similarities = np.clip(embeddings @ embeddings.T, -1, 1)
    for first in range(len(labels)):
        for second in range(first + 1, len(labels)):
            if labels[first] == labels[second]:
                count = photos[labels[first]]
                scores.append(similarities[first, second])
                weights.append(2 / (count * (count - 1)))
            else:
                different.append(similarities[first, second])
    counts = roc_counts(np.array(scores), np.array(different), weights_same=np.array(weights))
    for name in ("high_precision", "balanced", "high_recall"):
        fitted = getattr(calibration, name)
        # Scores may differ by rounding, and one pair may be as near to the threshold as that.
        _, fewest = rates_at(counts, fitted.similarity + 1e-6)
        far, most = rates_at(counts, fitted.similarity - 1e-6)
        assert fewest - 1e-6 <= fitted.tar <= most + 1e-6
        assert fitted.far == pytest.approx(far, abs=0.01)  # all pairs are counted on a grid


def test_an_identity_with_very_many_equal_photos_does_not_raise_the_threshold():
    embeddings, labels = unit_photos([3] * 40)
    crowded = np.concatenate([embeddings, np.repeat(embeddings[:1], 300, axis=0)])
    crowded_labels = np.concatenate([labels, np.zeros(300, labels.dtype)])
    before, after = calibrate(embeddings, labels), calibrate(crowded, crowded_labels)
    assert after.balanced.similarity == pytest.approx(before.balanced.similarity, abs=0.03)
    assert after.slope == pytest.approx(before.slope, rel=0.15)
    unweighted = thresholds(count_all_pairs(crowded, crowded_labels))
    assert unweighted.balanced.similarity > before.balanced.similarity + 0.1


def test_calibration_of_one_collection_is_its_calibration():
    embeddings, labels = unit_photos([3, 5, 2, 7] * 3)
    single, pooled = calibrate(embeddings, labels), calibrate_collections([(embeddings, labels)])
    assert pooled.target_far == single.target_far
    assert (pooled.pairs_same, pooled.pairs_different) == (single.pairs_same, single.pairs_different)
    assert (pooled.slope, pooled.intercept) == pytest.approx((single.slope, single.intercept), rel=1e-6)
    for name in ("high_precision", "balanced", "high_recall"):
        assert getattr(pooled, name).similarity == pytest.approx(getattr(single, name).similarity, abs=2e-3)


def test_collections_count_alike_and_are_not_compared():
    small, small_labels = unit_photos([4] * 10)
    large, large_labels = unit_photos([4] * 40)
    shifted = large + 0.5 * large.mean(axis=0) + np.float32(0.05)  # all more similar to each other
    shifted = (shifted / np.linalg.norm(shifted, axis=1, keepdims=True)).astype(np.float32)
    both = calibrate_collections([(small, small_labels), (shifted, large_labels)])
    threshold = both.balanced.similarity

    def rates(embeddings, labels):
        similarities = np.clip(embeddings @ embeddings.T, -1, 1)
        first, second = np.triu_indices(len(labels), 1)
        accepted, same = similarities[first, second] >= threshold, labels[first] == labels[second]
        return accepted[~same].mean(), accepted[same].mean()

    parts = np.array([rates(small, small_labels), rates(shifted, large_labels)])
    assert (both.balanced.far, both.balanced.tar) == pytest.approx(tuple(parts.mean(axis=0)), abs=5e-3)
    pairs_of_small = 40 * 39 // 2 - 10 * 6
    assert both.target_far == pytest.approx(10 / pairs_of_small)
    strict = both.high_precision.similarity
    for embeddings, labels in ((small, small_labels), (shifted, large_labels)):
        similarities, others = np.clip(embeddings @ embeddings.T, -1, 1), labels[:, None] != labels
        assert (similarities[others] >= strict).mean() <= both.target_far + 1e-9, "the promise holds on each"
    assert both.pairs_different == pairs_of_small + 160 * 159 // 2 - 40 * 6


@pytest.mark.parametrize("photos", [[], [[2, 2]], [[4] * 10, [1] * 30]])
def test_collections_without_pairs_are_rejected(photos):
    with pytest.raises(NothingToMeasure, match="each collection needs 10 pairs"):
        calibrate_collections([unit_photos(counts) for counts in photos])


def test_weights_count_like_repeated_pairs():
    scores, same = scores_of(2.0, 300, 300)
    times = np.random.default_rng(1).integers(1, 4, len(scores))
    slope, intercept = fit_probability(scores, same, times.astype(float))
    repeated_slope, _ = fit_probability(np.repeat(scores, times), np.repeat(same, times))
    assert slope == pytest.approx(repeated_slope, rel=0.02)  # the smoothing differs a little
    probabilities = sigmoid(slope * scores + intercept)
    assert calibration_error(probabilities, same, weights=times.astype(float)) == pytest.approx(
        calibration_error(np.repeat(probabilities, times), np.repeat(same, times))
    )
