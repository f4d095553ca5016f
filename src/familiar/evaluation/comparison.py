"""Two models on the same photos: which is better, and by more than chance would have it?

Both were judged with the same identities drawn in each replicate, so their differences are paired: what makes a
replicate hard makes it hard for both.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from familiar.core.errors import BadResults
from familiar.evaluation.results import at_path
from familiar.metrics.bootstrap import Interval, intervals

LOWER_IS_BETTER = ("verification.eer", "triplets.violation_rate")


@dataclass(frozen=True)
class Difference:
    """`figure` is "suite.figure"; `difference` is `second - first`, with its 95 % interval.

    `better`: who has the better figure by more than noise, that is, where the interval leaves out zero.
    """

    figure: str
    first: float
    second: float
    difference: float
    interval: Interval

    @property
    def better(self) -> Literal["first", "second"] | None:
        low, high = self.interval
        if low <= 0 <= high:
            return None
        return "second" if (low > 0) != (self.figure in LOWER_IS_BETTER) else "first"


def compare(first: dict[str, Any], second: dict[str, Any]) -> tuple[Difference, ...]:
    """Every headline figure that both have. BadResults where they are not of the same photos and pairs."""
    _require_same_questions(first, second)
    drawn_first, drawn_second = (results.get("replicates", {}) for results in (first, second))
    figures = [name for name in drawn_first if len(drawn_second.get(name, ())) == len(drawn_first[name])]
    if not figures:
        raise BadResults("the two results have no figure with an interval in common; judge ten identities or more")
    differences = {name: np.array(drawn_second[name]) - np.array(drawn_first[name]) for name in figures}
    spans = intervals(differences)
    found: list[Difference] = []
    for name in figures:
        before, after = (float(at_path(results, name)) for results in (first, second))
        found.append(Difference(name, before, after, after - before, spans[name]))
    return tuple(found)


def summary(differences: tuple[Difference, ...], names: tuple[str, str]) -> str:
    """One sentence: who is better, and in how much of what was measured."""
    won = {side: sum(one.better == side for one in differences) for side in ("first", "second")}
    first, second = names
    total = len(differences)
    if not any(won.values()):
        return f"No difference in {total} figures is more than noise."
    if all(won.values()):
        return (
            f"Neither is better throughout: of {total} figures {first} is better in {won['first']} and {second} in "
            f"{won['second']} by more than noise."
        )
    winner, count = (first, won["first"]) if won["first"] else (second, won["second"])
    return f"{winner} is better: by more than noise in {count} of {total} figures, and worse in none."


def _require_same_questions(first: dict[str, Any], second: dict[str, Any]) -> None:
    asked = {
        "photos": [results["data"]["fingerprint"] for results in (first, second)],
        "draws": [results["interval"] for results in (first, second)],
    }
    if first.get("verification") and second.get("verification"):
        for key in ("pairs", "same_pairs", "different_pairs"):
            asked[f"pairs ({key})"] = [results["verification"].get(key) for results in (first, second)]
    for what, (of_first, of_second) in asked.items():
        if of_first != of_second:
            raise BadResults(
                f"the two results are of different {what}, so their difference says nothing of the models; "
                "evaluate both on the same data with the same options"
            )
