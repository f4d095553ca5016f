"""The sections of the page in their order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from familiar.evaluation.report.examples import Examples
from familiar.evaluation.report.sections.clustering import clustering
from familiar.evaluation.report.sections.data import data, leaks, skipped_photos
from familiar.evaluation.report.sections.embedding_map import embedding_map
from familiar.evaluation.report.sections.harmonic import harmonic
from familiar.evaluation.report.sections.identification import identification
from familiar.evaluation.report.sections.lfw import lfw
from familiar.evaluation.report.sections.mistakes import mistakes
from familiar.evaluation.report.sections.overfitting import overfitting
from familiar.evaluation.report.sections.retrieval import nearest_neighbors, retrieval
from familiar.evaluation.report.sections.robustness import robustness
from familiar.evaluation.report.sections.separation import separation
from familiar.evaluation.report.sections.slices import slices
from familiar.evaluation.report.sections.thresholds import thresholds
from familiar.evaluation.report.sections.triplets import triplets
from familiar.evaluation.report.sections.tta import tta
from familiar.evaluation.report.sections.verification import verification

Body = Callable[[Mapping[str, Any], Examples, Mapping[str, str]], str]


@dataclass(frozen=True)
class Section:
    """A section of the page.

    `key`: its HTML anchor. `lead`: its first sentence. `body`: renders its markup from the results, the examples and
    the markup of the charts; empty if there is nothing to show. `suite`: the suite whose metrics it shows, or empty.
    """

    key: str
    title: str
    lead: str
    body: Body
    suite: str = ""


SECTIONS = (
    Section(
        "verification",
        "Verification",
        "Do two photos show the same individual or different ones?",
        verification,
        "verification",
    ),
    Section(
        "thresholds",
        "Thresholds and probability",
        "The similarity from which two photos count as the same individual: the bundle's thresholds on these photos, "
        "and on its validation pairs.",
        thresholds,
        "verification",
    ),
    Section(
        "retrieval",
        "Retrieval",
        "Each photo is searched for among others: does its own individual rank first?",
        retrieval,
        "retrieval",
    ),
    Section(
        "neighbors",
        "Nearest neighbors of ten photos",
        "The first photo of each row is the query; ✓ is the same individual, ✗ another one. Numbers are similarities.",
        nearest_neighbors,
    ),
    Section(
        "mistakes",
        "Worst mistakes",
        "The pairs that the model gets most wrong. They are often label errors in the data.",
        mistakes,
    ),
    Section(
        "slices",
        "Metrics by slice",
        "The same metrics by attributes of the photos, the worst first. Retrieval searches all photos; for pairs and "
        "triplets, the other individuals are of the same slice.",
        slices,
        "slices",
    ),
    Section(
        "identification",
        "Open-set identification",
        "Half of the individuals are known by one photo; photos of the others should be rejected as unknown.",
        identification,
        "identification",
    ),
    Section(
        "clustering",
        "Clustering",
        "Photos grouped by individual without any names.",
        clustering,
        "clustering",
    ),
    Section("map", "Embedding map", "A 2-D projection of the embeddings: which individuals are close?", embedding_map),
    Section(
        "robustness",
        "Robustness to image corruptions",
        "The cost of blur, noise, compression and other corruptions.",
        robustness,
        "robustness",
    ),
    Section(
        "tta",
        "Test-time augmentation",
        "Gain and cost of averaging a photo's embedding with those of its mirror image or crops.",
        tta,
        "tta",
    ),
    Section(
        "separation",
        "Separation",
        "The distance between individuals relative to the spread within each.",
        separation,
        "separation",
    ),
    Section(
        "triplets",
        "Triplets",
        "A photo, another one of the same individual (positive), and one of another individual (negative): which is "
        "closer?",
        triplets,
        "triplets",
    ),
    Section(
        "overfitting",
        "Overfitting",
        "Individuals the model was trained on against others, in galleries of equal size.",
        overfitting,
        "overfitting",
    ),
    Section(
        "harmonic",
        "Embedding prefixes",
        "Metrics of the first components of the embedding only, and the bytes they save.",
        harmonic,
        "harmonic",
    ),
    Section("lfw", "Labeled Faces in the Wild", "By that benchmark's own protocol.", lfw, "lfw"),
    Section("data", "Data", "The photos of this evaluation.", data),
    Section("leaks", "Train/test leakage", "Photos that may give the answer away.", leaks),
    Section("left-out", "Skipped photos", "Photos that could not be evaluated, and why.", skipped_photos),
)
