"""How far a figure may be trusted: pairs drawn with a seed, and 95 % intervals over resampled identities.

Photos of one individual are not independent, so identities are resampled, not photos or pairs. An
identity drawn w times weighs its pairs instead of being copied (a copy would be a perfect match of
itself): same pairs count w_i times, different ones w_i w_j times.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int, Int64

from familiar.core.errors import NothingToMeasure
from familiar.metrics.retrieval import RankedQueries, blocks, unit_rows
from familiar.metrics.verification import (
    FARS,
    RocCounts,
    accuracy_at,
    average_precision,
    best_accuracy,
    equal_error_rate,
    point_at_far,
    roc_auc,
    roc_counts,
    tar_at_far,
)

Interval = tuple[float, float]

_FIGURES: dict[str, Callable[[RocCounts], float]] = {
    "auc": roc_auc,
    "average_precision": average_precision,
    "eer": lambda counts: equal_error_rate(counts)[0],
    "best_accuracy": lambda counts: best_accuracy(counts)[0],
    "best_balanced_accuracy": lambda counts: best_accuracy(counts, balanced=True)[0],
}


@dataclass(frozen=True, eq=False)
class Pairs:
    """Rows to compare: `left[i]` with `right[i]`, `same[i]` where both show one identity."""

    left: Int64[np.ndarray, " p"]
    right: Int64[np.ndarray, " p"]
    same: Bool[np.ndarray, " p"]


def sample_pairs(
    labels: Int[np.ndarray, " n"], count: int = 5000, seed: int = 0, balanced: bool = True
) -> Pairs:
    """`count` of the n (n - 1) / 2 pairs, none twice, same pairs first; all where there are not more.

    `balanced`: half of them same; where one kind runs short, all of it and more of the other.
    Otherwise every pair is equally likely.
    """
    order = np.argsort(labels, kind="stable")
    ends = np.searchsorted(labels, labels[order], "right", sorter=order)
    # In this order a row's later partners are first its own identity, then all others.
    next_row = np.arange(1, len(labels) + 1)
    same_partners, different_partners = ends - next_row, len(labels) - ends
    same_total, different_total = int(same_partners.sum()), int(different_partners.sum())

    rng = np.random.default_rng(seed)
    if balanced:
        different_count = min(different_total, count - min(same_total, count // 2))
        same_numbers = _draw(rng, same_total, count - different_count)
        different_numbers = _draw(rng, different_total, different_count)
    else:
        numbers = _draw(rng, same_total + different_total, count)
        same_numbers = numbers[numbers < same_total]
        different_numbers = numbers[numbers >= same_total] - same_total
    same_left, same_right = _numbered(same_numbers, next_row, same_partners)
    different_left, different_right = _numbered(different_numbers, ends, different_partners)
    left = order[np.concatenate([same_left, different_left])]
    right = order[np.concatenate([same_right, different_right])]
    same = np.arange(len(left)) < len(same_left)
    return Pairs(np.minimum(left, right), np.maximum(left, right), same)


def pair_similarities(embeddings: Float32[np.ndarray, "n d"], pairs: Pairs) -> Float32[np.ndarray, " p"]:
    """Similarities of the pairs' unit rows, the same numbers as in `roc_counts_all_pairs`."""
    rows = unit_rows(embeddings)
    scores = np.empty(len(pairs.left), np.float32)
    for part in blocks(len(scores), rows.shape[1], None):
        scores[part] = np.einsum("pd,pd->p", rows[pairs.left[part]], rows[pairs.right[part]])
    return np.clip(scores, -1.0, 1.0, out=scores)


def verification_intervals(
    scores: Float[np.ndarray, " p"],
    left_labels: Int[np.ndarray, " p"],
    right_labels: Int[np.ndarray, " p"],
    threshold: float | None = None,
    replicates: int = 200,
    seed: int = 0,
) -> dict[str, Interval]:
    """95 % intervals of the figures of these pairs, named as in `Verification`.

    With `threshold` also `accuracy_at_threshold`; `tar_at_far_1e-3` and the like where the pairs are
    enough for it. A replicate that drew no same or no different pair is left out. Raises
    `NothingToMeasure` as `roc_counts` does.
    """
    same = left_labels == right_labels
    whole = roc_counts(scores[same], scores[~same])
    figures = dict(_FIGURES)
    if threshold is not None:
        figures["accuracy_at_threshold"] = lambda counts: accuracy_at(counts, threshold)
    for name, far in FARS.items():
        if tar_at_far(whole, far):
            figures[f"tar_at_far_{name}"] = lambda counts, far=far: point_at_far(counts, far).tar

    at = np.searchsorted(whole.scores, scores)
    identities, index = np.unique(np.concatenate([left_labels, right_labels]), return_inverse=True)
    left, right = np.split(index, 2)
    drawn: list[list[float]] = []
    for weight in _resampled(len(identities), replicates, seed):
        weights = np.where(same, weight[left], weight[left] * weight[right])
        try:
            counts = RocCounts(
                whole.scores,
                np.bincount(at[same], weights[same], len(whole.scores)),
                np.bincount(at[~same], weights[~same], len(whole.scores)),
                whole.different_between,
            )
        except NothingToMeasure:
            continue
        drawn.append([figure(counts) for figure in figures.values()])
    return _intervals(list(figures), drawn)


def retrieval_intervals(
    ranked: RankedQueries, ks: Sequence[int] = (1, 5, 10), replicates: int = 200, seed: int = 0
) -> dict[str, Interval]:
    """95 % intervals of recall_at_k, mrr and ndcg_at_10: the queries are resampled, the gallery stays."""
    figures = ranked.figures(ks)
    identities, index = np.unique(ranked.identity, return_inverse=True)
    queries = np.bincount(index)
    sums = np.stack([np.bincount(index, values) for values in figures.values()])
    weights = _resampled(len(identities), replicates, seed)
    return _intervals(list(figures), [(sums @ weight / (queries @ weight)).tolist() for weight in weights])


def _draw(rng: np.random.Generator, total: int, count: int) -> Int64[np.ndarray, " p"]:
    """`count` different numbers below `total`, ascending; all where there are not more."""
    return np.sort(rng.choice(total, min(count, total), replace=False, shuffle=False))


def _numbered(
    numbers: Int64[np.ndarray, " p"], first: Int64[np.ndarray, " n"], partners: Int64[np.ndarray, " n"]
) -> tuple[Int64[np.ndarray, " p"], Int64[np.ndarray, " p"]]:
    """The pairs of these numbers, counted row by row: row i pairs with `partners[i]` rows from `first[i]` on."""
    up_to = np.cumsum(partners)
    row = np.searchsorted(up_to, numbers, "right")
    return row, first[row] + numbers - (up_to - partners)[row]


def _resampled(identities: int, replicates: int, seed: int) -> Iterator[Float64[np.ndarray, " c"]]:
    """How often each identity is drawn, in each replicate."""
    rng = np.random.default_rng(seed)
    for _ in range(replicates):
        drawn = rng.integers(identities, size=identities)
        yield np.bincount(drawn, minlength=identities).astype(np.float64)


def _intervals(names: list[str], drawn: list[list[float]]) -> dict[str, Interval]:
    if not drawn:
        raise NothingToMeasure("bootstrap: no replicate had both same and different pairs")
    low, high = np.quantile(np.array(drawn), [0.025, 0.975], axis=0)
    return {name: (float(low[i]), float(high[i])) for i, name in enumerate(names)}
