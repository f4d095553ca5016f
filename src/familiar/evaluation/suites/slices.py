"""Slices: the metrics of each value of an attribute, and of each species of a router, the worst first."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
from jaxtyping import Int64

from familiar.core.errors import NothingToMeasure
from familiar.datasets.attributes import read_attributes
from familiar.evaluation.context import EvaluationContext, SuiteResult
from familiar.evaluation.results.variant_metrics import ROUTED_SPECIES, SliceMetrics, SlicesMetrics
from familiar.evaluation.suites.clustering import clustering
from familiar.evaluation.suites.identification import identification
from familiar.evaluation.suites.retrieval import retrieval_result
from familiar.evaluation.suites.separation import separation
from familiar.evaluation.suites.triplets import triplets
from familiar.evaluation.suites.verification import verification
from familiar.metrics.retrieval import RankedQueries

SLICED_SUITES: dict[str, Callable[[EvaluationContext], SuiteResult[Any]]] = {
    "verification": verification,
    "triplets": triplets,
    "clustering": clustering,
    "separation": separation,
    "identification": identification,
}
DEFAULT_SUITES = ("retrieval", "verification", "triplets")


def has_slices(context: EvaluationContext) -> bool:
    """Tell whether a CSV of attributes is given, or the model is a router."""
    return context.options.slices is not None or bool(context.species)


def slices(context: EvaluationContext) -> SuiteResult[SlicesMetrics]:
    """Measure each slice. Retrieval searches all photos; every other suite uses the slice's photos only.

    So the negatives of those are of the same slice too, which is harder. The slices are sorted from the worst to the
    best by recall@1, or by AUC.

    The slices by the species that a router sent the photos to are measured with the bundle of that species, its
    thresholds and its probability, and retrieval too searches the photos of the slice only.
    """
    if not has_slices(context):
        raise NothingToMeasure("slices: no CSV was given; name one with --slices")
    columns: dict[str, tuple[SliceMetrics, ...]] = {}
    if context.options.slices is not None:
        for attribute in read_attributes(context.options.slices, context.table, context.options.by):
            metrics = [
                _slice_metrics(context.select_rows(rows), value, context, rows)
                for value, rows in attribute.rows_by_value().items()
            ]
            columns[attribute.name] = tuple(sorted(metrics, key=_sort_key))
    if context.species:
        metrics = [_species_metrics(context, species) for species in sorted(set(context.species), key=str)]
        columns[ROUTED_SPECIES] = tuple(sorted(metrics, key=_sort_key))
    return SuiteResult(SlicesMetrics(columns))


def _species_metrics(context: EvaluationContext, species: str | None) -> SliceMetrics:
    part = context.select_species(species)
    return _slice_metrics(part, str(species), part, np.arange(len(part.table)))


def _slice_metrics(
    part: EvaluationContext, value: str, searched: EvaluationContext, rows: Int64[np.ndarray, " k"]
) -> SliceMetrics:
    """Measure the photos of a slice.

    Args:
        part: these photos.
        value: of the attribute.
        searched: the photos that retrieval searches.
        rows: those of the slice among them.
    """
    metrics: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    names = [name for name in part.options.suites if name in ("retrieval", *SLICED_SUITES)] or DEFAULT_SUITES
    for name in names:
        try:
            if name == "retrieval":
                ranked = _queries_in(searched.ranked_queries, rows)
                metrics[name] = retrieval_result(ranked, len(searched.table) - 1).metrics
            else:
                metrics[name] = SLICED_SUITES[name](part).metrics
        except NothingToMeasure as error:
            reasons[name] = str(error)
    return SliceMetrics(value, len(rows), len(part.table.names), **metrics, reasons=reasons)


def _queries_in(ranked: RankedQueries, rows: Int64[np.ndarray, " k"]) -> RankedQueries:
    mask = np.isin(ranked.query, rows)
    if not mask.any():
        raise NothingToMeasure("retrieval: none of these photos has another one of its identity")
    selected = {
        field.name: getattr(ranked, field.name)[mask] for field in fields(ranked) if field.name != "without_match"
    }
    return RankedQueries(**selected, without_match=len(rows) - int(mask.sum()))


def _sort_key(metrics: SliceMetrics) -> tuple[bool, float]:
    """Sort by the first metric that exists; slices that cannot be measured come last."""
    if metrics.retrieval is not None:
        return False, metrics.retrieval.recall_at_1 or 0.0
    if metrics.verification is not None:
        return False, metrics.verification.auc
    return True, 0.0
