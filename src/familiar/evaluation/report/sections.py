"""The sections of the page in their order, and the values that a section's template shows besides the results."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from familiar.evaluation.report.examples import Examples
from familiar.evaluation.results import EvaluationResults
from familiar.evaluation.results.figures import names_between, slices_by_column
from familiar.evaluation.results.labels import IDENTIFICATION, RETRIEVAL, SEPARATION, VERIFICATION
from familiar.evaluation.suites.catalog import SUITES
from familiar.evaluation.suites.slices import ROUTED_SPECIES

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

Values = Callable[[EvaluationResults, Examples], Mapping[str, Any] | None]


@dataclass(frozen=True)
class Section:
    """A section of the page.

    `key`: its HTML anchor, and the name of its template. `lead`: its first sentence. `values`: computes the values of
    the template, None if there is nothing to show. `figures`: those of the suite that its first table lists, by path.
    `suite`: the suite that it shows; None: that of its key, if there is one.
    """

    key: str
    title: str
    lead: str
    values: Values = lambda *_: {}
    figures: tuple[str, ...] = ()
    suite: str | None = None

    @property
    def shown_suite(self) -> str | None:
        """The suite that it shows, if it shows one."""
        return self.suite or (self.key if self.key in SUITES else None)


def _verification(results: EvaluationResults, _: Examples) -> dict[str, Any]:
    """Say which pairs were compared."""
    return {"sampling": PAIR_SAMPLING[str(results.value("verification.pairs"))]}


def _slices(results: EvaluationResults, _: Examples) -> dict[str, Any] | None:
    """List the figures to show of each column of attributes: those of the suites that were run."""
    columns = slices_by_column(results.figures)
    shown = {
        column: [
            figure
            for figure in (SPECIES_FIGURES if column == ROUTED_SPECIES else SLICE_FIGURES)
            if any(path.startswith(f"{paths[0]}.{figure.partition('.')[0]}") for path in results.figures)
        ]
        for column, paths in columns.items()
    }
    return {"columns": columns, "shown": shown, "species_column": ROUTED_SPECIES} if shown else None


def _robustness(results: EvaluationResults, _: Examples) -> dict[str, Any]:
    """List the corruptions."""
    return {"corruptions": names_between(results.figures, "robustness.corruptions", "severity")}


def _tta(results: EvaluationResults, _: Examples) -> dict[str, Any]:
    """List the sources of the photos."""
    return {"sources": names_between(results.figures, "tta.flip.by_source", "photos")}


def _separation(results: EvaluationResults, _: Examples) -> dict[str, Any]:
    """List the percentages whose percentiles were computed."""
    ends = [path.rpartition("percentiles.") for path in results.figures if path.startswith("separation.")]
    return {"percentages": list(dict.fromkeys(percentage for _, separator, percentage in ends if separator))}


def _harmonic(results: EvaluationResults, _: Examples) -> dict[str, Any]:
    """List the prefixes, and the figures to show of each."""
    return {"prefixes": names_between(results.figures, "harmonic.prefixes", "components"), "shown": PREFIX_FIGURES}


def _lfw(results: EvaluationResults, _: Examples) -> dict[str, Any]:
    """List the folds of View 2."""
    return {"folds": names_between(results.figures, "lfw.view_2.folds", "threshold")}


def _photos_per_identity(_: EvaluationResults, examples: Examples) -> dict[str, Any]:
    photos = examples.table.photos_per_identity
    return {"low": int(photos.min()), "high": int(photos.max()), "single": int((photos == 1).sum())}


def _skipped_photos(results: EvaluationResults, _: Examples) -> dict[str, Any] | None:
    return {} if results.data.skipped else None


def _neighbors(_: EvaluationResults, examples: Examples) -> dict[str, Any] | None:
    return None if examples.neighbors is None else {}


def _mistakes(_: EvaluationResults, examples: Examples) -> dict[str, Any] | None:
    return None if examples.negatives is None else {}


SECTIONS = (
    Section(
        "verification",
        "Verification",
        "Do two photos show the same individual or different ones?",
        _verification,
        figures=tuple(VERIFICATION),
    ),
    Section(
        "thresholds",
        "Thresholds and probability",
        "The similarity from which two photos count as the same individual: the bundle's thresholds on these photos, "
        "and on its validation pairs.",
        suite="verification",
    ),
    Section(
        "retrieval",
        "Retrieval",
        "Each photo is searched for among others: does its own individual rank first?",
        figures=tuple(RETRIEVAL),
    ),
    Section(
        "neighbors",
        "Nearest neighbors of ten photos",
        "The first photo of each row is the query; ✓ is the same individual, ✗ another one. Numbers are similarities.",
        _neighbors,
    ),
    Section(
        "mistakes",
        "Worst mistakes",
        "The pairs that the model gets most wrong. They are often label errors in the data.",
        _mistakes,
    ),
    Section(
        "slices",
        "Metrics by slice",
        "The same metrics by attributes of the photos, the worst first. Retrieval searches all photos; for pairs and "
        "triplets, the other individuals are of the same slice.",
        _slices,
    ),
    Section(
        "identification",
        "Open-set identification",
        "Half of the individuals are known by one photo; photos of the others should be rejected as unknown.",
        figures=tuple(IDENTIFICATION),
    ),
    Section(
        "clustering",
        "Clustering",
        "Photos grouped by individual without any names.",
    ),
    Section("map", "Embedding map", "A 2-D projection of the embeddings: which individuals are close?"),
    Section(
        "robustness",
        "Robustness to image corruptions",
        "The cost of blur, noise, compression and other corruptions.",
        _robustness,
    ),
    Section(
        "tta",
        "Test-time augmentation",
        "Gain and cost of averaging a photo's embedding with those of its mirror image or crops.",
        _tta,
    ),
    Section(
        "background",
        "Face and background",
        "Is the individual recognized by its face, or by what is around it?",
    ),
    Section(
        "pixels",
        "Pixels without a network",
        "The baseline: the crops that the network takes, made gray and 23 x 28 pixels small, compared by their cosine. "
        "A network that is worth its training is clearly above it.",
        figures=("recall_at_1", "auc", "recall_at_1_gain", "auc_gain", "photos", "identities"),
    ),
    Section(
        "separation",
        "Separation",
        "The distance between individuals relative to the spread within each.",
        _separation,
        figures=tuple(SEPARATION),
    ),
    Section(
        "triplets",
        "Triplets",
        "A photo, another one of the same individual (positive), and one of another individual (negative): which is "
        "closer?",
        figures=("violation_rate", "average_margin", "triplets"),
    ),
    Section(
        "overfitting",
        "Overfitting",
        "Individuals the model was trained on against others, in galleries of equal size.",
        figures=("train_recall_at_1", "test_recall_at_1", "gap", "identities", "photos_per_identity", "draws"),
    ),
    Section(
        "harmonic",
        "Embedding prefixes",
        "Metrics of the first components of the embedding only, and the bytes they save.",
        _harmonic,
    ),
    Section(
        "lfw",
        "Labeled Faces in the Wild",
        "By that benchmark's own protocol.",
        _lfw,
        figures=("accuracy", "standard_error", "threshold", "auc", "pairs"),
    ),
    Section("data", "Data", "The photos of this evaluation.", _photos_per_identity),
    Section("leaks", "Train/test leakage", "Photos that may give the answer away."),
    Section("left-out", "Skipped photos", "Photos that could not be evaluated, and why.", _skipped_photos),
)
