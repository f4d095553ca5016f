"""Graphs of the k nearest neighbors of rows.

Up to some tens of thousands of rows the search is exact; beyond, it is that of an inverted file.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int32, Int64

from familiar.neighbors.brute_force import search
from familiar.neighbors.inverted_file import NO_SIMILARITY, NPROBE, InvertedFile, default_groups

MAX_EXACT_SIMILARITIES = 2_500_000_000  # 50,000 rows against each other; with more than this IVF is used


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
        nearest, similarity = ivf_knn(rows, k, queries, default_groups(len(rows)))
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
        return np.empty((len(queries), k), np.int32), np.full(len(queries), NO_SIMILARITY, np.float32)
    hits, similarity = search(rows, queries=rows[queries], k=k + 1)
    is_other = hits != queries[:, None]
    is_other[is_other.all(axis=1), -1] = False  # a row with more than k equals may not be among its own hits
    return hits[is_other].reshape(-1, k).astype(np.int32), similarity[is_other].reshape(-1, k)[:, 0]


def ivf_knn(
    rows: Float32[np.ndarray, "m d"],
    k: int,
    queries: Int64[np.ndarray, " q"],
    groups: int,
    nprobe: int = NPROBE,
) -> tuple[Int32[np.ndarray, "q k"], Float32[np.ndarray, " q"]]:
    """Find the k nearest other rows of each query by approximate search, as `InvertedFile.search` does.

    Args:
        rows: unit rows.
        k: neighbors per query.
        queries: indices of the rows to search for.
        groups: of the inverted file.
        nprobe: groups that a query searches, about.

    Returns:
        The neighbors of each query, nearest first, and the similarity of the first (none: -2). A query with fewer
        than k is filled up with itself.

    Raises:
        ValueError: too many rows or groups.
    """
    if k == 0:
        return np.empty((len(queries), 0), np.int32), np.full(len(queries), NO_SIMILARITY, np.float32)
    inverted_file = InvertedFile.build(rows, groups)
    position = np.empty(len(rows), np.int64)
    position[inverted_file.original] = np.arange(len(rows))
    order = np.argsort(position[queries])  # queries of one group search much the same groups
    nearest = np.empty((len(queries), k), np.int32)
    similarity = np.empty(len(queries), np.float32)
    found_nearest, found_similarity = inverted_file.search(position[queries[order]], k, nprobe)
    nearest[order] = inverted_file.original[found_nearest]
    similarity[order] = found_similarity[:, 0]
    return nearest, similarity
