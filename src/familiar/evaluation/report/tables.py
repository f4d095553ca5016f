"""Tables of metrics: their paths, values and intervals."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from familiar.evaluation.results.json_conversion import to_json

NOT_SHOWN = ("interval", "seed", "interval_pairs")


@dataclass(frozen=True)
class MetricRow:
    """A metric in a table. `path`: within its suite, by which it is labeled and formatted."""

    path: str
    value: Any
    interval: Sequence[float] | None


@dataclass(frozen=True)
class MetricTable:
    """A table with a row for each metric. `title`: read out by screen readers."""

    title: str
    rows: tuple[MetricRow, ...]
    has_intervals: bool


def metric_table(title: str, metrics: Any, paths: Sequence[str]) -> MetricTable:
    """Select metrics for a table.

    Args:
        title: read out by screen readers.
        metrics: of a suite.
        paths: dotted paths of the metrics to show; those that do not exist are left out.
    """
    document = to_json(metrics)
    values, intervals = dict(flatten(document)), document.get("interval", {})
    rows = tuple(MetricRow(path, values[path], intervals.get(path)) for path in paths if path in values)
    return MetricTable(title, rows, any(path in intervals for path in paths))


def other_metrics(metrics: Any, *shown: str) -> MetricTable:
    """Select all metrics but those at the paths `shown`, or below them."""
    document = to_json(metrics)
    paths = [
        path
        for path, _ in flatten(document)
        if not any(path == parent or path.startswith(f"{parent}.") for parent in (*shown, *NOT_SHOWN))
    ]
    document.pop("interval", None)
    return metric_table("Other metrics", document, paths)


def flatten(metrics: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values with their dotted paths; lists, which are tables of their own, are skipped."""
    for key, value in metrics.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from flatten(value, f"{path}.")
        elif not isinstance(value, list | tuple):
            yield path, value
