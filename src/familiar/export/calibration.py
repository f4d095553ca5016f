"""What a bundle's similarities mean, fitted on validation identities."""

import numpy as np
from jaxtyping import Float32, Int

from familiar.export.gate import all_counts
from familiar.faces.bundle import Calibration, Threshold
from familiar.metrics.calibration import FIXED_THRESHOLDS, calibration_error, fit_probability, thresholds
from familiar.metrics.pairs import pair_similarities, sample_pairs
from familiar.metrics.roc import pair_totals
from familiar.metrics.verification import OperatingPoint

MIN_CALIBRATION_PAIRS = 10  # of each kind: fewer say nothing of what a similarity means
CURVE_PAIRS = 100_000  # a curve of two numbers needs no more


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
        high_precision=_threshold(points.high_precision),
        balanced=_threshold(points.balanced),
        high_recall=_threshold(points.high_recall),
        slope=curve.slope,
        intercept=curve.intercept,
        calibration_error=calibration_error(curve.probabilities(scores), pairs.same),
        pairs_same=same,
        pairs_different=different,
        target_far=points.target_far,
    )


def _threshold(point: OperatingPoint) -> Threshold:
    return Threshold(point.similarity, point.far, point.tar)
