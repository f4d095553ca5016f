"""The pairs that a model is judged by: those of a file, every pair there is, or a sample of them."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64

from familiar.core.calibration import Calibration
from familiar.metrics.pairs import Pairs, negatives_above, pair_similarities, sample_pairs
from familiar.metrics.roc import MAX_SAME_PAIRS, RocCounts, pair_totals, roc_counts, roc_counts_all_pairs
from familiar.metrics.verification import threshold_above

THRESHOLDS = ("high_precision", "balanced", "high_recall")
RESAMPLED_PAIRS = 50_000  # where all pairs are counted, the intervals are taken from so many of them

WhichPairs = Literal["all", "balanced", "natural"]


@dataclass(frozen=True, eq=False)
class ScoredPairs:
    """The pairs' counts, and `scores` of `pairs` for pictures and intervals: a sample, where all were judged.

    `weights`: how many of the pairs that were judged each of these stands for.
    """

    which: Literal["listed", "all", "balanced", "natural"]
    counts: RocCounts
    scores: Float[np.ndarray, " p"]
    pairs: Pairs
    weights: Float64[np.ndarray, " p"]


def score_pairs(
    embeddings: Float32[np.ndarray, "n d"],
    labels: Int64[np.ndarray, " n"],
    which: WhichPairs,
    count: int,
    calibration: Calibration,
    seed: int,
) -> ScoredPairs:
    """All pairs, or `count` of them: half of each kind ("balanced") or as they come ("natural").

    All pairs are too many where more than 20,000,000 are of one identity: then a balanced sample. The rates at the
    calibrated thresholds are exact. `NothingToMeasure` without pairs of both kinds.
    """
    if which == "all" and pair_totals(labels)[0] <= MAX_SAME_PAIRS:
        thresholds = [getattr(calibration, name).similarity for name in THRESHOLDS]
        counts = roc_counts_all_pairs(embeddings, labels, thresholds)
        pairs, weights = _stand_ins(embeddings, labels, counts, seed)
        return ScoredPairs("all", counts, pair_similarities(embeddings, pairs), pairs, weights)
    drawn = "natural" if which == "natural" else "balanced"
    return score_listed_pairs(embeddings, sample_pairs(labels, count, seed, drawn == "balanced"), drawn)


def _stand_ins(
    embeddings: Float32[np.ndarray, "n d"], labels: Int64[np.ndarray, " n"], counts: RocCounts, seed: int
) -> tuple[Pairs, Float64[np.ndarray, " p"]]:
    """Pairs that stand for all of them in intervals and pictures, and how many each stands for.

    All, where there are not more than `RESAMPLED_PAIRS`. Else the most similar strangers are taken every one, since
    a handful of them decides what happens at few false accepts, and of the others a sample.
    """
    same_total, different_total = pair_totals(labels)
    drawn = sample_pairs(labels, RESAMPLED_PAIRS, seed)
    if same_total + different_total <= RESAMPLED_PAIRS:
        return drawn, np.ones(len(drawn.same))
    many = counts.accepted_different > RESAMPLED_PAIRS // 4
    least = threshold_above(counts, int(np.count_nonzero(many)))
    close = negatives_above(embeddings, labels, least)
    further = ~drawn.same & (pair_similarities(embeddings, drawn) < np.float32(least))
    chosen = drawn.same | further
    pairs = Pairs(
        np.concatenate([drawn.left[chosen], close.left]),
        np.concatenate([drawn.right[chosen], close.right]),
        np.concatenate([drawn.same[chosen], close.same]),
    )
    of_same = same_total / max(int(drawn.same.sum()), 1)
    of_further = (different_total - len(close.left)) / max(int(further.sum()), 1)
    weights = np.where(drawn.same[chosen], of_same, of_further)
    return pairs, np.concatenate([weights, np.ones(len(close.left))])


def score_listed_pairs(
    embeddings: Float32[np.ndarray, "n d"],
    pairs: Pairs,
    which: Literal["listed", "balanced", "natural"] = "listed",
) -> ScoredPairs:
    """These pairs and no others. `NothingToMeasure` without pairs of both kinds."""
    scores = pair_similarities(embeddings, pairs)
    counts = roc_counts(scores[pairs.same], scores[~pairs.same])
    return ScoredPairs(which, counts, scores, pairs, np.ones(len(scores)))
