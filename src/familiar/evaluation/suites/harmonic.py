"""What the first components alone are worth: every headline for each prefix a bundle is valid at, and what it saves."""

import dataclasses
from typing import Any

from familiar.core.errors import NothingToMeasure
from familiar.core.vectors import prefix
from familiar.evaluation.measured import Measured, Outcome
from familiar.evaluation.suites.retrieval import retrieval
from familiar.evaluation.suites.verification import verification

FLOAT_BYTES = 4


def has_prefixes(measured: Measured) -> bool:
    return len(_prefixes(measured)) > 1


def harmonic(measured: Measured) -> Outcome:
    """Retrieval and verification of each prefix, scaled to unit length, and the bytes of an embedding."""
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
                "retrieval": retrieval(shortened).figures,
                "verification": verification(shortened).figures,
            }
        )
    return Outcome({"prefixes": rows})


def _prefixes(measured: Measured) -> list[int]:
    metadata = measured.embedder.metadata
    return sorted({*metadata.prefixes, metadata.embedding_dim})
