"""Verification: same or different, over the pairs of a file, all pairs, or a sample of them."""

from typing import Any

import numpy as np

from familiar.core.calibration import Threshold
from familiar.evaluation.context import REPLICATES, SEED, EvaluationContext, SuiteResult, resampled
from familiar.evaluation.results.figures import make_figures
from familiar.evaluation.verification_pairs import THRESHOLDS, ScoredPairs
from familiar.metrics.bootstrap import verification_replicates
from familiar.metrics.calibration import reliability
from familiar.metrics.roc import RocCounts
from familiar.metrics.verification import FARS, accuracy_at, rates_at
from familiar.metrics.verification import verification_metrics as verification_metrics

NAMES = {  # of figures that `metrics` calls otherwise
    "best_balanced_accuracy": "best_accuracy",
    "best_balanced_accuracy_threshold": "best_accuracy_threshold",
    "best_accuracy": "best_accuracy_unweighted",
    "accuracy_at_threshold": "at_bundle_thresholds.balanced.accuracy",
    **{f"tar_at_far_{far}": f"tar_at_far.{far}" for far in FARS},
}


def verification(context: EvaluationContext) -> SuiteResult:
    """Measure verification over pairs, with 95 % intervals over identities, and the bundle's thresholds.

    `best_accuracy` and the accuracies at thresholds give same and different pairs the same total weight;
    `best_accuracy_unweighted` counts each pair once, as LFW's tables do.
    """
    scored_pairs = context.scored_pairs
    counts, labels, pairs = scored_pairs.counts, context.labels, scored_pairs.pairs
    headline = vars(verification_metrics(counts))
    calibration = context.calibration
    replicates = resampled(
        np.concatenate([labels[pairs.left], labels[pairs.right]]),
        lambda: verification_replicates(
            scored_pairs.scores,
            labels[pairs.left],
            labels[pairs.right],
            threshold=calibration.balanced.similarity,
            weights=scored_pairs.weights,
            replicates=REPLICATES,
            seed=SEED,
        ),
    )
    # The accuracy that counts every pair once is for comparison with LFW's tables, which give no interval.
    replicates = {NAMES.get(name, name): values for name, values in replicates.items() if name != "best_accuracy"}
    values = {
        "pairs": scored_pairs.sampling,
        "seed": SEED,
        "interval_pairs": len(scored_pairs.scores),
        **{NAMES.get(name, name): value for name, value in headline.items() if name != "best_accuracy_threshold"},
        "thresholds_fitted": calibration.fitted,
        "at_bundle_thresholds": {name: _at_threshold(counts, getattr(calibration, name)) for name in THRESHOLDS},
        "probability": _reliability(context, scored_pairs),
    }
    return SuiteResult(make_figures(values, replicates), replicates)


def _at_threshold(counts: RocCounts, threshold: Threshold) -> dict[str, Any]:
    """Measure the rates at a threshold of the bundle, here and on its own validation pairs."""
    far, tar = rates_at(counts, threshold.similarity)
    accuracy = accuracy_at(counts, threshold.similarity, balanced=True)
    return {
        "similarity": threshold.similarity,
        "far": far,
        "tar": tar,
        "accuracy": accuracy,
        "on_validation": vars(threshold),
    }


def _reliability(context: EvaluationContext, scored_pairs: ScoredPairs) -> dict[str, Any] | None:
    """Compare the probabilities of the bundle's calibration curve with the observed shares of same pairs."""
    calibration = context.calibration
    probabilities = calibration.probabilities(scored_pairs.scores)
    if probabilities is None:
        return None
    bins = reliability(probabilities, scored_pairs.pairs.same, weights=scored_pairs.weights)
    columns = {"predicted": bins.probability, "observed": bins.observed, "weight": bins.weight}
    rows = np.column_stack(list(columns.values())).tolist()
    return {
        "calibration_error": bins.error,
        "validation_error": calibration.calibration_error,
        "bins": [dict(zip(columns, row, strict=True)) for row in rows],
    }
