"""Report section: verification metrics and curves."""

from collections.abc import Mapping
from html import escape
from typing import Any

from familiar.evaluation.report.charts import side_by_side
from familiar.evaluation.report.examples import Examples
from familiar.evaluation.report.tables import metric_table, other_metrics

PATHS = (
    "auc",
    "eer",
    "at_bundle_thresholds.balanced.accuracy",
    "best_accuracy",
    "best_accuracy_threshold",
    "best_accuracy_unweighted",
    "average_precision",
    "spearman",
    "tar_at_far.1e-2",
    "tar_at_far.1e-3",
    "tar_at_far.1e-4",
)
PAIR_SAMPLING = {
    "all": "all pairs",
    "listed": "those of the pairs file",
    "balanced": "a sample, half of them same",
    "natural": "a sample with the natural ratio",
}


def verification(results: Mapping[str, Any], _: Examples, charts: Mapping[str, str]) -> str:
    """Render the pair metrics, and the similarity, accuracy, ROC and DET charts."""
    metrics = results["verification"]
    pairs = (
        f"<p>{metrics['same_pairs']:,} pairs of the same individual and {metrics['different_pairs']:,} of different "
        f"individuals: {PAIR_SAMPLING.get(metrics['pairs'], escape(str(metrics['pairs'])))}.</p>"
    )
    shown = (*PATHS, "pairs", "same_pairs", "different_pairs", "eer_threshold", "at_bundle_thresholds")
    return (
        pairs
        + metric_table("Verification", metrics, PATHS)
        + other_metrics(metrics, *shown, "thresholds_fitted", "probability", "tar_at_far")
        + side_by_side(charts, "similarity", "accuracy", "roc", "det")
    )
