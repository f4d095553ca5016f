"""The sections of the page in their order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from familiar.evaluation.report.examples import Examples
from familiar.evaluation.report.sections import data, photos, suites
from familiar.evaluation.results import EvaluationResults

Values = Callable[[EvaluationResults, Examples], Mapping[str, Any] | None]


@dataclass(frozen=True)
class Section:
    """A section of the page.

    `key`: its HTML anchor, and the name of its template. `lead`: its first sentence. `values`: computes the values of
    the template, None if there is nothing to show. `suite`: the suite whose metrics it shows, or empty.
    """

    key: str
    title: str
    lead: str
    values: Values
    suite: str = ""


SECTIONS = (
    Section(
        "verification",
        "Verification",
        "Do two photos show the same individual or different ones?",
        suites.verification,
        "verification",
    ),
    Section(
        "thresholds",
        "Thresholds and probability",
        "The similarity from which two photos count as the same individual: the bundle's thresholds on these photos, "
        "and on its validation pairs.",
        suites.thresholds,
        "verification",
    ),
    Section(
        "retrieval",
        "Retrieval",
        "Each photo is searched for among others: does its own individual rank first?",
        suites.retrieval,
        "retrieval",
    ),
    Section(
        "neighbors",
        "Nearest neighbors of ten photos",
        "The first photo of each row is the query; ✓ is the same individual, ✗ another one. Numbers are similarities.",
        photos.nearest_neighbors,
    ),
    Section(
        "mistakes",
        "Worst mistakes",
        "The pairs that the model gets most wrong. They are often label errors in the data.",
        photos.mistakes,
    ),
    Section(
        "slices",
        "Metrics by slice",
        "The same metrics by attributes of the photos, the worst first. Retrieval searches all photos; for pairs and "
        "triplets, the other individuals are of the same slice.",
        suites.slices,
        "slices",
    ),
    Section(
        "identification",
        "Open-set identification",
        "Half of the individuals are known by one photo; photos of the others should be rejected as unknown.",
        suites.identification,
        "identification",
    ),
    Section(
        "clustering",
        "Clustering",
        "Photos grouped by individual without any names.",
        suites.clustering,
        "clustering",
    ),
    Section(
        "map", "Embedding map", "A 2-D projection of the embeddings: which individuals are close?", photos.embedding_map
    ),
    Section(
        "robustness",
        "Robustness to image corruptions",
        "The cost of blur, noise, compression and other corruptions.",
        suites.robustness,
        "robustness",
    ),
    Section(
        "tta",
        "Test-time augmentation",
        "Gain and cost of averaging a photo's embedding with those of its mirror image or crops.",
        suites.tta,
        "tta",
    ),
    Section(
        "background",
        "Face and background",
        "Is the individual recognized by its face, or by what is around it?",
        suites.background,
        "background",
    ),
    Section(
        "separation",
        "Separation",
        "The distance between individuals relative to the spread within each.",
        suites.separation,
        "separation",
    ),
    Section(
        "triplets",
        "Triplets",
        "A photo, another one of the same individual (positive), and one of another individual (negative): which is "
        "closer?",
        suites.triplets,
        "triplets",
    ),
    Section(
        "overfitting",
        "Overfitting",
        "Individuals the model was trained on against others, in galleries of equal size.",
        suites.overfitting,
        "overfitting",
    ),
    Section(
        "harmonic",
        "Embedding prefixes",
        "Metrics of the first components of the embedding only, and the bytes they save.",
        suites.harmonic,
        "harmonic",
    ),
    Section("lfw", "Labeled Faces in the Wild", "By that benchmark's own protocol.", suites.lfw, "lfw"),
    Section("data", "Data", "The photos of this evaluation.", data.data),
    Section("leaks", "Train/test leakage", "Photos that may give the answer away.", data.leaks),
    Section("left-out", "Skipped photos", "Photos that could not be evaluated, and why.", data.skipped_photos),
)
