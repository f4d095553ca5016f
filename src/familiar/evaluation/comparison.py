"""Compare two models on the same photos: which is better, and is the difference more than noise?

Both evaluations draw the same identities in each bootstrap replicate, so their differences are paired: a replicate
that is hard for one model is hard for the other.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from familiar.core.errors import BadResults
from familiar.evaluation.results import EvaluationResults
from familiar.evaluation.results.labels import find_label, is_metric
from familiar.metrics.bootstrap import Interval, intervals


@dataclass(frozen=True)
class Difference:
    """The difference of two models in one metric.

    Attributes:
        figure: the metric's path, "suite.metric".
        first: the first model's value.
        second: the second model's value.
        difference: `second - first`.
        interval: (low, high), the 95 % confidence interval of the difference; None if it was not resampled, as with
            fewer than ten identities.
    """

    figure: str
    first: float
    second: float
    difference: float
    interval: Interval | None

    @property
    def better(self) -> Literal["first", "second"] | None:
        """The model that is better by more than noise (the interval excludes zero), else None."""
        low, high = self.interval or (0.0, 0.0)
        if low <= 0 <= high:
            return None
        return "second" if (low > 0) != find_label(self.figure).lower_is_better else "first"


def compare(first: EvaluationResults, second: EvaluationResults) -> tuple[Difference, ...]:
    """Compute the difference of every metric that both results have; those with an interval first.

    Metrics of slices, prefixes and sweeps are left out: their places in a list need not mean the same in both.

    Args:
        first: the results of one model.
        second: those of the other.

    Raises:
        BadResults: the results are of different photos, pairs or bootstrap draws, or share no metric.
    """
    _check_comparable(first, second)
    first_replicates, second_replicates = (results.replicates for results in (first, second))
    common = [path for path in first_replicates if len(second_replicates.get(path, ())) == len(first_replicates[path])]
    replicates = {path: np.array(second_replicates[path]) - np.array(first_replicates[path]) for path in common}
    difference_intervals = intervals(replicates)
    others = [path for path in first.figures if path not in replicates and _is_compared(path)]
    differences: list[Difference] = []
    for path in (*common, *others):
        before, after = (results.number(path) for results in (first, second))
        if before is not None and after is not None:
            differences.append(Difference(path, before, after, after - before, difference_intervals.get(path)))
    if not differences:
        raise BadResults("the two results have no metric in common; evaluate both with the same --suite")
    return tuple(differences)


def _is_compared(path: str) -> bool:
    keys = path.split(".")
    return is_metric(path) and "on_validation" not in keys and not any(key.isdecimal() for key in keys)


def summarize(differences: tuple[Difference, ...], names: tuple[str, str]) -> str:
    """Say in one sentence which of two named models is better, and in how many metrics that have an interval."""
    wins = {side: sum(difference.better == side for difference in differences) for side in ("first", "second")}
    first, second = names
    total = sum(difference.interval is not None for difference in differences)
    if not total:
        return (
            "No difference has an interval, so none says which is better; evaluate on ten identities or more, with "
            "--suite retrieval and --suite verification."
        )
    if not any(wins.values()):
        return f"No difference in {total} metrics is more than noise."
    if all(wins.values()):
        return (
            f"Neither is better throughout: of {total} metrics {first} is better in {wins['first']} and {second} in "
            f"{wins['second']} by more than noise."
        )
    winner, count = (first, wins["first"]) if wins["first"] else (second, wins["second"])
    return f"{winner} is better: by more than noise in {count} of {total} metrics, and worse in none."


def _check_comparable(first: EvaluationResults, second: EvaluationResults) -> None:
    properties: dict[str, list[object]] = {
        "photos": [results.data.fingerprint for results in (first, second)],
        "bootstrap draws": [results.interval for results in (first, second)],
    }
    if "verification" in first.suites and "verification" in second.suites:
        for name in ("pairs", "same_pairs", "different_pairs"):
            properties[f"pairs ({name})"] = [results.value(f"verification.{name}") for results in (first, second)]
    for name, (first_value, second_value) in properties.items():
        if first_value != second_value:
            raise BadResults(
                f"the two results are of different {name}, so their difference says nothing about the models; "
                "evaluate both on the same data with the same options"
            )
