"""Report section: open-set identification."""

from collections.abc import Mapping
from typing import Any

from familiar.evaluation.report.examples import Examples
from familiar.evaluation.report.tables import cell, grid, metric_table, other_metrics

PATHS = (
    "rank_1",
    "rank_5",
    "rank_10",
    "dir_at_far.1e-1",
    "dir_at_far.1e-2",
    "dir_at_far.1e-3",
    "enrolled_identities",
    "enrolled_photos_per_identity",
    "known_probes",
    "unknown_probes",
)
THRESHOLD_HEADINGS = (
    "threshold",
    "similarity",
    "known photos identified correctly",
    "as another",
    "rejected",
    "unknown photos accepted",
)


def identification(results: Mapping[str, Any], _: Examples, __: Mapping[str, str]) -> str:
    """Render the identification rates, and those at the bundle's thresholds."""
    metrics = results["identification"]
    rows = [
        [
            threshold.replace("_", " "),
            *(cell(key, rates.get(key)) for key in ("similarity", "dir", "misidentified", "rejected", "far")),
        ]
        for threshold, rates in (metrics.get("at_bundle_thresholds") or {}).items()
        if isinstance(rates, Mapping)
    ]
    title = "Identification at the bundle's thresholds"
    table = f"<h3>{title}</h3>{grid(title, THRESHOLD_HEADINGS, rows)}" if rows else ""
    return (
        metric_table("Identification", metrics, PATHS)
        + table
        + other_metrics(metrics, *PATHS, "at_bundle_thresholds", "dir_at_far")
    )
