"""Thresholds and probability of similarities, fitted on validation pairs and stored in the bundle."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int

from familiar.core.calibration import HIGH_PRECISION_FAR, Calibration, Threshold, sigmoid
from familiar.core.errors import NothingToMeasure
from familiar.metrics.pairs import (
    count_all_pairs,
    pair_similarities,
    same_pairs_of_each_identity,
    sample_pairs,
)
from familiar.metrics.roc import RocCounts, pair_totals, roc_counts
from familiar.metrics.validation import check_columns, check_rows
from familiar.metrics.verification import (
    MIN_FALSE_ACCEPTS,
    equal_error_rate,
    measured_threshold,
    similarity_at_far,
    threshold_above,
)

HIGH_RECALL_TAR = 0.95
COLLECTIONS_FAR = 3e-3  # collections differ too much from each other for promises of lower rates
# Similarities of the article on the mobile pet embedder, section 6.3. A threshold does not transfer between models, so
# these are used only where a bundle has no thresholds and there are no validation pairs to fit them on.
FIXED_THRESHOLDS = {"high_precision": 0.65, "balanced": 0.55, "high_recall": 0.40}
MIN_SLOPE = 1e-3  # nearly flat, used if the fitted curve would fall
MIN_CALIBRATION_PAIRS = 10  # same, and different: fewer say nothing about similarities
MAX_CALIBRATION_PHOTOS = 50  # of an identity, in pairs of the same one
CURVE_PAIRS = 100_000  # enough for two parameters
MAX_COLLECTION_PAIRS = 1_000_000  # of one collection, in `calibrate_collections`
_MIN_SPREAD = 1e-7  # float32 similarities that differ less are equal
_NEWTON_STEPS = 100


@dataclass(frozen=True, eq=False)
class Reliability:
    """The points of a reliability diagram: the nonempty bins by rising probability.

    `probability`: mean predicted probability of the bin's pairs; `observed`: their share of same pairs; `weight`: the
    bin's share of all pairs. All in [0, 1]; the weights sum to 1.
    """

    probability: Float64[np.ndarray, " b"]
    observed: Float64[np.ndarray, " b"]
    weight: Float64[np.ndarray, " b"]

    @property
    def error(self) -> float:
        """Expected calibration error in [0, 1]: mean gap of predicted and observed (Naeini et al. 2015)."""
        return float(self.weight @ np.abs(self.observed - self.probability))


def calibrate(embeddings: Float32[np.ndarray, "n d"], labels: Int[np.ndarray, " n"]) -> Calibration:
    """Fit thresholds and the probability curve to pairs of embeddings.

    Each identity counts as much as any other, since the pairs of a few with very many photos, often of one occasion,
    would make the thresholds too high for the rest. All different pairs count alike.

    Args:
        embeddings: unit rows.
        labels: the identity of each row.

    Returns:
        The calibration. With fewer than `MIN_CALIBRATION_PAIRS` pairs of one identity, or of different ones: default
        thresholds and no curve.
    """
    check_rows(embeddings, labels)
    same, different = pair_totals(labels)
    if min(same, different) < MIN_CALIBRATION_PAIRS:
        return uncalibrated(same, different)
    same_pairs, weights_same = same_pairs_of_each_identity(labels, MAX_CALIBRATION_PHOTOS)
    scores_same = pair_similarities(embeddings, same_pairs)
    points = thresholds(_with_same_pairs(count_all_pairs(embeddings, labels), scores_same, weights_same))
    sampled = sample_pairs(labels, CURVE_PAIRS, seed=0)
    scores_different = pair_similarities(embeddings, sampled)[~sampled.same]
    return _calibration(
        points, _WeightedScores(scores_same, weights_same), _WeightedScores.equal(scores_different), (same, different)
    )


def uncalibrated(same: int = 0, different: int = 0) -> Calibration:
    """Return default thresholds, without a curve.

    Args:
        same: number of pairs of the same individual, which were too few.
        different: number of pairs of different ones, likewise.
    """
    high_precision, balanced, high_recall = (Threshold(fixed, None, None) for fixed in FIXED_THRESHOLDS.values())
    return Calibration(
        high_precision,
        balanced,
        high_recall,
        slope=None,
        intercept=None,
        calibration_error=None,
        pairs_same=same,
        pairs_different=different,
    )


def calibrate_collections(
    collections: Sequence[tuple[Float32[np.ndarray, "_ d"], Int[np.ndarray, " _"]]],
) -> Calibration:
    """Fit one calibration to several collections, of which each counts as much as any other.

    Only photos of the same collection make a pair. What a threshold promises on one collection it does not keep on the
    next, so `high_precision` is one that keeps its promise on every one of them: the highest of those that each would
    have. The other thresholds and the curve are fitted to all pairs.

    Args:
        collections: of each, the embeddings (unit rows) and the identity of each row.

    Returns:
        The calibration; `target_far` is .003, or the lowest false accept rate that the smallest collection's pairs
        support. The rates of the thresholds are means over the collections.

    Raises:
        NothingToMeasure: a collection has fewer than `MIN_CALIBRATION_PAIRS` pairs of one identity, or of different
            ones.
    """
    for embeddings, labels in collections:
        check_rows(embeddings, labels)
    totals = np.array([pair_totals(labels) for _, labels in collections]).reshape(-1, 2)
    if not len(totals) or totals.min() < MIN_CALIBRATION_PAIRS:
        raise NothingToMeasure(
            f"calibration: each collection needs {MIN_CALIBRATION_PAIRS} pairs of the same identity, and as many of "
            "different ones"
        )
    same_scores: list[_WeightedScores] = []
    different_scores: list[_WeightedScores] = []
    sampled_scores: list[_WeightedScores] = []
    for embeddings, labels in collections:
        pairs, weights = same_pairs_of_each_identity(labels, MAX_CALIBRATION_PHOTOS)
        same_scores.append(_WeightedScores(pair_similarities(embeddings, pairs), weights))
        natural = sample_pairs(labels, MAX_COLLECTION_PAIRS, seed=0, balanced=False)
        different_scores.append(_WeightedScores.equal(pair_similarities(embeddings, natural)[~natural.same]))
        balanced = sample_pairs(labels, CURVE_PAIRS, seed=0)
        sampled_scores.append(_WeightedScores.equal(pair_similarities(embeddings, balanced)[~balanced.same]))
    # The weights sum to the pairs of the smallest collection, which limits the rates that can be measured.
    same, different = (
        _WeightedScores.with_equal_sums(scores, float(total))
        for scores, total in zip((same_scores, different_scores), totals.min(axis=0), strict=True)
    )
    counts = roc_counts(same.scores, different.scores, same.weights, different.weights)
    target_far = min(1.0, max(COLLECTIONS_FAR, MIN_FALSE_ACCEPTS / float(totals[:, 1].min())))
    highest = max(
        similarity_at_far(roc_counts(left.scores, right.scores), target_far)
        for left, right in zip(same_scores, different_scores, strict=True)
    )
    points = thresholds(counts)
    points = replace(
        points,
        high_precision=measured_threshold(counts, max(points.balanced.similarity, highest)),
        target_far=target_far,
    )
    sampled = _WeightedScores.with_equal_sums(sampled_scores, 1.0)
    return _calibration(points, same, sampled, (int(totals[:, 0].sum()), int(totals[:, 1].sum())))


def thresholds(counts: RocCounts) -> Calibration:
    """Choose the thresholds from counts of validation pairs; the result has no curve.

    balanced: FAR equals the share of same pairs rejected. high_precision: FAR of `target_far`, but never below
    balanced. high_recall: the highest threshold that accepts 95 % of the same pairs, but never above balanced, where a
    good model accepts more of them anyway.
    """
    target_far = min(1.0, max(HIGH_PRECISION_FAR, MIN_FALSE_ACCEPTS / counts.different))
    high_recall_count = int(np.count_nonzero(counts.accepted_same >= HIGH_RECALL_TAR * counts.same - 1e-9))
    balanced = equal_error_rate(counts)[1]
    high_precision = max(balanced, similarity_at_far(counts, target_far))
    high_recall = min(balanced, threshold_above(counts, high_recall_count - 1))
    return replace(
        uncalibrated(round(counts.same), round(counts.different)),
        high_precision=measured_threshold(counts, high_precision),
        balanced=measured_threshold(counts, balanced),
        high_recall=measured_threshold(counts, high_recall),
        target_far=target_far,
    )


def fit_probability(
    scores: Float[np.ndarray, " p"], same: Bool[np.ndarray, " p"], weights: Float[np.ndarray, " p"] | None = None
) -> tuple[float, float]:
    """Fit a logistic regression (Platt 1999) by Newton's method.

    Same and different pairs have equal total weight. Platt's targets, (N+1)/(N+2) and 1/(N+2) in place of 1 and 0,
    keep the solution finite if the pairs are separable. A slope below `MIN_SLOPE` is raised to it.

    Args:
        scores: similarity of each pair.
        same: whether its photos show the same identity.
        weights: of each pair among those of its kind, not negative; None: all alike.

    Returns:
        Slope and intercept of the curve of a `Calibration`.

    Raises:
        NothingToMeasure: there are no same pairs or no different ones.
    """
    scores = scores.astype(np.float64)
    weights = _equal_class_weights(same, weights)
    count_same = int(same.sum())
    targets = np.where(same, (count_same + 1) / (count_same + 2), 1 / (len(same) - count_same + 2))
    center = float(weights @ scores)
    spread = float(np.sqrt(weights @ (scores - center) ** 2))
    slope, intercept = 0.0, 0.0
    if spread > _MIN_SPREAD:
        slope, intercept = _logistic((scores - center) / spread, targets, weights)
        slope /= spread
    if slope < MIN_SLOPE:
        share = float(weights @ targets)
        slope, intercept = MIN_SLOPE, float(np.log(share / (1 - share)))
    return slope, intercept - slope * center


def calibration_error(
    probabilities: Float[np.ndarray, " p"],
    same: Bool[np.ndarray, " p"],
    bins: int = 15,
    *,
    weights: Float[np.ndarray, " p"] | None = None,
) -> float:
    """Compute the expected calibration error (Naeini et al. 2015): the mean gap of predicted and observed probability.

    Args:
        probabilities: predicted for each pair, "p", in [0, 1].
        same: whether the pair's photos show the same identity, "p"; same and different pairs have equal total weight.
        bins: number of equally wide bins of [0, 1] in which predictions are compared with the share of same pairs.
        weights: of each pair among those of its kind, "p", not negative; None: all alike.

    Returns:
        The error in [0, 1]; 0 if each bin's mean prediction equals its share of same pairs.

    Raises:
        NothingToMeasure: there are no same pairs or no different ones.
        ValueError: a probability is outside [0, 1].
    """
    return reliability(probabilities, same, bins, weights=weights).error


def reliability(
    probabilities: Float[np.ndarray, " p"],
    same: Bool[np.ndarray, " p"],
    bins: int = 15,
    *,
    weights: Float[np.ndarray, " p"] | None = None,
) -> Reliability:
    """Compare predicted and observed probability over equal bins of [0, 1].

    Args:
        probabilities: predicted for each pair.
        same: whether its photos show the same identity; same and different pairs have equal total weight.
        bins: their number.
        weights: of each pair among those of its kind, not negative; None: all alike.

    Raises:
        NothingToMeasure: there are no same pairs or no different ones.
        ValueError: a probability is outside [0, 1].
    """
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    check_columns(floats={"probabilities": np.nan_to_num(probabilities, nan=-1.0)}, flags={"same": same})
    if weights is not None:
        check_columns(floats={"weights": weights}, flags={"same": same})
        if weights.min(initial=0.0) < 0:
            raise ValueError("weights must not be negative")
    weights = _equal_class_weights(same, weights)
    probabilities = probabilities.astype(np.float64)
    bad = np.flatnonzero(~((probabilities >= 0) & (probabilities <= 1)))
    if bad.size:
        raise ValueError(f"{bad.size} probabilities are not in [0, 1]; the first has index {bad[0]}")
    bin_index = np.minimum((probabilities * bins).astype(np.int64), bins - 1)
    weight = np.bincount(bin_index, weights, bins)
    filled = weight > 0
    predicted = np.bincount(bin_index, weights * probabilities, bins)[filled] / weight[filled]
    observed = np.bincount(bin_index, weights * same, bins)[filled] / weight[filled]
    return Reliability(predicted, observed, weight[filled])


@dataclass(frozen=True, eq=False)
class _WeightedScores:
    """Similarities of pairs, and how much each counts."""

    scores: Float32[np.ndarray, " p"]
    weights: Float64[np.ndarray, " p"]

    @staticmethod
    def equal(scores: Float32[np.ndarray, " p"]) -> "_WeightedScores":
        return _WeightedScores(scores, np.ones(len(scores)))

    @staticmethod
    def with_equal_sums(parts: Sequence["_WeightedScores"], total: float) -> "_WeightedScores":
        """Concatenate parts, the weights of each scaled to the same sum, and all to `total`."""
        weights = [part.weights * (total / len(parts) / part.weights.sum()) for part in parts]
        return _WeightedScores(np.concatenate([part.scores for part in parts]), np.concatenate(weights))


def _calibration(
    points: Calibration, same: _WeightedScores, different: _WeightedScores, totals: tuple[int, int]
) -> Calibration:
    scores = np.concatenate([same.scores, different.scores])
    is_same = np.arange(len(scores)) < len(same.scores)
    weights = np.concatenate([same.weights, different.weights])
    slope, intercept = fit_probability(scores, is_same, weights)
    probabilities = sigmoid(slope * scores.astype(np.float64) + intercept)
    return replace(
        points,
        slope=slope,
        intercept=intercept,
        calibration_error=calibration_error(probabilities, is_same, weights=weights),
        pairs_same=totals[0],
        pairs_different=totals[1],
    )


def _with_same_pairs(
    counts: RocCounts, scores: Float32[np.ndarray, " p"], weights: Float64[np.ndarray, " p"]
) -> RocCounts:
    """Return counts with other weights of the same pairs; those not listed there count at the next score."""
    index = np.minimum(np.searchsorted(counts.scores, scores), len(counts.scores) - 1)
    return replace(counts, same_at=np.bincount(index, weights, len(counts.scores)))


def _equal_class_weights(
    same: Bool[np.ndarray, " p"], weights: Float[np.ndarray, " p"] | None = None
) -> Float64[np.ndarray, " p"]:
    """Weight the pairs: the same ones sum to a half, the different ones to the other half."""
    if int(same.sum()) in (0, len(same)):
        raise NothingToMeasure("calibration: needs pairs of the same and of different identities")
    shares = np.ones(len(same)) if weights is None else weights.astype(np.float64)
    shares[same] *= 0.5 / shares[same].sum()
    shares[~same] *= 0.5 / shares[~same].sum()
    return shares


def _logistic(
    x: Float64[np.ndarray, " p"], targets: Float64[np.ndarray, " p"], weights: Float64[np.ndarray, " p"]
) -> tuple[float, float]:
    """Return the (slope, intercept) of least weighted cross-entropy.

    The problem is convex, so Newton's method with step halving converges.
    """

    def loss(parameters: Float64[np.ndarray, " 2"]) -> float:
        z = parameters[0] * x + parameters[1]
        return float(weights @ (np.logaddexp(0, z) - targets * z))

    design = np.stack([x, np.ones_like(x)])
    parameters = np.zeros(2)
    for _ in range(_NEWTON_STEPS):
        predicted = sigmoid(parameters @ design)
        gradient = design @ (weights * (predicted - targets))
        hessian = (design * (weights * predicted * (1 - predicted))) @ design.T
        step = np.linalg.solve(hessian, gradient)
        while loss(parameters - step) > loss(parameters) + 1e-12:
            step = step / 2
        parameters = parameters - step
        if np.abs(step).max() < 1e-12:
            break
    return float(parameters[0]), float(parameters[1])
