"""Who is near whom, without an n x n matrix: the nearest rows of each row, the links they make, and how far the
neighbourhoods of two linked rows are the same."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int64

from familiar.core.blocks import BLOCK_SCORES
from familiar.neighbors.exact import nearest


class Links(NamedTuple):
    """Pairs of rows, each once, sorted: `left` < `right`."""

    left: Int64[np.ndarray, " e"]
    right: Int64[np.ndarray, " e"]


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The k nearest others of each row, nearest first, and their similarities in [-1, 1]."""

    rows: Int64[np.ndarray, "n k"]
    similarity: Float32[np.ndarray, "n k"]

    def links(self, k: int | None = None) -> Links:
        """Every pair of which one row is among the k nearest (None: among the neighbours) of the other."""
        other: Int64[np.ndarray, "n k"] = self.rows[:, :k]
        count = len(other)
        row = np.broadcast_to(np.arange(count)[:, None], other.shape)
        place = np.unique(np.minimum(row, other) * count + np.maximum(row, other))
        return Links(*np.divmod(place, max(count, 1)))


@dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """A distribution over rows for each row, sparse: the entries of row i are those with `place // n == i`.

    `place` is sorted, and `place % n` is the row on which `weight` of the distribution lies.
    """

    count: int
    place: Int64[np.ndarray, " entries"]
    weight: Float64[np.ndarray, " entries"]

    def overlaps(self, links: Links) -> Float64[np.ndarray, " e"]:
        """Scalar products of the distributions of linked rows."""
        starts = np.searchsorted(self.place, np.arange(self.count + 1) * self.count)
        sizes = np.diff(starts)
        swap = sizes[links.left] > sizes[links.right]
        few, many = np.where(swap, links.right, links.left), np.where(swap, links.left, links.right)
        found = np.zeros(len(few))
        step = max(1, BLOCK_SCORES // 8 // int(sizes.max(initial=1)))
        for start in range(0, len(few), step):
            of, to = few[start : start + step], many[start : start + step]
            entries = _ranges(starts[of], sizes[of])
            same_row_of_other = np.repeat((to - of) * self.count, sizes[of]) + self.place[entries]
            at = np.minimum(np.searchsorted(self.place, same_row_of_other), len(self.place) - 1)
            both = np.where(self.place[at] == same_row_of_other, self.weight[entries] * self.weight[at], 0.0)
            link = np.repeat(np.arange(len(of)), sizes[of])
            found[start : start + step] = np.bincount(link, both, minlength=len(of))
        return found

    def squared_norms(self) -> Float64[np.ndarray, " n"]:
        """Of each row's distribution: its overlap with itself."""
        own = self.place // max(self.count, 1)
        return np.bincount(own, self.weight**2, minlength=self.count).astype(np.float64)


def nearest_neighbours(
    embeddings: Float32[np.ndarray, "n d"], k: int, block_rows: int | None = None
) -> Neighbours:
    """The k nearest of each row; all others where there are fewer. `ValueError` for k under 1 or rows not unit."""
    if k < 1:
        raise ValueError(f"a row has at least 1 neighbour to look at, not {k}")
    count = len(embeddings)
    if count < 2:
        return Neighbours(np.empty((count, 0), np.int64), np.empty((count, 0), np.float32))
    return Neighbours(*nearest(embeddings, min(k, count - 1), block_rows=block_rows))


def neighbourhoods(neighbours: Neighbours, k: int, threshold: float, voices: int) -> Neighbourhoods:
    """Where each row's mutual neighbours lie, as the row and its `voices` nearest mutual neighbours see it.

    Rows are mutual neighbours where each is among the other's k nearest and they are at least `threshold` similar.
    What one row sees is spread evenly over itself and its mutual neighbours; the neighbourhood is the mean of what
    the row and its nearest see. Mutual neighbours (k-reciprocal), spread to the nearest: Zhong et al. 2017,
    arXiv 1701.08398. Since each has at most k, no row of many admirers makes it costly.
    """
    count = len(neighbours.rows)
    near = neighbours.similarity[:, :k] >= threshold
    row, rank = np.nonzero(near)
    other = neighbours.rows[row, rank]
    mutual = np.isin(other * count + row, row * count + other)
    rows, seen = np.arange(count), other[mutual]
    # Stable, so that what a row sees stays in the order: itself, its nearest, ...
    by_row = np.argsort(np.concatenate([rows, row[mutual]]), kind="stable")
    seen = np.concatenate([rows, seen])[by_row]
    sizes = 1 + np.bincount(row[mutual], minlength=count)
    starts = np.cumsum(sizes) - sizes
    heard = np.minimum(sizes, 1 + voices)
    listener, voice = np.repeat(rows, heard), seen[_ranges(starts, heard)]
    share = 1.0 / (heard[listener] * sizes[voice])
    place = np.repeat(listener, sizes[voice]) * count + seen[_ranges(starts[voice], sizes[voice])]
    place, entry = np.unique(place, return_inverse=True)
    weight = np.bincount(entry, np.repeat(share, sizes[voice]), minlength=len(place))
    return Neighbourhoods(count, place, weight.astype(np.float64))


def _ranges(starts: Int64[np.ndarray, " m"], sizes: Int64[np.ndarray, " m"]) -> Int64[np.ndarray, " total"]:
    """start, start + 1, ... of each range, one range after the other."""
    ends = np.cumsum(sizes)
    return np.arange(int(sizes.sum())) + np.repeat(starts - (ends - sizes), sizes)
