"""Names, descriptions and number formats of the metrics in `eval_results.json`."""

import math
from collections.abc import Sequence
from typing import Literal

Format = Literal["share", "number", "similarity", "count", "points", "lost points", "milliseconds"]

# By the path of a metric, or the last key of it: name, description for newcomers, format.
METRICS: dict[str, tuple[str, str, Format]] = {
    "recall_at_1": ("recall@1", "the nearest other photo shows the same individual", "share"),
    "recall_at_5": ("recall@5", "one of the five nearest photos does", "share"),
    "recall_at_10": ("recall@10", "one of the ten nearest photos does", "share"),
    "mrr": ("MRR", "mean of 1 / rank of the first correct photo", "number"),
    "ndcg_at_10": ("NDCG@10", "correct photos among the ten nearest, weighted by rank", "number"),
    "map_at_r": ("mAP@R", "mean average precision among the R nearest, R being the number of correct photos", "number"),
    "queries": ("queries", "", "count"),
    "queries_without_match": ("photos left out", "no other photo of the individual", "count"),
    "gallery": ("photos in the gallery", "", "count"),
    "auc": ("ROC AUC", "probability that a same pair is more similar than a different pair", "number"),
    "average_precision": ("PR AUC", "average precision of same pairs, the most similar first", "number"),
    "eer": ("equal error rate", "at the threshold where false accepts and false rejects are equally frequent", "share"),
    "eer_threshold": ("threshold of the equal error rate", "", "similarity"),
    "spearman": ("Spearman", "rank correlation of similarity and same / different", "number"),
    "best_accuracy": (
        "best accuracy",
        "threshold chosen on these same pairs; same and different pairs with equal total weight",
        "share",
    ),
    "best_accuracy_threshold": ("threshold of the best accuracy", "", "similarity"),
    "best_accuracy_unweighted": ("best accuracy, unweighted", "every pair counts once, as in LFW's tables", "share"),
    "at_bundle_thresholds.balanced.accuracy": ("accuracy, balanced threshold", "the bundle's, fitted before", "share"),
    "at_bundle_thresholds.balanced.similarity": ("balanced threshold", "the bundle's, fitted before", "similarity"),
    "tar_at_far.1e-2": ("TAR at FAR 1e-2", "same pairs accepted where 1 % of different pairs are", "share"),
    "tar_at_far.1e-3": ("TAR at FAR 1e-3", "same pairs accepted where 0.1 % of different pairs are", "share"),
    "tar_at_far.1e-4": ("TAR at FAR 1e-4", "same pairs accepted where 0.01 % of different pairs are", "share"),
    "same_pairs": ("same pairs", "", "count"),
    "different_pairs": ("different pairs", "", "count"),
    "calibration_error": ("calibration error", "mean difference of predicted and observed probability", "share"),
    "k": ("clusters", "", "count"),
    "nmi": ("NMI", "normalized mutual information, 1 for the true identities", "number"),
    "ami": ("AMI", "the same, adjusted for chance", "number"),
    "ari": ("ARI", "adjusted Rand index: agreement on pairs, adjusted for chance", "number"),
    "purity": ("purity", "photos of their cluster's most frequent identity", "share"),
    "precision": ("precision", "", "share"),
    "recall": ("recall", "", "share"),
    "f": ("F", "", "share"),
    "groups": ("groups found", "", "count"),
    "identities": ("identities", "", "count"),
    "threshold": ("threshold", "", "similarity"),
    "domain_shift": ("domain shift", "0: the domain the bundle was made for; 1: a quite different one", "share"),
    "violation_rate": ("violation rate", "triplets whose negative is at least as close as the positive", "share"),
    "average_margin": ("average margin", "similarity to the positive minus similarity to the negative", "similarity"),
    "triplets": ("triplets", "", "count"),
    "train_recall_at_1": ("recall@1, training identities", "", "share"),
    "test_recall_at_1": ("recall@1, unseen identities", "", "share"),
    "gap": ("gap", "the larger, the more the model has overfitted", "points"),
    "photos_per_identity": ("photos per identity", "", "count"),
    "similarity": ("similarity", "", "similarity"),
    "similarity_drop": ("similarity lost", "between a photo and its corrupted self", "similarity"),
    "recall_at_1_drop": ("recall@1 lost", "", "lost points"),
    "auc_drop": ("AUC lost", "", "number"),
    "recall_at_1_gain": ("recall@1 gained", "", "points"),
    "auc_gain": ("AUC gained", "", "number"),
    "ms_per_photo": ("ms per photo", "", "milliseconds"),
    "photos_without_face": ("photos without a face found", "left out", "count"),
    "silhouette": ("silhouette", "1: photos near their own identity and far from others; 0: at a border", "number"),
    "d_prime": ("d′", "difference of the two mean similarities in standard deviations", "number"),
    "mean": ("mean", "", "similarity"),
    "std": ("standard deviation", "", "similarity"),
    "minimum": ("minimum", "", "similarity"),
    "maximum": ("maximum", "", "similarity"),
    "enrolled_identities": ("identities enrolled", "", "count"),
    "enrolled_photos_per_identity": ("photos per enrolled identity", "", "count"),
    "known_probes": ("photos of known individuals", "", "count"),
    "unknown_probes": ("photos of unknown individuals", "", "count"),
    "dir": ("identified correctly", "", "share"),
    "misidentified": ("identified as another", "", "share"),
    "rejected": ("rejected as unknown", "", "share"),
    "dunn.members": ("Dunn index, photos", "nearest two photos of two identities / widest identity", "number"),
    "dunn.centroids": ("Dunn index, centroids", "nearest two centroids / widest identity", "number"),
    "dunn.centroids_to_mean": (
        "Dunn index, centroids to mean",
        "nearest two centroids / mean distance within an identity",
        "number",
    ),
    "dunn.photos_dropped": ("photos dropped as outliers", "", "count"),
    "query_gallery.gallery": ("photos in the gallery", "", "count"),
    "validation_error": ("calibration error on validation pairs", "", "share"),
    "groups.pairwise.f": ("pairwise F", "over pairs of photos in one group", "share"),
    "groups.bcubed.f": ("B-cubed F", "averaged over photos", "share"),
    "rank_1": ("rank 1", "the correct individual is the nearest known one", "share"),
    "rank_5": ("rank 5", "is among the five nearest", "share"),
    "rank_10": ("rank 10", "is among the ten nearest", "share"),
    "dir_at_far.1e-1": ("DIR at FAR 1e-1", "known photos identified where 10 % of unknown ones are accepted", "share"),
    "dir_at_far.1e-2": ("DIR at FAR 1e-2", "known photos identified where 1 % of unknown ones are accepted", "share"),
    "dir_at_far.1e-3": ("DIR at FAR 1e-3", "known photos identified where 0.1 % of unknown ones are accepted", "share"),
    "accuracy": ("accuracy", "", "share"),
    "standard_error": ("standard error", "over the folds", "share"),
    "pairs": ("pairs", "", "count"),
    "photos": ("photos", "", "count"),
    "far": ("false accepts (FAR)", "", "share"),
    "tar": ("true accepts (TAR)", "", "share"),
    "components": ("components", "", "count"),
    "bytes": ("bytes", "", "count"),
    "saved_fraction": ("saved", "", "share"),
    "passes": ("passes", "", "count"),
    "draws": ("draws", "", "count"),
    "share": ("share", "", "share"),
}  # fmt: skip

