"""All metrics of an evaluation as a table."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from familiar.core.data_table import DataTable, texts
from familiar.evaluation.results.json_conversion import to_json
from familiar.evaluation.results.labels import describe_metric
from familiar.evaluation.results.paths import interval_at

_SETTINGS = ("seed", "interval", "interval_pairs", "replicates")  # say how metrics were computed


def metrics_table(results: Any, suites: Mapping[str, Any]) -> DataTable:
    """Return a row for each metric that has a value.

    Its columns are suite; metric, the path within the suite; label, its name for readers; value; low and high, the ends
    of its confidence interval, NaN where it has none.

    Args:
        results: of the evaluation.
        suites: its suites that were computed, by name.
    """
    rows = [
        (suite, path, value, interval_at(results, f"{suite}.{path}") or (np.nan, np.nan))
        for suite, metrics in suites.items()
        for path, value in _numbers(to_json(metrics))
    ]
    intervals = np.array([interval for *_, interval in rows], np.float64).reshape(-1, 2)
    return DataTable(
        {
            "suite": texts(suite for suite, *_ in rows),
            "metric": texts(path for _, path, *_ in rows),
            "label": texts(describe_metric(path)[0] for _, path, *_ in rows),
            "value": np.array([value for _, _, value, _ in rows], np.float64),
            "low": intervals[:, 0],
            "high": intervals[:, 1],
        }
    )


def _numbers(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Yield the dotted path and the value of every number, but those of settings and intervals."""
    if isinstance(value, Mapping | list):
        children = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, child in children:
            if key not in _SETTINGS:
                yield from _numbers(child, f"{path}.{key}" if path else str(key))
    elif isinstance(value, float | int) and not isinstance(value, bool):
        yield path, float(value)
