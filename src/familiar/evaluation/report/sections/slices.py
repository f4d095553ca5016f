"""Report section: metrics by slice."""

from collections.abc import Mapping, Sequence
from typing import Any

from familiar.evaluation.report.charts import side_by_side
from familiar.evaluation.report.examples import Examples
from familiar.evaluation.report.tables import cell, grid, heading, missing, name

METRICS = (
    ("retrieval", "recall_at_1"),
    ("verification", "auc"),
    ("verification", "eer"),
    ("triplets", "violation_rate"),
)


def slices(results: Mapping[str, Any], _: Examples, charts: Mapping[str, str]) -> str:
    """Render a table and a chart for each column of attributes."""
    return "".join(
        f"<h3>{name(column)}</h3>{_table(column, rows)}{side_by_side(charts, f'slices_{number}')}"
        for number, (column, rows) in enumerate(results["slices"]["columns"].items(), start=1)
    )


def _table(column: str, rows: Sequence[Mapping[str, Any]]) -> str:
    metrics = [(suite, metric) for suite, metric in METRICS if any(suite in row for row in rows)]
    return grid(
        column,
        ["", "photos", "identities", *(heading(metric) for _, metric in metrics)],
        [
            [
                name(str(row["value"])),
                cell("photos", row["photos"]),
                cell("identities", row["identities"]),
                *(_metric_cell(row, suite, metric) for suite, metric in metrics),
            ]
            for row in rows
        ],
    )


def _metric_cell(row: Mapping[str, Any], suite: str, metric: str) -> str:
    metrics = row.get(suite)
    if metrics is None:
        return missing(row.get("reasons", {}).get(suite, "not measured").removeprefix(f"{suite}: "))
    return cell(metric, metrics.get(metric), (metrics.get("interval") or {}).get(metric))
