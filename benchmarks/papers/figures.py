"""Figures as a table shows them: with intervals over identities, over seeds, and paired between models."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from familiar.evaluation.results import at_path

Results = dict[str, Any]
Estimate = tuple[float, float, float]  # a figure, and the ends of its 95 % interval


def number(value: float | None, digits: int = 3) -> str:
    """As `.912`; a dash where there is none."""
    if value is None:
        return "-"
    return _without_zero(f"{value:.{digits}f}")


def span(low: float, high: float, digits: int = 3) -> str:
    return f"[{number(low, digits)}, {number(high, digits)}]"


def figure(found: Results, path: str, digits: int = 3) -> str:
    """A figure such as "verification.auc" or "tta.flip.auc_gain" with its 95 % interval, where it has one."""
    value, keys = number(at_path(found, path), digits), path.split(".")
    for depth in range(1, len(keys)):  # intervals stand beside the figure, or above it
        intervals = at_path(found, ".".join(keys[:depth])).get("interval", {})
        if interval := intervals.get(".".join(keys[depth:])):
            low, high = interval
            return f"{value} {span(low, high, digits)}"
    return value


def over_seeds(results: Sequence[Results], path: str) -> str:
    """The mean over runs of different seeds, and its 95 % interval over the identities they are judged on."""
    mean, low, high = mean_of(results, path)
    return f"{number(mean)} {span(low, high)}"


def mean_of(results: Sequence[Results], path: str) -> Estimate:
    """As `over_seeds`, for a picture."""
    return _mean(results, path), *_interval(_mean_replicates(results, path))


def spread(results: Sequence[Results], path: str) -> str:
    """Least and largest of the runs."""
    values = [float(at_path(found, path)) for found in results]
    return f"{number(min(values))} to {number(max(values))}"


def paired(first: Sequence[Results], second: Sequence[Results], path: str) -> str:
    """Mean of `second` less mean of `first`, with a 95 % interval; both were judged on the same draws of identities.

    Bold where it leaves out zero.
    """
    difference, low, high = difference_of(first, second, path)
    text = f"{signed(difference)} [{signed(low)}, {signed(high)}]"
    return text if low <= 0 <= high else f"**{text}**"


def difference_of(first: Sequence[Results], second: Sequence[Results], path: str) -> Estimate:
    """As `paired`, for a picture or a sentence."""
    between = _mean_replicates(second, path) - _mean_replicates(first, path)
    return _mean(second, path) - _mean(first, path), *_interval(between)


def signed(value: float) -> str:
    """As `+.012`."""
    return _without_zero(f"{value:+.3f}")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _without_zero(text: str) -> str:
    return re.sub(r"^([+-]?)0\.", r"\1.", text)


def _mean(results: Sequence[Results], path: str) -> float:
    return float(np.mean([at_path(found, path) for found in results]))


def _mean_replicates(results: Sequence[Results], path: str) -> np.ndarray:
    return np.mean([found["replicates"][path] for found in results], axis=0)


def _interval(replicates: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(replicates, (0.025, 0.975)).tolist()
    return low, high
