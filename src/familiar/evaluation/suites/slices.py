"""Slices: the metrics of each value of an attribute, and of each species that has a bundle, the worst first."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
from jaxtyping import Int64

from familiar.core.errors import NothingToMeasure
from familiar.datasets.attributes import read_attributes
from familiar.evaluation.context import EvaluationContext, SuiteResult, combine
from familiar.evaluation.results.figures import Figures, make_figures
from familiar.evaluation.suites.clustering import clustering
from familiar.evaluation.suites.identification import identification
from familiar.evaluation.suites.retrieval import retrieval_result
from familiar.evaluation.suites.separation import separation
from familiar.evaluation.suites.triplets import triplets
from familiar.evaluation.suites.verification import verification
from familiar.metrics.retrieval import RankedQueries

ROUTED_SPECIES = "routed species"  # a column of the slices; that of a CSV, with the true species, may be "species"
SLICED_SUITES: dict[str, Callable[[EvaluationContext], SuiteResult]] = {
    "verification": verification,
    "triplets": triplets,
    "clustering": clustering,
    "separation": separation,
    "identification": identification,
}
DEFAULT_SUITES = ("retrieval", "verification", "triplets")


def has_slices(context: EvaluationContext) -> bool:
    """Tell whether a CSV of attributes is given, or the model has several bundles."""
    return context.options.slices is not None or bool(context.species)


def slices(context: EvaluationContext) -> SuiteResult:
    """Measure each slice. Retrieval searches all photos; every other suite uses the slice's photos only.

    So the negatives of those are of the same slice too, which is harder. The slices are sorted from the worst to the
    best by recall@1, or by AUC.

    The slices by species are measured with the bundle of that species, its
    thresholds and its probability, and retrieval too searches the photos of the slice only.
    """
    if not has_slices(context):
        raise NothingToMeasure("slices: no CSV was given; name one with --slices")
    columns: dict[str, list[SuiteResult]] = {}
    if context.options.slices is not None:
        for attribute in read_attributes(context.options.slices, context.table, context.options.by):
            columns[attribute.name] = [
                _measure(context.select_rows(rows), value, context, rows)
                for value, rows in attribute.rows_by_value().items()
            ]
    if context.species:
        columns[ROUTED_SPECIES] = [
            _measure_species(context, species) for species in sorted(set(context.species), key=str)
        ]
    return combine(
        {
            f"columns.{name}.{index}": result
            for name, column in columns.items()
            for index, result in enumerate(sorted(column, key=lambda each: _sort_key(each.figures)))
        }
    )


def _measure_species(context: EvaluationContext, species: str | None) -> SuiteResult:
    part = context.select_species(species)
    return _measure(part, str(species), part, np.arange(len(part.table)))


def _measure(
    part: EvaluationContext, value: str, searched: EvaluationContext, rows: Int64[np.ndarray, " k"]
) -> SuiteResult:
    """Measure the photos of a slice.

    Args:
        part: these photos.
        value: of the attribute.
        searched: the photos that retrieval searches.
        rows: those of the slice among them.
    """
    values: dict[str, Any] = {"value": value, "photos": len(rows), "identities": len(part.table.names)}
    missing: dict[str, str] = {}
    names = [name for name in part.options.suites if name in ("retrieval", *SLICED_SUITES)] or DEFAULT_SUITES
    for name in names:
        try:
            if name == "retrieval":
                ranked = _queries_in(searched.ranked_queries, rows)
                values[name] = retrieval_result(ranked, len(searched.table) - 1).figures
            else:
                values[name] = SLICED_SUITES[name](part).figures
        except NothingToMeasure as error:
            values[name], missing[name] = None, str(error)
    return SuiteResult(make_figures(values), missing=missing)


def _queries_in(ranked: RankedQueries, rows: Int64[np.ndarray, " k"]) -> RankedQueries:
    mask = np.isin(ranked.query, rows)
    if not mask.any():
        raise NothingToMeasure("retrieval: none of these photos has another one of its identity")
    selected = {
        field.name: getattr(ranked, field.name)[mask] for field in fields(ranked) if field.name != "without_match"
    }
    return RankedQueries(**selected, without_match=len(rows) - int(mask.sum()))


def _sort_key(figures: Figures) -> tuple[bool, float]:
    """Sort by the first suite that was measured; slices that cannot be measured come last."""
    for path in ("retrieval.recall_at_1", "verification.auc"):
        if path in figures:
            value = figures[path].value
            return False, value if isinstance(value, float) else 0.0
    return True, 0.0
