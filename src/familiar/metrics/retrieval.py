"""Retrieval metrics, leave-one-out or against a gallery, computed in blocks: never n x n.

Similarities are computed in float64 and rounded to float32, so that equal vectors tie exactly and no metric depends on
the block size. A tie counts against the model: a negative as close as a positive ranks before it, so a collapsed model,
which maps everything to one point, scores 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int, Int64

from familiar.core.blockwise import map_blocks, similarities, unit_rows
from familiar.core.errors import NothingToMeasure
from familiar.metrics.validation import check_rows

NDCG_DEPTH = 10
_EXCLUDED = -2.0  # below every similarity
_SCORES_PER_POSITIVE = 16  # similarities that take as much memory as the metrics of one positive
_MAX_COMPARED = 20  # positives compared with a row one by one; for more, sorting the row once is faster


@dataclass(frozen=True, eq=False)
class RankedQueries:
    """The search results of each query that has at least one positive.

    `query`: its row; `identity`: its label; `first_match_rank`: 1 if the nearest is of the same identity;
    `ndcg_at_10` and `map_at_r` in [0, 1]; `negatives_ahead`: number of negatives at least as close as a positive,
    summed over the query's positives. `without_match`: number of queries left out because they have no positive.
    """

    query: Int64[np.ndarray, " q"]
    identity: Int[np.ndarray, " q"]
    first_match_rank: Int64[np.ndarray, " q"]
    ndcg_at_10: Float64[np.ndarray, " q"]
    map_at_r: Float64[np.ndarray, " q"]
    negatives_ahead: Int64[np.ndarray, " q"]
    without_match: int

    def figures(self, ks: Sequence[int] = (1, 5, 10)) -> dict[str, Float64[np.ndarray, " q"]]:
        """Return the metrics of each query by name; their means over queries are the metrics of the set."""
        recalls = {f"recall_at_{k}": (self.first_match_rank <= k).astype(np.float64) for k in ks}
        return recalls | {
            "mrr": 1.0 / self.first_match_rank,
            "ndcg_at_10": self.ndcg_at_10,
            "map_at_r": self.map_at_r,
        }


@dataclass(frozen=True)
class Retrieval:
    """Means over the queries that have a positive: another photo of their identity to find.

    Attributes:
        recall_at_k: by k, the share of queries with any positive among the k nearest, in [0, 1].
        mrr: mean of 1 / rank of the nearest positive, in (0, 1].
        ndcg_at_10: NDCG of the ten nearest, in [0, 1], see `summarize`.
        map_at_r: mAP@R, in [0, 1], see `summarize`.
        queries: number of queries with a positive.
        queries_without_match: number of queries left out because they have no positive.
    """

    recall_at_k: dict[int, float]
    mrr: float
    ndcg_at_10: float
    map_at_r: float
    queries: int
    queries_without_match: int


def retrieval_metrics(
    embeddings: Float32[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    ks: Sequence[int] = (1, 5, 10),
    block_rows: int | None = None,
) -> Retrieval:
    """Compute leave-one-out retrieval of unit rows: each is a query against all others.

    Args:
        embeddings: unit rows.
        labels: the identity of each row.
        ks: depths of recall@k.
        block_rows: queries searched at a time.

    Raises:
        NothingToMeasure: no query has a positive.
        ValueError: the rows are not unit vectors.

    >>> two_cats = np.array([[1, 0], [0.6, 0.8], [0, 1], [-0.6, 0.8]], np.float32)
    >>> retrieval_metrics(two_cats, np.array([7, 7, 9, 9]), ks=(1, 2)).recall_at_k
    {1: 0.5, 2: 1.0}
    """
    return summarize(rank_queries(embeddings, labels, block_rows=block_rows), ks)


def summarize(ranked: RankedQueries, ks: Sequence[int] = (1, 5, 10)) -> Retrieval:
    """Average the metrics over the queries.

    NDCG@10 has binary relevance; its ideal ranking has min(10, number of positives) positives first. mAP@R (Musgrave
    et al. 2020, "A metric learning reality check"): for a query with R positives, the precision at the rank of each
    positive among its R nearest, summed and divided by R.
    """
    means = {name: float(values.mean()) for name, values in ranked.figures(ks).items()}
    return Retrieval(
        recall_at_k={k: means[f"recall_at_{k}"] for k in ks},
        mrr=means["mrr"],
        ndcg_at_10=means["ndcg_at_10"],
        map_at_r=means["map_at_r"],
        queries=len(ranked.query),
        queries_without_match=ranked.without_match,
    )


def rank_queries(
    embeddings: Float32[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    gallery: tuple[Float32[np.ndarray, "m d"], Int[np.ndarray, " m"]] | None = None,
    block_rows: int | None = None,
    own_rows: Int64[np.ndarray, " n"] | None = None,
) -> RankedQueries:
    """Rank each query's positives among the gallery's embeddings.

    Args:
        embeddings: of the queries, unit rows.
        labels: of the queries.
        gallery: (embeddings, labels) to search; None searches the queries themselves, each without itself.
        block_rows: queries searched at a time.
        own_rows: the row of the gallery that is the same photo as each query, and left out of its search; None: none.

    Raises:
        NothingToMeasure: no query has a positive.
        ValueError: the rows are not unit vectors.
    """
    gallery_embeddings, gallery_labels = (embeddings, labels) if gallery is None else gallery
    check_rows(embeddings, labels)
    check_rows(gallery_embeddings, gallery_labels)
    if gallery is None:
        own_rows = np.arange(len(labels))
    order = np.argsort(gallery_labels, kind="stable")  # the rows of an identity are one slice
    first = np.searchsorted(gallery_labels, labels, "left", sorter=order)
    last = np.searchsorted(gallery_labels, labels, "right", sorter=order)
    relevant = last - first - (own_rows is not None)
    with_match = np.flatnonzero(relevant > 0)
    if not with_match.size:
        raise NothingToMeasure(f"retrieval: none of {len(labels)} queries has another photo of its identity")
    own_column = None if own_rows is None else np.argsort(order)[own_rows]

    queries = unit_rows(embeddings)
    rows = queries[order] if gallery is None else unit_rows(gallery_embeddings)[order]

    def rank_block(part: slice) -> tuple[np.ndarray, ...]:
        block = with_match[part]
        scores = similarities(queries[block], rows)
        if own_column is not None:
            scores[np.arange(len(block)), own_column[block]] = _EXCLUDED
        return _query_metrics(_negatives_ahead(scores, first[block], last[block], relevant[block]), relevant[block])

    columns = len(rows) + _SCORES_PER_POSITIVE * int(relevant.max())
    by_block = map_blocks(rank_block, len(with_match), columns, block_rows)
    ranks, ndcg, map_at_r, ahead = (np.concatenate(parts) for parts in zip(*by_block, strict=True))
    without_match = len(labels) - len(with_match)
    return RankedQueries(with_match, labels[with_match], ranks, ndcg, map_at_r, ahead, without_match)


def _negatives_ahead(
    scores: Float32[np.ndarray, "q m"],
    first: Int64[np.ndarray, " q"],
    last: Int64[np.ndarray, " q"],
    relevant: Int64[np.ndarray, " q"],
) -> Int64[np.ndarray, " p"]:
    """Count the negatives at least as close as each positive: query after query, best positive first.

    Overwrites `scores`.

    Args:
        scores: similarities of the queries to the gallery.
        first: the first column of each query's identity.
        last: the column after its last.
        relevant: number of positives among them.
    """
    ahead: list[Int64[np.ndarray, " r"]] = []
    for row, start, stop, count in zip(scores, first.tolist(), last.tolist(), relevant.tolist(), strict=True):
        positives = np.sort(row[start:stop])[::-1][:count]
        row[start:stop] = _EXCLUDED
        if count <= _MAX_COMPARED:
            ahead.append(np.array([np.count_nonzero(row >= positive) for positive in positives], np.int64))
        else:
            row.sort()
            ahead.append(len(row) - np.searchsorted(row, positives, "left"))
    return np.concatenate(ahead)


def _query_metrics(
    ahead: Int64[np.ndarray, " p"], relevant: Int64[np.ndarray, " q"]
) -> tuple[Int64[np.ndarray, " q"], Float64[np.ndarray, " q"], Float64[np.ndarray, " q"], Int64[np.ndarray, " q"]]:
    """Return (rank of the first match, NDCG@10, mAP@R, negatives ahead) of each query, from all its positives."""
    starts = np.cumsum(relevant) - relevant
    positive_rank = 1 + np.arange(len(ahead)) - np.repeat(starts, relevant)  # among the query's positives
    rank = positive_rank + ahead
    gain = np.where(rank <= NDCG_DEPTH, 1.0 / np.log2(1.0 + rank), 0.0)
    ideal = np.cumsum(1.0 / np.log2(2.0 + np.arange(NDCG_DEPTH)))[np.minimum(relevant, NDCG_DEPTH) - 1]
    precision = np.where(rank <= np.repeat(relevant, relevant), positive_rank / rank, 0.0)
    return (
        rank[starts],
        np.add.reduceat(gain, starts) / ideal,
        np.add.reduceat(precision, starts) / relevant,
        np.add.reduceat(ahead, starts),
    )
