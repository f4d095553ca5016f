"""The label of each figure: its name, description and number format, and whether more of it is better."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Format = Literal["share", "number", "similarity", "count", "points", "lost points", "milliseconds"]


@dataclass(frozen=True)
class Label:
    """How a figure is shown.

    Attributes:
        name: for readers.
        description: for newcomers; may be empty.
        format: of the value, with its unit.
        lower_is_better: in a comparison of two models.
        printed: name on the command line, if it is another one.
    """

    name: str
    description: str = ""
    format: Format = "number"
    lower_is_better: bool = False
    printed: str = ""


# The figures that the report lists of a suite, in their order.
RETRIEVAL = {
    "recall_at_1": Label("recall@1", "the nearest other photo shows the same individual", "share"),
    "recall_at_5": Label("recall@5", "one of the five nearest photos does", "share"),
    "recall_at_10": Label("recall@10", "one of the ten nearest photos does", "share"),
    "mrr": Label("MRR", "mean of 1 / rank of the first correct photo"),
    "ndcg_at_10": Label("NDCG@10", "correct photos among the ten nearest, weighted by rank"),
    "map_at_r": Label("mAP@R", "mean average precision among the R nearest, R being the number of correct photos"),
    "queries": Label("queries", format="count"),
    "queries_without_match": Label("photos left out", "no other photo of the individual", "count"),
}
VERIFICATION = {
    "auc": Label("ROC AUC", "probability that a same pair is more similar than a different pair"),
    "eer": Label(
        "equal error rate",
        "at the threshold where false accepts and false rejects are equally frequent",
        "share",
        lower_is_better=True,
    ),
    "at_bundle_thresholds.balanced.accuracy": Label(
        "accuracy, balanced threshold",
        "the bundle's, fitted before",
        "share",
        printed="accuracy at the bundle's threshold",
    ),
    "best_accuracy": Label(
        "best accuracy",
        "threshold chosen on these same pairs; same and different pairs with equal total weight",
        "share",
    ),
    "best_accuracy_threshold": Label("threshold of the best accuracy", format="similarity"),
    "best_accuracy_unweighted": Label(
        "best accuracy, unweighted",
        "every pair counts once, as in LFW's tables",
        "share",
    ),
    "average_precision": Label("PR AUC", "average precision of same pairs, the most similar first"),
    "spearman": Label("Spearman", "rank correlation of similarity and same / different"),
    **{
        f"tar_at_far.1e-{n}": Label(
            f"TAR at FAR 1e-{n}", f"same pairs accepted where {100 / 10**n:g} % of different pairs are", "share"
        )
        for n in (2, 3, 4)
    },
}
IDENTIFICATION = {
    "rank_1": Label("rank 1", "the correct individual is the nearest known one", "share"),
    "rank_5": Label("rank 5", "is among the five nearest", "share"),
    "rank_10": Label("rank 10", "is among the ten nearest", "share"),
    **{
        f"dir_at_far.1e-{n}": Label(
            f"DIR at FAR 1e-{n}",
            f"known photos identified where {100 / 10**n:g} % of unknown ones are accepted",
            "share",
        )
        for n in (1, 2, 3)
    },
    "enrolled_identities": Label("identities enrolled", format="count"),
    "enrolled_photos_per_identity": Label("photos per enrolled identity", format="count"),
    "known_probes": Label("photos of known individuals", format="count"),
    "unknown_probes": Label("photos of unknown individuals", format="count"),
}
SEPARATION = {
    "d_prime": Label("d′", "difference of the two mean similarities in standard deviations"),
    "silhouette": Label("silhouette", "1: photos near their own identity and far from others; 0: at a border"),
    "dunn.members": Label("Dunn index, photos", "nearest two photos of two identities / widest identity"),
    "dunn.centroids": Label("Dunn index, centroids", "nearest two centroids / widest identity"),
    "dunn.centroids_to_mean": Label(
        "Dunn index, centroids to mean",
        "nearest two centroids / mean distance within an identity",
    ),
    "dunn.photos_dropped": Label("photos dropped as outliers", format="count"),
}

# Figures whose keys say all, by their format.
_PLAIN: dict[Format, tuple[str, ...]] = {
    "count": (
        *("identities", "photos", "photos_per_identity", "pairs", "same_pairs", "different_pairs", "triplets"),
        *("components", "bytes", "passes", "draws"),
    ),
    "share": ("accuracy", "precision", "recall", "share"),
    "similarity": ("similarity", "threshold", "mean", "minimum", "maximum"),
}

LABELS: dict[str, Label] = {  # by the path of a figure, or the end of it
    **RETRIEVAL,
    **VERIFICATION,
    **IDENTIFICATION,
    **SEPARATION,
    **{key: Label(key.replace("_", " "), format=each) for each, keys in _PLAIN.items() for key in keys},
    "gallery": Label("photos in the gallery", format="count"),
    "eer_threshold": Label("threshold of the equal error rate", format="similarity"),
    "at_bundle_thresholds.balanced.similarity": Label(
        "balanced threshold",
        "the bundle's, fitted before",
        "similarity",
    ),
    "calibration_error": Label(
        "calibration error", "mean difference of predicted and observed probability", "share", lower_is_better=True
    ),
    "k": Label("clusters", format="count"),
    "nmi": Label("NMI", "normalized mutual information, 1 for the true identities"),
    "ami": Label("AMI", "the same, adjusted for chance"),
    "ari": Label("ARI", "adjusted Rand index: agreement on pairs, adjusted for chance"),
    "purity": Label("purity", "photos of their cluster's most frequent identity", "share"),
    "f": Label("F", format="share"),
    "groups": Label("groups found", format="count"),
    "violation_rate": Label(
        "violation rate",
        "triplets whose negative is at least as close as the positive",
        "share",
        lower_is_better=True,
    ),
    "average_margin": Label(
        "average margin",
        "similarity to the positive minus similarity to the negative",
        "similarity",
    ),
    "train_recall_at_1": Label("recall@1, training identities", format="share"),
    "test_recall_at_1": Label("recall@1, unseen identities", format="share"),
    "gap": Label("gap", "the larger, the more the model has overfitted", "points", lower_is_better=True),
    "similarity_drop": Label(
        "similarity lost", "between a photo and its corrupted self", "similarity", lower_is_better=True
    ),
    "recall_at_1_drop": Label("recall@1 lost", format="lost points", lower_is_better=True),
    "auc_drop": Label("AUC lost", lower_is_better=True),
    "recall_at_1_gain": Label("recall@1 gained", format="points"),
    "auc_gain": Label("AUC gained"),
    "ms_per_photo": Label("ms per photo", format="milliseconds", lower_is_better=True),
    "photos_without_face": Label("photos without a face found", "left out", "count"),
    "pixels.recall_at_1": Label("recall@1 of the gray pixels alone", format="share"),
    "pixels.auc": Label("ROC AUC of the gray pixels alone"),
    "pixels.recall_at_1_gain": Label("recall@1 gained by the network", format="points"),
    "network_is_worse": Label("whether the network loses against them"),
    "std": Label("standard deviation", format="similarity"),
    "dir": Label("identified correctly", format="share"),
    "misidentified": Label("identified as another", format="share", lower_is_better=True),
    "rejected": Label("rejected as unknown", format="share"),
    "query_gallery.gallery": Label("photos in the gallery", format="count"),
    "validation_error": Label("calibration error on validation pairs", format="share", lower_is_better=True),
    "groups.pairwise.f": Label("pairwise F", "over pairs of photos in one group", "share"),
    "groups.bcubed.f": Label("B-cubed F", "averaged over photos", "share"),
    "view_1.accuracy": Label("accuracy", format="share", printed="LFW View 1, DevTest"),
    "view_2.accuracy": Label("accuracy", format="share", printed="LFW View 2"),
    "standard_error": Label("standard error", "over the folds", "share"),
    "far": Label("false accepts (FAR)", format="share"),
    "tar": Label("true accepts (TAR)", format="share"),
    "saved_fraction": Label("saved", format="share"),
}

PERCENT, POINTS = "\u00a0%", "\u00a0points"
_IN_POINTS = ("points", "lost points")
_METRIC_FORMATS = ("share", "number", *_IN_POINTS)
_TEMPLATES: dict[Format, str] = {
    "points": "{:+.2f}" + POINTS,
    "lost points": "{:.2f}" + POINTS,
    "similarity": "{:.3f}",
    "count": "{:,}",
    "milliseconds": "{:.1f}",
    "number": "{:.4f}",
}


def find_label(path: str) -> Label:
    """Return the label of the figure at a path such as `verification.tar_at_far.1e-2`, or at the end of one.

    The label of the longest end of the path applies. A figure without a label is called by its path.
    """
    return _label(path) or Label(path.replace("_", " ").replace(".", ", "))


def is_metric(path: str) -> bool:
    """Tell whether the figure at a path says how good a model is: it is no count, setting, threshold or time.

    >>> is_metric("clustering.kmeans.nmi"), is_metric("clustering.kmeans.seed"), is_metric("verification.eer_threshold")
    (True, False, False)
    """
    label = _label(path)
    if label is None or label.format == "milliseconds":
        return False
    return label.lower_is_better or label.format in _METRIC_FORMATS


def _label(path: str) -> Label | None:
    keys = path.split(".")
    ends = (".".join(keys[start:]) for start in range(len(keys)))
    return next((LABELS[end] for end in ends if end in LABELS), None)


def format_figure(path: str, value: float) -> str:
    """Format the value of the figure at `path`, with its unit."""
    value_format = find_label(path).format
    if not math.isfinite(value):
        return str(value)
    if value_format == "share":
        return format_percent(value)
    if value_format == "number" and isinstance(value, int):
        value_format = "count"
    scaled = round(value) if value_format == "count" else 100 * value if value_format in _IN_POINTS else value
    return _TEMPLATES[value_format].format(scaled).replace("-", "−")


def format_percent(share: float) -> str:
    """Format with two decimals, and more for a share that would be 0.00 otherwise: 98.12 %, 0.0040 %."""
    decimals = 2 if share == 0 or abs(share) >= 5e-5 else 2 - math.floor(math.log10(abs(share) * 100)) - 1
    return f"{100 * share:.{decimals}f}{PERCENT}".replace("-", "−")


def format_interval(path: str, interval: Sequence[float]) -> str:
    """Format the interval of the figure at `path`, with its unit written once."""
    low, high = (format_figure(path, end) for end in interval)
    for unit in (PERCENT, POINTS):
        if high.endswith(unit):
            low = low.removesuffix(unit)
    return f"{low} to {high}"
