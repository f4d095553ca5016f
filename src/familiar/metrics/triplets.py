"""Violation rate and margin of triplets: all of them, or a sample.

A triplet (anchor, positive, negative) is violated if the negative is at least as close as the positive: a tie counts
against the model.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int, Int64

from familiar.core.blockwise import unit_rows
from familiar.core.errors import NothingToMeasure
from familiar.metrics.pairs import Pairs, pair_similarities
from familiar.metrics.retrieval import RankedQueries, rank_queries


@dataclass(frozen=True, eq=False)
class Triplets:
    """Sums over the triplets of each anchor; an anchor may occur more than once.

    `identity`: the anchor's label; `triplets`: their number, at least one; `violations`: the number of violated ones;
    `margins`: sum of sim(anchor, positive) - sim(anchor, negative), each in [-2, 2].

    Raises:
        NothingToMeasure: there is no triplet.
    """

    identity: Int[np.ndarray, " a"]
    triplets: Int64[np.ndarray, " a"]
    violations: Int64[np.ndarray, " a"]
    margins: Float64[np.ndarray, " a"]

    def __post_init__(self) -> None:
        if not len(self.identity):
            raise NothingToMeasure("triplets: need two photos of one identity and a photo of another one")

    @property
    def count(self) -> int:
        """Total number of triplets."""
        return int(self.triplets.sum())

    @property
    def violation_rate(self) -> float:
        """Share of triplets whose negative is at least as close as the positive."""
        return float(self.violations.sum()) / self.count

    @property
    def average_margin(self) -> float:
        """Mean of sim(anchor, positive) - sim(anchor, negative)."""
        return float(self.margins.sum()) / self.count


def all_triplets(
    embeddings: Float32[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    ranked: RankedQueries | None = None,
    block_rows: int | None = None,
) -> Triplets:
    """Measure all triplets of unit rows, exactly, in blocks.

    Args:
        embeddings: unit rows.
        labels: the identity of each row.
        ranked: result of `rank_queries(embeddings, labels)` if it is known already; the rest is fast.
        block_rows: rows compared at a time.

    Raises:
        NothingToMeasure: no identity has two photos, or all rows are of one identity.
        ValueError: the rows are not unit vectors.

    >>> two_cats = np.array([[1, 0], [0.6, 0.8], [0, 1], [-0.6, 0.8]], np.float32)
    >>> triplets = all_triplets(two_cats, np.array([7, 7, 9, 9]))
    >>> triplets.count, triplets.violation_rate, round(triplets.average_margin, 2)
    (8, 0.25, 0.58)
    """
    ranked = ranked or rank_queries(embeddings, labels, block_rows=block_rows)
    _, identity, photos = np.unique(labels, return_inverse=True, return_counts=True)
    positives = photos[identity] - 1
    negatives = len(labels) - photos[identity]

    # The sum of the similarities to many rows is the similarity to their sum.
    rows = unit_rows(embeddings)
    by_identity = np.argsort(identity, kind="stable")
    sums = np.add.reduceat(rows[by_identity], np.cumsum(photos) - photos)
    to_own = np.einsum("nd,nd->n", rows, sums[identity])
    to_negatives = rows @ sums.sum(axis=0) - to_own
    margins = negatives * (to_own - 1.0) - positives * to_negatives  # minus 1: the anchor itself

    has_negatives = negatives[ranked.query] > 0
    anchors, violations = ranked.query[has_negatives], ranked.negatives_ahead[has_negatives]
    return Triplets(labels[anchors], (positives * negatives)[anchors], violations, margins[anchors])


def sampled_triplets(
    embeddings: Float32[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    count: int = 20_000,
    seed: int = 0,
) -> Triplets:
    """Measure `count` triplets of unit rows, sampled uniformly without replacement; all if there are fewer.

    Raises:
        NothingToMeasure: there is no triplet.
        ValueError: the rows are not unit vectors.
    """
    order = np.argsort(labels, kind="stable")
    first = np.searchsorted(labels, labels, "left", sorter=order)
    photos = np.searchsorted(labels, labels, "right", sorter=order) - first
    negatives = len(labels) - photos
    up_to = np.cumsum((photos - 1) * negatives)
    total = int(up_to[-1]) if len(labels) else 0

    rng = np.random.default_rng(seed)
    index = np.sort(rng.choice(total, min(count, total), replace=False, shuffle=False))
    anchor = np.searchsorted(up_to, index, "right")
    # Index of the positive and of the negative, counted back from the anchor's last triplet.
    positive_index, negative_index = np.divmod(up_to[anchor] - 1 - index, negatives[anchor])
    # In `order` the anchor's identity is one slice, with the anchor in it and its negatives on both sides.
    own_index = np.argsort(order)[anchor] - first[anchor]
    positive = order[first[anchor] + positive_index + (positive_index >= own_index)]
    negative = order[negative_index + photos[anchor] * (negative_index >= first[anchor])]

    same = np.repeat([True, False], len(anchor))
    pairs = Pairs(np.tile(anchor, 2), np.concatenate([positive, negative]), same)
    to_positive, to_negative = np.split(pair_similarities(embeddings, pairs).astype(np.float64), 2)
    return Triplets(
        labels[anchor], np.ones_like(anchor), (to_negative >= to_positive).astype(np.int64), to_positive - to_negative
    )
