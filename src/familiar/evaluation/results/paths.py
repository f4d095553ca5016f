"""Metrics by their paths, for code that handles all metrics alike: tables, comparisons, intervals."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from familiar.metrics.bootstrap import Interval


def metric_at(results: Any, path: str) -> Any:
    """Return the value at a dotted path such as "verification.tar_at_far.1e-2".

    Args:
        results: of an evaluation, or a part of them: dataclasses, mappings and tuples.
        path: names of fields, keys and indices.

    Raises:
        KeyError: there is no such value.
    """
    value = results
    for key in path.split("."):
        value = _child(value, key, path)
    return value


def interval_at(results: Any, path: str) -> Interval | None:
    """Return the confidence interval of the metric at a path; None if it has none.

    Raises:
        KeyError: there is no such metric.
    """
    keys = path.split(".")
    for depth in range(1, len(keys)):  # an interval is stored next to its metric, or above it
        parent = metric_at(results, ".".join(keys[:depth]))
        intervals = parent.get("interval") if isinstance(parent, Mapping) else getattr(parent, "interval", None)
        if intervals and (interval := intervals.get(".".join(keys[depth:]))):
            return interval[0], interval[1]
    return None


def _child(value: Any, key: str, path: str) -> Any:
    if dataclasses.is_dataclass(value) and key in {field.name for field in dataclasses.fields(value)}:
        return getattr(value, key)
    if isinstance(value, Mapping) and key in value:
        return value[key]
    if isinstance(value, list | tuple) and key.isdecimal() and int(key) < len(value):
        return value[int(key)]
    raise KeyError(path)
