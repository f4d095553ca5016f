"""What the figures of `eval_results.json` are called on the page, what they say, and how they are written."""

import math
from typing import Literal

Kind = Literal["share", "number", "similarity", "count", "points", "lost points", "milliseconds"]

# Each: its name, what it says to a newcomer, and its kind.
FIGURES: dict[str, tuple[str, str, Kind]] = {
    "recall_at_1": ("recall@1", "the nearest other photo shows the same individual", "share"),
    "recall_at_5": ("recall@5", "one of the five nearest does", "share"),
    "recall_at_10": ("recall@10", "one of the ten nearest does", "share"),
    "mrr": ("MRR", "1 / rank of the first right photo, on average", "number"),
    "ndcg_at_10": ("NDCG@10", "right photos among the ten nearest, early ones counting more", "number"),
    "map_at_r": ("mAP@R", "precision among as many nearest as there are to be found", "number"),
    "queries": ("queries", "", "count"),
    "queries_without_match": ("photos left out", "no other photo of the individual", "count"),
    "gallery": ("photos in the gallery", "", "count"),
    "auc": ("ROC AUC", "chance that a same pair is more similar than a pair of strangers", "number"),
    "average_precision": ("PR AUC", "average precision of same pairs, the most similar first", "number"),
    "eer": ("equal error rate", "where strangers accepted and same rejected are equally frequent", "share"),
    "eer_threshold": ("its threshold", "", "similarity"),
    "spearman": ("Spearman", "rank correlation of similarity and sameness", "number"),
    "best_accuracy": ("best accuracy", "threshold chosen on these very pairs, both kinds weighed alike", "share"),
    "best_accuracy_threshold": ("its threshold", "", "similarity"),
    "best_accuracy_as_listed": ("best accuracy, pairs as they come", "as LFW's tables have it", "share"),
    "at_bundle_thresholds.balanced.accuracy": ("accuracy, balanced", "at the bundle's threshold, set before", "share"),
    "tar_at_far.1e-2": ("TAR at FAR 1e-2", "same accepted where 1 % of strangers are", "share"),
    "tar_at_far.1e-3": ("TAR at FAR 1e-3", "same accepted where 0.1 % of strangers are", "share"),
    "tar_at_far.1e-4": ("TAR at FAR 1e-4", "same accepted where 0.01 % of strangers are", "share"),
    "same_pairs": ("same pairs", "", "count"),
    "different_pairs": ("different pairs", "", "count"),
    "calibration_error": ("calibration error", "how far the probability is off, on average", "share"),
    "k": ("clusters", "", "count"),
    "nmi": ("NMI", "shared information, 1 for the true identities", "number"),
    "ami": ("AMI", "the same less what chance gives", "number"),
    "ari": ("ARI", "pairs put together or apart rightly, less chance", "number"),
    "purity": ("purity", "photos that are in the majority of their cluster", "share"),
    "precision": ("precision", "", "share"),
    "recall": ("recall", "", "share"),
    "f": ("F", "", "share"),
    "groups": ("groups found", "", "count"),
    "identities": ("identities", "", "count"),
    "threshold": ("threshold", "", "similarity"),
    "foreignness": ("foreign to the bundle", "0: photos of the kind it was made for; 1: of quite another", "share"),
    "violation_rate": ("violations", "triplets whose stranger is at least as close", "share"),
    "average_margin": ("average margin", "how much closer one's own is, in similarity", "similarity"),
    "triplets": ("triplets", "", "count"),
    "train_recall_at_1": ("recall@1, trained on", "", "share"),
    "test_recall_at_1": ("recall@1, never seen", "", "share"),
    "gap": ("gap", "the larger, the more was learned by heart", "points"),
    "photos_each": ("photos of each", "", "count"),
    "similarity": ("similarity", "", "similarity"),
    "similarity_drop": ("similarity lost", "between a photo and its degraded self", "similarity"),
    "recall_at_1_drop": ("recall@1 lost", "", "lost points"),
    "auc_drop": ("AUC lost", "", "number"),
    "recall_at_1_gain": ("recall@1 gained", "", "points"),
    "auc_gain": ("AUC gained", "", "number"),
    "ms_a_photo": ("ms a photo", "", "milliseconds"),
    "silhouette": ("silhouette", "1 where own photos are near and others far, 0 at a border", "number"),
    "d_prime": ("d′", "distance of the two hills in their standard deviations", "number"),
    "mean": ("mean", "", "similarity"),
    "std": ("standard deviation", "", "similarity"),
    "enrolled_identities": ("identities enrolled", "", "count"),
    "enrolled_photos_each": ("photos of each", "", "count"),
    "known_probes": ("known photos searched for", "", "count"),
    "unknown_probes": ("unknown photos searched for", "", "count"),
    "dir": ("named rightly", "", "share"),
    "misnamed": ("named as another", "", "share"),
    "refused": ("named as nobody", "", "share"),
    "dunn.members": ("Dunn of photos", "nearest two of two identities / widest identity", "number"),
    "dunn.centroids": ("Dunn of centers", "nearest two centers / widest identity", "number"),
    "dunn.centroids_to_mean": ("Dunn of centers, to the mean", "nearest two / mean distance within one", "number"),
    "dunn.photos_dropped": ("photos dropped as outliers", "", "count"),
    "query_gallery.gallery": ("photos in the gallery", "", "count"),
    "promised_error": ("calibration error promised", "", "share"),
    "groups.pairwise.f": ("pairwise F", "pairs of photos put together", "share"),
    "groups.bcubed.f": ("B-cubed F", "groups as each photo sees them", "share"),
    "rank_1": ("rank 1", "the known individual is named first", "share"),
    "rank_5": ("rank 5", "is among the first five", "share"),
    "rank_10": ("rank 10", "is among the first ten", "share"),
    "dir_at_far.1e-1": ("DIR at FAR 1e-1", "known ones named rightly where 10 % of the unknown get a name", "share"),
    "dir_at_far.1e-2": ("DIR at FAR 1e-2", "known ones named rightly where 1 % of the unknown get a name", "share"),
    "dir_at_far.1e-3": ("DIR at FAR 1e-3", "known ones named rightly where 0.1 % of the unknown get a name", "share"),
    "accuracy": ("accuracy", "", "share"),
    "standard_error": ("standard error", "over the folds", "share"),
    "pairs": ("pairs", "", "count"),
    "photos": ("photos", "", "count"),
    "far": ("strangers accepted", "", "share"),
    "tar": ("same accepted", "", "share"),
    "components": ("components", "", "count"),
    "bytes": ("bytes", "", "count"),
    "saved": ("saved", "", "share"),
    "passes": ("passes", "", "count"),
    "draws": ("draws", "", "count"),
    "share": ("share", "", "share"),
}  # fmt: skip

