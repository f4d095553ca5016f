"""The pairs that verification is measured on: those of a file, all pairs, or a sample of them."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64

from familiar.core.calibration import Calibration
from familiar.metrics.pairs import Pairs, negatives_above, pair_similarities, sample_pairs
from familiar.metrics.roc import MAX_SAME_PAIRS, RocCounts, pair_totals, roc_counts, roc_counts_all_pairs
from familiar.metrics.verification import threshold_above

THRESHOLDS = ("high_precision", "balanced", "high_recall")
MAX_INTERVAL_PAIRS = 50_000  # of all pairs, intervals are computed from a sample of this size

PairSampling = Literal["all", "balanced", "natural"]


@dataclass(frozen=True, eq=False)
class ScoredPairs:
    """Counts of the pairs' similarities, and listed pairs for plots and intervals.

    `scores`: similarities of `pairs`, a weighted sample if all pairs are counted. `weights`: the number of pairs that
    each of them represents.
    """

    sampling: Literal["listed", "all", "balanced", "natural"]
    counts: RocCounts
    scores: Float[np.ndarray, " p"]
    pairs: Pairs
    weights: Float64[np.ndarray, " p"]


def score_pairs(
    embeddings: Float32[np.ndarray, "n d"],
    labels: Int64[np.ndarray, " n"],
    sampling: PairSampling,
    count: int,
    calibration: Calibration,
    seed: int,
) -> ScoredPairs:
    """Score all pairs, or a sample of them.

    Args:
        embeddings: unit rows.
        labels: the identity of each row.
        sampling: "all", or `count` pairs: half of them same ("balanced") or with the natural ratio ("natural"). More
            than 20,000,000 same pairs are too many for "all"; a balanced sample is taken instead.
        count: size of the sample.
        calibration: the rates at its thresholds are exact.
        seed: of the sample.

    Raises:
        NothingToMeasure: there are no same pairs or no different ones.
    """
    if sampling == "all" and pair_totals(labels)[0] <= MAX_SAME_PAIRS:
        thresholds = [getattr(calibration, name).similarity for name in THRESHOLDS]
        counts = roc_counts_all_pairs(embeddings, labels, thresholds)
        pairs, weights = _weighted_sample(embeddings, labels, counts, seed)
        return ScoredPairs("all", counts, pair_similarities(embeddings, pairs), pairs, weights)
    drawn = "natural" if sampling == "natural" else "balanced"
    return score_listed_pairs(embeddings, sample_pairs(labels, count, seed, drawn == "balanced"), drawn)


def _weighted_sample(
    embeddings: Float32[np.ndarray, "n d"], labels: Int64[np.ndarray, " n"], counts: RocCounts, seed: int
) -> tuple[Pairs, Float64[np.ndarray, " p"]]:
    """Sample pairs for intervals and plots, with the number of pairs that each represents.

    All pairs if there are at most `MAX_INTERVAL_PAIRS`. Else all of the most similar different pairs, since a handful
    of these decides what happens at few false accepts, and a sample of the others.
    """
    same_total, different_total = pair_totals(labels)
    drawn = sample_pairs(labels, MAX_INTERVAL_PAIRS, seed)
    if same_total + different_total <= MAX_INTERVAL_PAIRS:
        return drawn, np.ones(len(drawn.same))
    too_many = counts.accepted_different > MAX_INTERVAL_PAIRS // 4
    min_similarity = threshold_above(counts, int(np.count_nonzero(too_many)))
    closest = negatives_above(embeddings, labels, min_similarity)
    farther = ~drawn.same & (pair_similarities(embeddings, drawn) < np.float32(min_similarity))
    mask = drawn.same | farther
    pairs = Pairs(
        np.concatenate([drawn.left[mask], closest.left]),
        np.concatenate([drawn.right[mask], closest.right]),
        np.concatenate([drawn.same[mask], closest.same]),
    )
    same_weight = same_total / max(int(drawn.same.sum()), 1)
    farther_weight = (different_total - len(closest.left)) / max(int(farther.sum()), 1)
    weights = np.where(drawn.same[mask], same_weight, farther_weight)
    return pairs, np.concatenate([weights, np.ones(len(closest.left))])


def score_listed_pairs(
    embeddings: Float32[np.ndarray, "n d"],
    pairs: Pairs,
    sampling: Literal["listed", "balanced", "natural"] = "listed",
) -> ScoredPairs:
    """Score exactly these pairs.

    Raises:
        NothingToMeasure: there are no same pairs or no different ones.
    """
    scores = pair_similarities(embeddings, pairs)
    counts = roc_counts(scores[pairs.same], scores[~pairs.same])
    return ScoredPairs(sampling, counts, scores, pairs, np.ones(len(scores)))
