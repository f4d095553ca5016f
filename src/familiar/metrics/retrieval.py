"""Does a query find its own identity first? Leave-one-out or against a gallery, block by block: never n x n.

Similarities are computed in float64 and rounded to float32, so that equal vectors tie exactly and no
figure depends on the block size. A tie counts against the model: a negative as close as a positive
stands before it, and a model that maps everything to one point finds nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int, Int64

from familiar.core.blocks import blocks, similarities, unit_rows
from familiar.core.errors import NothingToMeasure

NDCG_DEPTH = 10
_EXCLUDED = -2.0  # below every similarity


@dataclass(frozen=True, eq=False)
class RankedQueries:
    """What each query with at least one match found.

    `query`: its row; `identity`: its label; `first_match_rank`: 1 where the nearest is of the same
    identity; `ndcg_at_10` in [0, 1]. `without_match`: queries left out, for there was nothing to find.
    """

    query: Int64[np.ndarray, " q"]
    identity: Int[np.ndarray, " q"]
    first_match_rank: Int64[np.ndarray, " q"]
    ndcg_at_10: Float64[np.ndarray, " q"]
    without_match: int

    def figures(self, ks: Sequence[int] = (1, 5, 10)) -> dict[str, Float64[np.ndarray, " q"]]:
        """The figures of each query, by name; their mean over queries is the figure of the set."""
        recalls = {f"recall_at_{k}": (self.first_match_rank <= k).astype(np.float64) for k in ks}
        return recalls | {"mrr": 1.0 / self.first_match_rank, "ndcg_at_10": self.ndcg_at_10}


@dataclass(frozen=True)
class Retrieval:
    """Means over `queries`. `recall_at_k[k]`: share with any positive among the k nearest."""

    recall_at_k: dict[int, float]
    mrr: float
    ndcg_at_10: float
    queries: int
    queries_without_match: int


def retrieval(
    embeddings: Float32[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    ks: Sequence[int] = (1, 5, 10),
    block_rows: int | None = None,
) -> Retrieval:
    """Leave-one-out retrieval of unit rows: each is a query against all others.

    Raises `NothingToMeasure` where no query has a positive.

    >>> two_cats = np.array([[1, 0], [0.6, 0.8], [0, 1], [-0.6, 0.8]], np.float32)
    >>> retrieval(two_cats, np.array([7, 7, 9, 9]), ks=(1, 2)).recall_at_k
    {1: 0.5, 2: 1.0}
    """
    return summarise(rank_queries(embeddings, labels, block_rows=block_rows), ks)


def summarise(ranked: RankedQueries, ks: Sequence[int] = (1, 5, 10)) -> Retrieval:
    """Means over the queries. NDCG@10 is binary, its ideal min(10, number relevant) positives first."""
    means = {name: float(values.mean()) for name, values in ranked.figures(ks).items()}
    return Retrieval(
        recall_at_k={k: means[f"recall_at_{k}"] for k in ks},
        mrr=means["mrr"],
        ndcg_at_10=means["ndcg_at_10"],
        queries=len(ranked.query),
        queries_without_match=ranked.without_match,
    )


def rank_queries(
    embeddings: Float32[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    gallery: tuple[Float32[np.ndarray, "m d"], Int[np.ndarray, " m"]] | None = None,
    block_rows: int | None = None,
) -> RankedQueries:
    """Where each query's positives stand among the gallery's embeddings.

    `gallery`: (embeddings, labels) to search; None searches the queries themselves, each row without
    itself. Raises `NothingToMeasure` where no query has a positive, `ValueError` on rows that are no
    unit vectors.
    """
    leave_one_out = gallery is None
    gallery_embeddings, gallery_labels = (embeddings, labels) if gallery is None else gallery
    order = np.argsort(gallery_labels, kind="stable")  # an identity's rows side by side: one slice
    first = np.searchsorted(gallery_labels, labels, "left", sorter=order)
    last = np.searchsorted(gallery_labels, labels, "right", sorter=order)
    relevant = last - first - leave_one_out
    asked = np.flatnonzero(relevant > 0)
    if not asked.size:
        raise NothingToMeasure(f"retrieval: none of {len(labels)} queries has another photo of its identity")
    own_place = np.argsort(order) if leave_one_out else None

    queries = unit_rows(embeddings)
    rows = queries[order] if leave_one_out else unit_rows(gallery_embeddings)[order]
    ranks = np.empty(len(asked), np.int64)
    ndcgs = np.empty(len(asked), np.float64)
    for part in blocks(len(asked), len(rows), block_rows):
        of = asked[part]
        scores = similarities(queries[of], rows)
        if own_place is not None:
            scores[np.arange(len(of)), own_place[of]] = _EXCLUDED
        best = _take_positives(scores, first[of], last[of])
        ranks[part] = 1 + np.count_nonzero(scores >= best[:, :1], axis=1)
        ndcgs[part] = _ndcg(best, relevant[of], _highest(scores, NDCG_DEPTH))
    return RankedQueries(asked, labels[asked], ranks, ndcgs, len(labels) - len(asked))


def _take_positives(
    scores: Float32[np.ndarray, "q m"], first: Int64[np.ndarray, " q"], last: Int64[np.ndarray, " q"]
) -> Float32[np.ndarray, "q 10"]:
    """The ten best positives of each row, best first, filled up with -2; in `scores` they become -2."""
    best = np.full((len(scores), NDCG_DEPTH), _EXCLUDED, np.float32)
    for row, (start, stop) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        positives = np.sort(scores[row, start:stop])[: -NDCG_DEPTH - 1 : -1]
        best[row, : len(positives)] = positives
        scores[row, start:stop] = _EXCLUDED
    return best


def _highest(scores: Float32[np.ndarray, "q m"], count: int) -> Float32[np.ndarray, "q c"]:
    """The `count` highest of each row, in any order. Reorders `scores`."""
    if scores.shape[1] <= count:
        return scores
    scores.partition(-count, axis=1)
    return scores[:, -count:]


def _ndcg(
    best: Float32[np.ndarray, "q 10"],
    relevant: Int64[np.ndarray, " q"],
    rivals: Float32[np.ndarray, "q c"],
) -> Float64[np.ndarray, " q"]:
    """NDCG@10 from the ten best positives and the ten best negatives: no other can stand in the top ten."""
    place = np.arange(1, NDCG_DEPTH + 1)
    ahead = np.count_nonzero(rivals[:, None, :] >= best[:, :, None], axis=2)
    rank = place + ahead
    counted = (place <= relevant[:, None]) & (rank <= NDCG_DEPTH)
    gain = np.where(counted, 1.0 / np.log2(1.0 + rank), 0.0).sum(axis=1)
    ideal = np.cumsum(1.0 / np.log2(1.0 + place))[np.minimum(relevant, NDCG_DEPTH) - 1]
    return gain / ideal
