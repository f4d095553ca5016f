"""HTML tables of metrics. A null value is shown as the reason for it, never as a blank."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from familiar.core.terminal_text import printable
from familiar.evaluation.missing import missing_reason
from familiar.evaluation.report.labels import PERCENT, POINTS, describe_metric, format_metric

NO_REASON = "does not exist for these photos"
NOT_SHOWN = ("interval", "seed", "interval_pairs")


def name(text: str) -> str:
    """Escape a name from outside, and isolate it so that right-to-left text does not reverse what is around it."""
    return f"<bdi>{escape(printable(text))}</bdi>"


def missing(reason: str) -> str:
    """Show the reason in place of a value that could not be computed."""
    return f'<span class="missing">{escape(printable(reason))}</span>'


def cell(path: str, value: Any, interval: Sequence[float] | None = None) -> str:
    """Format a value for a table cell, with its interval below."""
    if value is None:
        return missing(missing_reason(path) or NO_REASON)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return name(str(value))
    interval_note = f"<small>{escape(format_interval(path, interval))}</small>" if interval else ""
    return f"{escape(format_metric(path, value))}{interval_note}"


def format_interval(path: str, interval: Sequence[float]) -> str:
    """Format an interval, with its unit written once."""
    low, high = (format_metric(path, end) for end in interval)
    for unit in (PERCENT, POINTS):
        if high.endswith(unit):
            low = low.removesuffix(unit)
    return f"{low} to {high}"


def grid(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Build a table that scrolls within its own box if it is too wide.

    Args:
        title: read out by screen readers.
        headings: markup of the column headings; "" for none.
        rows: markup of the cells, the first of each row being its heading.
    """
    head = "".join(f'<th scope="col">{heading}</th>' if heading else "<td></td>" for heading in headings)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{value}</td>" for value in rest)}</tr>'
        for first, *rest in rows
    )
    narrow = ' class="narrow"' if len(headings) < 3 else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(title)}">'
        f"<table{narrow}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def metric_table(title: str, metrics: Mapping[str, Any], paths: Sequence[str]) -> str:
    """Build a table with a row for each metric: label, value, and interval if there is one.

    Args:
        title: read out by screen readers.
        metrics: of a suite.
        paths: dotted paths of the metrics to show; those that do not exist are left out.
    """
    values, interval = dict(flatten(metrics)), metrics.get("interval") or {}
    rows = [[label(path), cell(path, values[path], interval.get(path))] for path in paths if path in values]
    if not rows:
        return ""
    heading = "value<small>95&nbsp;% interval</small>" if any(path in interval for path in paths) else "value"
    return grid(title, ["", heading], rows)


def other_metrics(metrics: Mapping[str, Any], *shown: str) -> str:
    """Build a table of all metrics but those at the paths `shown`, or below them, each by its own name."""
    rows = [
        path
        for path, _ in flatten(metrics)
        if not any(path == parent or path.startswith(f"{parent}.") for parent in (*shown, *NOT_SHOWN))
    ]
    return metric_table("Other metrics", {key: value for key, value in metrics.items() if key != "interval"}, rows)


def label(path: str) -> str:
    """Return a metric's name with its description below."""
    title, description, _ = describe_metric(path)
    description_note = f"<small>{escape(description)}</small>" if description else ""
    return f"{escape(printable(title))}{description_note}"


def heading(path: str) -> str:
    """Return a metric's name for a column heading."""
    return escape(printable(describe_metric(path)[0]))


def flatten(metrics: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Yield the values with their dotted paths; lists, which are tables of their own, are skipped."""
    for key, value in metrics.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from flatten(value, f"{path}.")
        elif not isinstance(value, list | tuple):
            yield path, value
