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
    the template, None if there is nothing to show. `suite`: the suite that it shows, or empty. `figures`: those of the
    suite that its first table lists, by path.
    """

    key: str
    title: str
    lead: str
    values: Values = lambda *_: {}
    suite: str = ""
    figures: tuple[str, ...] = ()


SECTIONS = (
    Section(
        "verification",
        "Verification",
        "Do two photos show the same individual or different ones?",
        suites.verification,
        suite="verification",
        figures=(
            "auc",
            "eer",
            "at_bundle_thresholds.balanced.accuracy",
            "best_accuracy",
            "best_accuracy_threshold",
            "best_accuracy_unweighted",
            "average_precision",
            "spearman",
            "tar_at_far.1e-2",
            "tar_at_far.1e-3",
            "tar_at_far.1e-4",
        ),
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
        suite="retrieval",
        figures=(
            "recall_at_1",
            "recall_at_5",
            "recall_at_10",
            "mrr",
            "ndcg_at_10",
            "map_at_r",
            "queries",
            "queries_without_match",
        ),
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
        suite="identification",
        figures=(
            "rank_1",
            "rank_5",
            "rank_10",
            "dir_at_far.1e-1",
            "dir_at_far.1e-2",
            "dir_at_far.1e-3",
            "enrolled_identities",
            "enrolled_photos_per_identity",
            "known_probes",
            "unknown_probes",
        ),
    ),
    Section(
        "clustering",
        "Clustering",
        "Photos grouped by individual without any names.",
        suite="clustering",
    ),
    Section("map", "Embedding map", "A 2-D projection of the embeddings: which individuals are close?"),
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
        suite="background",
    ),
    Section(
        "separation",
        "Separation",
        "The distance between individuals relative to the spread within each.",
        suites.separation,
        suite="separation",
        figures=(
            "d_prime",
            "silhouette",
            "dunn.members",
            "dunn.centroids",
            "dunn.centroids_to_mean",
            "dunn.photos_dropped",
        ),
    ),
    Section(
        "triplets",
        "Triplets",
        "A photo, another one of the same individual (positive), and one of another individual (negative): which is "
        "closer?",
        suite="triplets",
        figures=("violation_rate", "average_margin", "triplets"),
    ),
    Section(
        "overfitting",
        "Overfitting",
        "Individuals the model was trained on against others, in galleries of equal size.",
        suite="overfitting",
        figures=("train_recall_at_1", "test_recall_at_1", "gap", "identities", "photos_per_identity", "draws"),
    ),
    Section(
        "harmonic",
        "Embedding prefixes",
        "Metrics of the first components of the embedding only, and the bytes they save.",
        suites.harmonic,
        "harmonic",
    ),
    Section(
        "lfw",
        "Labeled Faces in the Wild",
        "By that benchmark's own protocol.",
        suites.lfw,
        "lfw",
        ("accuracy", "standard_error", "threshold", "auc", "pairs"),
    ),
    Section("data", "Data", "The photos of this evaluation.", data.data),
    Section("leaks", "Train/test leakage", "Photos that may give the answer away.", data.leaks),
    Section("left-out", "Skipped photos", "Photos that could not be evaluated, and why.", data.skipped_photos),
)
