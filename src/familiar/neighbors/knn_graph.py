"""Graphs of the k nearest neighbors of rows.

Up to some tens of thousands of rows the search is exact. Beyond, it uses an inverted file (IVF: Jégou et al. 2011,
"Product quantization"): rows are assigned to the nearest of `nlist` k-means centroids, and a query searches only the
lists of the `nprobe` centroids nearest to it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int32, Int64, UInt16, UInt64

from familiar.core.blockwise import blocks
from familiar.neighbors.brute_force import search

MAX_EXACT_SIMILARITIES = 2_500_000_000  # 50,000 rows against each other; with more than this IVF is used
NPROBE = 64  # lists that a query searches, about
_LLOYD_STEPS = 4
_SAMPLE_PER_CENTROID = 32  # rows that k-means learns from
_QUERY_BATCH = 1 << 16  # a query's number within a batch takes 16 bits
_SIMILARITY_BATCH = 1 << 22  # similarities computed at once
_MAX_CANDIDATES = 1 << 23  # kept before the worst are dropped: 64 MB
_SIMILARITY_STEPS = np.float32((1 << 23) - 1)  # quantization steps between a similarity of 0 and one of 1
_NO_SIMILARITY = -2.0  # below every similarity


@dataclass(frozen=True, eq=False)
class KnnGraph:
    """The k nearest neighbors of some of m rows, and for every row the rows it is a neighbor of.

    Attributes:
        queries: the rows that were searched for.
        nearest: the neighbors of each query, nearest first. A query with fewer than k is filled up with itself.
        similarity: of each query to its first neighbor; -2 if it has none.
        query_index: the index of each row in `queries`, or -1.
        in_starts: the rows that have `row` as a neighbor are `in_neighbors[in_starts[row] : in_starts[row + 1]]`.
        in_neighbors: see `in_starts`.
    """

    queries: Int64[np.ndarray, " q"]
    nearest: Int32[np.ndarray, "q k"]
    similarity: Float32[np.ndarray, " q"]
    query_index: Int32[np.ndarray, " m"]
    in_starts: Int64[np.ndarray, " m+1"]
    in_neighbors: Int32[np.ndarray, " q*k"]

    def adjacent(self, row: int) -> Int32[np.ndarray, " a"]:
        """Return the neighbors of a row and the rows it is a neighbor of.

        Args:
            row: index of any of the m rows.

        Returns:
            Indices of rows. One that is both appears twice; `row` itself appears if it was searched for and has fewer
            than k neighbors.
        """
        in_neighbors = self.in_neighbors[self.in_starts[row] : self.in_starts[row + 1]]
        query = self.query_index[row]
        return in_neighbors if query < 0 else np.concatenate([self.nearest[query], in_neighbors])


class SearchedRows:
    """The exact neighbors of some rows, kept for building graphs of the same rows with fewer queries."""

    def __init__(self) -> None:
        self._rows: Float32[np.ndarray, "m d"] | None = None
        self._queries: Int64[np.ndarray, " q"] = np.empty(0, np.int64)
        self._nearest: Int32[np.ndarray, "q k"] = np.empty((0, 0), np.int32)
        self._similarity: Float32[np.ndarray, " q"] = np.empty(0, np.float32)

    def exact_knn(
        self, rows: Float32[np.ndarray, "m d"], k: int, queries: Int64[np.ndarray, " q"]
    ) -> tuple[Int32[np.ndarray, "q k"], Float32[np.ndarray, " q"]]:
        """Return what `exact_knn` returns. The rising `queries` are searched for only if some were not before."""
        same_rows = self._rows is not None and self._nearest.shape[1] == k and np.array_equal(self._rows, rows)
        if not (same_rows and np.isin(queries, self._queries).all()):
            self._rows, self._queries = rows, queries
            self._nearest, self._similarity = exact_knn(rows, k, queries)
        known = np.searchsorted(self._queries, queries)
        return self._nearest[known], self._similarity[known]


def build_knn_graph(
    rows: Float32[np.ndarray, "m d"],
    k: int,
    queries: Int64[np.ndarray, " q"],
    searched: SearchedRows | None = None,
) -> KnnGraph:
    """Find the k nearest other rows of each query, or all others if there are fewer.

    Args:
        rows: unit rows.
        k: neighbors per query.
        queries: indices of the rows to search for, rising.
        searched: what was searched for before; keeps what is searched for now.
    """
    k = max(0, min(k, len(rows) - 1))
    if len(queries) * len(rows) <= MAX_EXACT_SIMILARITIES:
        nearest, similarity = (searched or SearchedRows()).exact_knn(rows, k, queries)
    else:
        nearest, similarity = ivf_knn(rows, k, queries, nlist=4 * int(np.sqrt(len(rows))))
    query_index = np.full(len(rows), -1, np.int32)
    query_index[queries] = np.arange(len(queries))
    in_neighbors = queries.astype(np.int32)[np.argsort(nearest.reshape(-1), kind="stable") // max(k, 1)]
    in_starts = np.zeros(len(rows) + 1, np.int64)
    in_starts[1:] = np.cumsum(np.bincount(nearest.reshape(-1), minlength=len(rows)))
    return KnnGraph(queries, nearest, similarity, query_index, in_starts, in_neighbors)


def exact_knn(
    rows: Float32[np.ndarray, "m d"], k: int, queries: Int64[np.ndarray, " q"]
) -> tuple[Int32[np.ndarray, "q k"], Float32[np.ndarray, " q"]]:
    """Find the k nearest other rows of each query by exact search.

    Returns:
        For each query its k neighbors, nearest first, and the similarity of its nearest neighbor (for k = 0: -2, which
        is below any similarity).
    """
    if k == 0 or not len(queries):
        return np.empty((len(queries), k), np.int32), np.full(len(queries), _NO_SIMILARITY, np.float32)
    hits, similarity = search(rows, rows[queries], k + 1)
    is_other = hits != queries[:, None]
    is_other[is_other.all(axis=1), -1] = False  # a row with more than k equals may not be among its own hits
    return hits[is_other].reshape(-1, k).astype(np.int32), similarity[is_other].reshape(-1, k)[:, 0]


def ivf_knn(
    rows: Float32[np.ndarray, "m d"],
    k: int,
    queries: Int64[np.ndarray, " q"],
    nlist: int,
    nprobe: int = NPROBE,
) -> tuple[Int32[np.ndarray, "q k"], Float32[np.ndarray, " q"]]:
    """Find the k nearest other rows of each query among the inverted lists nearest to it.

    Similarities are float32, right to 1e-6, so those of equal rows may differ in the last bits; the same rows in the
    same order give the same result.

    Args:
        rows: unit rows.
        k: neighbors per query.
        queries: indices of the rows to search for.
        nlist: number of centroids, and so of lists.
        nprobe: lists that a query searches, about; its own is always among them.

    Returns:
        The neighbors of each query, nearest first, and the similarity of the first (none: -2). A query with fewer
        than k is filled up with itself.

    Raises:
        ValueError: 2^24 rows or more, or 2^16 lists or more.
    """
    if len(rows) >= 1 << 24 or nlist >= 1 << 16:
        raise ValueError(f"too many rows or lists: {len(rows)} and {nlist} (limits: {1 << 24} and {1 << 16})")
    centroids = _fit_centroids(rows, nlist)
    list_of_row = assign_to_centroids(rows, centroids)
    list_ends = np.cumsum(np.bincount(list_of_row, minlength=nlist))
    inverted_lists = np.split(np.argsort(list_of_row, kind="stable"), list_ends[:-1])
    nearest = np.repeat(queries.astype(np.int32)[:, None], k, axis=1)
    similarity = np.full(len(queries), _NO_SIMILARITY, np.float32)
    for batch in blocks(len(queries), 1, _QUERY_BATCH):
        query_rows = queries[batch]
        best = _TopK(query_rows, k)
        for probes in _probes(rows[query_rows], list_of_row[query_rows], centroids, nprobe):
            for list_id, probing in _queries_by_list(probes):
                _search_list(rows, inverted_lists[list_id], query_rows, probing, best)
        query, rank, neighbor, score = best.compact()
        nearest[batch.start + query, rank] = neighbor
        similarity[batch.start + query[rank == 0]] = score[rank == 0]
    return nearest, similarity


def _fit_centroids(rows: Float32[np.ndarray, "m d"], nlist: int) -> Float32[np.ndarray, "c d"]:
    """Fit unit centroids by spherical k-means on a sample."""
    rng = np.random.default_rng(0)
    sample = rows[rng.choice(len(rows), min(len(rows), _SAMPLE_PER_CENTROID * nlist), replace=False)]
    centroids = sample[:nlist].copy()
    for _ in range(_LLOYD_STEPS):
        assignment = assign_to_centroids(sample, centroids)
        order = np.argsort(assignment, kind="stable")
        nonempty, starts = np.unique(assignment[order], return_index=True)
        sums = np.add.reduceat(sample[order], starts)
        centroids[nonempty] = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), np.float32(1e-30))
    return centroids


def assign_to_centroids(
    rows: Float32[np.ndarray, "r d"], centroids: Float32[np.ndarray, "c d"]
) -> Int64[np.ndarray, " r"]:
    """Return the index of the most similar centroid of each row, block by block."""
    parts = blocks(len(rows), len(centroids), None)
    return np.concatenate([(rows[part] @ centroids.T).argmax(axis=1) for part in parts])


Probes = tuple[UInt16[np.ndarray, " p"], UInt16[np.ndarray, " p"]]  # pairs of a query and a list it searches


def _probes(
    rows: Float32[np.ndarray, "q d"],
    own_list: Int64[np.ndarray, " q"],
    centroids: Float32[np.ndarray, "c d"],
    nprobe: int,
) -> Iterator[Probes]:
    """Yield each query with its own list, then all queries with the other lists nearest to them.

    Own lists come first, so that few candidates of the others have to be kept. A query gets about `nprobe` lists:
    the similarity from which on there should be as many is estimated on a quarter of the centroids.
    """
    yield np.arange(len(rows)).astype(np.uint16), own_list.astype(np.uint16)
    nlist = len(centroids)
    sampled = slice(None, None, 4 if nprobe < nlist else 1)
    sampled_probes = -(-len(centroids[sampled]) * min(nprobe, nlist) // nlist)
    query, list_id = [np.empty(0, np.uint16)], [np.empty(0, np.uint16)]
    for part in blocks(len(rows), nlist, None):
        scores = rows[part] @ centroids.T
        floor = np.partition(scores[:, sampled], -sampled_probes, axis=1)[:, -sampled_probes]
        scores[np.arange(len(scores)), own_list[part]] = _NO_SIMILARITY
        near = np.flatnonzero(scores >= floor[:, None])
        query.append((near // nlist + part.start).astype(np.uint16))
        list_id.append((near % nlist).astype(np.uint16))
    yield np.concatenate(query), np.concatenate(list_id)


def _queries_by_list(probes: Probes) -> Iterator[tuple[int, UInt16[np.ndarray, " probing"]]]:
    """Yield each list that is searched with the queries that search it."""
    query, list_id = probes
    order = np.argsort(list_id, kind="stable")
    searched, starts = np.unique(list_id[order], return_index=True)
    ends = [*starts[1:].tolist(), len(order)]
    for searched_list, start, end in zip(searched.tolist(), starts.tolist(), ends[: len(starts)], strict=True):
        yield searched_list, query[order[start:end]]


def _search_list(
    rows: Float32[np.ndarray, "m d"],
    members: Int64[np.ndarray, " l"],
    query_rows: Int64[np.ndarray, " q"],
    probing: UInt16[np.ndarray, " p"],
    best: "_TopK",
) -> None:
    """Compare the queries `probing` with the rows of one inverted list."""
    for part in blocks(len(probing), 1, _SIMILARITY_BATCH // max(1, len(members)) or 1):
        best.add(probing[part], members, rows[query_rows[probing[part]]] @ rows[members].T)


class _TopK:
    """The k best candidates of each query of a batch.

    A candidate is one number: 16 bits of query, 24 of quantized distance, 24 of row. Sorted, the best candidates of
    each query come first.
    """

    def __init__(self, query_rows: Int64[np.ndarray, " q"], k: int) -> None:
        self._query_rows = query_rows  # a query is no candidate for itself
        self._k = k
        self._floor = np.full(len(query_rows), _NO_SIMILARITY, np.float32)  # below it nothing is among the k best
        self._candidates: list[UInt64[np.ndarray, " c"]] = []
        self._count = 0

    def add(
        self,
        queries: UInt16[np.ndarray, " a"],
        rows: Int64[np.ndarray, " r"],
        similarity: Float32[np.ndarray, "a r"],
    ) -> None:
        """Keep the rows that may be among the best of their query."""
        if not len(rows):
            return
        if len(rows) > self._k and self._floor[queries].min() == _NO_SIMILARITY:
            kth_here = np.partition(similarity, -self._k - 1, axis=1)[:, -self._k - 1]  # one is the query itself
            self._floor[queries] = np.maximum(self._floor[queries], kth_here)
        above = np.flatnonzero(similarity >= self._floor[queries][:, None])
        query, row = queries[above // len(rows)], rows[above % len(rows)]
        distance = (_SIMILARITY_STEPS * (1 - np.clip(similarity.reshape(-1)[above], -1, 1))).astype(np.uint64)
        candidates = query.astype(np.uint64) << 48 | distance << 24 | row.astype(np.uint64)
        self._candidates.append(candidates[row != self._query_rows[query]])
        self._count += len(candidates)
        if self._count > _MAX_CANDIDATES:
            self.compact()

    def compact(
        self,
    ) -> tuple[Int64[np.ndarray, " t"], Int64[np.ndarray, " t"], Int64[np.ndarray, " t"], Float32[np.ndarray, " t"]]:
        """Drop all but the k best of each query; return their queries, ranks from 0, rows and similarities."""
        candidates = np.sort(np.concatenate(self._candidates))
        query = (candidates >> 48).astype(np.int64)
        rank = np.arange(len(query)) - np.searchsorted(query, np.arange(len(self._query_rows)))[query]
        best = rank < self._k
        candidates, query, rank = candidates[best], query[best], rank[best]
        self._candidates, self._count = [candidates], len(candidates)
        similarity = 1 - (candidates >> 24 & 0xFFFFFF).astype(np.float32) / _SIMILARITY_STEPS
        last = rank == self._k - 1
        self._floor[query[last]] = np.maximum(self._floor[query[last]], similarity[last])
        return query, rank, (candidates & 0xFFFFFF).astype(np.int64), similarity
