"""Compare embeddings of perturbed photos with those of the original ones, by recall@1 and ROC AUC.

Differences are computed query by query, pair by pair and replicate by replicate: the uncertainties of the two sides
are mostly the same.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64

from familiar.core.errors import NothingToMeasure
from familiar.evaluation.context import MIN_IDENTITIES, REPLICATES, SEED, EvaluationContext, resample_means
from familiar.metrics.bootstrap import Replicates, verification_replicates
from familiar.metrics.pairs import Pairs, pair_similarities, sample_pairs
from familiar.metrics.retrieval import rank_queries
from familiar.metrics.roc import roc_counts
from familiar.metrics.verification import roc_auc

MAX_PAIRS = 20_000  # half of them same, if there are as many

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class PerturbationSetup:
    """The queries and pairs of k photos (`rows` of the n photos that are searched).

    `queries`: positions in `rows` of photos that have another one of their identity. `pairs`: positions in `rows`.
    """

    labels: Int64[np.ndarray, " n"]
    rows: Int64[np.ndarray, " k"]
    queries: Int64[np.ndarray, " q"]
    pairs: Pairs

    @property
    def identity(self) -> Int64[np.ndarray, " k"]:
        """The label of each of the k photos."""
        return self.labels[self.rows]

    @property
    def resampled(self) -> bool:
        """Whether enough identities have two photos for intervals to say something about others."""
        return len(np.unique(self.identity[self.queries])) >= MIN_IDENTITIES


@dataclass(frozen=True, eq=False)
class PerturbationResult:
    """The retrieval hits and pair similarities of one way to embed the photos.

    `hits`: 1 for each query whose nearest other photo is of its identity, else 0. `scores`: those of the pairs.
    """

    setup: PerturbationSetup
    hits: Float64[np.ndarray, " q"]
    scores: Float[np.ndarray, " p"]

    @property
    def recall_at_1(self) -> float | None:
        """Share of hits; None if no photo has another one of its identity."""
        return float(self.hits.mean()) if len(self.hits) else None

    @cached_property
    def auc(self) -> float | None:
        """ROC AUC of the pairs; None if all are same or all are different."""
        same = self.setup.pairs.same
        try:
            return roc_auc(roc_counts(self.scores[same], self.scores[~same]))
        except NothingToMeasure:
            return None

    @cached_property
    def auc_replicates(self) -> Float64[np.ndarray, " r"]:
        """ROC AUC in each bootstrap replicate."""
        identity, pairs = self.setup.identity, self.setup.pairs
        return verification_replicates(
            self.scores,
            identity[pairs.left],
            identity[pairs.right],
            replicates=REPLICATES,
            seed=SEED,
            only=("auc",),
        )["auc"]


def make_setup(labels: Int64[np.ndarray, " n"], rows: Int64[np.ndarray, " k"]) -> PerturbationSetup:
    """Set up these rows of the searched photos as queries, and sample pairs of them."""
    photos = np.bincount(labels)
    queries = np.flatnonzero(photos[labels[rows]] > 1)
    return PerturbationSetup(labels, rows, queries, sample_pairs(labels[rows], MAX_PAIRS, seed=SEED))


def run_setup(
    setup: PerturbationSetup, embeddings: Float32[np.ndarray, "k d"], searched: Float32[np.ndarray, "n d"]
) -> PerturbationResult:
    """Search for each query, and compare each pair's left photo with its right one among `searched`.

    A negative that is as close as a positive ranks before it.

    Args:
        setup: the queries and pairs.
        embeddings: unit rows of the k photos, perturbed or not.
        searched: unit rows of all n photos; a query's own photo is left out of its search.
    """
    both = np.concatenate([embeddings, searched[setup.rows]])
    pairs = Pairs(setup.pairs.left, setup.pairs.right + len(setup.rows), setup.pairs.same)
    hits = np.empty(0)
    if len(setup.queries):
        own_rows = setup.rows[setup.queries]
        gallery = searched, setup.labels
        ranked = rank_queries(embeddings[setup.queries], setup.labels[own_rows], gallery, own_rows=own_rows)
        hits = (ranked.first_match_rank == 1).astype(np.float64)
    return PerturbationResult(setup, hits, pair_similarities(both, pairs))


def measure_results(
    result: PerturbationResult, other: PerturbationResult | None = None, suffix: str = ""
) -> tuple[dict[str, float | None], Replicates]:
    """Measure `recall_at_1` and `auc`, or how much larger they are than those of another result of the same setup.

    Args:
        result: of one way to embed the photos.
        other: of another way; None: nothing is subtracted.
        suffix: appended to both names.

    Returns:
        The metrics, None for one that does not exist; and their replicates, empty with fewer than ten identities of two
        photos.
    """
    setup, recall, auc = result.setup, f"recall_at_1{suffix}", f"auc{suffix}"
    values: dict[str, float | None] = {recall: None, auc: None}
    replicates: Replicates = {}
    if len(setup.queries):
        hits = result.hits if other is None else result.hits - other.hits
        values[recall] = float(hits.mean())
        if setup.resampled:
            replicates = resample_means({recall: hits}, setup.identity[setup.queries])
    other_auc = 0.0 if other is None else other.auc
    if result.auc is not None and other_auc is not None:
        values[auc] = result.auc - other_auc
        if setup.resampled:
            replicates[auc] = result.auc_replicates - (0 if other is None else other.auc_replicates)
    return values, replicates


def map_photos(
    context: EvaluationContext, rows: Int64[np.ndarray, " k"], work: Callable[[Int64[np.ndarray, " b"]], T]
) -> list[T]:
    """Apply `work` to batches of rows in the model's threads; results in order.

    Each thread takes its photos from file to vectors, so only the crops in work are in memory.
    """
    size = context.model.batch_size
    batches = [rows[start : start + size] for start in range(0, len(rows), size)]
    with ThreadPoolExecutor(context.model.threads) as pool:
        return list(pool.map(work, batches))
