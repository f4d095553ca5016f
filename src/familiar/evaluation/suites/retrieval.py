"""Retrieval: each photo searched for among all others, and half of the photos among the other half."""

import numpy as np
from jaxtyping import Bool, Int64

from familiar.evaluation.context import SEED, EvaluationContext, SuiteResult, resample_means
from familiar.evaluation.results.figures import Figure, Figures, make_figures
from familiar.metrics.retrieval import RankedQueries, rank_queries

DEPTHS = {f"recall_at_{k}": k for k in (1, 5, 10)} | {"ndcg_at_10": 10}  # nearest photos that a metric looks at


def retrieval(context: EvaluationContext) -> SuiteResult:
    """Measure leave-one-out retrieval, and half of each identity's photos against the other half."""
    leave_one_out = retrieval_result(context.ranked_queries, len(context.table) - 1)
    halves = make_figures({"query_gallery": _query_gallery(context)})
    return SuiteResult(leave_one_out.figures | halves, leave_one_out.replicates)


def gallery_half(labels: Int64[np.ndarray, " n"], seed: int) -> Bool[np.ndarray, " n"]:
    """Draw half of each identity's photos for the gallery: the larger half, so the only photo of an identity."""
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    order = shuffled[np.argsort(labels[shuffled], kind="stable")]
    photos = np.bincount(labels)
    rank = np.empty(len(labels), np.int64)  # among the photos of the identity
    rank[order] = np.arange(len(labels)) - np.repeat(np.cumsum(photos) - photos, photos)
    return rank < (photos[labels] + 1) // 2


def _query_gallery(context: EvaluationContext) -> Figures:
    enrolled = gallery_half(context.labels, SEED)
    gallery = context.embeddings[enrolled], context.labels[enrolled]
    ranked = rank_queries(context.embeddings[~enrolled], context.labels[~enrolled], gallery)
    searched = int(enrolled.sum())
    return retrieval_result(ranked, searched).figures | {"gallery": Figure(searched), "seed": Figure(SEED)}


def retrieval_result(ranked: RankedQueries, searched: int) -> SuiteResult:
    """Compute the metrics of ranked queries, with 95 % intervals over identities.

    Args:
        ranked: the queries.
        searched: number of photos that were searched; a metric of the k nearest is None unless there are more than k.
    """
    all_values = ranked.figures()
    query_values = {name: values for name, values in all_values.items() if searched > DEPTHS.get(name, 0)}
    replicates = resample_means(query_values, ranked.identity)
    values = {
        **{name: float(query_values[name].mean()) if name in query_values else None for name in all_values},
        "queries": len(ranked.query),
        "queries_without_match": ranked.without_match,
    }
    return SuiteResult(make_figures(values, replicates), replicates)
