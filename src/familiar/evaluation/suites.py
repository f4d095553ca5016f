"""How good a bundle is on labelled photos: each suite composes metrics into one part of `eval_results.json`."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Float32, Int64

from familiar.core.errors import BadDataset, FamiliarError, NothingToMeasure
from familiar.datasets.folders import IdentityTable, open_photo
from familiar.datasets.pairs import read_lfw_pairs
from familiar.faces.bundle import Threshold
from familiar.faces.detect import Detector
from familiar.faces.embedder import Embedder, embed_photos
from familiar.metrics.bootstrap import Interval, retrieval_intervals, verification_intervals
from familiar.metrics.pairs import Pairs, pair_similarities, sample_pairs
from familiar.metrics.retrieval import rank_queries, summarise
from familiar.metrics.roc import MAX_SAME_PAIRS, RocCounts, pair_totals, roc_counts, roc_counts_all_pairs
from familiar.metrics.verification import FARS, accuracy_at, rates_at, verification

REPLICATES = 1000
SAMPLED_PAIRS = 200_000  # where all pairs are counted, the intervals are taken from so many of them
MIN_IDENTITIES = 10  # resampling fewer says nothing about others
SEED = 0
THRESHOLDS = ("high_precision", "balanced", "high_recall")


@dataclass(frozen=True, eq=False)
class Measured:
    """Embedded photos and what was asked about them. `skipped` could not be read or held no face."""

    embedder: Embedder
    table: IdentityTable
    embeddings: Float32[np.ndarray, "n d"]
    pairs: Pairs | None
    skipped: tuple[FamiliarError, ...]


@dataclass(frozen=True, eq=False)
class Verified:
    """`counts` of the pairs that were judged: "listed", "all" or "sampled"; `scores` are of `pairs`, for the
    pictures and intervals: a sample, where all were judged."""

    judged: Literal["listed", "all", "sampled"]
    counts: RocCounts
    scores: Float[np.ndarray, " p"]
    pairs: Pairs


def measure(
    embedder: Embedder,
    table: IdentityTable,
    pairs_file: Path | None = None,
    detector: Detector | None = None,
    *,
    flip: bool = False,
    on_batch: Callable[[int], None] = lambda _: None,
) -> Measured:
    """Embed the photos, or only those a pairs file names. Pairs of a photo that was skipped are left out."""
    pairs = None
    if pairs_file is not None:
        pairs = read_lfw_pairs(pairs_file, table)
        used, places = np.unique(np.concatenate([pairs.left, pairs.right]), return_inverse=True)
        table = table.rows(used)
        left, right = np.split(places.astype(np.int64), 2)
        pairs = Pairs(left, right, pairs.same)
    embedded = embed_photos(
        embedder, table.photos, detector, open_photo=open_photo, flip=flip, on_batch=on_batch
    )
    if not len(embedded.rows):
        raise BadDataset(
            "not one of the photos could be embedded; the first reason: " + str(embedded.skipped[0])
        )
    if pairs is not None:
        pairs = _of_rows(pairs, embedded.rows, len(table))
    return Measured(embedder, table.rows(embedded.rows), embedded.embeddings, pairs, embedded.skipped)


def retrieval_suite(measured: Measured) -> dict[str, Any]:
    """Leave-one-out retrieval among all the photos, with 95 % intervals over identities."""
    ranked = rank_queries(measured.embeddings, measured.table.labels)
    found = summarise(ranked)
    return {
        **{f"recall_at_{k}": value for k, value in found.recall_at_k.items()},
        "mrr": found.mrr,
        "ndcg_at_10": found.ndcg_at_10,
        "queries": found.queries,
        "queries_without_match": found.queries_without_match,
        "interval": retrieval_intervals(ranked, replicates=REPLICATES, seed=SEED)
        if len(np.unique(ranked.identity)) >= MIN_IDENTITIES
        else {},
    }


def verify(measured: Measured) -> Verified:
    """The pairs of the pairs file, or every pair there is (a sample, where there are too many)."""
    labels = measured.table.labels
    if measured.pairs is not None:
        pairs = measured.pairs
        scores = pair_similarities(measured.embeddings, pairs)
        return Verified("listed", roc_counts(scores[pairs.same], scores[~pairs.same]), scores, pairs)
    pairs = sample_pairs(labels, SAMPLED_PAIRS, seed=SEED)
    scores = pair_similarities(measured.embeddings, pairs)
    if pair_totals(labels)[0] > MAX_SAME_PAIRS:
        return Verified("sampled", roc_counts(scores[pairs.same], scores[~pairs.same]), scores, pairs)
    calibration = measured.embedder.metadata.calibration
    thresholds = [getattr(calibration, name).similarity for name in THRESHOLDS]
    return Verified("all", roc_counts_all_pairs(measured.embeddings, labels, thresholds), scores, pairs)


def verification_suite(measured: Measured, verified: Verified) -> dict[str, Any]:
    """Same or different, over pairs, with 95 % intervals over identities (none below ten).

    Accuracies weigh both kinds alike.
    """
    counts, labels = verified.counts, measured.table.labels
    figures = verification(counts)
    calibration = measured.embedder.metadata.calibration
    pairs = verified.pairs
    interval: dict[str, Interval] = {}
    if len(measured.table.names) >= MIN_IDENTITIES:
        interval = verification_intervals(
            verified.scores,
            labels[pairs.left],
            labels[pairs.right],
            threshold=calibration.balanced.similarity,
            replicates=REPLICATES,
            seed=SEED,
        )
    return {
        "pairs": verified.judged,
        "same_pairs": figures.same_pairs,
        "different_pairs": figures.different_pairs,
        "auc": figures.auc,
        "average_precision": figures.average_precision,
        "eer": figures.eer,
        "best_accuracy": figures.best_balanced_accuracy,
        "best_accuracy_threshold": figures.best_balanced_accuracy_threshold,
        "tar_at_far": figures.tar_at_far,
        "at_bundle_thresholds": {
            name: _at_threshold(counts, getattr(calibration, name)) for name in THRESHOLDS
        },
        "interval": {
            INTERVAL_NAMES[name]: value for name, value in interval.items() if name in INTERVAL_NAMES
        },
    }


INTERVAL_NAMES = {  # what the bootstrap calls the figures below
    "auc": "auc",
    "average_precision": "average_precision",
    "eer": "eer",
    "best_balanced_accuracy": "best_accuracy",
    "accuracy_at_threshold": "accuracy_at_balanced",
    **{f"tar_at_far_{far}": f"tar_at_far_{far}" for far in FARS},
}

SUITES: dict[str, str] = {
    "retrieval": "recall@1/5/10, MRR, NDCG@10 of each photo among all others",
    "verification": "same or different over pairs: ROC AUC, EER, accuracy, TAR at FAR",
}


def run_suites(measured: Measured, names: Sequence[str]) -> tuple[dict[str, Any], Verified | None]:
    """Each suite's part of the results, None with its reason in `reasons` where it cannot be computed."""
    parts: dict[str, Any] = {"reasons": {}}
    verified: Verified | None = None
    for name in names:
        try:
            if name == "retrieval":
                parts[name] = retrieval_suite(measured)
            else:
                verified = verify(measured)
                parts[name] = verification_suite(measured, verified)
        except NothingToMeasure as error:
            parts[name] = None
            parts["reasons"][name] = str(error)
    return parts, verified


def _at_threshold(counts: RocCounts, threshold: Threshold) -> dict[str, Any]:
    """How a threshold of the bundle fares here, beside what it promised."""
    point = rates_at(counts, threshold.similarity)
    return {
        "similarity": threshold.similarity,
        "accuracy": accuracy_at(counts, threshold.similarity, balanced=True),
        "far": point.far,
        "tar": point.tar,
        "promised": dataclasses.asdict(threshold),
    }


def _of_rows(pairs: Pairs, rows: Int64[np.ndarray, " k"], total: int) -> Pairs:
    """The pairs both of whose photos are among `rows`, renumbered."""
    place = np.full(total, -1)
    place[rows] = np.arange(len(rows))
    left, right = place[pairs.left], place[pairs.right]
    kept = (left >= 0) & (right >= 0)
    return Pairs(left[kept], right[kept], pairs.same[kept])
