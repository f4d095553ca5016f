"""Groups of rows that are the same individual, without being told how many there are.

The two groups whose mean vectors are most alike become one, again and again, as long as they are at least the
threshold alike (centroid linkage, by the cosine) and nothing known keeps them apart. Knows nothing of labels, nor of
any threshold's meaning.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np
from jaxtyping import Float, Float32, Int, Int64

from familiar.core.blockwise import unit_rows
from familiar.core.vectors import check_unit_rows, normalize
from familiar.neighbors.closeness import closeness
from familiar.neighbors.constraints import Conflicts, Constraints, no_constraints, ranks
from familiar.neighbors.knn_graph import Links, links

NEIGHBORS = 60
NEIGHBORS_OF_MANY = 24  # from `MANY` rows on, where the others of 60 cost much and change next to nothing
MANY = 20_000  # rows; from here on sums are of float32, and ties of equal similarities no longer exact
LINKED = 4  # times the neighbors: as many others a group of several looks at, the nearest of them
THRESHOLDS = tuple(round(step / 50, 2) for step in range(2, 50))  # 0.04 to 0.98
_STALE = -1  # no group's size


def cluster(
    embeddings: Float32[np.ndarray, "n d"],
    threshold: float,
    neighbors: int | None = None,
    constraints: Constraints | None = None,
) -> Int64[np.ndarray, " n"]:
    """The group of each row, numbered by first appearance; a row like no other is a group of one.

    `threshold` is a similarity in [-1, 1]: of two single rows, or, as `closeness` has it, more of the means of two
    groups. The means' cosine is the mean similarity between the groups over the geometric mean of those within
    (each row with itself counted), so groups of many different photos need be less alike, photo by photo, than two
    single ones. Only groups that have a row among the `neighbors` nearest of one of the other's are ever compared;
    rows of settled seeds look for none.
    The rows' order changes nothing but the numbers, and equal rows of which nothing is known are always together.
    `neighbors` are 60, or 24 from 20,000 rows on, if not said.
    `constraints` hold whatever the similarities; two groups that they keep apart may each grow on.
    `ValueError` for rows that are no unit vectors, a threshold outside its range, no neighbors, or constraints of
    another number of rows.
    """
    return prepare_linkage(embeddings, neighbors, constraints).groups_at([threshold])[0]


def fit_threshold(
    embeddings: Float32[np.ndarray, "n d"],
    score: Callable[[Int64[np.ndarray, " n"]], float],
    thresholds: Sequence[float] = THRESHOLDS,
    neighbors: int | None = None,
) -> tuple[float, float]:
    """The threshold whose groups score highest, and that score: of several as good, the one in their middle.

    `score` is given the group of each row. `ValueError` as in `group`, or where there is no threshold to try.
    """
    if not thresholds:
        raise ValueError("no thresholds to choose from")
    tried = sorted(thresholds)
    scores = np.array([score(groups) for groups in prepare_linkage(embeddings, neighbors).groups_at(tried)])
    best = np.flatnonzero(scores == scores.max())
    middle = int(best[(len(best) - 1) // 2])
    return tried[middle], float(scores[middle])


@dataclass(frozen=True, eq=False)
class LinkageInput:
    """Rows with their neighbors found once, to be grouped at any thresholds. `groupable` makes it.

    `rows` are the items, sorted: the distinct rows, or as many as the constraints tell apart. `item[i]` is that of row
    i of those given, and `start` the group each item begins in, by the group's first item. `settled` are groups, and
    `apart` pairs of groups, at the start.
    """

    rows: Float[np.ndarray, "m d"]
    item: Int64[np.ndarray, " n"]
    start: Int64[np.ndarray, " m"]
    links: Links
    settled: Int64[np.ndarray, " s"]
    apart: Int64[np.ndarray, "p 2"]

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
            found[threshold] = by_first_appearance(merging.groups[self.item])
        return [found[threshold] for threshold in thresholds]


def prepare_linkage(
    embeddings: Float32[np.ndarray, "n d"],
    neighbors: int | None = None,
    constraints: Constraints | None = None,
) -> LinkageInput:
    """The rows ready for grouping. `ValueError` as in `group`."""
    if neighbors is not None and neighbors < 1:
        raise ValueError(f"a row has at least 1 neighbor to look at, not {neighbors}")
    check_unit_rows(embeddings)  # or ValueError, before a NaN is sorted
    known = no_constraints(len(embeddings)) if constraints is None else constraints
    if len(known.seeds) != len(embeddings):
        raise ValueError(f"the constraints are of {len(known.seeds)} rows, not of {len(embeddings)}")
    # Sorted and each once, they are the same whatever order they came in, to the last bit of every sum.
    item = known.items(_vectors(embeddings))
    row = np.unique(item, return_index=True)[1]
    seeds = known.seeds[row]
    _, first, which = np.unique(seeds, return_index=True, return_inverse=True)
    start = np.where(seeds < 0, np.arange(len(row)), first[which])
    settled = seeds >= 0
    settled[settled] = known.locked[seeds[settled]]
    many = len(row) >= MANY
    rows = normalize(embeddings[row]) if many else embeddings[row]
    found = links(rows, neighbors or (NEIGHBORS_OF_MANY if many else NEIGHBORS), np.flatnonzero(~settled))
    exact = rows if many else unit_rows(rows)
    return LinkageInput(exact, item, start, found, start[settled], start[item[known.cannot_link]])


class _Merging:
    """The groups while they merge. A group goes by the number of one of its items, and loses it to a larger one.

    For each group what is nearest is kept on a heap, as in Müllner's generic linkage (arXiv 1109.2378). Where that one
    has merged since, which its size tells, the closeness is a bound for all but the merged group, which knows its own
    nearest; it is looked up only once the bound is the largest of all. So no pair is closer than what one of its two
    groups has written down. Closeness is rounded to float32, so that what is equal ties exactly.
    """

    def __init__(self, start: LinkageInput) -> None:
        count = len(start.rows)
        self.groups: Int64[np.ndarray, " m"] = start.start.copy()
        self._links = start.links
        self._conflicts = Conflicts(count, start.settled, start.apart)
        self._members: dict[int, list[int]] = {}  # of groups of several, as is what these are linked to
        self._linked: dict[int, Int[np.ndarray, " linked"]] = {}
        self._rows = np.bincount(self.groups, minlength=count)
        self._size: list[int] = self._rows.tolist()  # the same, of which one at a time is fast to read
        self._sums = start.rows.copy()
        self._lengths = np.ones(count)
        self._most_linked = LINKED * max(1, start.links.nearest.shape[1])
        # (-closeness, group, its size, nearest, the nearest one's size): void once the group has another size
        self._heap = self._first_entries(start)
        heapify(self._heap)
        self._gather_seeds()

    def run_down_to(self, threshold: float) -> None:
        heap, size = self._heap, self._size
        while heap and -heap[0][0] >= threshold:
            _, group, its_size, nearest, nearest_size = heappop(heap)
            if size[group] != its_size:
                continue
            if size[nearest] == nearest_size:
                self._merge(group, nearest)
            else:
                self._look_around(group)

    def _first_entries(self, start: LinkageInput) -> list[tuple[float, int, int, int, int]]:
        """Of the groups of one that searched. What pairs them with one of several, that one finds, looking around."""
        if not start.links.nearest.size:
            return []
        size = np.array(self._size)
        single = start.links.searched[size[start.links.searched] == 1]
        place = start.links.place[single]
        nearest = start.links.nearest[place, 0]
        # Where the nearest is of a seed of several, its size is not 1: looked up, as is what may be apart.
        nearest_size = np.where(np.isin(single, start.apart), _STALE, 1)
        entries = (-start.links.similarity[place], single, size[single], nearest, nearest_size)
        return list(zip(*(entry.tolist() for entry in entries), strict=True))

    def _gather_seeds(self) -> None:
        """Makes one group of each seed, and finds what it is nearest to."""
        seeded = np.flatnonzero(np.array(self._size)[self.groups] > 1)
        if not len(seeded):
            return
        seeded = seeded[np.argsort(self.groups[seeded], kind="stable")]
        seeds, starts = np.unique(self.groups[seeded], return_index=True)
        self._sums[seeds] = np.add.reduceat(self._sums[seeded], starts)
        self._lengths[seeds] = np.linalg.norm(self._sums[seeds], axis=1)
        for seed, members in zip(seeds.tolist(), np.split(seeded, starts[1:]), strict=True):
            self._members[seed] = members.tolist()
            self._linked[seed] = np.concatenate([self._links.of(member) for member in self._members[seed]])
        for seed in seeds.tolist():
            self._look_around(seed)

    def _look_around(self, group: int) -> None:
        """Finds the nearest of those linked."""
        linked = _each_once(self.groups[self._linked_to(group)])
        linked = self._conflicts.without(group, linked[linked != group])
        if not len(linked):
            self._linked[group] = linked
            return
        product = self._sums[linked] @ self._sums[group]
        cosine = product / np.maximum(self._lengths[linked] * self._lengths[group], np.finfo(np.float64).tiny)
        close = closeness(cosine, np.minimum(self._rows[linked], self._size[group])).astype(np.float32)
        best = int(close.argmax())
        nearest, highest = int(linked[best]), min(max(float(close[best]), -1.0), 1.0)
        heappush(self._heap, (-highest, group, self._size[group], nearest, self._size[nearest]))
        if len(linked) > self._most_linked:
            linked = linked[np.argpartition(close, -self._most_linked)[-self._most_linked :]]
        if self._size[group] > 1:
            self._linked[group] = linked

    def _merge(self, one: int, other: int) -> None:
        into, gone = sorted((one, other), key=lambda group: (-self._size[group], group))
        moved = self._members.pop(gone, [gone])
        self.groups[moved] = into
        self._members.setdefault(into, [into]).extend(moved)
        self._size[into] += self._size[gone]
        self._rows[into] = self._size[into]
        self._size[gone] = 0
        self._sums[into] += self._sums[gone]
        self._lengths[into] = np.linalg.norm(self._sums[into])
        self._linked[into] = np.concatenate([self._linked_to(into), self._linked_to(gone)])
        self._linked.pop(gone, None)
        self._conflicts.merge(into, gone)
        self._look_around(into)

    def _linked_to(self, group: int) -> Int[np.ndarray, " linked"]:
        linked = self._linked.get(group)
        return self._links.of(group) if linked is None else linked


def _vectors(embeddings: Float32[np.ndarray, "n d"]) -> Int64[np.ndarray, " n"]:
    """The number of each row's vector among the distinct ones, sorted. Few are alike in their first component, and to
    sort by one number is many times as fast."""
    first = np.unique(embeddings[:, 0], return_inverse=True)[1]
    tied = np.bincount(first)[first] > 1
    among_tied = np.zeros(len(first), np.int64)
    among_tied[tied] = np.unique(embeddings[tied], axis=0, return_inverse=True)[1].reshape(-1)
    return ranks(first, among_tied)


def _each_once(numbers: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " fewer"]:
    """What np.unique does by hashing, several times as fast."""
    ordered = np.sort(numbers)
    return ordered[np.concatenate([ordered[:1] == ordered[:1], ordered[1:] != ordered[:-1]])]


def by_first_appearance(groups: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
    """Groups numbered anew, from 0 on, in the order of their first rows."""
    _, first, place = np.unique(groups, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[place]
