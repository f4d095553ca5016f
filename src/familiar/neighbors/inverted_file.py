"""Approximate nearest-neighbor search with an inverted file (IVF: Jégou et al. 2011, "Product quantization").

Rows are grouped by the nearest of k-means centroids. A query is compared with the rows of the groups whose centroids
are nearest to it. The grouped rows may lie in a file that is larger than the memory.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int32, Int64, UInt16, UInt64

from familiar.core.blockwise import blocks, map_blocks
from familiar.core.cpu import one_thread_per_product
from familiar.neighbors.rounds import Rows

NPROBE = 64  # groups that a query searches, about
NO_SIMILARITY = -2.0  # below every similarity
QUERY_BATCH = 1 << 16  # searched for at once: each group is read once for all of them
MAX_ROWS, MAX_GROUPS = 1 << 27, 1 << 16
_LLOYD_STEPS = 4
_SAMPLE_PER_CENTROID = 32  # rows that k-means learns from
_SIMILARITY_BATCH = 1 << 22  # similarities computed at once
_MAX_CANDIDATES = 1 << 23  # kept before the worst are dropped: 64 MB
_COPIED_ROWS = 1 << 18


@dataclass(frozen=True, eq=False)
class InvertedFile:
    """Unit rows in groups.

    Attributes:
        rows: group after group; in memory, or mapped from a file.
        original: the index of each row before they were grouped.
        centroids: of the groups.
        starts: group g has the rows `starts[g]` to `starts[g + 1] - 1`.
    """

    rows: Rows
    original: Int32[np.ndarray, " n"]
    centroids: Float32[np.ndarray, "g d"]
    starts: Int64[np.ndarray, " g+1"]

    @staticmethod
    def build(rows: Rows, groups: int, grouped: Rows | None = None) -> "InvertedFile":
        """Group rows.

        Args:
            rows: unit rows.
            groups: how many; fewer if there are fewer rows.
            grouped: where to write the grouped rows, such as a mapped file; None: into memory, as float32.

        Raises:
            ValueError: more than 2^27 rows, or 2^16 groups or more.
        """
        if len(rows) > MAX_ROWS or groups >= MAX_GROUPS:
            raise ValueError(f"too many rows or groups: {len(rows)} and {groups} (limits: {MAX_ROWS} and {MAX_GROUPS})")
        centroids = fit_centroids(rows, groups)
        group_of_row = assign_to_centroids(rows, centroids)
        original = np.argsort(group_of_row, kind="stable").astype(np.int32)
        starts = np.zeros(len(centroids) + 1, np.int64)
        starts[1:] = np.cumsum(np.bincount(group_of_row, minlength=len(centroids)))
        if grouped is None:
            grouped = np.empty(rows.shape, np.float32)
        for block in blocks(len(rows), 1, _COPIED_ROWS):
            grouped[block] = rows[original[block]]
        return InvertedFile(grouped, original, centroids, starts)

    def search(
        self, queries: Int64[np.ndarray, " q"], k: int, nprobe: int = NPROBE
    ) -> tuple[Int32[np.ndarray, "q k"], Float32[np.ndarray, "q k"]]:
        """Find about the k nearest other rows of some of the rows.

        Similarities are float32, right to 1e-6, so those of equal rows may differ in the last bits; the same rows in
        the same order give the same result.

        Args:
            queries: positions in `rows`.
            k: neighbors of each.
            nprobe: groups that a query searches, about; its own is always among them.

        Returns:
            Positions of the neighbors in `rows`, nearest first, and their similarities. A query with fewer than k is
            filled up with itself, at a similarity of -2.
        """
        nearest = np.repeat(queries.astype(np.int32)[:, None], k, axis=1)
        similarity = np.full((len(queries), k), NO_SIMILARITY, np.float32)

        def search_batch(batch: slice) -> None:
            positions = queries[batch]
            query_rows = self.rows[positions].astype(np.float32)
            best = _TopK(positions, k, len(self.rows))
            for probes in self._probes(positions, query_rows, nprobe):
                for group, probing in _queries_by_group(probes):
                    self._search_group(group, query_rows, probing, best)
            query, rank, neighbor, score = best.compact()
            nearest[batch.start + query, rank] = neighbor
            similarity[batch.start + query, rank] = score

        with one_thread_per_product():
            map_blocks(search_batch, len(queries), 1, QUERY_BATCH)
        return nearest, similarity

    def _probes(
        self, positions: Int64[np.ndarray, " q"], query_rows: Float32[np.ndarray, "q d"], nprobe: int
    ) -> Iterator["Probes"]:
        """Yield each query with its own group, then all queries with the other groups nearest to them.

        Own groups come first, so that few candidates of the others have to be kept. A query gets about `nprobe`
        groups: the similarity from which on there should be as many is estimated on a quarter of the centroids.
        """
        own_group = np.searchsorted(self.starts, positions, side="right") - 1
        yield np.arange(len(positions)).astype(np.uint16), own_group.astype(np.uint16)
        groups = len(self.centroids)
        sampled = slice(None, None, 4 if nprobe < groups else 1)
        sampled_probes = -(-len(self.centroids[sampled]) * min(nprobe, groups) // groups)
        query, group = [np.empty(0, np.uint16)], [np.empty(0, np.uint16)]
        buffer = _Buffer()
        for part in blocks(len(query_rows), groups, None):
            scores = buffer.product(query_rows[part], self.centroids)
            floor = np.partition(scores[:, sampled], -sampled_probes, axis=1)[:, -sampled_probes]
            scores[np.arange(len(scores)), own_group[part]] = NO_SIMILARITY
            near = np.flatnonzero(scores >= floor[:, None])
            query.append((near // groups + part.start).astype(np.uint16))
            group.append((near % groups).astype(np.uint16))
        yield np.concatenate(query), np.concatenate(group)

    def _search_group(
        self,
        group: int,
        query_rows: Float32[np.ndarray, "q d"],
        probing: UInt16[np.ndarray, " p"],
        best: "_TopK",
    ) -> None:
        """Compare the queries `probing` with the rows of one group."""
        first, end = int(self.starts[group]), int(self.starts[group + 1])
        members = self.rows[first:end].astype(np.float32, copy=False)
        for part in blocks(len(probing), 1, _SIMILARITY_BATCH // max(1, len(members)) or 1):
            best.add(probing[part], first, query_rows, members)


def default_groups(rows: int) -> int:
    """Return how many groups are searched fastest."""
    return max(1, min(4 * math.isqrt(rows), MAX_GROUPS - 1))


def fit_centroids(rows: Rows, count: int) -> Float32[np.ndarray, "c d"]:
    """Fit unit centroids by spherical k-means on a sample.

    Args:
        rows: unit rows, at least one.
        count: of centroids; fewer if there are fewer rows.
    """
    rng = np.random.default_rng(0)
    sampled = rng.choice(len(rows), min(len(rows), _SAMPLE_PER_CENTROID * count), replace=False)
    sample = rows[sampled].astype(np.float32)
    centroids = sample[:count].copy()
    for _ in range(_LLOYD_STEPS):
        assignment = assign_to_centroids(sample, centroids)
        order = np.argsort(assignment, kind="stable")
        nonempty, starts = np.unique(assignment[order], return_index=True)
        sums = np.add.reduceat(sample[order], starts)
        centroids[nonempty] = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), np.float32(1e-30))
    return centroids


def assign_to_centroids(rows: Rows, centroids: Float32[np.ndarray, "c d"]) -> Int64[np.ndarray, " r"]:
    """Return the index of the most similar centroid of each row, block by block."""
    buffer = _Buffer()
    parts = blocks(len(rows), len(centroids), None)
    return np.concatenate(
        [buffer.product(rows[part].astype(np.float32, copy=False), centroids).argmax(axis=1) for part in parts]
    )


Probes = tuple[UInt16[np.ndarray, " p"], UInt16[np.ndarray, " p"]]  # pairs of a query and a group it searches


def _queries_by_group(probes: Probes) -> Iterator[tuple[int, UInt16[np.ndarray, " probing"]]]:
    """Yield each group that is searched with the queries that search it."""
    query, group = probes
    order = np.argsort(group, kind="stable")
    searched, starts = np.unique(group[order], return_index=True)
    ends = [*starts[1:].tolist(), len(order)]
    for searched_group, start, end in zip(searched.tolist(), starts.tolist(), ends[: len(starts)], strict=True):
        yield searched_group, query[order[start:end]]


class _Buffer:
    """Memory that many matrices use one after the other: new pages cost more than the products."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.float32)

    def product(
        self, left: Float32[np.ndarray, "n d"], right: Float32[np.ndarray, "m d"]
    ) -> Float32[np.ndarray, "n m"]:
        """Return `left @ right.T`; the next call overwrites it."""
        return np.matmul(left, right.T, out=self._matrix(len(left), len(right)))

    def take(self, rows: Float32[np.ndarray, "n d"], taken: UInt16[np.ndarray, " t"]) -> Float32[np.ndarray, "t d"]:
        """Return `rows[taken]`; the next call overwrites it."""
        return np.take(rows, taken, axis=0, out=self._matrix(len(taken), rows.shape[1]), mode="clip")

    def _matrix(self, rows: int, columns: int) -> Float32[np.ndarray, "rows columns"]:
        if rows * columns > len(self._memory):
            self._memory = np.empty(rows * columns, np.float32)
        return self._memory[: rows * columns].reshape(rows, columns)