UNKNOWN: tuple[str, str, Kind] = (
    "",
    "",
    "number",
)  # a figure that this page has not heard of is shown under its own name


def figure(path: str) -> tuple[str, str, Kind]:
    """Name, meaning and kind of the figure at a dotted path, such as `tar_at_far.1e-2`."""
    last = path.rpartition(".")[2]
    found = FIGURES.get(path) or FIGURES.get(last) or UNKNOWN
    return found if found[0] else (path.replace("_", " ").replace(".", ", "), *found[1:])


def written(path: str, value: float) -> str:
    """A figure with its unit."""
    return written_as(figure(path)[2], value)


def written_as(kind: Kind, value: float) -> str:
    """A figure of a kind, with its unit."""
    if not math.isfinite(value):
        return str(value)
    match kind:
        case "share":
            return percent(value)
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


PERCENT, POINTS = "\u00a0%", "\u00a0points"


def percent(share: float) -> str:
    """Two places, and more where those would say nothing: 98.12 %, 0.004 %."""
    places = 2 if share == 0 or abs(share) >= 5e-5 else 2 - math.floor(math.log10(abs(share) * 100)) - 1
    return f"{100 * share:.{places}f}{PERCENT}".replace("-", "−")


def counted(number: int, noun: str) -> str:
    """`3 photos`, `1 identity`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"
