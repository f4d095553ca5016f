"""Is an anchor closer to its own identity than to strangers? Over all triplets, or a sample of them.

A triplet (anchor, positive, negative) is violated where the negative is at least as close as the
positive: a tie counts against the model.
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
    """Sums over the triplets of each anchor; an anchor may come more than once.

    `identity`: the anchor's label; `triplets`: how many were looked at, at least one; `violations`: how
    many of them are violated; `margins`: their sum of sim(anchor, positive) - sim(anchor, negative), each
    in [-2, 2]. Raises `NothingToMeasure` where there is no triplet.
    """

    identity: Int[np.ndarray, " a"]
    triplets: Int64[np.ndarray, " a"]
    violations: Int64[np.ndarray, " a"]
    margins: Float64[np.ndarray, " a"]

    def __post_init__(self) -> None:
        if not len(self.identity):
            raise NothingToMeasure("triplets: they need two photos of one identity and a photo of another one")

    @property
    def count(self) -> int:
        """Triplets in all."""
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
    """Every triplet of unit rows, exactly, in blocks.

    `ranked`: what `rank_queries(embeddings, labels)` found, where that is known already; the rest is
    quick. Raises as `rank_queries` does, and `NothingToMeasure` where all rows are of one identity.

    >>> two_cats = np.array([[1, 0], [0.6, 0.8], [0, 1], [-0.6, 0.8]], np.float32)
    >>> found = all_triplets(two_cats, np.array([7, 7, 9, 9]))
    >>> found.count, found.violation_rate, round(found.average_margin, 2)
    (8, 0.25, 0.58)
    """
    ranked = ranked or rank_queries(embeddings, labels, block_rows=block_rows)
    _, identity, photos = np.unique(labels, return_inverse=True, return_counts=True)
    positives = photos[identity] - 1
    negatives = len(labels) - photos[identity]

    # The similarities to many rows sum to the similarity to their sum.
    rows = unit_rows(embeddings)
    by_identity = np.argsort(identity, kind="stable")
    sums = np.add.reduceat(rows[by_identity], np.cumsum(photos) - photos)
    to_own = np.einsum("nd,nd->n", rows, sums[identity])
    to_negatives = rows @ sums.sum(axis=0) - to_own
    margins = negatives * (to_own - 1.0) - positives * to_negatives  # less 1: the anchor itself

    some = ranked.query[negatives[ranked.query] > 0]
    violations = ranked.negatives_ahead[negatives[ranked.query] > 0]
    return Triplets(labels[some], (positives * negatives)[some], violations, margins[some])


def sampled_triplets(
    embeddings: Float32[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    count: int = 20_000,
    seed: int = 0,
) -> Triplets:
    """`count` of all triplets of unit rows, each equally likely, none twice; all where there are not more.

    Raises `NothingToMeasure` where there is none, `ValueError` on rows that are no unit vectors.
    """
    order = np.argsort(labels, kind="stable")
    first = np.searchsorted(labels, labels, "left", sorter=order)
    photos = np.searchsorted(labels, labels, "right", sorter=order) - first
    negatives = len(labels) - photos
    up_to = np.cumsum((photos - 1) * negatives)
    total = int(up_to[-1]) if len(labels) else 0

    rng = np.random.default_rng(seed)
    number = np.sort(rng.choice(total, min(count, total), replace=False, shuffle=False))
    anchor = np.searchsorted(up_to, number, "right")
    # Counted from the anchor's last triplet back: which of its positives, and which of its negatives.
    which_positive, which_negative = np.divmod(up_to[anchor] - 1 - number, negatives[anchor])
    # In `order` its identity is one run, the anchor somewhere in it and its negatives on both sides.
    own = np.argsort(order)[anchor] - first[anchor]
    positive = order[first[anchor] + which_positive + (which_positive >= own)]
    negative = order[which_negative + photos[anchor] * (which_negative >= first[anchor])]

    same = np.repeat([True, False], len(anchor))
    pairs = Pairs(np.tile(anchor, 2), np.concatenate([positive, negative]), same)
    near, far = np.split(pair_similarities(embeddings, pairs).astype(np.float64), 2)
    return Triplets(labels[anchor], np.ones_like(anchor), (far >= near).astype(np.int64), near - far)
