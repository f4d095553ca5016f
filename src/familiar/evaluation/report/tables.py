"""Tables of the page. What is null is shown as the reason why, never as a blank."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from familiar.core.terminal_text import printable
from familiar.evaluation.missing import missing_reason
from familiar.evaluation.report.labels import PERCENT, POINTS, figure, written

NO_REASON = "does not exist for these photos"


def name(text: str) -> str:
    """A name from outside: escaped, and kept from turning the text round it where it runs right to left."""
    return f"<bdi>{escape(printable(text))}</bdi>"


def absent(reason: str) -> str:
    """In place of what could not be computed."""
    return f'<span class="absent">{escape(printable(reason))}</span>'


def cell(path: str, value: Any, interval: Sequence[float] | None = None) -> str:
    """A figure, its interval beneath it."""
    if value is None:
        return absent(missing_reason(path) or NO_REASON)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return name(str(value))
    beneath = f"<small>{escape(between(path, interval))}</small>" if interval else ""
    return f"{escape(written(path, value))}{beneath}"


def between(path: str, interval: Sequence[float]) -> str:
    """An interval, its unit said once."""
    low, high = (written(path, end) for end in interval)
    for unit in (PERCENT, POINTS):
        if high.endswith(unit):
            low = low.removesuffix(unit)
    return f"{low} to {high}"


def grid(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are markup; the first of each row names it. Scrolls within its own box where it is too wide."""
    head = "".join(f'<th scope="col">{heading}</th>' if heading else "<td></td>" for heading in headings)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{one}</td>" for one in rest)}</tr>' for first, *rest in rows
    )
    few = ' class="few"' if len(headings) < 3 else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(title)}">'
        f"<table{few}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def figures(title: str, found: Mapping[str, Any], paths: Sequence[str]) -> str:
    """A row a figure: what it is, what was measured, its interval where there is one. Missing ones are passed over."""
    flat, interval = dict(flattened(found)), found.get("interval") or {}
    rows = [[label(path), cell(path, flat[path], interval.get(path))] for path in paths if path in flat]
    if not rows:
        return ""
    measured = "measured<small>95&nbsp;% interval</small>" if any(path in interval for path in paths) else "measured"
    return grid(title, ["", measured], rows)


def others(found: Mapping[str, Any], *known: str) -> str:
    """Whatever else `found` holds, each figure under its own name; `known` paths, and all below them, are not."""
    rows = [
        path
        for path, _ in flattened(found)
        if not any(path == one or path.startswith(f"{one}.") for one in (*known, "interval", "seed", "pairs_resampled"))
    ]
    return figures("Other figures", {key: value for key, value in found.items() if key != "interval"}, rows)


def label(path: str) -> str:
    """A figure's name, and beneath it what it says."""
    title, note, _ = figure(path)
    beneath = f"<small>{escape(note)}</small>" if note else ""
    return f"{escape(printable(title))}{beneath}"


def flattened(found: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, Any]]:
    """Figures by their dotted path; lists are tables of their own and passed over."""
    for key, value in found.items():
        path = f"{before}{key}"
        if isinstance(value, Mapping):
            yield from flattened(value, f"{path}.")
        elif not isinstance(value, list | tuple):
            yield path, value
