"""Groups of rows that are the same individual, without being told how many there are.

The two groups whose mean vectors are most alike become one, again and again, as long as they are at least the
threshold alike (centroid linkage, by the cosine). Knows nothing of labels, nor of any threshold's meaning.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int64

from familiar.core.blocks import unit_rows
from familiar.neighbors.exact import nearest

NEIGHBOURS = 60
THRESHOLDS = tuple(round(step / 50, 2) for step in range(2, 50))  # 0.04 to 0.98
_NONE = -2.0  # below every similarity
_STALE = -1  # no row's number


def group(
    embeddings: Float32[np.ndarray, "n d"], threshold: float, neighbours: int = NEIGHBOURS
) -> Int64[np.ndarray, " n"]:
    """The group of each row, numbered by first appearance; a row like no other is a group of one.

    `threshold` is a similarity in [-1, 1]: of two single rows, or of the means of two groups. The means' cosine is the
    mean similarity between the groups over the geometric mean of those within (each row with itself counted), so
    groups of many different photos need be less alike, photo by photo, than two single ones. Only groups that have a
    row among the `neighbours` nearest of one of the other's are ever compared. The rows' order changes nothing but the
    numbers, and equal rows are always together.
    `ValueError` for rows that are no unit vectors, a threshold outside its range, or no neighbours.
    """
    return groupable(embeddings, neighbours).groups_at([threshold])[0]


def fit_threshold(
    embeddings: Float32[np.ndarray, "n d"],
    score: Callable[[Int64[np.ndarray, " n"]], float],
    thresholds: Sequence[float] = THRESHOLDS,
    neighbours: int = NEIGHBOURS,
) -> tuple[float, float]:
    """The threshold whose groups score highest, and that score: of several as good, the one in their middle.

    `score` is given the group of each row. `ValueError` as in `group`, or where there is no threshold to try.
    """
    if not thresholds:
        raise ValueError("no thresholds to choose from")
    tried = sorted(thresholds)
    scores = np.array([score(groups) for groups in groupable(embeddings, neighbours).groups_at(tried)])
    best = np.flatnonzero(scores == scores.max())
    middle = int(best[(len(best) - 1) // 2])
    return tried[middle], float(scores[middle])


@dataclass(frozen=True, eq=False)
class Groupable:
    """Rows with their neighbours found once, to be grouped at any thresholds. `groupable` makes it.

    `rows` are the distinct rows, sorted, and `place[i]` is where row i of those given stands among them;
    `neighbours` are the k nearest others of each, nearest first, and `similarity` theirs.
    """

    rows: Float64[np.ndarray, "m d"]
    place: Int64[np.ndarray, " n"]
    neighbours: Int64[np.ndarray, "m k"]
    similarity: Float32[np.ndarray, "m k"]

    def groups_at(self, thresholds: Sequence[float]) -> list[Int64[np.ndarray, " n"]]:
        """What `group` returns, at each threshold. The groups at a lower one are made of those at a higher, so all
        of them together take as long as the lowest alone."""
        for threshold in thresholds:
            if not -1.0 <= threshold <= 1.0:
                raise ValueError(f"a threshold is a similarity in [-1, 1], not {threshold}")
        merging = _Merging(self)
        found: dict[float, Int64[np.ndarray, " n"]] = {}
        for threshold in sorted(thresholds, reverse=True):
            merging.run_down_to(threshold)
            found[threshold] = _by_first_appearance(merging.groups[self.place])
        return [found[threshold] for threshold in thresholds]


def groupable(embeddings: Float32[np.ndarray, "n d"], neighbours: int = NEIGHBOURS) -> Groupable:
    """The rows ready for grouping. `ValueError` as in `group`."""
    if neighbours < 1:
        raise ValueError(f"a row has at least 1 neighbour to look at, not {neighbours}")
    unit_rows(embeddings)  # or ValueError, before a NaN is sorted
    # Sorted and each once, they are the same whatever order they came in, to the last bit of every sum.
    distinct, place = np.unique(embeddings, axis=0, return_inverse=True)
    if len(distinct) < 2:
        found = np.empty((len(distinct), 0), np.int64), np.empty((len(distinct), 0), np.float32)
    else:
        found = nearest(distinct, min(neighbours, len(distinct) - 1))
    return Groupable(unit_rows(distinct), place.reshape(-1).astype(np.int64), *found)


class _Merging:
    """The groups while they merge. A group goes by the number of its first row.

    For each group its nearest is kept, as in Müllner's generic linkage (arXiv 1109.2378). Where that one has merged,
    the nearest is `_STALE`, and `_closeness` a bound for all but the merged group, which knows its own nearest; it is
    looked up only once the bound is the largest of all. So no pair is closer than what one of its two groups has
    written down. Closeness is rounded to float32, so that what is equal ties exactly.
    """

    def __init__(self, start: Groupable) -> None:
        count = len(start.rows)
        self.groups: Int64[np.ndarray, " m"] = np.arange(count)
        self._sums = start.rows.copy()
        self._lengths = np.ones(count)
        self._linked = _linked(start.neighbours)
        self._nearest = np.full(count, _STALE)
        self._closeness = np.full(count, _NONE, np.float32)
        if start.neighbours.size:
            self._nearest[:] = start.neighbours[:, 0]
            self._closeness[:] = start.similarity[:, 0]

    def run_down_to(self, threshold: float) -> None:
        while len(self.groups):
            closest = int(self._closeness.argmax())
            if self._closeness[closest] < max(threshold, -1.0):
                return
            if self._nearest[closest] == _STALE:
                self._look_around(closest)
            else:
                self._merge(*sorted((closest, int(self._nearest[closest]))))

    def _look_around(self, group: int) -> None:
        """Finds the nearest of those linked."""
        linked = _each_once(self.groups[self._linked[group]])
        linked = self._linked[group] = linked[linked != group]
        if not len(linked):
            self._closeness[group] = _NONE
            return
        product = self._sums[linked] @ self._sums[group]
        cosine = product / np.maximum(self._lengths[linked] * self._lengths[group], np.finfo(np.float64).tiny)
        closeness = np.clip(cosine, -1.0, 1.0).astype(np.float32)
        best = int(closeness.argmax())
        self._nearest[group], self._closeness[group] = linked[best], closeness[best]

    def _merge(self, into: int, gone: int) -> None:
        self.groups[self.groups == gone] = into
        self._sums[into] += self._sums[gone]
        self._lengths[into] = np.linalg.norm(self._sums[into])
        self._linked[into] = np.concatenate([self._linked[into], self._linked.pop(gone)])
        self._nearest[(self._nearest == into) | (self._nearest == gone)] = _STALE
        self._closeness[gone] = _NONE
        self._look_around(into)


def _linked(neighbours: Int64[np.ndarray, "n k"]) -> dict[int, Int64[np.ndarray, " linked"]]:
    """For each row its neighbours and the rows whose neighbour it is."""
    count = len(neighbours)
    row = np.broadcast_to(np.arange(count)[:, None], neighbours.shape).reshape(-1)
    other = neighbours.reshape(-1)
    pairs = _each_once(np.concatenate([row * count + other, other * count + row]))
    starts: Int64[np.ndarray, " starts"] = np.searchsorted(pairs, np.arange(count + 1) * count)
    return {row: pairs[starts[row] : starts[row + 1]] % count for row in range(count)}


def _each_once(numbers: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " fewer"]:
    """What np.unique does by hashing, several times as fast."""
    ordered = np.sort(numbers)
    return ordered[np.concatenate([ordered[:1] == ordered[:1], ordered[1:] != ordered[:-1]])]


def _by_first_appearance(groups: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
    _, first, place = np.unique(groups, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[place]
