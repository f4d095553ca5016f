"""Groups of rows that are the same individual, without being told how many there are.

Rows whose neighbourhoods overlap become one group; then the groups most alike on average, as long as any two are at
least the threshold alike. Both times, two groups merge that are each other's nearest. Knows nothing of labels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from familiar.core.blocks import blocks, unit_rows
from familiar.neighbors.graph import (
    Links,
    Neighbours,
    nearest_neighbours,
    neighbourhoods,
)

NEIGHBOURS = 60


class Scale(NamedTuple):
    """Groups merge whose neighbourhoods of up to `k` rows overlap by `overlap` (a cosine) or more.

    Only rows `stricter` than the threshold are neighbours: with more of them, chance brings more together.
    """

    k: int
    overlap: float
    stricter: float


# Chosen on cats, pandas and people (docs/grouping.md). The first joins few photos well and breaks large groups up,
# the second joins what the first broke.
SCALES = (Scale(10, 0.15, 0.0), Scale(NEIGHBOURS, 0.1, 0.05))
VOICES = 2
THRESHOLDS = tuple(round(step / 50, 2) for step in range(5, 50))  # 0.10 to 0.98


def group(
    embeddings: Float32[np.ndarray, "n d"], threshold: float, neighbours: int = NEIGHBOURS
) -> Int64[np.ndarray, " n"]:
    """The group of each row, numbered by first appearance; a row like no other is a group of one.

    `threshold` is a similarity in [-1, 1]. Only groups that have a row among the `neighbours` nearest of the other's
    are ever compared. The rows' order changes nothing but the numbers, and equal rows are always together.
    `ValueError` for rows that are no unit vectors, a threshold outside its range, or no neighbours.
    """
    return groupable(embeddings, neighbours).groups(threshold)


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
    rows = groupable(embeddings, neighbours)
    tried = sorted(thresholds)
    scores = np.array([score(rows.groups(threshold)) for threshold in tried])
    best = np.flatnonzero(scores == scores.max())
    middle = int(best[(len(best) - 1) // 2])
    return tried[middle], float(scores[middle])


@dataclass(frozen=True, eq=False)
class Groupable:
    """Rows with their neighbours found once, to be grouped at any threshold. `groupable` makes it.

    `rows` are the distinct rows, sorted; `place[i]` is where row i of those given stands among them.
    """

    rows: Float64[np.ndarray, "m d"]
    place: Int64[np.ndarray, " n"]
    neighbours: Neighbours

    def groups(self, threshold: float) -> Int64[np.ndarray, " n"]:
        """As `group` does."""
        if not -1.0 <= threshold <= 1.0:
            raise ValueError(f"a threshold is a similarity in [-1, 1], not {threshold}")
        count = len(self.rows)
        groups = np.arange(count)
        for k, at_least, stricter in SCALES:
            links = self.neighbours.links(k)
            seen = neighbourhoods(self.neighbours, k, threshold + stricter, VOICES)
            weight = seen.overlaps(links)
            overlap = _Overlap(groups, links, weight, seen.squared_norms())
            groups = _merged(groups, links, weight, overlap, at_least)
        links = self.neighbours.links()
        alike = _MeanSimilarity(groups, self.rows)
        groups = _merged(groups, links, np.zeros(len(links.left)), alike, threshold)
        return _by_first_appearance(groups[self.place])


def groupable(embeddings: Float32[np.ndarray, "n d"], neighbours: int = NEIGHBOURS) -> Groupable:
    """The rows ready for grouping. `ValueError` as in `group`."""
    unit_rows(embeddings)  # or ValueError, before a NaN is sorted
    # Sorted and each once, they are the same whatever order they came in, to the last bit of every sum.
    distinct, place = np.unique(embeddings, axis=0, return_inverse=True)
    found = nearest_neighbours(distinct, neighbours)
    return Groupable(unit_rows(distinct), place.reshape(-1).astype(np.int64), found)


@runtime_checkable
class _Closeness(Protocol):
    """How close groups are, kept up to date while they merge. A group goes by the number of its first row."""

    reducible: bool
    """Whether groups too far from both of two others are too far from the two merged."""

    def of(self, links: Links, weight: Float64[np.ndarray, " e"]) -> Float64[np.ndarray, " e"]: ...

    def merge(self, merging: Links, weight: Float64[np.ndarray, " e"]) -> None: ...


class _Overlap:
    """The cosine of two groups' neighbourhoods, each the sum of its rows', counting linked rows only.

    A link's weight is the scalar product summed over the links between the rows of both.
    """

    reducible = False

    def __init__(
        self,
        groups: Int64[np.ndarray, " n"],
        links: Links,
        weight: Float64[np.ndarray, " e"],
        squared_norms: Float64[np.ndarray, " n"],
    ) -> None:
        of_links = groups[links.left]
        within = of_links == groups[links.right]
        inside = np.bincount(of_links[within], weight[within], minlength=len(groups))
        self._squared_norms = np.bincount(groups, squared_norms, minlength=len(groups)) + 2.0 * inside

    def of(self, links: Links, weight: Float64[np.ndarray, " e"]) -> Float64[np.ndarray, " e"]:
        return weight / np.sqrt(self._squared_norms[links.left] * self._squared_norms[links.right])

    def merge(self, merging: Links, weight: Float64[np.ndarray, " e"]) -> None:
        self._squared_norms[merging.left] += self._squared_norms[merging.right] + 2 * weight


class _MeanSimilarity:
    """Over *all* pairs of one row of each group, linked or not: the scalar product of the groups' means."""

    reducible = True

    def __init__(self, groups: Int64[np.ndarray, " n"], rows: Float64[np.ndarray, "n d"]) -> None:
        self._sums = np.zeros_like(rows)
        np.add.at(self._sums, groups, rows)
        self._sizes = np.bincount(groups, minlength=len(rows)).astype(np.float64)

    def of(self, links: Links, weight: Float64[np.ndarray, " e"]) -> Float64[np.ndarray, " e"]:
        del weight
        similarity = np.empty(len(links.left))
        for part in blocks(len(links.left), 4 * self._sums.shape[1], None):
            left, right = links.left[part], links.right[part]
            product = np.einsum("ed,ed->e", self._sums[left], self._sums[right])
            similarity[part] = product / (self._sizes[left] * self._sizes[right])
        return similarity

    def merge(self, merging: Links, weight: Float64[np.ndarray, " e"]) -> None:
        del weight
        self._sums[merging.left] += self._sums[merging.right]
        self._sizes[merging.left] += self._sizes[merging.right]


