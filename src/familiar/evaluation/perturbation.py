"""Photos embedded again in another way: what that does to who is found and to which pairs are told apart.

Differences are taken query by query and pair by pair, and replicate by replicate: most of what makes two figures
uncertain they have in common.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64

from familiar.core.blockwise import map_blocks, similarities, unit_rows
from familiar.core.errors import NothingToMeasure
from familiar.evaluation.context import MIN_IDENTITIES, REPLICATES, SEED, EvaluationContext
from familiar.metrics.bootstrap import Replicates, mean_replicates, verification_replicates
from familiar.metrics.pairs import Pairs, pair_similarities, sample_pairs
from familiar.metrics.roc import roc_counts
from familiar.metrics.verification import roc_auc

PROBED_PAIRS = 20_000  # half of them same, where there are as many
_EXCLUDED = -2.0  # below every similarity

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class PerturbationSetup:
    """What is asked of k photos (`rows` of the n that are searched): is each found first, and which pairs match?

    `queries`: places in `rows` of photos that have another of their identity. `pairs` are places in `rows`.
    """

    labels: Int64[np.ndarray, " n"]
    rows: Int64[np.ndarray, " k"]
    queries: Int64[np.ndarray, " q"]
    pairs: Pairs

    @property
    def identity(self) -> Int64[np.ndarray, " k"]:
        return self.labels[self.rows]

    @property
    def resampled(self) -> bool:
        """Whether enough identities have two photos for intervals to say something about others."""
        return len(np.unique(self.identity[self.queries])) >= MIN_IDENTITIES


@dataclass(frozen=True, eq=False)
class PerturbationResult:
    """`found`: 1 for each query whose nearest other photo is of its identity, else 0; `scores` of the pairs."""

    probe: PerturbationSetup
    found: Float64[np.ndarray, " q"]
    scores: Float[np.ndarray, " p"]

    @property
    def recall_at_1(self) -> float | None:
        """None where no photo has another of its identity."""
        return float(self.found.mean()) if len(self.found) else None

    @cached_property
    def auc(self) -> float | None:
        """None where there are no pairs of one kind."""
        same = self.probe.pairs.same
        try:
            return roc_auc(roc_counts(self.scores[same], self.scores[~same]))
        except NothingToMeasure:
            return None

    @cached_property
    def auc_replicates(self) -> Float64[np.ndarray, " r"]:
        identity, pairs = self.probe.identity, self.probe.pairs
        return verification_replicates(
            self.scores,
            identity[pairs.left],
            identity[pairs.right],
            replicates=REPLICATES,
            seed=SEED,
            only=("auc",),
        )["auc"]


def probe(labels: Int64[np.ndarray, " n"], rows: Int64[np.ndarray, " k"]) -> PerturbationSetup:
    """These rows as queries, and pairs drawn among them."""
    photos = np.bincount(labels)
    queries = np.flatnonzero(photos[labels[rows]] > 1)
    return PerturbationSetup(labels, rows, queries, sample_pairs(labels[rows], PROBED_PAIRS, seed=SEED))


def answer(
    asked: PerturbationSetup, embeddings: Float32[np.ndarray, "k d"], searched: Float32[np.ndarray, "n d"]
) -> PerturbationResult:
    """Each query among `searched` without its own photo, and each pair's left one with the right one of `searched`.

    Unit rows. A stranger as close as a photo of the same identity stands before it.
    """
    both = np.concatenate([embeddings, searched[asked.rows]])
    pairs = Pairs(asked.pairs.left, asked.pairs.right + len(asked.rows), asked.pairs.same)
    return PerturbationResult(asked, _found_first(asked, embeddings, searched), pair_similarities(both, pairs))


def metric_deltas(better: PerturbationResult, worse: PerturbationResult) -> tuple[dict[str, float | None], Replicates]:
    """How much more `recall_at_1` and `auc` are on the one side than on the other, and the same in each replicate.

    None where there is no such figure; no replicates below ten identities with two photos.
    """
    asked = better.probe
    figures: dict[str, float | None] = {"recall_at_1": None, "auc": None}
    replicates: Replicates = {}
    if len(asked.queries):
        differences = {"recall_at_1": better.found - worse.found}
        figures["recall_at_1"] = float(differences["recall_at_1"].mean())
        if asked.resampled:
            replicates = mean_replicates(differences, asked.identity[asked.queries], replicates=REPLICATES, seed=SEED)
    if better.auc is not None and worse.auc is not None:
        figures["auc"] = better.auc - worse.auc
        if asked.resampled:
            replicates["auc"] = better.auc_replicates - worse.auc_replicates
    return figures, replicates


def map_photos(
    measured: EvaluationContext, rows: Int64[np.ndarray, " k"], work: Callable[[Int64[np.ndarray, " b"]], T]
) -> list[T]:
    """`work` of a few rows at a time, in order: each of the embedder's threads takes its photos from file to vectors.

    So no more crops are held than are worked on.
    """
    size = measured.embedder.batch_size
    batches = [rows[start : start + size] for start in range(0, len(rows), size)]
    with ThreadPoolExecutor(measured.embedder.threads) as pool:
        return list(pool.map(work, batches))


def _found_first(
    asked: PerturbationSetup, embeddings: Float32[np.ndarray, "k d"], searched: Float32[np.ndarray, "n d"]
) -> Float64[np.ndarray, " q"]:
    if not len(asked.queries):
        return np.empty(0)
    order = np.argsort(asked.labels, kind="stable")  # an identity's rows side by side: one slice
    place = np.argsort(order)
    identity = asked.identity[asked.queries]
    first = np.searchsorted(asked.labels, identity, "left", sorter=order)
    last = np.searchsorted(asked.labels, identity, "right", sorter=order)
    queries, among = unit_rows(embeddings[asked.queries]), unit_rows(searched)[order]
    own = place[asked.rows[asked.queries]]

    def found(part: slice) -> Float64[np.ndarray, " b"]:
        scores = similarities(queries[part], among)
        scores[np.arange(len(scores)), own[part]] = _EXCLUDED
        nearest = np.empty(len(scores), np.float32)
        for row, (start, stop) in enumerate(zip(first[part].tolist(), last[part].tolist(), strict=True)):
            nearest[row] = scores[row, start:stop].max()
            scores[row, start:stop] = _EXCLUDED
        return (nearest > scores.max(axis=1)).astype(np.float64)

    return np.concatenate(map_blocks(found, len(queries), len(among), None))
