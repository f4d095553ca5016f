"""Who is nearest? Each photo searched for among the others, and among the half of them that was put in a gallery."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Int64

from familiar.evaluation.context import REPLICATES, SEED, EvaluationContext, Outcome, resampled
from familiar.metrics.bootstrap import intervals, mean_replicates
from familiar.metrics.retrieval import RankedQueries, rank_queries

NEAREST = {f"recall_at_{k}": k for k in (1, 5, 10)} | {"ndcg_at_10": 10}  # as many are looked at


def retrieval(measured: EvaluationContext) -> Outcome:
    """Leave-one-out, and half of each identity's photos against the other half; intervals over identities."""
    found = outcome_of(measured.ranked, len(measured.table) - 1)
    return Outcome(found.figures | {"query_gallery": _query_gallery(measured)}, found.replicates)


def gallery_half(labels: Int64[np.ndarray, " n"], seed: int) -> Bool[np.ndarray, " n"]:
    """Half of each identity's photos (the larger half, so all of one), drawn by `seed`."""
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    order = shuffled[np.argsort(labels[shuffled], kind="stable")]
    photos = np.bincount(labels)
    place = np.empty(len(labels), np.int64)
    place[order] = np.arange(len(labels)) - np.repeat(np.cumsum(photos) - photos, photos)
    return place < (photos[labels] + 1) // 2


def _query_gallery(measured: EvaluationContext) -> dict[str, Any]:
    enrolled = gallery_half(measured.labels, SEED)
    gallery = measured.embeddings[enrolled], measured.labels[enrolled]
    ranked = rank_queries(measured.embeddings[~enrolled], measured.labels[~enrolled], gallery)
    return outcome_of(ranked, int(enrolled.sum())).figures | {"gallery": int(enrolled.sum()), "seed": SEED}


def outcome_of(ranked: RankedQueries, searched: int) -> Outcome:
    """Figures of queries that were searched for among so many photos; of k nearest among no more than k, none."""
    every = ranked.figures()
    of_queries = {name: values for name, values in every.items() if searched > NEAREST.get(name, 0)}
    replicates = resampled(
        ranked.identity,
        lambda: mean_replicates(of_queries, ranked.identity, replicates=REPLICATES, seed=SEED),
    )
    figures: dict[str, Any] = dict.fromkeys(every) | {name: float(values.mean()) for name, values in of_queries.items()}
    figures |= {
        "queries": len(ranked.query),
        "queries_without_match": ranked.without_match,
        "interval": intervals(replicates),
    }
    return Outcome(figures, replicates)
