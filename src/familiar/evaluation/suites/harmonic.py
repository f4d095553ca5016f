"""Headline metrics of each prefix (first components) that a bundle is valid at, and the bytes that it saves."""

import dataclasses
from collections.abc import Callable
from typing import Any

from familiar.core.errors import NothingToMeasure
from familiar.core.vectors import prefix
from familiar.evaluation.context import EvaluationContext, SuiteResult
from familiar.evaluation.suites.identification import identification
from familiar.evaluation.suites.retrieval import retrieval
from familiar.evaluation.suites.triplets import triplets
from familiar.evaluation.suites.verification import verification

FLOAT_BYTES = 4
HEADLINE_SUITES = {
    "retrieval": retrieval,
    "verification": verification,
    "triplets": triplets,
    "identification": identification,
}
FULL_LENGTH_KEYS = ("at_bundle_thresholds", "probability", "thresholds_fitted")


def has_prefixes(context: EvaluationContext) -> bool:
    """Tell whether the bundle is valid at a shorter length than its full one."""
    return len(_prefix_lengths(context)) > 1


def harmonic(context: EvaluationContext) -> SuiteResult:
    """Measure the headline suites with each prefix, scaled to unit length, and the bytes of an embedding.

    The metrics at the bundle's thresholds are left out: those are for the full length.
    """
    if not has_prefixes(context):
        raise NothingToMeasure("harmonic: the bundle is valid at its full length only")
    full_length = context.embedder.metadata.embedding_dim
    rows: list[dict[str, Any]] = []
    for components in _prefix_lengths(context):
        shortened = dataclasses.replace(context, embeddings=prefix(context.embeddings, components))
        rows.append(
            {
                "components": components,
                "bytes": FLOAT_BYTES * components,
                "saved_fraction": 1 - components / full_length,
                **{name: _suite_metrics(suite, shortened) for name, suite in HEADLINE_SUITES.items()},
            }
        )
    return SuiteResult({"prefixes": rows})


def _suite_metrics(
    suite: Callable[[EvaluationContext], SuiteResult], shortened: EvaluationContext
) -> dict[str, Any] | None:
    try:
        metrics = suite(shortened).figures
    except NothingToMeasure:
        return None
    return {name: value for name, value in metrics.items() if name not in FULL_LENGTH_KEYS}


def _prefix_lengths(context: EvaluationContext) -> list[int]:
    metadata = context.embedder.metadata
    return sorted({*metadata.prefixes, metadata.embedding_dim})
