"""Values of the sections that show a suite and need more than its figures."""

from typing import Any

from familiar.evaluation.report.examples import Examples
from familiar.evaluation.results import EvaluationResults
from familiar.evaluation.results.figures import names_between
from familiar.evaluation.suites.slices import ROUTED_SPECIES
from familiar.evaluation.verification_pairs import THRESHOLDS

PAIR_SAMPLING = {
    "all": "all pairs",
    "listed": "those of the pairs file",
    "balanced": "a sample, half of them same",
    "natural": "a sample with the natural ratio",
}
PREFIX_FIGURES = ("retrieval.recall_at_1", "retrieval.mrr", "verification.auc", "verification.eer")
SLICE_FIGURES = ("retrieval.recall_at_1", "verification.auc", "verification.eer", "triplets.violation_rate")
SPECIES_FIGURES = (
    *SLICE_FIGURES,
    "verification.at_bundle_thresholds.balanced.similarity",
    "verification.at_bundle_thresholds.balanced.accuracy",
    "verification.probability.calibration_error",
)


def verification(results: EvaluationResults, _: Examples) -> dict[str, Any]:
    """Say which pairs were compared."""
    return {"sampling": PAIR_SAMPLING[str(results.value("verification.pairs"))]}


def thresholds(results: EvaluationResults, _: Examples) -> dict[str, Any]:
    """Name the bundle's thresholds, and say whether they are those of several bundles."""
    return {"thresholds": THRESHOLDS, "has_several_bundles": results.data.routing is not None}


def retrieval(_: EvaluationResults, examples: Examples) -> dict[str, Any]:
    """Return the identities that are confused most."""
    return {"examples": examples}


def slices(results: EvaluationResults, _: Examples) -> dict[str, Any] | None:
    """List the slices of each column of attributes, and the figures of the suites that were run."""
    columns: dict[str, list[str]] = {}
    for name in names_between(results.figures, "slices.columns", "value"):
        columns.setdefault(name.rpartition(".")[0], []).append(f"slices.columns.{name}")
    shown = {
        column: [
            figure
            for figure in (SPECIES_FIGURES if column == ROUTED_SPECIES else SLICE_FIGURES)
            if any(path.startswith(f"{paths[0]}.{figure.partition('.')[0]}") for path in results.figures)
        ]
        for column, paths in columns.items()
    }
    return {"columns": columns, "shown": shown, "species_column": ROUTED_SPECIES} if columns else None


def robustness(results: EvaluationResults, _: Examples) -> dict[str, Any]:
    """List the corruptions."""
    return {"corruptions": names_between(results.figures, "robustness.corruptions", "severity")}


def tta(results: EvaluationResults, _: Examples) -> dict[str, Any]:
    """List the sources of the photos."""
    return {"sources": names_between(results.figures, "tta.flip.by_source", "photos")}


def separation(results: EvaluationResults, _: Examples) -> dict[str, Any]:
    """List the percentages whose percentiles were computed."""
    ends = [path.rpartition("percentiles.") for path in results.figures if path.startswith("separation.")]
    return {"percentages": list(dict.fromkeys(percentage for _, separator, percentage in ends if separator))}


def harmonic(results: EvaluationResults, _: Examples) -> dict[str, Any]:
    """List the prefixes, and the figures to show of each."""
    return {"prefixes": names_between(results.figures, "harmonic.prefixes", "components"), "shown": PREFIX_FIGURES}


def lfw(results: EvaluationResults, _: Examples) -> dict[str, Any]:
    """List the folds of View 2."""
    return {"folds": names_between(results.figures, "lfw.view_2.folds", "threshold")}
