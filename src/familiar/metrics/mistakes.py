"""The worst mistakes: the most similar pairs of strangers, and the least similar pairs of one identity."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int, Int64

from familiar.core.blockwise import map_blocks, similarities, unit_rows
from familiar.metrics.pairs import Pairs, pair_similarities


@dataclass(frozen=True, eq=False)
class RankedPairs:
    """Rows of photos, `left[i]` before `right[i]`, and their similarity in [-1, 1]; the worst mistake first."""

    left: Int64[np.ndarray, " p"]
    right: Int64[np.ndarray, " p"]
    similarity: Float32[np.ndarray, " p"]

    def __len__(self) -> int:
        return len(self.left)


@dataclass(frozen=True)
class Mistakes:
    """`strangers`: pairs of two identities, similarity falling. `selves`: of one identity, similarity rising."""

    strangers: RankedPairs
    selves: RankedPairs


def worst_mistakes(
    embeddings: Float32[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    count: int = 12,
    block_rows: int | None = None,
) -> Mistakes:
    """The `count` worst of each kind among all n (n - 1) / 2 pairs of unit rows, or all where there are not more.

    Exact, and in blocks: never n x n. Of equally bad pairs those of the smaller label, then of the earlier row, come
    first. `ValueError` on rows that are no unit vectors.

    >>> two_cats = np.array([[1, 0], [0.6, 0.8], [0, 1], [-0.6, 0.8]], np.float32)
    >>> found = worst_mistakes(two_cats, np.array([7, 7, 9, 9]), count=1)
    >>> found.strangers.left, found.strangers.right, found.selves.left, found.selves.right
    (array([1]), array([2]), array([0]), array([1]))
    """
    order = np.argsort(labels, kind="stable")
    ends = np.searchsorted(labels, labels[order], "right", sorter=order)  # of each row's identity
    rows = unit_rows(embeddings)[order]

    def worst(part: slice) -> Mistakes:
        # Behind a row lie first the others of its identity, then all strangers: each pair once.
        start, block = part.start, similarities(rows[part], rows[part.start :])
        after_self = np.arange(1, len(block) + 1)
        after_own = ends[part] - start
        strangers = _largest(block, after_own, np.full(len(block), block.shape[1]), count, start)
        selves = _largest(np.negative(block, out=block), after_self, after_own, count, start)
        return Mistakes(strangers, selves)

    found = map_blocks(worst, len(rows), len(rows), block_rows)
    strangers = _first([part.strangers for part in found], count)
    selves = _first([part.selves for part in found], count)
    return Mistakes(
        _ranked(order[strangers.left], order[strangers.right], strangers.similarity),
        _ranked(order[selves.left], order[selves.right], -selves.similarity),
    )


def worst_of_pairs(embeddings: Float32[np.ndarray, "n d"], pairs: Pairs, count: int = 12) -> Mistakes:
    """The same among listed pairs of unit rows alone. Of equally bad pairs the one listed first comes first."""
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
    """The `count` largest cells, each row from its `first` column to its `stop`; places are shifted by `offset`.

    They lie in the `count` rows of the largest maxima, so that hardly more than those maxima is looked at.
    """
    spans: list[tuple[int, int]] = list(zip(first.tolist(), stop.tolist(), strict=True))
    peaks = np.array([row[start:end].max(initial=-np.inf) for row, (start, end) in zip(block, spans, strict=True)])
    chosen = np.argsort(-peaks, kind="stable")[:count]
    least = peaks[chosen[-1]] if len(chosen) == count else -np.inf
    cells: list[RankedPairs] = []
    rows: list[int] = np.sort(chosen).tolist()
    for row in rows:
        start, end = spans[row]
        columns = start + np.flatnonzero(block[row, start:end] >= least)
        cells.append(RankedPairs(np.full(len(columns), row + offset), columns + offset, block[row, columns]))
    return _first(cells, count)


def _first(found: Sequence[RankedPairs], count: int) -> RankedPairs:
    """The `count` most similar of all, in falling order; of equal ones the earliest."""
    none = np.empty(0, np.int64)
    left = np.concatenate([none, *(pairs.left for pairs in found)])
    right = np.concatenate([none, *(pairs.right for pairs in found)])
    value = np.concatenate([np.empty(0, np.float32), *(pairs.similarity for pairs in found)])
    kept = np.argsort(-value, kind="stable")[:count]
    return RankedPairs(left[kept], right[kept], value[kept])


def _ranked(
    left: Int64[np.ndarray, " p"], right: Int64[np.ndarray, " p"], similarity: Float32[np.ndarray, " p"]
) -> RankedPairs:
    return RankedPairs(np.minimum(left, right), np.maximum(left, right), similarity)
