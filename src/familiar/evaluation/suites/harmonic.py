"""What the first components alone are worth: every headline for each prefix a bundle is valid at, and what it saves."""

import dataclasses
from collections.abc import Callable
from typing import Any

from familiar.core.errors import NothingToMeasure
from familiar.core.vectors import prefix
from familiar.evaluation.context import EvaluationContext, Outcome
from familiar.evaluation.suites.identification import identification
from familiar.evaluation.suites.retrieval import retrieval
from familiar.evaluation.suites.triplets import triplets
from familiar.evaluation.suites.verification import verification

FLOAT_BYTES = 4
HEADLINES = {
    "retrieval": retrieval,
    "verification": verification,
    "triplets": triplets,
    "identification": identification,
}
OF_FULL_LENGTH = ("at_bundle_thresholds", "probability", "thresholds_fitted")


def has_prefixes(measured: EvaluationContext) -> bool:
    return len(_prefixes(measured)) > 1


def harmonic(measured: EvaluationContext) -> Outcome:
    """Every headline of each prefix, scaled to unit length, and the bytes of an embedding.

    Not how the bundle's thresholds fare: those are for the full length.
    """
    if not has_prefixes(measured):
        raise NothingToMeasure("harmonic: the bundle is valid at its full length only")
    whole = measured.embedder.metadata.embedding_dim
    rows: list[dict[str, Any]] = []
    for components in _prefixes(measured):
        shortened = dataclasses.replace(measured, embeddings=prefix(measured.embeddings, components))
        rows.append(
            {
                "components": components,
                "bytes": FLOAT_BYTES * components,
                "saved": 1 - components / whole,
                **{name: _figures(suite, shortened) for name, suite in HEADLINES.items()},
            }
        )
    return Outcome({"prefixes": rows})


def _figures(suite: Callable[[EvaluationContext], Outcome], shortened: EvaluationContext) -> dict[str, Any] | None:
    try:
        figures = suite(shortened).figures
    except NothingToMeasure:
        return None
    return {name: value for name, value in figures.items() if name not in OF_FULL_LENGTH}


def _prefixes(measured: EvaluationContext) -> list[int]:
    metadata = measured.embedder.metadata
    return sorted({*metadata.prefixes, metadata.embedding_dim})
