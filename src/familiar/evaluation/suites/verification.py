"""Same or different? Over the pairs of a file, every pair there is, or a sample of them."""

import dataclasses
from typing import Any

import numpy as np

from familiar.core.calibration import Threshold
from familiar.evaluation.context import REPLICATES, SEED, EvaluationContext, Outcome, resampled
from familiar.evaluation.verification_pairs import THRESHOLDS, ScoredPairs
from familiar.metrics.bootstrap import intervals, verification_replicates
from familiar.metrics.calibration import ProbabilityCurve, calibration_error, reliability
from familiar.metrics.roc import RocCounts
from familiar.metrics.verification import FARS, accuracy_at, rates_at
from familiar.metrics.verification import verification as verification_figures

PATHS = {  # where the bootstrap's figures stand below
    "auc": "auc",
    "average_precision": "average_precision",
    "eer": "eer",
    "best_balanced_accuracy": "best_accuracy",
    "accuracy_at_threshold": "at_bundle_thresholds.balanced.accuracy",
    **{f"tar_at_far_{far}": f"tar_at_far.{far}" for far in FARS},
}


def verification(measured: EvaluationContext) -> Outcome:
    """Same or different, over pairs, with 95 % intervals over identities; and how the bundle's thresholds fare.

    `best_accuracy` and the accuracies at thresholds weigh both kinds alike; `best_accuracy_as_listed` weighs the
    pairs as they come, as LFW's tables do.
    """
    judged = measured.judged
    counts, labels, pairs = judged.counts, measured.labels, judged.pairs
    found = verification_figures(counts)
    calibration = measured.embedder.metadata.calibration
    replicates = resampled(
        np.concatenate([labels[pairs.left], labels[pairs.right]]),
        lambda: verification_replicates(
            judged.scores,
            labels[pairs.left],
            labels[pairs.right],
            threshold=calibration.balanced.similarity,
            weights=judged.weights,
            replicates=REPLICATES,
            seed=SEED,
        ),
    )
    replicates = {PATHS[name]: values for name, values in replicates.items() if name in PATHS}
    figures = {
        "pairs": judged.which,
        "seed": SEED,
        "pairs_resampled": len(judged.scores),
        "same_pairs": found.same_pairs,
        "different_pairs": found.different_pairs,
        "auc": found.auc,
        "average_precision": found.average_precision,
        "eer": found.eer,
        "eer_threshold": found.eer_threshold,
        "spearman": found.spearman,
        "best_accuracy": found.best_balanced_accuracy,
        "best_accuracy_threshold": found.best_balanced_accuracy_threshold,
        "best_accuracy_as_listed": found.best_accuracy,
        "tar_at_far": found.tar_at_far,
        "thresholds_fitted": calibration.fitted,
        "at_bundle_thresholds": {name: _at_threshold(counts, getattr(calibration, name)) for name in THRESHOLDS},
        "probability": _reliability(measured, judged),
        "interval": intervals(replicates),
    }
    return Outcome(figures, replicates)


def _at_threshold(counts: RocCounts, threshold: Threshold) -> dict[str, Any]:
    """How a threshold of the bundle fares here, beside what it promised."""
    point = rates_at(counts, threshold.similarity)
    return {
        "similarity": threshold.similarity,
        "accuracy": accuracy_at(counts, threshold.similarity, balanced=True),
        "far": point.far,
        "tar": point.tar,
        "promised": dataclasses.asdict(threshold),
    }


def _reliability(measured: EvaluationContext, judged: ScoredPairs) -> dict[str, Any] | None:
    """How often pairs are of one individual where the bundle's curve says so with some probability."""
    calibration = measured.embedder.metadata.calibration
    if calibration.slope is None or calibration.intercept is None:
        return None
    said = ProbabilityCurve(calibration.slope, calibration.intercept).probabilities(judged.scores)
    bins = reliability(said, judged.pairs.same)
    return {
        "calibration_error": calibration_error(said, judged.pairs.same),
        "promised_error": calibration.calibration_error,
        "bins": [
            {"said": said, "observed": observed, "weight": weight}
            for said, observed, weight in zip(
                bins.probability.tolist(), bins.observed.tolist(), bins.weight.tolist(), strict=True
            )
        ],
    }
