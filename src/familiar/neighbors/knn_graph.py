"""Which rows are near each other: the k nearest of each row, and the links they make both ways.

Up to some tens of thousands of rows the search is exact. Beyond, rows are divided into cells around k-means centers,
and a row looks only into the cells whose centers are nearest to it (IVF: Jégou et al. 2011, "Product quantization").
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int32, Int64, UInt16, UInt64

from familiar.core.blockwise import blocks
from familiar.neighbors.brute_force import search

EXACT_SCORES = 2_500_000_000  # 50,000 rows against each other: beyond so many similarities, cells
PROBES = 64  # cells a row looks into, about
_LLOYD_STEPS = 4
_ROWS_A_CENTER = 32  # of which k-means learns
_QUERIES = 1 << 16  # at once; a query's number takes 16 bits
_SCORES = 1 << 22  # at once
_CANDIDATES = 1 << 23  # held before the worst are dropped: 64 MB
_STEPS = np.float32((1 << 23) - 1)  # in which a similarity of 1 falls to 0


@dataclass(frozen=True, eq=False)
class Links:
    """The nearest others of some of m rows, nearest first, and how alike the first of them is. `links` makes it.

    A row of which fewer than k were found fills up with itself; the similarity of none is -2.
    """

    searched: Int64[np.ndarray, " q"]
    nearest: Int32[np.ndarray, "q k"]
    similarity: Float32[np.ndarray, " q"]
    place: Int32[np.ndarray, " m"]  # of each row among those searched, or -1
    starts: Int64[np.ndarray, " m+1"]
    found_by: Int32[np.ndarray, " q*k"]  # from starts[row] to starts[row + 1], the rows that found it

    def of(self, row: int) -> Int32[np.ndarray, " linked"]:
        """Its nearest others and those that it is near to; one that is both comes twice."""
        found_by = self.found_by[self.starts[row] : self.starts[row + 1]]
        place = self.place[row]
        return found_by if place < 0 else np.concatenate([self.nearest[place], found_by])


def links(rows: Float32[np.ndarray, "m d"], k: int, searched: Int64[np.ndarray, " q"]) -> Links:
    """The links of unit rows, of which those `searched` look for their k nearest others, or all others if fewer."""
    k = max(0, min(k, len(rows) - 1))
    if len(searched) * len(rows) <= EXACT_SCORES:
        nearest, similarity = nearest_of_all(rows, k, searched)
    else:
        nearest, similarity = nearest_in_cells(rows, k, searched, cells=4 * int(np.sqrt(len(rows))))
    place = np.full(len(rows), -1, np.int32)
    place[searched] = np.arange(len(searched))
    finder = searched.astype(np.int32)[np.argsort(nearest.reshape(-1), kind="stable") // max(k, 1)]
    starts = np.zeros(len(rows) + 1, np.int64)
    starts[1:] = np.cumsum(np.bincount(nearest.reshape(-1), minlength=len(rows)))
    return Links(searched, nearest, similarity, place, starts, finder)


def nearest_of_all(
    rows: Float32[np.ndarray, "m d"], k: int, searched: Int64[np.ndarray, " q"]
) -> tuple[Int32[np.ndarray, "q k"], Float32[np.ndarray, " q"]]:
    """The k nearest others of each row searched, and the similarity of the first (none: -2)."""
    if k == 0 or not len(searched):
        return np.empty((len(searched), k), np.int32), np.full(len(searched), -2, np.float32)
    found, similarity = search(rows, rows[searched], k + 1)
    other = found != searched[:, None]
    other[other.all(axis=1), -1] = False  # a row with more equals than were asked for may not be among them
    return found[other].reshape(-1, k).astype(np.int32), similarity[other].reshape(-1, k)[:, 0]


def nearest_in_cells(
    rows: Float32[np.ndarray, "m d"],
    k: int,
    searched: Int64[np.ndarray, " q"],
    cells: int,
    probes: int = PROBES,
) -> tuple[Int32[np.ndarray, "q k"], Float32[np.ndarray, " q"]]:
    """As `nearest_of_all`, as far as these others lie in the cells nearest to a row; see `Links`.

    In float32: similarities are right to 1e-6, and so those of equal rows differ by chance, but the same rows in the
    same order give the same. `ValueError` from 2^24 rows or 2^16 cells on.
    """
    if len(rows) >= 1 << 24 or cells >= 1 << 16:
        raise ValueError(f"too many rows or cells: {len(rows)} and {cells}")
    centers = _centers(rows, cells)
    home = np.concatenate([_home(rows[part], centers) for part in blocks(len(rows), cells, None)])
    members = np.split(np.argsort(home, kind="stable"), np.cumsum(np.bincount(home, minlength=cells))[:-1])
    nearest = np.repeat(searched.astype(np.int32)[:, None], k, axis=1)
    similarity = np.full(len(searched), -2, np.float32)
    for part in blocks(len(searched), 1, _QUERIES):
        of = searched[part]
        best = _Best(of, k)
        for query, cell in _at_home_and_near(rows[of], home[of], centers, probes):
            for there, asking in _visits(query, cell):
                for some in blocks(len(asking), 1, _SCORES // max(1, len(members[there])) or 1):
                    scores = rows[of[asking[some]]] @ rows[members[there]].T
                    best.offer(asking[some], members[there], scores)
        query, rank, row, score = best.taken()
        nearest[part.start + query, rank] = row
        similarity[part.start + query[rank == 0]] = score[rank == 0]
    return nearest, similarity


def _centers(rows: Float32[np.ndarray, "m d"], cells: int) -> Float32[np.ndarray, "c d"]:
    """Unit centers of spherical k-means on a sample."""
    rng = np.random.default_rng(0)
    sample = rows[rng.choice(len(rows), min(len(rows), _ROWS_A_CENTER * cells), replace=False)]
    centers = sample[:cells].copy()
    for _ in range(_LLOYD_STEPS):
        home = np.concatenate([_home(sample[part], centers) for part in blocks(len(sample), cells, None)])
        order = np.argsort(home, kind="stable")
        peopled, starts = np.unique(home[order], return_index=True)
        sums = np.add.reduceat(sample[order], starts)
        centers[peopled] = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), np.float32(1e-30))
    return centers


def _home(rows: Float32[np.ndarray, "r d"], centers: Float32[np.ndarray, "c d"]) -> Int64[np.ndarray, " r"]:
    """The cell of each row."""
    return (rows @ centers.T).argmax(axis=1)


Pairs = tuple[UInt16[np.ndarray, " p"], UInt16[np.ndarray, " p"]]  # of a query and a cell it looks into


def _at_home_and_near(
    rows: Float32[np.ndarray, "q d"],
    home: Int64[np.ndarray, " q"],
    centers: Float32[np.ndarray, "c d"],
    probes: int,
) -> Iterator[Pairs]:
    """First each query with its own cell, so that little of what is found in the others need be held; then those.

    Not quite `probes` a query: a quarter of the cells tells from which similarity on there should be so many.
    """
    yield np.arange(len(rows)).astype(np.uint16), home.astype(np.uint16)
    cells = len(centers)
    some = slice(None, None, 4 if probes < cells else 1)
    among = -(-len(centers[some]) * min(probes, cells) // cells)
    query, cell = [np.empty(0, np.uint16)], [np.empty(0, np.uint16)]
    for part in blocks(len(rows), cells, None):
        scores = rows[part] @ centers.T
        floor = np.partition(scores[:, some], -among, axis=1)[:, -among]
        scores[np.arange(len(scores)), home[part]] = -2
        where = np.flatnonzero(scores >= floor[:, None])
        query.append((where // cells + part.start).astype(np.uint16))
        cell.append((where % cells).astype(np.uint16))
    yield np.concatenate(query), np.concatenate(cell)


def _visits(
    query: UInt16[np.ndarray, " p"], cell: UInt16[np.ndarray, " p"]
) -> Iterator[tuple[int, UInt16[np.ndarray, " asking"]]]:
    """Each cell that is looked into, and the queries that do."""
    order = np.argsort(cell, kind="stable")
    visited, starts = np.unique(cell[order], return_index=True)
    ends = [*starts[1:].tolist(), len(order)]
    for there, start, end in zip(visited.tolist(), starts.tolist(), ends[: len(starts)], strict=True):
        yield there, query[order[start:end]]


class _Best:
    """The k best that were found for each of some queries.

    One number a candidate: 16 bits of query, 24 of how unlike it is, 24 of its row. Sorted, the best of each are first.
    """

    def __init__(self, of: Int64[np.ndarray, " q"], k: int) -> None:
        self._of = of  # the queries' own rows, which they shall not find
        self._k = k
        self._floor = np.full(len(of), -2, np.float32)  # what is below it is not among the k
        self._held: list[UInt64[np.ndarray, " held"]] = []
        self._count = 0

    def offer(
        self,
        queries: UInt16[np.ndarray, " a"],
        rows: Int64[np.ndarray, " r"],
        similarity: Float32[np.ndarray, "a r"],
    ) -> None:
        """Takes note of those that may be among the best."""
        if not len(rows):
            return
        if len(rows) > self._k and self._floor[queries].min() == -2:
            among_these = np.partition(similarity, -self._k - 1, axis=1)[:, -self._k - 1]  # one is itself
            self._floor[queries] = np.maximum(self._floor[queries], among_these)
        where = np.flatnonzero(similarity >= self._floor[queries][:, None])
        query, row = queries[where // len(rows)], rows[where % len(rows)]
        unlike = (_STEPS * (1 - np.clip(similarity.reshape(-1)[where], -1, 1))).astype(np.uint64)
        candidates = query.astype(np.uint64) << 48 | unlike << 24 | row.astype(np.uint64)
        self._held.append(candidates[row != self._of[query]])
        self._count += len(candidates)
        if self._count > _CANDIDATES:
            self.taken()

    def taken(
        self,
    ) -> tuple[Int64[np.ndarray, " t"], Int64[np.ndarray, " t"], Int64[np.ndarray, " t"], Float32[np.ndarray, " t"]]:
        """Drops all but the best; the query of each, its rank from 0, its row and similarity."""
        candidates = np.sort(np.concatenate(self._held))
        query = (candidates >> 48).astype(np.int64)
        rank = np.arange(len(query)) - np.searchsorted(query, np.arange(len(self._of)))[query]
        best = rank < self._k
        candidates, query, rank = candidates[best], query[best], rank[best]
        self._held, self._count = [candidates], len(candidates)
        similarity = 1 - (candidates >> 24 & 0xFFFFFF).astype(np.float32) / _STEPS
        last = rank == self._k - 1
        self._floor[query[last]] = np.maximum(self._floor[query[last]], similarity[last])
        return query, rank, (candidates & 0xFFFFFF).astype(np.int64), similarity
