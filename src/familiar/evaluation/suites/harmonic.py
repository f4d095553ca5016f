"""Headline metrics of each prefix (first components) that a bundle is valid at, and the bytes that it saves."""

import dataclasses
from contextlib import suppress

from familiar.core.errors import NothingToMeasure
from familiar.core.vectors import prefix
from familiar.evaluation.context import EvaluationContext, SuiteResult
from familiar.evaluation.results.figures import Figures, make_figures
from familiar.evaluation.suites.retrieval import retrieval
from familiar.evaluation.suites.slices import SLICED_SUITES

FLOAT_BYTES = 4
SUITES = {"retrieval": retrieval} | {
    name: SLICED_SUITES[name] for name in ("verification", "triplets", "identification")
}
CALIBRATED = ("thresholds_fitted", "at_bundle_thresholds", "probability")  # what the bundle was calibrated for


def has_prefixes(context: EvaluationContext) -> bool:
    """Tell whether the bundle is valid at a shorter length than its full one."""
    return len(_prefix_lengths(context)) > 1


def harmonic(context: EvaluationContext) -> SuiteResult:
    """Measure the headline suites with each prefix, scaled to unit length, and the bytes of an embedding.

    The metrics at the bundle's thresholds are left out: those are for the full length.
    """
    if not has_prefixes(context):
        raise NothingToMeasure("harmonic: the bundle is valid at its full length only")
    full_length = context.model.space[1]
    prefixes = [
        {
            "components": components,
            "bytes": FLOAT_BYTES * components,
            "saved_fraction": 1 - components / full_length,
            **_measure(dataclasses.replace(context, embeddings=prefix(context.embeddings, components))),
        }
        for components in _prefix_lengths(context)
    ]
    return SuiteResult(make_figures({"prefixes": prefixes}))


def _measure(shortened: EvaluationContext) -> dict[str, Figures | None]:
    """Run each suite; None if it cannot be computed."""
    figures: dict[str, Figures | None] = dict.fromkeys(SUITES)
    for name, suite in SUITES.items():
        with suppress(NothingToMeasure):
            result = suite(shortened).figures
            figures[name] = {path: each for path, each in result.items() if not path.startswith(CALIBRATED)}
    return figures


def _prefix_lengths(context: EvaluationContext) -> list[int]:
    _, embedding_dim, prefixes = context.model.space
    return sorted({*prefixes, embedding_dim})
