"""Pairs of photos: listed, or sampled with a seed."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int, Int64

from familiar.core.blockwise import blocks, map_blocks, similarities, unit_rows
from familiar.metrics.roc import MAX_SAME_PAIRS, RocCounts, pair_totals, roc_counts, roc_counts_all_pairs
from familiar.metrics.validation import check_columns, check_finite_rows


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of photos, by row number.

    Attributes:
        left: row of each pair's first photo, "p".
        right: row of each pair's second photo, "p".
        same: whether both show the same identity, "p".
    """

    left: Int64[np.ndarray, " p"]
    right: Int64[np.ndarray, " p"]
    same: Bool[np.ndarray, " p"]


def sample_pairs(labels: Int[np.ndarray, " n"], count: int = 5000, seed: int = 0, balanced: bool = True) -> Pairs:
    """Sample `count` of the n (n - 1) / 2 pairs without replacement, or all if there are fewer; same pairs first.

    Args:
        labels: the identity of each row.
        count: number of pairs.
        seed: of the sample.
        balanced: sample half of the pairs from the same ones; if there are too few same or different pairs, take more
            of the others. Otherwise every pair is equally likely.

    Raises:
        ValueError: the labels are not integers of one axis, or `count` is below 0.
    """
    check_columns(integers={"labels": labels})
    if count < 0:
        raise ValueError(f"count must be 0 or more, got {count}")
    order = np.argsort(labels, kind="stable")
    ends = np.searchsorted(labels, labels[order], "right", sorter=order)
    # In this order the rows after a row are first those of its own identity, then all others.
    next_row = np.arange(1, len(labels) + 1)
    same_partners, different_partners = ends - next_row, len(labels) - ends
    same_total, different_total = int(same_partners.sum()), int(different_partners.sum())

    rng = np.random.default_rng(seed)
    if balanced:
        different_count = min(different_total, count - min(same_total, count // 2))
        same_indices = _draw(rng, same_total, count - different_count)
        different_indices = _draw(rng, different_total, different_count)
    else:
        indices = _draw(rng, same_total + different_total, count)
        same_indices = indices[indices < same_total]
        different_indices = indices[indices >= same_total] - same_total
    same_left, same_right = _pairs_from_indices(same_indices, next_row, same_partners)
    different_left, different_right = _pairs_from_indices(different_indices, ends, different_partners)
    left = order[np.concatenate([same_left, different_left])]
    right = order[np.concatenate([same_right, different_right])]
    same = np.arange(len(left)) < len(same_left)
    return Pairs(np.minimum(left, right), np.maximum(left, right), same)


def same_pairs_of_each_identity(
    labels: Int[np.ndarray, " n"], max_photos: int
) -> tuple[Pairs, Float64[np.ndarray, " p"]]:
    """List the same pairs with weights by which each identity counts as much as any other.

    Otherwise an identity with ten times as many photos has a hundred times as many pairs.

    Args:
        labels: the identity of each row.
        max_photos: an identity with more rows is represented by so many of them, evenly spaced.

    Returns:
        The pairs, and their weights: those of an identity with two rows or more sum to 1.
    """
    order = np.argsort(labels, kind="stable")
    starts = np.unique(labels[order], return_index=True)[1]
    lefts, rights, weights = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0)]
    for rows in np.split(order, starts[1:]):
        if len(rows) > max_photos:
            rows = rows[np.linspace(0, len(rows) - 1, max_photos).astype(np.int64)]
        left, right = np.triu_indices(len(rows), 1)
        lefts.append(rows[left])
        rights.append(rows[right])
        weights.append(np.full(len(left), 1 / max(1, len(left))))
    left, right = np.concatenate(lefts), np.concatenate(rights)
    return Pairs(left, right, np.ones(len(left), bool)), np.concatenate(weights)


def pair_similarities(embeddings: Float32[np.ndarray, "n d"], pairs: Pairs) -> Float32[np.ndarray, " p"]:
    """Compute the similarities of pairs of unit rows, exactly as `roc_counts_all_pairs` does.

    Args:
        embeddings: unit rows, "n d".
        pairs: row indices in [0, n) of each pair's photos, such as from `sample_pairs`.

    Returns:
        The similarity of each pair, "p", in [-1, 1].

    Raises:
        ValueError: the rows are not unit vectors.
    """
    check_finite_rows(embeddings)
    check_columns(integers={"left": pairs.left, "right": pairs.right}, flags={"same": pairs.same})
    numbers = np.concatenate([pairs.left, pairs.right])
    if numbers.min(initial=0) < 0 or numbers.max(initial=-1) >= len(embeddings):
        raise ValueError(f"pairs must be of rows in [0, {len(embeddings)})")
    rows = unit_rows(embeddings)
    scores = np.empty(len(pairs.left), np.float32)
    for part in blocks(len(scores), rows.shape[1], None):
        scores[part] = np.einsum("pd,pd->p", rows[pairs.left[part]], rows[pairs.right[part]])
    return np.clip(scores, -1.0, 1.0, out=scores)


def negatives_above(embeddings: Float32[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], similarity: float) -> Pairs:
    """Find all negative pairs whose similarity is at least `similarity`, in blocks."""
    order = np.argsort(labels, kind="stable")
    ends = np.searchsorted(labels, labels[order], "right", sorter=order)
    rows = unit_rows(embeddings)[order]

    def above(part: slice) -> tuple[Int64[np.ndarray, " k"], Int64[np.ndarray, " k"]]:
        start = part.start
        row, column = np.nonzero(similarities(rows[part], rows[start:]) >= np.float32(similarity))
        negative = column + start >= ends[part][row]  # after the row's identity: each pair once
        return order[row[negative] + start], order[column[negative] + start]

    by_block = map_blocks(above, len(rows), len(rows), None)
    none = np.empty(0, np.int64)
    left = np.concatenate([none, *(left for left, _ in by_block)])
    right = np.concatenate([none, *(right for _, right in by_block)])
    return Pairs(np.minimum(left, right), np.maximum(left, right), np.zeros(len(left), bool))


def count_all_pairs(embeddings: Float32[np.ndarray, "n d"], labels: Int[np.ndarray, " n"]) -> RocCounts:
    """Count all pairs by similarity; with more than `MAX_SAME_PAIRS` same pairs, a balanced sample of that many."""
    if pair_totals(labels)[0] <= MAX_SAME_PAIRS:
        return roc_counts_all_pairs(embeddings, labels)
    pairs = sample_pairs(labels, MAX_SAME_PAIRS, seed=0)
    scores = pair_similarities(embeddings, pairs)
    return roc_counts(scores[pairs.same], scores[~pairs.same])


def _draw(rng: np.random.Generator, total: int, count: int) -> Int64[np.ndarray, " p"]:
    """Draw `count` distinct integers below `total`, ascending; all of them if there are fewer."""
    return np.sort(rng.choice(total, min(count, total), replace=False, shuffle=False))


def _pairs_from_indices(
    indices: Int64[np.ndarray, " p"], first: Int64[np.ndarray, " n"], partners: Int64[np.ndarray, " n"]
) -> tuple[Int64[np.ndarray, " p"], Int64[np.ndarray, " p"]]:
    """Convert indices, counted row by row, to pairs: row i pairs with `partners[i]` rows starting at `first[i]`."""
    ends = np.cumsum(partners)
    row = np.searchsorted(ends, indices, "right")
    return row, first[row] + indices - (ends - partners)[row]
