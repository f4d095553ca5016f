"""The worst mistakes: the most similar negative pairs and the least similar positive pairs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int, Int64

from familiar.core.blockwise import map_blocks, similarities, unit_rows
from familiar.metrics.pairs import Pairs, pair_similarities
from familiar.metrics.validation import check_rows


@dataclass(frozen=True, eq=False)
class RankedPairs:
    """Pairs of rows with their similarity in [-1, 1], the worst mistake first; `left[i]` < `right[i]`."""

    left: Int64[np.ndarray, " p"]
    right: Int64[np.ndarray, " p"]
    similarity: Float32[np.ndarray, " p"]

    def __len__(self) -> int:
        return len(self.left)


@dataclass(frozen=True)
class Mistakes:
    """`negatives`: pairs of two identities, similarity falling. `positives`: of one identity, similarity rising."""

    negatives: RankedPairs
    positives: RankedPairs


def worst_mistakes(
    embeddings: Float32[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    count: int = 12,
    block_rows: int | None = None,
) -> Mistakes:
    """Find the `count` worst negative and positive pairs among all n (n - 1) / 2 pairs, or all if there are fewer.

    Exact and in blocks, never n x n. Equally bad pairs are sorted by label, then by row.

    Args:
        embeddings: unit rows.
        labels: the identity of each row.
        count: number of pairs of either kind.
        block_rows: rows compared at a time.

    Raises:
        ValueError: the rows are not unit vectors.

    >>> two_cats = np.array([[1, 0], [0.6, 0.8], [0, 1], [-0.6, 0.8]], np.float32)
    >>> worst = worst_mistakes(two_cats, np.array([7, 7, 9, 9]), count=1)
    >>> worst.negatives.left, worst.negatives.right, worst.positives.left, worst.positives.right
    (array([1]), array([2]), array([0]), array([1]))
    """
    check_rows(embeddings, labels)
    order = np.argsort(labels, kind="stable")
    ends = np.searchsorted(labels, labels[order], "right", sorter=order)  # of each row's identity
    rows = unit_rows(embeddings)[order]

    def worst(part: slice) -> Mistakes:
        # After a row come first the others of its identity, then all its negatives: each pair once.
        start, block = part.start, similarities(rows[part], rows[part.start :])
        after_self = np.arange(1, len(block) + 1)
        after_identity = ends[part] - start
        negatives = _largest(block, after_identity, np.full(len(block), block.shape[1]), count, start)
        positives = _largest(np.negative(block, out=block), after_self, after_identity, count, start)
        return Mistakes(negatives, positives)

    by_block = map_blocks(worst, len(rows), len(rows), block_rows)
    negatives = _most_similar([part.negatives for part in by_block], count)
    positives = _most_similar([part.positives for part in by_block], count)
    return Mistakes(
        _ranked(order[negatives.left], order[negatives.right], negatives.similarity),
        _ranked(order[positives.left], order[positives.right], -positives.similarity),
    )


def worst_listed_mistakes(embeddings: Float32[np.ndarray, "n d"], pairs: Pairs, count: int = 12) -> Mistakes:
    """Find the worst pairs among listed pairs of unit rows. Equally bad pairs keep their order."""
    scores = pair_similarities(embeddings, pairs)

    def worst(chosen: Int64[np.ndarray, " k"], sign: int) -> RankedPairs:
        chosen = chosen[np.argsort(sign * scores[chosen], kind="stable")[:count]]
        return _ranked(pairs.left[chosen], pairs.right[chosen], scores[chosen])

    return Mistakes(worst(np.flatnonzero(~pairs.same), -1), worst(np.flatnonzero(pairs.same), 1))


def _largest(
    block: Float32[np.ndarray, "r c"],
    first: Int64[np.ndarray, " r"],
    stop: Int64[np.ndarray, " r"],
    count: int,
    offset: int,
) -> RankedPairs:
    """Find the `count` largest cells, of each row from column `first` to `stop`; indices are shifted by `offset`.

    They are in the `count` rows of the largest maxima, so hardly more than these maxima has to be looked at.
    """
    spans: list[tuple[int, int]] = list(zip(first.tolist(), stop.tolist(), strict=True))
    peaks = np.array([row[start:end].max(initial=-np.inf) for row, (start, end) in zip(block, spans, strict=True)])
    chosen = np.argsort(-peaks, kind="stable")[:count]
    min_value = peaks[chosen[-1]] if len(chosen) == count else -np.inf
    cells: list[RankedPairs] = []
    rows: list[int] = np.sort(chosen).tolist()
    for row in rows:
        start, end = spans[row]
        columns = start + np.flatnonzero(block[row, start:end] >= min_value)
        cells.append(RankedPairs(np.full(len(columns), row + offset), columns + offset, block[row, columns]))
    return _most_similar(cells, count)


def _most_similar(parts: Sequence[RankedPairs], count: int) -> RankedPairs:
    """Return the `count` most similar pairs of all parts, in falling order; of equal ones the earliest."""
    none = np.empty(0, np.int64)
    left = np.concatenate([none, *(pairs.left for pairs in parts)])
    right = np.concatenate([none, *(pairs.right for pairs in parts)])
    value = np.concatenate([np.empty(0, np.float32), *(pairs.similarity for pairs in parts)])
    chosen = np.argsort(-value, kind="stable")[:count]
    return RankedPairs(left[chosen], right[chosen], value[chosen])


def _ranked(
    left: Int64[np.ndarray, " p"], right: Int64[np.ndarray, " p"], similarity: Float32[np.ndarray, " p"]
) -> RankedPairs:
    return RankedPairs(np.minimum(left, right), np.maximum(left, right), similarity)
