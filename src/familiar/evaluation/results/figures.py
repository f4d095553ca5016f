"""Figures, the values that suites measure, in one flat mapping by path."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from familiar.metrics.bootstrap import Interval, Replicates, intervals

Value: TypeAlias = float | str | bool | None


@dataclass(frozen=True)
class Figure:
    """A value with its 95 % confidence interval.

    Attributes:
        value: a number; a text or truth value that says how numbers were computed; None if it cannot be computed.
        low: lower end of the interval; None if there is none, as for fewer than ten identities.
        high: upper end of the interval.
    """

    value: Value
    low: float | None = None
    high: float | None = None

    @property
    def interval(self) -> Interval | None:
        """Both ends of the interval; None if there is none."""
        return None if self.low is None or self.high is None else (self.low, self.high)


Figures: TypeAlias = dict[str, Figure]
"""Figures by their paths, such as "tar_at_far.1e-2" in a suite and "verification.tar_at_far.1e-2" in an evaluation."""


def make_figures(values: Mapping[str, Any], replicates: Replicates | None = None) -> Figures:
    """Make figures of values, with the intervals of those that were resampled.

    Args:
        values: by name. Mappings, sequences and figures may be nested; keys and indices are joined to paths.
        replicates: values in bootstrap replicates, by path.

    >>> make_figures({"auc": 0.5, "bins": [{"weight": 1.0}]})
    {'auc': Figure(value=0.5, low=None, high=None), 'bins.0.weight': Figure(value=1.0, low=None, high=None)}
    """
    ends = intervals(replicates or {})
    return {
        path: value if isinstance(value, Figure) else Figure(value, *ends.get(path, ()))
        for path, value in _flatten(values)
    }


def read_figure(content: Any) -> Figure:
    """Restore a figure from its JSON: an object with its attributes.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(content, dict) or content.keys() != {"value", "low", "high"}:
        raise ValueError(f"expected an object with value, low and high, got {content!r:.40}")
    figure = Figure(**content)
    if not isinstance(figure.value, float | int | str | None):
        raise ValueError(f"value is {figure.value!r:.40}, but should be a number, a text, true, false or null")
    if any(isinstance(end, bool) or not isinstance(end, float | int | None) for end in (figure.low, figure.high)):
        raise ValueError("low and high should be numbers or null")
    return figure


def names_between(figures: Figures, parent: str, last: str) -> list[str]:
    """List what stands in paths between `parent` and the last key, such as the sources in "tta.flip.by_source".

    A name may contain dots, so `last` has to be the key of a figure that each of them has.

    >>> names_between({"slices.columns.coat.x.0.value": Figure("long")}, "slices.columns", "value")
    ['coat.x.0']
    """
    start, end = f"{parent}.", f".{last}"
    return [path[len(start) : -len(end)] for path in figures if path.startswith(start) and path.endswith(end)]


def slices_by_column(figures: Figures) -> dict[str, list[str]]:
    """Return the paths of the slices of each column of attributes, such as "slices.columns.coat.0", the worst first."""
    columns: dict[str, list[str]] = {}
    for name in names_between(figures, "slices.columns", "value"):
        columns.setdefault(name.rpartition(".")[0], []).append(f"slices.columns.{name}")
    return columns


def _flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        children: Any = value.items()
    elif isinstance(value, Sequence) and not isinstance(value, str):
        children = enumerate(value)
    else:
        yield path, value
        return
    for key, child in children:
        yield from _flatten(child, f"{path}.{key}" if path else str(key))
