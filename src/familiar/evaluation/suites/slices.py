"""On whom does it fail? The figures of each value of a column, the worst first."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
from jaxtyping import Int64

from familiar.core.errors import NothingToMeasure
from familiar.datasets.attributes import read_attributes
from familiar.evaluation.context import EvaluationContext, Outcome
from familiar.evaluation.suites.clustering import clustering
from familiar.evaluation.suites.identification import identification
from familiar.evaluation.suites.retrieval import outcome_of
from familiar.evaluation.suites.separation import separation
from familiar.evaluation.suites.triplets import triplets
from familiar.evaluation.suites.verification import verification
from familiar.metrics.retrieval import RankedQueries

SLICED: dict[str, Callable[[EvaluationContext], Outcome]] = {
    "verification": verification,
    "triplets": triplets,
    "clustering": clustering,
    "separation": separation,
    "identification": identification,
}
SLICED_UNASKED = ("retrieval", "verification", "triplets")


def has_slices(measured: EvaluationContext) -> bool:
    return measured.asked.slices is not None


def slices(measured: EvaluationContext) -> Outcome:
    """Retrieval finds a slice's photos among all photos; every other figure is of the slice's photos alone.

    So strangers are of the same slice too, which is harder than any stranger. Worst first: by recall@1, or by AUC.
    """
    if measured.asked.slices is None:
        raise NothingToMeasure("slices: no CSV was given; name one with --slices")
    attributes = read_attributes(measured.asked.slices, measured.table, measured.asked.by)
    figures: dict[str, Any] = {}
    for attribute in attributes:
        rows = [_figures(measured, value, rows) for value, rows in attribute.rows_by_value().items()]
        figures[attribute.name] = sorted(rows, key=_badness)
    return Outcome({"columns": figures})


def _figures(measured: EvaluationContext, value: str, rows: Int64[np.ndarray, " k"]) -> dict[str, Any]:
    part = measured.of_rows(rows)
    found: dict[str, Any] = {"value": value, "photos": len(rows), "identities": len(part.table.names)}
    reasons: dict[str, str] = {}
    asked = [name for name in measured.asked.suites if name in ("retrieval", *SLICED)] or SLICED_UNASKED
    for name in asked:
        try:
            if name == "retrieval":
                found[name] = outcome_of(_queries_in(measured.ranked, rows), len(measured.table) - 1).figures
            else:
                found[name] = SLICED[name](part).figures
        except NothingToMeasure as error:
            found[name] = None
            reasons[name] = str(error)
    return found | {"reasons": reasons}


def _queries_in(ranked: RankedQueries, rows: Int64[np.ndarray, " k"]) -> RankedQueries:
    asked = np.isin(ranked.query, rows)
    if not asked.any():
        raise NothingToMeasure("retrieval: none of these photos has another of its identity")
    kept = {field.name: getattr(ranked, field.name)[asked] for field in fields(ranked) if field.name != "without_match"}
    return RankedQueries(**kept, without_match=len(rows) - int(asked.sum()))


def _badness(row: dict[str, Any]) -> tuple[bool, float]:
    """Slices that cannot be measured come last."""
    for suite, figure in (("retrieval", "recall_at_1"), ("verification", "auc")):
        if row.get(suite):
            return False, row[suite][figure] or 0.0
    return True, 0.0