class _TopK:
    """The k best candidates of each query of a batch.

    A candidate is one number: from the highest bit on the query, the quantized distance and the row. Sorted, the best
    candidates of each query come first.

    Args:
        positions: of the queries; a query is no candidate for itself.
        k: candidates of each.
        rows: how many there are.
    """

    def __init__(self, positions: Int64[np.ndarray, " q"], k: int, rows: int) -> None:
        self._positions = positions
        self._k = k
        self._row_bits = np.uint64(max(1, (rows - 1).bit_length()))
        distance_bits = 64 - 16 - int(self._row_bits)  # at least 21, and no more than float32 distinguishes
        self._distance_bits = np.uint64(min(distance_bits, 24))
        self._steps = np.float32((1 << int(self._distance_bits) - 1) - 1)  # between a similarity of 0 and one of 1
        self._floor = np.full(len(positions), NO_SIMILARITY, np.float32)  # below it nothing is among the k best
        self._candidates: list[UInt64[np.ndarray, " c"]] = []
        self._count = 0
        self._queries, self._similarity = _Buffer(), _Buffer()

    def add(
        self,
        queries: UInt16[np.ndarray, " a"],
        first: int,
        query_rows: Float32[np.ndarray, "q d"],
        members: Float32[np.ndarray, "r d"],
    ) -> None:
        """Keep the rows, numbered from `first`, that may be among the best of their query."""
        if not len(members):
            return
        similarity = self._similarity.product(self._queries.take(query_rows, queries), members)
        if len(members) > self._k and self._floor[queries].min() == NO_SIMILARITY:
            kth_here = np.partition(similarity, -self._k - 1, axis=1)[:, -self._k - 1]  # one is the query itself
            self._floor[queries] = np.maximum(self._floor[queries], kth_here)
        above = np.flatnonzero(similarity >= self._floor[queries][:, None])
        query, row = queries[above // len(members)], above % len(members) + first
        distance = (self._steps * (1 - np.clip(similarity.reshape(-1)[above], -1, 1))).astype(np.uint64)
        candidates = (query.astype(np.uint64) << self._distance_bits | distance) << self._row_bits
        candidates |= row.astype(np.uint64)
        self._candidates.append(candidates[row != self._positions[query]])
        self._count += len(candidates)
        if self._count > _MAX_CANDIDATES:
            self.compact()

    def compact(
        self,
    ) -> tuple[Int64[np.ndarray, " t"], Int64[np.ndarray, " t"], Int64[np.ndarray, " t"], Float32[np.ndarray, " t"]]:
        """Drop all but the k best of each query; return their queries, ranks from 0, rows and similarities."""
        candidates = np.sort(np.concatenate(self._candidates))
        query = (candidates >> self._row_bits + self._distance_bits).astype(np.int64)
        rank = np.arange(len(query)) - np.searchsorted(query, np.arange(len(self._positions)))[query]
        best = rank < self._k
        candidates, query, rank = candidates[best], query[best], rank[best]
        self._candidates, self._count = [candidates], len(candidates)
        distance = candidates >> self._row_bits & np.uint64((1 << int(self._distance_bits)) - 1)
        similarity = 1 - distance.astype(np.float32) / self._steps
        last = rank == self._k - 1
        self._floor[query[last]] = np.maximum(self._floor[query[last]], similarity[last])
        return query, rank, (candidates & np.uint64((1 << int(self._row_bits)) - 1)).astype(np.int64), similarity
