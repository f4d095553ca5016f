"""Counts of pairs by score, from which every ROC metric is computed: small, exact, for listed pairs or all pairs.

A metric of the ROC depends only on the order of the pairs, so the scores of the same pairs and the numbers of different
pairs at and between these scores are enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock

import numpy as np
from jaxtyping import Float, Float32, Float64, Int, Int64

from familiar.core.blockwise import blocks, map_blocks, similarities, unit_rows
from familiar.core.errors import NothingToMeasure
from familiar.metrics.validation import check_columns, check_rows

MAX_SAME_PAIRS = 20_000_000  # in `roc_counts_all_pairs`: more would not fit into 2 GB
_GRID = np.linspace(-1, 1, 2049, dtype=np.float32)  # steps of 1/1024, exact in float32
_EXCLUDED = 2.0  # above every similarity
_LOOKUP_BLOCK = 1_000_000  # scores looked up at a time: every thread has counts of them in memory
_SAME_BLOCK_ROWS = 256  # few, since most of such a block off the diagonal is not needed


@dataclass(frozen=True, eq=False)
class RocCounts:
    """Numbers (or weights) of pairs by score.

    Attributes:
        scores: distinct and ascending, "k", including every score of a same pair; all pairs are between the first and
            the last.
        same_at: same pairs of exactly each score, "k".
        different_at: different pairs of exactly each score, "k".
        different_between: different pairs strictly between each score and the next, "k"; 0 for the last.

    Raises:
        NothingToMeasure: there are no same pairs or no different ones.
    """

    scores: Float64[np.ndarray, " k"]
    same_at: Float64[np.ndarray, " k"]
    different_at: Float64[np.ndarray, " k"]
    different_between: Float64[np.ndarray, " k"]

    def __post_init__(self) -> None:
        if not self.same_at.sum() > 0:
            raise NothingToMeasure("verification: no pair of the same identity")
        if not self.different_at.sum() + self.different_between.sum() > 0:
            raise NothingToMeasure("verification: no pair of different identities")

    @property
    def same(self) -> float:
        """Total of same pairs."""
        return float(self.accepted_same[0])

    @property
    def different(self) -> float:
        """Total of different pairs."""
        return float(self.accepted_different[0])

    @cached_property
    def accepted_same(self) -> Float64[np.ndarray, " k"]:
        """Number of same pairs with a score of at least `scores[i]`."""
        return np.cumsum(self.same_at[::-1])[::-1]

    @cached_property
    def accepted_different(self) -> Float64[np.ndarray, " k"]:
        """Number of different pairs with a score of at least `scores[i]`."""
        return np.cumsum((self.different_at + self.different_between)[::-1])[::-1]


def roc_counts(
    scores_same: Float[np.ndarray, " p"],
    scores_different: Float[np.ndarray, " q"],
    weights_same: Float[np.ndarray, " p"] | None = None,
    weights_different: Float[np.ndarray, " q"] | None = None,
) -> RocCounts:
    """Count listed pairs; higher scores mean closer.

    Args:
        scores_same: similarity of each pair of the same identity, "p", or any other score.
        scores_different: that of each pair of different identities, "q".
        weights_same: number of pairs that each same pair represents, "p"; None: one each.
        weights_different: number of pairs that each different pair represents, "q"; None: one each.

    Returns:
        The numbers of pairs at each distinct score.

    Raises:
        NothingToMeasure: there are no same pairs or no different ones.
        ValueError: a score is not finite.
    """
    for name, scores, weights in (
        ("same", scores_same, weights_same),
        ("different", scores_different, weights_different),
    ):
        check_columns(floats={f"scores_{name}": np.where(np.isfinite(scores), scores, 0.0)})
        if weights is not None:
            check_columns(floats={f"weights_{name}": weights, f"scores_{name}": scores})
    listed = np.concatenate([scores_same, scores_different]).astype(np.float64)
    if not np.isfinite(listed).all():
        raise ValueError("a pair's score is not finite")
    scores, index = np.unique(listed, return_inverse=True)
    split, size = len(scores_same), len(scores)
    return RocCounts(
        scores,
        np.bincount(index[:split], weights_same, size).astype(np.float64),
        np.bincount(index[split:], weights_different, size).astype(np.float64),
        np.zeros(size),
    )


def pair_totals(labels: Int[np.ndarray, " n"]) -> tuple[int, int]:
    """Return the numbers of same and of different pairs of n photos, each pair counted once."""
    photos = np.unique(labels, return_counts=True)[1].astype(np.int64)
    same = int((photos * (photos - 1) // 2).sum())
    return same, len(labels) * (len(labels) - 1) // 2 - same


def roc_counts_all_pairs(
    embeddings: Float32[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    thresholds: Sequence[float] = (),
    block_rows: int | None = None,
) -> RocCounts:
    """Count the pairs of the same and of different identities among unit rows, at every threshold.

    Works in blocks: 100,000 rows stay below 2 GB. Counts are exact at the similarities of same-identity pairs, at
    multiples of 1/1024 and at `thresholds`; rates at other thresholds are interpolated.

    Args:
        embeddings: unit rows.
        labels: the identity of each row.
        thresholds: similarities at which counts are exact.
        block_rows: rows compared at a time.

    Raises:
        NothingToMeasure: there are no same pairs or no different ones.
        ValueError: there are more than `MAX_SAME_PAIRS` same pairs (use `sample_pairs` then), or the rows are not unit
            vectors.
    """
    check_rows(embeddings, labels)
    if pair_totals(labels)[0] > MAX_SAME_PAIRS:
        raise ValueError(f"more than {MAX_SAME_PAIRS} same pairs: sample pairs instead")
    order = np.argsort(labels, kind="stable")
    ends = np.searchsorted(labels, labels[order], "right", sorter=order)  # of each row's identity
    rows = unit_rows(embeddings)[order]
    same = _same_similarities(rows, ends)
    scores, index = np.unique(np.concatenate([same, _GRID, np.asarray(thresholds, np.float32)]), return_inverse=True)
    below = np.zeros(len(scores), np.int64)
    up_to = np.zeros(len(scores), np.int64)
    lock = Lock()

    def count(part: slice) -> None:
        # The columns after a row's identity are its different pairs, each of them once.
        start = ends[part.start]
        block = similarities(rows[part], rows[start:])
        for row, end in enumerate((ends[part] - start).tolist()):
            block[row, :end] = _EXCLUDED
        # Sorting the block and looking up few scores in it is many times faster than the reverse.
        values = block.reshape(-1)
        values.sort()
        for lookup in blocks(len(scores), 1, _LOOKUP_BLOCK):
            lower, upper = _below_and_up_to(values, scores[lookup])
            with lock:
                below[lookup] += lower
                up_to[lookup] += upper

    map_blocks(count, len(rows), len(rows), block_rows)
    return RocCounts(
        scores.astype(np.float64),
        np.bincount(index[: len(same)], minlength=len(scores)).astype(np.float64),
        (up_to - below).astype(np.float64),
        np.append(below[1:] - up_to[:-1], 0.0),
    )


def _below_and_up_to(
    values: Float32[np.ndarray, " m"], scores: Float32[np.ndarray, " k"]
) -> tuple[Int64[np.ndarray, " k"], Int64[np.ndarray, " k"]]:
    """Count the values below each score, and those not above it. Values and scores ascend."""
    below = np.searchsorted(values, scores, "left")
    up_to = below.copy()
    equal = np.flatnonzero(values.take(below, mode="clip") == scores) if len(values) else below[:0]
    up_to[equal] = np.searchsorted(values, scores[equal], "right")
    return below, up_to


def _same_similarities(rows: Float64[np.ndarray, "n d"], ends: Int64[np.ndarray, " n"]) -> Float32[np.ndarray, " p"]:
    """Compute the scores of all same pairs of rows sorted by identity; `ends`: where each row's identity ends."""
    scores = [np.empty(0, np.float32)]
    for part in blocks(len(rows), len(rows), _SAME_BLOCK_ROWS):
        block = similarities(rows[part], rows[part.start : ends[part.stop - 1]])
        lengths = (ends[part] - part.start).tolist()
        scores.append(np.concatenate([block[row, row + 1 : end] for row, end in enumerate(lengths)]))
    return np.concatenate(scores)
