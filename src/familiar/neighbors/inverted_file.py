"""Approximate nearest-neighbor search with an inverted file (IVF: Jégou et al. 2011, "Product quantization").

Rows are grouped by the nearest of k-means centroids. A query is compared with the rows of the groups whose centroids
are nearest to it. The grouped rows may lie in a file that is larger than the memory.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int32, Int64, UInt16, UInt64

from familiar.core.blockwise import blocks, map_blocks
from familiar.core.cpu import one_thread_per_product
from familiar.core.vectors import Rows
from familiar.neighbors.labels import sum_by_label

NPROBE = 64  # groups that a query searches, about
NO_SIMILARITY = -2.0  # below every similarity
QUERY_BATCH = 1 << 16  # searched for at once: each group is read once for all of them
MAX_GROUPS = (1 << 16) - 1
_LLOYD_STEPS = 4
_SAMPLE_PER_CENTROID = 32  # rows that k-means learns from
_SIMILARITIES = 1 << 20  # computed at once: memory of 4 MB is used again by the next ones
_MAX_CANDIDATES = 1 << 23  # before the worst are dropped: 64 MB
# A candidate is one number: the query, its distance and the row, so that the best of each query come first.
_QUERY_BIT, _DISTANCE_BIT = np.uint64(48), np.uint64(32)
_DISTANCE_STEPS = (1 << 15) - 1  # from a similarity of 1 to one of 0
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
        """
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

        Similarities are right to 1e-4; the same rows in the same order give the same result.

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
            keys, query, rank = self._search_batch(queries[batch], k, nprobe)
            nearest[batch.start + query, rank] = keys.astype(np.uint32)
            similarity[batch.start + query, rank] = _similarity(keys)

        with one_thread_per_product():
            map_blocks(search_batch, len(queries), 1, QUERY_BATCH)
        return nearest, similarity

    def _search_batch(
        self, positions: Int64[np.ndarray, " q"], k: int, nprobe: int
    ) -> tuple[UInt64[np.ndarray, " b"], Int64[np.ndarray, " b"], Int64[np.ndarray, " b"]]:
        """Return `_best` of all candidates that a batch of queries is compared with."""
        rows = self.rows[positions].astype(np.float32)
        floor = np.full(len(rows), NO_SIMILARITY, np.float32)  # below it nothing is among the k best
        candidates, count = [np.empty(0, np.uint64)], 0
        for group, queries in self._probes(positions, rows, nprobe):
            first, end = int(self.starts[group]), int(self.starts[group + 1])
            members = self.rows[first:end].astype(np.float32, copy=False)
            for part in blocks(len(queries), 1, max(1, _SIMILARITIES // max(1, len(members)))):
                query = queries[part]
                similarity = rows[query] @ members.T
                if len(members) > k and floor[query].min() == NO_SIMILARITY:
                    kth_here = np.partition(similarity, -k - 1, axis=1)[:, -k - 1]  # one is the query itself
                    floor[query] = np.maximum(floor[query], kth_here)
                near, member = np.divmod(np.flatnonzero(similarity >= floor[query][:, None]), max(1, len(members)))
                distance = ((1 - np.clip(similarity[near, member], -1, 1)) * _DISTANCE_STEPS).astype(np.uint64)
                keys = query[near].astype(np.uint64) << _QUERY_BIT | distance << _DISTANCE_BIT
                keys |= (first + member).astype(np.uint64)
                candidates.append(keys[first + member != positions[query[near]]])
                count += len(candidates[-1])
            if count > _MAX_CANDIDATES:
                keys, query, rank = _best(candidates, k)
                floor[query[rank == k - 1]] = _similarity(keys[rank == k - 1])
                candidates, count = [keys], len(keys)
        return _best(candidates, k)

    def _probes(
        self, positions: Int64[np.ndarray, " q"], rows: Float32[np.ndarray, "q d"], nprobe: int
    ) -> Iterator[tuple[int, UInt16[np.ndarray, " _"]]]:
        """Yield each group with the queries that search it: first those that are in it, so that floors are high.

        From which similarity on a query has `nprobe` groups is estimated on a quarter of the centroids.
        """
        inside = (np.searchsorted(self.starts, positions, side="right") - 1).astype(np.uint16)
        sampled = slice(None, None, 4 if nprobe < len(self.centroids) else 1)
        count = -(-len(self.centroids[sampled]) * min(nprobe, len(self.centroids)) // len(self.centroids))
        queries, groups = list[UInt16[np.ndarray, " _"]](), list[UInt16[np.ndarray, " _"]]()
        for part in blocks(len(rows), 1, max(1, _SIMILARITIES // len(self.centroids))):
            scores = rows[part] @ self.centroids.T
            floor = np.partition(scores[:, sampled], -count, axis=1)[:, -count]
            scores[np.arange(len(scores)), inside[part]] = -NO_SIMILARITY
            query, group = np.nonzero(scores >= floor[:, None])
            queries.append((query + part.start).astype(np.uint16))
            groups.append(group.astype(np.uint16))
        query, group = np.concatenate(queries), np.concatenate(groups)
        is_inside = group == inside[query]
        for chosen in (is_inside, ~is_inside):
            order = np.flatnonzero(chosen)
            order = order[np.argsort(group[order], kind="stable")]
            searched, starts = np.unique(group[order], return_index=True)
            yield from zip(searched.tolist(), np.split(query[order], starts[1:]), strict=False)


def default_groups(rows: int) -> int:
    """Return how many groups are searched fastest."""
    return max(1, min(4 * math.isqrt(rows), MAX_GROUPS))


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
        nonempty, assignment = np.unique(assign_to_centroids(sample, centroids), return_inverse=True)
        sums = sum_by_label(sample, assignment)
        centroids[nonempty] = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), np.float32(1e-30))
    return centroids


def assign_to_centroids(rows: Rows, centroids: Float32[np.ndarray, "c d"]) -> Int64[np.ndarray, " r"]:
    """Return the index of the most similar centroid of each row, block by block."""
    parts = blocks(len(rows), 1, max(1, _SIMILARITIES // len(centroids)))
    return np.concatenate([(rows[part].astype(np.float32, copy=False) @ centroids.T).argmax(axis=1) for part in parts])


def _best(
    candidates: Sequence[UInt64[np.ndarray, " _"]], k: int
) -> tuple[UInt64[np.ndarray, " b"], Int64[np.ndarray, " b"], Int64[np.ndarray, " b"]]:
    """Return the k best candidates of each query, their queries, and their ranks from 0."""
    keys = np.sort(np.concatenate(candidates))
    query = (keys >> _QUERY_BIT).astype(np.int64)
    rank = np.arange(len(keys)) - np.searchsorted(query, np.arange(QUERY_BATCH))[query]
    best = rank < k
    return keys[best], query[best], rank[best]


def _similarity(keys: UInt64[np.ndarray, " b"]) -> Float32[np.ndarray, " b"]:
    """Return the lowest similarity that candidates may have."""
    return (1 - ((keys >> _DISTANCE_BIT).astype(np.uint16) + np.float32(1)) / _DISTANCE_STEPS).astype(np.float32)
