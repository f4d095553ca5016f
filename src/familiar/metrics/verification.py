"""Verification (same identity or not): the metrics of the ROC, computed from the counts of `roc`."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from familiar.core.calibration import Threshold
from familiar.metrics.roc import RocCounts

MIN_FALSE_ACCEPTS = 10  # a rate is stated only if the data has enough pairs for this many
FARS = {"1e-2": 1e-2, "1e-3": 1e-3, "1e-4": 1e-4}


@dataclass(frozen=True)
class Verification:
    """The headline metrics. Both best accuracies choose their threshold on the pairs that they are computed from.

    Attributes:
        same_pairs: number of pairs of one identity.
        different_pairs: number of pairs of two identities.
        auc: area under the ROC curve, in [0, 1].
        average_precision: area under the precision-recall curve, without interpolation, in (0, 1].
        spearman: rank correlation of score and same/different, in [-1, 1].
        eer: equal error rate, in [0, 1].
        eer_threshold: score from which on pairs are accepted at the equal error rate.
        best_accuracy: largest share of correct decisions, in [0, 1]; every pair counts once.
        best_accuracy_threshold: score from which on pairs are accepted for it.
        best_balanced_accuracy: likewise, with equal total weight of same and of different pairs.
        best_balanced_accuracy_threshold: score from which on pairs are accepted for it.
        tar_at_far: by FAR ("1e-2", "1e-3", "1e-4"), the share of same pairs that are accepted, in [0, 1]; None with
            fewer than 10/FAR different pairs.
    """

    same_pairs: int
    different_pairs: int
    auc: float
    average_precision: float
    spearman: float
    eer: float
    eer_threshold: float
    best_accuracy: float
    best_accuracy_threshold: float
    best_balanced_accuracy: float
    best_balanced_accuracy_threshold: float
    tar_at_far: dict[str, float | None]


def verification_metrics(counts: RocCounts) -> Verification:
    """Compute all headline metrics of a set of pairs.

    Args:
        counts: numbers of pairs by score, from `roc_counts` or `roc_counts_all_pairs`.

    Returns:
        The metrics of this module; TAR at a FAR of 1e-2, 1e-3 and 1e-4.
    """
    eer, eer_threshold = equal_error_rate(counts)
    accuracy, accuracy_threshold = best_accuracy(counts)
    balanced, balanced_threshold = best_accuracy(counts, balanced=True)
    points = {name: tar_at_far(counts, far) for name, far in FARS.items()}
    return Verification(
        same_pairs=round(counts.same),
        different_pairs=round(counts.different),
        auc=roc_auc(counts),
        average_precision=average_precision(counts),
        spearman=spearman(counts),
        eer=eer,
        eer_threshold=eer_threshold,
        best_accuracy=accuracy,
        best_accuracy_threshold=accuracy_threshold,
        best_balanced_accuracy=balanced,
        best_balanced_accuracy_threshold=balanced_threshold,
        tar_at_far={name: point.tar if point else None for name, point in points.items()},
    )


def roc_auc(counts: RocCounts) -> float:
    """Compute the probability that a same pair scores above a different one, with ties counted half.

    It is the area under the ROC curve (Hanley and McNeil 1982), in [0, 1].

    Args:
        counts: numbers of pairs by score, from `roc_counts` or `roc_counts_all_pairs`.
    """
    below = counts.different - counts.accepted_different
    return float(counts.same_at @ (below + counts.different_at / 2) / (counts.same * counts.different))


def average_precision(counts: RocCounts) -> float:
    """Compute the sum of (recall step) x (precision there), without interpolation, in (0, 1].

    Same pairs are the positives. The value is that of scikit-learn's `average_precision_score`.

    Args:
        counts: numbers of pairs by score, from `roc_counts` or `roc_counts_all_pairs`.
    """
    steps = counts.same_at > 0
    accepted = counts.accepted_same[steps]
    precision = accepted / (accepted + counts.accepted_different[steps])
    return float(counts.same_at[steps] @ precision / counts.same)


def spearman(counts: RocCounts) -> float:
    """Compute Spearman's rank correlation of score and same/different.

    Pairs between two scores count as untied.

    Args:
        counts: numbers of pairs by score, from `roc_counts` or `roc_counts_all_pairs`.

    Returns:
        The correlation in [-1, 1]; 0 if all pairs are tied.
    """
    total = counts.same + counts.different
    tied = counts.same_at + counts.different_at
    rank_variance = (total**2 - 1) / 12 - float((tied**3 - tied).sum()) / (12 * total)
    if rank_variance <= 1e-12 * total**2:
        return 0.0
    return float((roc_auc(counts) - 0.5) * np.sqrt(counts.same * counts.different / rank_variance))


def equal_error_rate(counts: RocCounts) -> tuple[float, float]:
    """Return the (rate, threshold) at which false accepts and false rejects are equally frequent.

    The middle of an interval of equally good thresholds, else interpolated on the ROC.

    Args:
        counts: numbers of pairs by score, from `roc_counts` or `roc_counts_all_pairs`.

    Returns:
        The rate in [0, 1], and the score from which on pairs are accepted.
    """
    different, same, threshold = _vertices(counts)
    # FAR - FRR, times both totals: in integers, so that comparisons are exact.
    excess = different * counts.same - (counts.same - same) * counts.different
    after = int(np.searchsorted(excess, 0.0, "left"))
    if excess[after] == 0:
        until = int(np.searchsorted(excess, 0.0, "right")) - 1
        return float(different[after]) / counts.different, float(threshold[after] + threshold[until]) / 2
    share = -excess[after - 1] / (excess[after] - excess[after - 1])
    accepted = different[after - 1] + share * (different[after] - different[after - 1])
    middle = threshold[after - 1] + share * (threshold[after] - threshold[after - 1])
    return float(accepted) / counts.different, float(middle)


def best_accuracy(counts: RocCounts, balanced: bool = False) -> tuple[float, float]:
    """Return (accuracy, threshold) of the best threshold, the highest one if several are equally good.

    Args:
        counts: of the pairs.
        balanced: give same and different pairs equal total weight.
    """
    accepted_same = np.append(counts.accepted_same, 0.0)
    accepted_different = np.append(counts.accepted_different, 0.0)
    # In integers, so that comparisons are exact.
    same_weight, different_weight = (counts.different, counts.same) if balanced else (1.0, 1.0)
    correct = same_weight * accepted_same + different_weight * (counts.different - accepted_different)
    best = len(correct) - 1 - int(np.argmax(correct[::-1]))
    total = same_weight * counts.same + different_weight * counts.different
    return float(correct[best] / total), threshold_above(counts, best)


def accuracy_at(counts: RocCounts, threshold: float, balanced: bool = False) -> float:
    """Compute the share of correct decisions, in [0, 1], at a threshold.

    Args:
        counts: numbers of pairs by score, from `roc_counts` or `roc_counts_all_pairs`.
        threshold: score from which on pairs are accepted.
        balanced: give same and different pairs equal total weight.
    """
    (far, tar), weight = rates_at(counts, threshold), _same_weight(counts, balanced)
    return weight * tar + (1 - weight) * (1 - far)


def rates_at(counts: RocCounts, threshold: float) -> tuple[float, float]:
    """Compute FAR and TAR at a threshold.

    Args:
        counts: numbers of pairs by score, from `roc_counts` or `roc_counts_all_pairs`.
        threshold: score from which on pairs are accepted.

    Returns:
        FAR and TAR, in [0, 1]. If all pairs were counted in blocks, FAR is interpolated between two of `counts.scores`;
        otherwise both are exact.
    """
    if np.isnan(threshold):
        raise ValueError("the threshold is not a number")
    above = int(np.searchsorted(counts.scores, threshold, "left"))
    if above == len(counts.scores):
        return 0.0, 0.0
    different = float(counts.accepted_different[above])
    if above > 0:
        low, high = counts.scores[above - 1], counts.scores[above]
        different += float(counts.different_between[above - 1] * (high - threshold) / (high - low))
    return different / counts.different, float(counts.accepted_same[above]) / counts.same


def tar_at_far(counts: RocCounts, far: float) -> Threshold | None:
    """Return the threshold of the largest FAR not above `far`; None with fewer than 10/FAR different pairs.

    Args:
        counts: numbers of pairs by score, from `roc_counts` or `roc_counts_all_pairs`.
        far: share of the different pairs that may be accepted, in (0, 1].

    Returns:
        The threshold with its FAR and TAR.
    """
    if not 0 < far <= 1:
        raise ValueError(f"far must be in (0, 1], got {far}")
    if counts.different * far < MIN_FALSE_ACCEPTS * (1 - 1e-9):
        return None
    return measured_threshold(counts, similarity_at_far(counts, far))


def similarity_at_far(counts: RocCounts, far: float) -> float:
    """Return the threshold of the largest FAR not above `far`, however few pairs there are."""
    too_many = counts.accepted_different > counts.different * far * (1 + 1e-9)
    return threshold_above(counts, int(np.count_nonzero(too_many)))


def measured_threshold(counts: RocCounts, similarity: float) -> Threshold:
    """Return a threshold with its rates on the pairs that were counted."""
    return Threshold(similarity, *rates_at(counts, similarity))


def threshold_above(counts: RocCounts, index: int) -> float:
    """Return a threshold that accepts `scores[index:]` and nothing else, exact in float32 if the scores are.

    It is midway to the next lower score if no pair lies between, so that new pairs may fall on either side.
    """
    scores = counts.scores
    if index == len(scores):
        return float(np.nextafter(np.float32(scores[-1]), np.float32(np.inf)))
    if index > 0 and counts.different_between[index - 1] == 0:
        middle = float(np.float32((scores[index - 1] + scores[index]) / 2))
        if scores[index - 1] < middle <= scores[index]:
            return middle
    return float(scores[index])


def roc_curve(counts: RocCounts, points: int = 2000) -> tuple[Float64[np.ndarray, " v"], Float64[np.ndarray, " v"]]:
    """Return the (FAR, TAR) vertices from (0, 0) to (1, 1), for plotting.

    If there are more than `points`, those nearest to even steps along the curve and to even steps of log FAR are
    selected, so that the curve looks smooth on linear and on logarithmic axes.

    Args:
        counts: numbers of pairs by score, from `roc_counts` or `roc_counts_all_pairs`.
        points: maximum number of vertices, at least 2.

    Returns:
        FAR and TAR of each vertex, "v" each, both rising.
    """
    different, same, _ = _vertices(counts)
    far, tar = different / counts.different, same / counts.same
    if len(far) <= points:
        return far, tar
    half = points // 2
    even = np.searchsorted(far + tar, np.linspace(0, 2, half))
    even_log = np.searchsorted(far, np.geomspace(1 / counts.different, 1, points - half - 1))
    selected = np.unique(np.minimum(np.concatenate([even, even_log, [len(far) - 1]]), len(far) - 1))
    return far[selected], tar[selected]


def _vertices(
    counts: RocCounts,
) -> tuple[Float64[np.ndarray, " v"], Float64[np.ndarray, " v"], Float64[np.ndarray, " v"]]:
    """Return different pairs accepted, same pairs accepted, and threshold at the vertices of the ROC from (0, 0) on.

    From each score the ROC goes first horizontally through the different pairs below it, then diagonally through the
    ties of the next score.
    """
    size = len(counts.scores)
    different, same, threshold = (np.empty(2 * size) for _ in range(3))
    different[0], same[0], threshold[0] = 0.0, 0.0, counts.scores[-1]
    different[1::2] = counts.accepted_different[::-1]
    same[1::2] = counts.accepted_same[::-1]
    threshold[1::2] = counts.scores[::-1]
    different[2::2] = different[1:-1:2] + counts.different_between[-2::-1]
    same[2::2] = same[1:-1:2]
    threshold[2::2] = threshold[3::2]
    return different, same, threshold


def _same_weight(counts: RocCounts, balanced: bool) -> float:
    return 0.5 if balanced else counts.same / (counts.same + counts.different)
