"""Report section: overfitting."""

from collections.abc import Mapping
from typing import Any

from familiar.evaluation.report.examples import Examples
from familiar.evaluation.report.tables import metric_table, other_metrics

PATHS = ("train_recall_at_1", "test_recall_at_1", "gap", "identities", "photos_per_identity", "draws")


def overfitting(results: Mapping[str, Any], _: Examples, __: Mapping[str, str]) -> str:
    """Render recall@1 of training and of unseen identities."""
    metrics = results["overfitting"]
    return metric_table("Overfitting", metrics, PATHS) + other_metrics(metrics, *PATHS)
