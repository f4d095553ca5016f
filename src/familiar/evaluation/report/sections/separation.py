"""Report section: separation of the identities."""

from collections.abc import Mapping
from html import escape
from typing import Any

from familiar.evaluation.report.examples import Examples
from familiar.evaluation.report.tables import cell, grid, metric_table, other_metrics

PATHS = (
    "d_prime",
    "silhouette",
    "dunn.members",
    "dunn.centroids",
    "dunn.centroids_to_mean",
    "dunn.photos_dropped",
)


def separation(results: Mapping[str, Any], _: Examples, __: Mapping[str, str]) -> str:
    """Render the separation metrics, and the distributions of similarities."""
    metrics = results["separation"]
    distributions = {
        "the same individual": metrics.get("same") or {},
        "different individuals": metrics.get("different") or {},
    }
    percentages = list(
        dict.fromkeys(
            percentage
            for distribution in distributions.values()
            for percentage in (distribution.get("percentiles") or {})
        )
    )
    rows = [
        [
            title,
            *(cell(key, distribution.get(key)) for key in ("mean", "std")),
            *(cell("mean", (distribution.get("percentiles") or {}).get(percentage)) for percentage in percentages),
        ]
        for title, distribution in distributions.items()
    ]
    headings = ["similarity of", "mean", "std", *(f"{escape(percentage)}&nbsp;%" for percentage in percentages)]
    return (
        metric_table("Separation", metrics, PATHS)
        + grid("Distributions of similarities", headings, rows)
        + other_metrics(metrics, *PATHS, "dunn", "same", "different", "photos", "identities")
    )