def _merged(
    groups: Int64[np.ndarray, " n"],
    links: Links,
    weight: Float64[np.ndarray, " e"],
    closeness: _Closeness,
    at_least: float,
) -> Int64[np.ndarray, " n"]:
    """The groups after every merge: round by round all that are each other's nearest, while any are close enough."""
    links, weight = _between(groups, links, weight)
    close = closeness.of(links, weight)
    while (enough := close >= at_least).any():
        if closeness.reducible:
            links, weight, close = (
                Links(links.left[enough], links.right[enough]),
                weight[enough],
                close[enough],
            )
            enough = np.ones(len(close), bool)
        merge = _mutual_nearest(links, close, enough, len(groups))
        merging = Links(links.left[merge], links.right[merge])
        closeness.merge(merging, weight[merge])
        now = np.arange(len(groups))
        now[merging.right] = merging.left
        groups = now[groups]
        links, weight = _between(now, links, weight)
        close = closeness.of(links, weight)
    return groups


def _between(
    groups: Int64[np.ndarray, " n"], links: Links, weight: Float64[np.ndarray, " e"]
) -> tuple[Links, Float64[np.ndarray, " fewer"]]:
    """Links between groups instead of rows, each once, with the sum of the weights."""
    count = len(groups)
    left, right = groups[links.left], groups[links.right]
    apart = left != right
    left, right = np.minimum(left, right)[apart], np.maximum(left, right)[apart]
    place, link = np.unique(left * count + right, return_inverse=True)
    summed = np.bincount(link, weight[apart], minlength=len(place)).astype(np.float64)  # of none: integers
    return Links(*np.divmod(place, max(count, 1))), summed


def _mutual_nearest(
    links: Links, close: Float64[np.ndarray, " e"], enough: Bool[np.ndarray, " e"], count: int
) -> Int64[np.ndarray, " m"]:
    """Which of the links close enough are the best of both their ends; of equally close ones the first counts."""
    few = np.flatnonzero(enough)
    few = few[np.argsort(-close[few], kind="stable")]
    left, right, rank = links.left[few], links.right[few], np.arange(len(few))
    best = np.full(count, len(few))
    np.minimum.at(best, left, rank)
    np.minimum.at(best, right, rank)
    return few[(best[left] == rank) & (best[right] == rank)]


def _by_first_appearance(groups: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
    _, first, place = np.unique(groups, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[place]
