"""Report section: triplets."""

from collections.abc import Mapping
from typing import Any

from familiar.evaluation.report.examples import Examples
from familiar.evaluation.report.tables import metric_table, other_metrics

PATHS = ("violation_rate", "average_margin", "triplets")
SAMPLING = {"all": "All triplets.", "sampled": "A random sample of the triplets."}


def triplets(results: Mapping[str, Any], _: Examples, __: Mapping[str, str]) -> str:
    """Render the triplet metrics."""
    metrics = results["triplets"]
    sampling = SAMPLING.get(metrics.get("sampling"), "")
    return f"<p>{sampling}</p>" + metric_table("Triplets", metrics, PATHS) + other_metrics(metrics, *PATHS, "sampling")
