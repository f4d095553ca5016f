"""Verification: same or different, over the pairs of a file, all pairs, or a sample of them."""

import numpy as np

from familiar.core.calibration import Threshold
from familiar.evaluation.context import REPLICATES, SEED, EvaluationContext, SuiteResult, resampled
from familiar.evaluation.results.metrics import (
    ProbabilityBin,
    ProbabilityMetrics,
    ThresholdMetrics,
    VerificationMetrics,
)
from familiar.evaluation.verification_pairs import THRESHOLDS, ScoredPairs
from familiar.metrics.bootstrap import intervals, verification_replicates
from familiar.metrics.calibration import reliability
from familiar.metrics.roc import RocCounts
from familiar.metrics.verification import FARS, accuracy_at, rates_at
from familiar.metrics.verification import verification_metrics as verification_metrics

RESULT_PATHS = {  # of the metrics that are resampled
    "auc": "auc",
    "average_precision": "average_precision",
    "eer": "eer",
    "best_balanced_accuracy": "best_accuracy",
    "accuracy_at_threshold": "at_bundle_thresholds.balanced.accuracy",
    **{f"tar_at_far_{far}": f"tar_at_far.{far}" for far in FARS},
}


def verification(context: EvaluationContext) -> SuiteResult[VerificationMetrics]:
    """Measure verification over pairs, with 95 % intervals over identities, and the bundle's thresholds.

    `best_accuracy` and the accuracies at thresholds give same and different pairs the same total weight;
    `best_accuracy_unweighted` counts each pair once, as LFW's tables do.
    """
    scored_pairs = context.scored_pairs
    counts, labels, pairs = scored_pairs.counts, context.labels, scored_pairs.pairs
    headline = verification_metrics(counts)
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
    replicates = {RESULT_PATHS[name]: values for name, values in replicates.items() if name in RESULT_PATHS}
    metrics = VerificationMetrics(
        pairs=scored_pairs.sampling,
        seed=SEED,
        interval_pairs=len(scored_pairs.scores),
        same_pairs=headline.same_pairs,
        different_pairs=headline.different_pairs,
        auc=headline.auc,
        average_precision=headline.average_precision,
        eer=headline.eer,
        eer_threshold=headline.eer_threshold,
        spearman=headline.spearman,
        best_accuracy=headline.best_balanced_accuracy,
        best_accuracy_threshold=headline.best_balanced_accuracy_threshold,
        best_accuracy_unweighted=headline.best_accuracy,
        tar_at_far=headline.tar_at_far,
        thresholds_fitted=calibration.fitted,
        at_bundle_thresholds={name: _at_threshold(counts, getattr(calibration, name)) for name in THRESHOLDS},
        probability=_reliability(context, scored_pairs),
        interval=intervals(replicates),
    )
    return SuiteResult(metrics, replicates)


def _at_threshold(counts: RocCounts, threshold: Threshold) -> ThresholdMetrics:
    """Measure the rates at a threshold of the bundle, here and on its own validation pairs."""
    far, tar = rates_at(counts, threshold.similarity)
    return ThresholdMetrics(
        similarity=threshold.similarity,
        accuracy=accuracy_at(counts, threshold.similarity, balanced=True),
        far=far,
        tar=tar,
        on_validation=threshold,
    )


def _reliability(context: EvaluationContext, scored_pairs: ScoredPairs) -> ProbabilityMetrics | None:
    """Compare the probabilities of the bundle's calibration curve with the observed shares of same pairs."""
    calibration = context.calibration
    probabilities = calibration.probabilities(scored_pairs.scores)
    if probabilities is None:
        return None
    bins = reliability(probabilities, scored_pairs.pairs.same, weights=scored_pairs.weights)
    return ProbabilityMetrics(
        calibration_error=bins.error,
        validation_error=calibration.calibration_error,
        bins=tuple(
            ProbabilityBin(predicted, observed, weight)
            for predicted, observed, weight in zip(
                bins.probability.tolist(), bins.observed.tolist(), bins.weight.tolist(), strict=True
            )
        ),
    )
