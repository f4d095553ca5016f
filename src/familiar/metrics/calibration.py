"""From a similarity to a decision and a probability, fitted on validation pairs and kept with the model."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int

from familiar.core.calibration import Calibration, Threshold
from familiar.core.errors import NothingToMeasure
from familiar.metrics.pairs import all_counts, pair_similarities, sample_pairs
from familiar.metrics.roc import RocCounts, pair_totals
from familiar.metrics.verification import (
    MIN_FALSE_ACCEPTS,
    OperatingPoint,
    equal_error_rate,
    point_at_far,
    rates_at,
    threshold_above,
)

HIGH_PRECISION_FAR = 1e-4
HIGH_RECALL_TAR = 0.95
# Similarities of seed 004, section 6.3. A threshold means nothing across models, so these serve only where
# nothing is known of a model: no bundle's own thresholds, no validation pairs to fit any on.
FIXED_THRESHOLDS = {"high_precision": 0.65, "balanced": 0.55, "high_recall": 0.40}
MIN_SLOPE = 1e-3  # a curve all but flat, where the data would have it fall
MIN_CALIBRATION_PAIRS = 10  # of each kind: fewer say nothing of what a similarity means
CURVE_PAIRS = 100_000  # a curve of two numbers needs no more
_MIN_SPREAD = 1e-7  # float32 similarities that differ less are one and the same
_NEWTON_STEPS = 100


@dataclass(frozen=True)
class Thresholds:
    """Three operating points, similarities falling from the first to the last.

    `target_far` is what `high_precision` was held to: 1e-4, or the lowest rate the data supports (ten
    false accepts).
    """

    high_precision: OperatingPoint
    balanced: OperatingPoint
    high_recall: OperatingPoint
    target_far: float


@dataclass(frozen=True)
class ProbabilityCurve:
    """Probability of the same identity, if both kinds of pairs were equally frequent: rises with similarity."""

    slope: float
    intercept: float

    def probability(self, similarity: float) -> float:
        """In [0, 1]."""
        return float(self.probabilities(np.array([similarity]))[0])

    def probabilities(self, similarities: Float[np.ndarray, " p"]) -> Float64[np.ndarray, " p"]:
        """In [0, 1]."""
        return _sigmoid(self.slope * similarities.astype(np.float64) + self.intercept)


@dataclass(frozen=True, eq=False)
class Reliability:
    """Bins that hold pairs, by rising probability: the points of a reliability diagram.

    `probability`: mean of what was said of the bin's pairs; `observed`: share of them of the same identity;
    `weight`: the bin's share of all pairs. All in [0, 1], the weights together 1.
    """

    probability: Float64[np.ndarray, " b"]
    observed: Float64[np.ndarray, " b"]
    weight: Float64[np.ndarray, " b"]

    @property
    def error(self) -> float:
        """Expected calibration error in [0, 1]: mean gap of said and observed (Naeini et al. 2015)."""
        return float(self.weight @ np.abs(self.observed - self.probability))


def calibrate(embeddings: Float32[np.ndarray, "n d"], labels: Int[np.ndarray, " n"]) -> Calibration:
    """What similarities mean, fitted to all pairs of these photos; fixed thresholds where those are too few."""
    same, different = pair_totals(labels)
    if min(same, different) < MIN_CALIBRATION_PAIRS:
        return Calibration(
            high_precision=Threshold(FIXED_THRESHOLDS["high_precision"], None, None),
            balanced=Threshold(FIXED_THRESHOLDS["balanced"], None, None),
            high_recall=Threshold(FIXED_THRESHOLDS["high_recall"], None, None),
            slope=None,
            intercept=None,
            calibration_error=None,
            pairs_same=same,
            pairs_different=different,
        )
    points = thresholds(all_counts(embeddings, labels))
    pairs = sample_pairs(labels, CURVE_PAIRS, seed=0)
    scores = pair_similarities(embeddings, pairs)
    curve = fit_probability(scores, pairs.same)
    return Calibration(
        high_precision=_kept(points.high_precision),
        balanced=_kept(points.balanced),
        high_recall=_kept(points.high_recall),
        slope=curve.slope,
        intercept=curve.intercept,
        calibration_error=calibration_error(curve.probabilities(scores), pairs.same),
        pairs_same=same,
        pairs_different=different,
        target_far=points.target_far,
    )


def thresholds(counts: RocCounts) -> Thresholds:
    """Operating points from validation pairs.

    balanced: FAR equals the share of same pairs rejected. high_precision: the FAR of `target_far`, but
    never below balanced. high_recall: the highest threshold that accepts 95 % of the same pairs, but
    never above balanced, where a good model accepts more of them anyway.
    """
    target_far = min(1.0, max(HIGH_PRECISION_FAR, MIN_FALSE_ACCEPTS / counts.different))
    enough = int(np.count_nonzero(counts.accepted_same >= HIGH_RECALL_TAR * counts.same - 1e-9))
    balanced = equal_error_rate(counts)[1]
    high_precision = max(balanced, point_at_far(counts, target_far).similarity)
    high_recall = min(balanced, threshold_above(counts, enough - 1))
    return Thresholds(
        rates_at(counts, high_precision),
        rates_at(counts, balanced),
        rates_at(counts, high_recall),
        target_far,
    )


def fit_probability(scores: Float[np.ndarray, " p"], same: Bool[np.ndarray, " p"]) -> ProbabilityCurve:
    """Logistic regression (Platt 1999) by Newton's method, both kinds of pairs with the same total weight.

    Platt's targets, (N+1)/(N+2) and 1/(N+2) in place of 1 and 0, keep it finite where the kinds are
    separable. A slope below `MIN_SLOPE` is raised to it. Raises `NothingToMeasure` unless there are
    pairs of both kinds.
    """
    scores = scores.astype(np.float64)
    weights = _equal_class_weights(same)
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
    return ProbabilityCurve(slope, intercept - slope * center)


def calibration_error(probabilities: Float[np.ndarray, " p"], same: Bool[np.ndarray, " p"], bins: int = 15) -> float:
    """Expected calibration error in [0, 1] over equal bins, both kinds of pairs with the same total weight.

    Raises as `reliability`.
    """
    return reliability(probabilities, same, bins).error


def reliability(probabilities: Float[np.ndarray, " p"], same: Bool[np.ndarray, " p"], bins: int = 15) -> Reliability:
    """Said and observed probability over equal bins of [0, 1], both kinds of pairs with the same total weight.

    Raises `NothingToMeasure` unless there are pairs of both kinds, `ValueError` on a probability outside
    [0, 1].
    """
    weights = _equal_class_weights(same)
    probabilities = probabilities.astype(np.float64)
    bad = np.flatnonzero(~((probabilities >= 0) & (probabilities <= 1)))
    if bad.size:
        raise ValueError(f"{bad.size} probabilities are not in [0, 1], the first is number {bad[0]}")
    which = np.minimum((probabilities * bins).astype(np.int64), bins - 1)
    weight = np.bincount(which, weights, bins)
    filled = weight > 0
    said = np.bincount(which, weights * probabilities, bins)[filled] / weight[filled]
    observed = np.bincount(which, weights * same, bins)[filled] / weight[filled]
    return Reliability(said, observed, weight[filled])


def _kept(point: OperatingPoint) -> Threshold:
    return Threshold(point.similarity, point.far, point.tar)


def _equal_class_weights(same: Bool[np.ndarray, " p"]) -> Float64[np.ndarray, " p"]:
    """A half for the same pairs together, a half for the different ones."""
    count_same = int(same.sum())
    if count_same in (0, len(same)):
        raise NothingToMeasure("calibration: needs pairs of the same and of different identities")
    return np.where(same, 0.5 / count_same, 0.5 / (len(same) - count_same))


def _logistic(
    x: Float64[np.ndarray, " p"], targets: Float64[np.ndarray, " p"], weights: Float64[np.ndarray, " p"]
) -> tuple[float, float]:
    """(slope, intercept) of least weighted cross-entropy; convex, so Newton with halved steps arrives."""

    def loss(at: Float64[np.ndarray, " 2"]) -> float:
        z = at[0] * x + at[1]
        return float(weights @ (np.logaddexp(0, z) - targets * z))

    design = np.stack([x, np.ones_like(x)])
    found = np.zeros(2)
    for _ in range(_NEWTON_STEPS):
        chance = _sigmoid(found @ design)
        gradient = design @ (weights * (chance - targets))
        hessian = (design * (weights * chance * (1 - chance))) @ design.T
        step = np.linalg.solve(hessian, gradient)
        while loss(found - step) > loss(found) + 1e-12:
            step = step / 2
        found = found - step
        if np.abs(step).max() < 1e-12:
            break
    return float(found[0]), float(found[1])


def _sigmoid(z: Float64[np.ndarray, " p"]) -> Float64[np.ndarray, " p"]:
    return 0.5 * (1.0 + np.tanh(0.5 * z))
