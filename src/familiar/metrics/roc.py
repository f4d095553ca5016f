"""The pairs of a verification, counted: small, exact, and the same whether they came as a list or in blocks.

A figure of the ROC depends on the pairs' order alone, so the same pairs' scores and the number of
different pairs that fall on and between them say it all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock

import numpy as np
from jaxtyping import Float, Float32, Float64, Int, Int64

from familiar.core.blockwise import blocks, map_blocks, similarities, unit_rows
from familiar.core.errors import NothingToMeasure

MAX_SAME_PAIRS = 20_000_000  # of `roc_counts_all_pairs`: more would not fit into 2 GB
_GRID = np.linspace(-1, 1, 2049, dtype=np.float32)  # steps of 1/1024, exact in float32
_EXCLUDED = 2.0  # above every similarity
_LOOKED_UP = 1_000_000  # scores at a time: every thread holds their counts
_SAME_BLOCK_ROWS = 256  # few: most of such a block beside the diagonal is computed in vain


@dataclass(frozen=True, eq=False)
class RocCounts:
    """How the pairs' scores are ordered. Counts may be weights.

    `scores`: distinct and ascending, among them every score of a same pair; all pairs lie within the
    first and the last. `same_at`, `different_at`: pairs of exactly this score. `different_between[i]`:
    different pairs strictly between scores i and i + 1 (none above the last). Raises `NothingToMeasure`
    without a same or without a different pair.
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
        """Same pairs in all."""
        return float(self.accepted_same[0])

    @property
    def different(self) -> float:
        """Different pairs in all."""
        return float(self.accepted_different[0])

    @cached_property
    def accepted_same(self) -> Float64[np.ndarray, " k"]:
        """Same pairs that score at least `scores[i]`."""
        return np.cumsum(self.same_at[::-1])[::-1]

    @cached_property
    def accepted_different(self) -> Float64[np.ndarray, " k"]:
        """Different pairs that score at least `scores[i]`."""
        return np.cumsum((self.different_at + self.different_between)[::-1])[::-1]


def roc_counts(
    scores_same: Float[np.ndarray, " p"],
    scores_different: Float[np.ndarray, " q"],
    weights_same: Float[np.ndarray, " p"] | None = None,
    weights_different: Float[np.ndarray, " q"] | None = None,
) -> RocCounts:
    """Counts of listed pairs, higher scores meaning closer. `ValueError` on a score that is not finite."""
    listed = np.concatenate([scores_same, scores_different]).astype(np.float64)
    if not np.isfinite(listed).all():
        raise ValueError("a pair's score is not finite")
    scores, at = np.unique(listed, return_inverse=True)
    split, size = len(scores_same), len(scores)
    return RocCounts(
        scores,
        np.bincount(at[:split], weights_same, size).astype(np.float64),
        np.bincount(at[split:], weights_different, size).astype(np.float64),
        np.zeros(size),
    )


def pair_totals(labels: Int[np.ndarray, " n"]) -> tuple[int, int]:
    """How many same and different pairs n photos make, each pair once."""
    photos = np.unique(labels, return_counts=True)[1].astype(np.int64)
    same = int((photos * (photos - 1) // 2).sum())
    return same, len(labels) * (len(labels) - 1) // 2 - same


def roc_counts_all_pairs(
    embeddings: Float32[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    thresholds: Sequence[float] = (),
    block_rows: int | None = None,
) -> RocCounts:
    """Counts of all n (n - 1) / 2 pairs of unit rows, in blocks: 100,000 rows stay below 2 GB.

    Everything is exact, but for rates at a threshold that is neither a same pair's score, nor a
    multiple of 1/1024, nor in `thresholds`: those are interpolated. More than `MAX_SAME_PAIRS` same
    pairs are a `ValueError`: draw pairs with `sample_pairs` then.
    """
    if pair_totals(labels)[0] > MAX_SAME_PAIRS:
        raise ValueError(f"more than {MAX_SAME_PAIRS} same pairs: take a sample of the pairs")
    order = np.argsort(labels, kind="stable")
    ends = np.searchsorted(labels, labels[order], "right", sorter=order)  # of each row's identity
    rows = unit_rows(embeddings)[order]
    same = _same_similarities(rows, ends)
    scores, at = np.unique(np.concatenate([same, _GRID, np.asarray(thresholds, np.float32)]), return_inverse=True)
    below = np.zeros(len(scores), np.int64)
    up_to = np.zeros(len(scores), np.int64)
    adding = Lock()

    def count(part: slice) -> None:
        # Behind a row's identity lie its different pairs, each of them once.
        start = ends[part.start]
        block = similarities(rows[part], rows[start:])
        for row, end in enumerate((ends[part] - start).tolist()):
            block[row, :end] = _EXCLUDED
        # Sorting the block and looking few scores up in it is many times faster than the reverse.
        values = block.reshape(-1)
        values.sort()
        for some in blocks(len(scores), 1, _LOOKED_UP):
            lower, upper = _below_and_up_to(values, scores[some])
            with adding:
                below[some] += lower
                up_to[some] += upper

    map_blocks(count, len(rows), len(rows), block_rows)
    return RocCounts(
        scores.astype(np.float64),
        np.bincount(at[: len(same)], minlength=len(scores)).astype(np.float64),
        (up_to - below).astype(np.float64),
        np.append(below[1:] - up_to[:-1], 0.0),
    )


def _below_and_up_to(
    values: Float32[np.ndarray, " m"], scores: Float32[np.ndarray, " k"]
) -> tuple[Int64[np.ndarray, " k"], Int64[np.ndarray, " k"]]:
    """How many values lie below each score, and how many do not lie above it. Both ascend."""
    below = np.searchsorted(values, scores, "left")
    up_to = below.copy()
    met = np.flatnonzero(values.take(below, mode="clip") == scores) if len(values) else below[:0]
    up_to[met] = np.searchsorted(values, scores[met], "right")
    return below, up_to


def _same_similarities(rows: Float64[np.ndarray, "n d"], ends: Int64[np.ndarray, " n"]) -> Float32[np.ndarray, " p"]:
    """Scores of all same pairs. Rows come sorted by identity; `ends` says where each row's identity ends."""
    found = [np.empty(0, np.float32)]
    for part in blocks(len(rows), len(rows), _SAME_BLOCK_ROWS):
        block = similarities(rows[part], rows[part.start : ends[part.stop - 1]])
        lengths = (ends[part] - part.start).tolist()
        found.append(np.concatenate([block[row, row + 1 : end] for row, end in enumerate(lengths)]))
    return np.concatenate(found)
