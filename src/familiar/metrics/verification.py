"""Same identity or not? Every figure of the ROC, from the counted pairs of `roc`."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from familiar.metrics.roc import RocCounts

MIN_FALSE_ACCEPTS = 10  # a rate is stated only where the data can hold this many
FARS = {"1e-2": 1e-2, "1e-3": 1e-3, "1e-4": 1e-4}


@dataclass(frozen=True)
class OperatingPoint:
    """A pair is accepted from `similarity` on; `far` of the different and `tar` of the same pairs are."""

    similarity: float
    far: float
    tar: float


@dataclass(frozen=True)
class Verification:
    """The headline figures. `tar_at_far` is None where there are fewer than 10/FAR different pairs.

    `best_accuracy` weighs pairs as they come, `best_balanced_accuracy` the two kinds alike; both choose
    their threshold on the very pairs they judge.
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


def verification(counts: RocCounts) -> Verification:
    """All headline figures of one set of pairs."""
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
    """Probability that a same pair scores above a different one, ties half."""
    below = counts.different - counts.accepted_different
    return float(counts.same_at @ (below + counts.different_at / 2) / (counts.same * counts.different))


def average_precision(counts: RocCounts) -> float:
    """Sum of (recall step) x (precision there), without interpolation: scikit-learn's PR AUC."""
    steps = counts.same_at > 0
    accepted = counts.accepted_same[steps]
    precision = accepted / (accepted + counts.accepted_different[steps])
    return float(counts.same_at[steps] @ precision / counts.same)


def spearman(counts: RocCounts) -> float:
    """Rank correlation of score and sameness. Pairs between two scores count as untied; 0 if all are tied."""
    total = counts.same + counts.different
    tied = counts.same_at + counts.different_at
    rank_variance = (total**2 - 1) / 12 - float((tied**3 - tied).sum()) / (12 * total)
    if rank_variance <= 1e-12 * total**2:
        return 0.0
    return float((roc_auc(counts) - 0.5) * np.sqrt(counts.same * counts.different / rank_variance))


def equal_error_rate(counts: RocCounts) -> tuple[float, float]:
    """(rate, threshold) where false accepts and false rejects are equally frequent, on the ROC's line.

    Where a stretch of thresholds does equally well, its middle; elsewhere interpolated.
    """
    different, same, threshold = _vertices(counts)
    # FAR less FRR, times both totals: in whole numbers, so that equal means equal.
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
    """(accuracy, threshold) of the best threshold; the highest one where several are equally good.

    `balanced` gives both kinds of pairs the same total weight.
    """
    accepted_same = np.append(counts.accepted_same, 0.0)
    accepted_different = np.append(counts.accepted_different, 0.0)
    # In whole numbers, so that equally good means equal.
    each_same, each_different = (counts.different, counts.same) if balanced else (1.0, 1.0)
    right = each_same * accepted_same + each_different * (counts.different - accepted_different)
    best = len(right) - 1 - int(np.argmax(right[::-1]))
    whole = each_same * counts.same + each_different * counts.different
    return float(right[best] / whole), threshold_above(counts, best)


def accuracy_at(counts: RocCounts, threshold: float, balanced: bool = False) -> float:
    """Share of pairs judged right when those from `threshold` on are accepted."""
    point, weight = rates_at(counts, threshold), _same_weight(counts, balanced)
    return weight * point.tar + (1 - weight) * (1 - point.far)


def rates_at(counts: RocCounts, threshold: float) -> OperatingPoint:
    """FAR and TAR at a threshold; FAR is interpolated between two of `counts.scores`."""
    above = int(np.searchsorted(counts.scores, threshold, "left"))
    if above == len(counts.scores):
        return OperatingPoint(threshold, 0.0, 0.0)
    different = float(counts.accepted_different[above])
    if above > 0:
        low, high = counts.scores[above - 1], counts.scores[above]
        different += float(counts.different_between[above - 1] * (high - threshold) / (high - low))
    return OperatingPoint(threshold, different / counts.different, float(counts.accepted_same[above]) / counts.same)


def tar_at_far(counts: RocCounts, far: float) -> OperatingPoint | None:
    """The point of the largest FAR not above `far`; None with fewer than 10/FAR different pairs."""
    if counts.different * far < MIN_FALSE_ACCEPTS * (1 - 1e-9):
        return None
    return point_at_far(counts, far)


def point_at_far(counts: RocCounts, far: float) -> OperatingPoint:
    """As `tar_at_far`, however few pairs there are."""
    too_many = counts.accepted_different > counts.different * far * (1 + 1e-9)
    return rates_at(counts, threshold_above(counts, int(np.count_nonzero(too_many))))


def threshold_above(counts: RocCounts, at: int) -> float:
    """A threshold, exact in float32 if the scores are, that accepts `scores[at:]` and nothing else.

    Midway to the next lower score where no pair lies between: new pairs fall on either side.
    """
    scores = counts.scores
    if at == len(scores):
        return float(np.nextafter(np.float32(scores[-1]), np.float32(np.inf)))
    if at > 0 and counts.different_between[at - 1] == 0:
        middle = float(np.float32((scores[at - 1] + scores[at]) / 2))
        if scores[at - 1] < middle <= scores[at]:
            return middle
    return float(scores[at])


def roc_curve(counts: RocCounts, points: int = 2000) -> tuple[Float64[np.ndarray, " v"], Float64[np.ndarray, " v"]]:
    """(FAR, TAR) vertices from (0, 0) to (1, 1), for plotting.

    Of more than `points`, those nearest to even steps along the curve and to even steps of log FAR are
    kept, so that both kinds of axes look whole.
    """
    different, same, _ = _vertices(counts)
    far, tar = different / counts.different, same / counts.same
    if len(far) <= points:
        return far, tar
    half = points // 2
    even = np.searchsorted(far + tar, np.linspace(0, 2, half))
    even_log = np.searchsorted(far, np.geomspace(1 / counts.different, 1, points - half - 1))
    kept = np.unique(np.minimum(np.concatenate([even, even_log, [len(far) - 1]]), len(far) - 1))
    return far[kept], tar[kept]


def _vertices(
    counts: RocCounts,
) -> tuple[Float64[np.ndarray, " v"], Float64[np.ndarray, " v"], Float64[np.ndarray, " v"]]:
    """Different and same pairs accepted, and threshold, at the ROC's corners from (0, 0) on.

    From each score, first straight on through the different pairs below it, then aslant through the
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
