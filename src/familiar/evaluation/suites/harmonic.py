"""Headline metrics of each prefix (first components) that a bundle is valid at, and the bytes that it saves."""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from familiar.core.errors import NothingToMeasure
from familiar.core.vectors import prefix
from familiar.evaluation.context import EvaluationContext, SuiteResult
from familiar.evaluation.results.metrics import OpenSetMetrics, PairMetrics
from familiar.evaluation.results.variant_metrics import HarmonicMetrics, PrefixMetrics
from familiar.evaluation.suites.identification import identification
from familiar.evaluation.suites.retrieval import retrieval
from familiar.evaluation.suites.triplets import triplets
from familiar.evaluation.suites.verification import verification

FLOAT_BYTES = 4

MetricsT = TypeVar("MetricsT")


def has_prefixes(context: EvaluationContext) -> bool:
    """Tell whether the bundle is valid at a shorter length than its full one."""
    return len(_prefix_lengths(context)) > 1


def harmonic(context: EvaluationContext) -> SuiteResult[HarmonicMetrics]:
    """Measure the headline suites with each prefix, scaled to unit length, and the bytes of an embedding.

    The metrics at the bundle's thresholds are left out: those are for the full length.
    """
    if not has_prefixes(context):
        raise NothingToMeasure("harmonic: the bundle is valid at its full length only")
    full_length = context.model.space[1]
    prefixes: list[PrefixMetrics] = []
    for components in _prefix_lengths(context):
        shortened = dataclasses.replace(context, embeddings=prefix(context.embeddings, components))
        verified, identified = _suite_metrics(verification, shortened), _suite_metrics(identification, shortened)
        prefixes.append(
            PrefixMetrics(
                components=components,
                bytes=FLOAT_BYTES * components,
                saved_fraction=1 - components / full_length,
                retrieval=_suite_metrics(retrieval, shortened),
                verification=None if verified is None else PairMetrics(**_fields_of(PairMetrics, verified)),
                triplets=_suite_metrics(triplets, shortened),
                identification=None if identified is None else OpenSetMetrics(**_fields_of(OpenSetMetrics, identified)),
            )
        )
    return SuiteResult(HarmonicMetrics(tuple(prefixes)))


def _suite_metrics(
    suite: Callable[[EvaluationContext], SuiteResult[MetricsT]], shortened: EvaluationContext
) -> MetricsT | None:
    try:
        return suite(shortened).metrics
    except NothingToMeasure:
        return None


def _fields_of(base: type[Any], metrics: Any) -> dict[str, Any]:
    """Return the fields that `metrics` has as an instance of its base class."""
    return {field.name: getattr(metrics, field.name) for field in dataclasses.fields(base)}


def _prefix_lengths(context: EvaluationContext) -> list[int]:
    _, embedding_dim, prefixes = context.model.space
    return sorted({*prefixes, embedding_dim})