PERCENT, POINTS = "\u00a0%", "\u00a0points"


def describe_metric(path: str) -> tuple[str, str, Format]:
    """Return name, description and format of the metric at a dotted path such as `tar_at_far.1e-2`.

    A metric that is not in `METRICS` is called by its path.
    """
    last_key = path.rpartition(".")[2]
    unknown: tuple[str, str, Format] = (path.replace("_", " ").replace(".", ", "), "", "number")
    return METRICS.get(path) or METRICS.get(last_key) or unknown


def format_metric(path: str, value: float) -> str:
    """Format the value of the metric at `path`, with its unit."""
    return format_value(describe_metric(path)[2], value)


def format_value(value_format: Format, value: float) -> str:
    """Format a number, with its unit."""
    if not math.isfinite(value):
        return str(value)
    match value_format:
        case "share":
            return format_percent(value)
        case "points":
            return f"{100 * value:+.2f}{POINTS}".replace("-", "−")
        case "lost points":
            return f"{100 * value:.2f}{POINTS}".replace("-", "−")
        case "similarity":
            return f"{value:.3f}".replace("-", "−")
        case "count":
            return f"{round(value):,}"
        case "milliseconds":
            return f"{value:.1f}"
        case "number":
            return (f"{value:,}" if isinstance(value, int) else f"{value:.4f}").replace("-", "−")


def format_percent(share: float) -> str:
    """Format with two decimals, and more for a share that would be 0.00 otherwise: 98.12 %, 0.0040 %."""
    decimals = 2 if share == 0 or abs(share) >= 5e-5 else 2 - math.floor(math.log10(abs(share) * 100)) - 1
    return f"{100 * share:.{decimals}f}{PERCENT}".replace("-", "−")


def format_interval(path: str, interval: Sequence[float]) -> str:
    """Format the interval of the metric at `path`, with its unit written once."""
    low, high = (format_metric(path, end) for end in interval)
    for unit in (PERCENT, POINTS):
        if high.endswith(unit):
            low = low.removesuffix(unit)
    return f"{low} to {high}"
