"""Report section: prefixes of the embedding."""

from collections.abc import Mapping
from typing import Any

from familiar.evaluation.report.examples import Examples
from familiar.evaluation.report.tables import cell, grid, heading

METRICS = (
    ("retrieval", "recall_at_1"),
    ("retrieval", "mrr"),
    ("verification", "auc"),
    ("verification", "eer"),
)


def harmonic(results: Mapping[str, Any], _: Examples, __: Mapping[str, str]) -> str:
    """Render the headline metrics of each prefix, and the bytes that it saves."""
    rows: list[list[str]] = []
    for part in results["harmonic"]["prefixes"]:
        cells: list[str] = []
        for suite, metric in METRICS:
            metrics = part.get(suite) or {}
            cells.append(cell(metric, metrics.get(metric), (metrics.get("interval") or {}).get(metric)))
        size = [cell("bytes", part.get("bytes")), cell("saved_fraction", part.get("saved_fraction"))]
        rows.append([f"{part['components']:,}", *size, *cells])
    headings = ["components", "bytes", "saved", *(heading(metric) for _, metric in METRICS)]
    return grid("Embedding prefixes", headings, rows)
