"""Format results for tables: with intervals over identities, means over seeds, paired differences."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from familiar.evaluation.results import EvaluationResults, Figure

Results = EvaluationResults | dict[str, Any]  # a dict has `figures` and `replicates` as eval_results.json has them
Estimate = tuple[float, float, float]  # value, lower and upper end of its 95 % interval


def number(value: float | None, digits: int = 3) -> str:
    """Format as `.912`; None becomes a dash."""
    if value is None:
        return "-"
    return _without_zero(f"{value:.{digits}f}")


def span(low: float, high: float, digits: int = 3) -> str:
    return f"[{number(low, digits)}, {number(high, digits)}]"


def figure(results: Results, path: str, digits: int = 3) -> str:
    """Format a metric such as "verification.auc" or "tta.flip.auc_gain", with its 95 % interval if it has one."""
    result = figure_at(results, path)
    value, interval = number(result.value, digits), result.interval
    return value if interval is None else f"{value} {span(*interval, digits)}"


def figure_at(results: Results, path: str) -> Figure:
    result = _part(results, "figures")[path]
    return result if isinstance(result, Figure) else Figure(**result)


def value_at(results: Results, path: str) -> float:
    """Return the value of a figure, which is a number."""
    return float(figure_at(results, path).value)


def over_seeds(results: Sequence[Results], path: str) -> str:
    """Format the mean over runs of different seeds, with its 95 % interval over the test identities."""
    mean, low, high = mean_of(results, path)
    return f"{number(mean)} {span(low, high)}"


def mean_of(results: Sequence[Results], path: str) -> Estimate:
    """Compute what `over_seeds` formats."""
    return _mean(results, path), *_interval(_mean_replicates(results, path))


def spread(results: Sequence[Results], path: str) -> str:
    """Format the minimum and maximum over the runs."""
    values = [value_at(run, path) for run in results]
    return f"{number(min(values))} to {number(max(values))}"


def paired(first: Sequence[Results], second: Sequence[Results], path: str) -> str:
    """Format the mean of `second` minus the mean of `first`, with a 95 % interval, bold if it excludes zero.

    Both must have been evaluated on the same bootstrap draws of identities.
    """
    difference, low, high = difference_of(first, second, path)
    text = f"{signed(difference)} [{signed(low)}, {signed(high)}]"
    return text if low <= 0 <= high else f"**{text}**"


def difference_of(first: Sequence[Results], second: Sequence[Results], path: str) -> Estimate:
    """Compute what `paired` formats."""
    between = _mean_replicates(second, path) - _mean_replicates(first, path)
    return _mean(second, path) - _mean(first, path), *_interval(between)


def signed(value: float, digits: int = 3) -> str:
    """Format as `+.012`."""
    return _without_zero(f"{value:+.{digits}f}")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _part(results: Results, name: str) -> dict[str, Any]:
    return results[name] if isinstance(results, dict) else getattr(results, name)


def _without_zero(text: str) -> str:
    return re.sub(r"^([+-]?)0\.", r"\1.", text)


def _mean(results: Sequence[Results], path: str) -> float:
    return float(np.mean([value_at(run, path) for run in results]))


def _mean_replicates(results: Sequence[Results], path: str) -> np.ndarray:
    return np.mean([_part(run, "replicates")[path] for run in results], axis=0)


def _interval(replicates: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(replicates, (0.025, 0.975)).tolist()
    return low, high
