"""Pairs of photos to judge: listed, or drawn with a seed."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Int, Int64

from familiar.core.blockwise import blocks, map_blocks, similarities, unit_rows
from familiar.metrics.roc import MAX_SAME_PAIRS, RocCounts, pair_totals, roc_counts, roc_counts_all_pairs


@dataclass(frozen=True, eq=False)
class Pairs:
    """Rows to compare: `left[i]` with `right[i]`, `same[i]` where both show one identity."""

    left: Int64[np.ndarray, " p"]
    right: Int64[np.ndarray, " p"]
    same: Bool[np.ndarray, " p"]


def sample_pairs(labels: Int[np.ndarray, " n"], count: int = 5000, seed: int = 0, balanced: bool = True) -> Pairs:
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


def negatives_above(embeddings: Float32[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], similarity: float) -> Pairs:
    """Every pair of two identities that is at least so similar, found in blocks."""
    order = np.argsort(labels, kind="stable")
    ends = np.searchsorted(labels, labels[order], "right", sorter=order)
    rows = unit_rows(embeddings)[order]

    def above(part: slice) -> tuple[Int64[np.ndarray, " k"], Int64[np.ndarray, " k"]]:
        start = part.start
        row, column = np.nonzero(similarities(rows[part], rows[start:]) >= np.float32(similarity))
        stranger = column + start >= ends[part][row]  # behind a row's identity: each pair once
        return order[row[stranger] + start], order[column[stranger] + start]

    found = map_blocks(above, len(rows), len(rows), None)
    none = np.empty(0, np.int64)
    left = np.concatenate([none, *(left for left, _ in found)])
    right = np.concatenate([none, *(right for _, right in found)])
    return Pairs(np.minimum(left, right), np.maximum(left, right), np.zeros(len(left), bool))


def all_counts(embeddings: Float32[np.ndarray, "n d"], labels: Int[np.ndarray, " n"]) -> RocCounts:
    """Of all pairs, or where more than twenty million are of one identity, of as many drawn."""
    if pair_totals(labels)[0] <= MAX_SAME_PAIRS:
        return roc_counts_all_pairs(embeddings, labels)
    pairs = sample_pairs(labels, MAX_SAME_PAIRS, seed=0)
    scores = pair_similarities(embeddings, pairs)
    return roc_counts(scores[pairs.same], scores[~pairs.same])


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
