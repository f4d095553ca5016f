"""Exact nearest-neighbor search, block by block, so that no n x n matrix is ever in memory.

`nearest_neighbors` searches among the rows themselves, for clustering and metrics; `search` answers queries at the
speed at which memory is read; `search_prefix` reads less of it; `rerank` computes exact similarities for candidates
that an approximate search found.
"""

import numpy as np
from jaxtyping import Bool, Float16, Float32, Float64, Int, Int64

from familiar.core.blockwise import blocks, similarities, unit_rows
from familiar.core.vectors import UNIT_NORM_TOLERANCE, prefix

Vectors = Float32[np.ndarray, "n d"] | Float16[np.ndarray, "n d"]

_NO_SIMILARITY = -2.0  # below every similarity
_QUERY_BATCH = 256  # queries searched for at once
_TILE_PRODUCTS = 4_000_000  # products of queries and rows in memory at once: 16 MB
_GROUP_ROWS = 64  # neighboring rows of which only the highest product is compared first
_CONVERTED_VALUES = 1 << 18  # float16 values converted at once: as float32, 1 MB, they stay in the cache
_EXACT_ROWS = 16_384  # float64 rows at once: 16 MB in 128 dimensions
_COPY_BELOW_ONE_IN = 8  # if fewer than one row in this many is allowed, those are copied rather than all multiplied
_PRODUCT_TOLERANCE = 2 * (UNIT_NORM_TOLERANCE + 1e-4)  # float32 products may be off by a row's length and by rounding


def nearest_neighbors(
    embeddings: Float32[np.ndarray, "n d"],
    k: int,
    queries: Int[np.ndarray, " q"] | None = None,
    block_rows: int | None = None,
) -> tuple[Int64[np.ndarray, "q k"], Float32[np.ndarray, "q k"]]:
    """Find the k nearest other rows of rows.

    Args:
        embeddings: unit rows.
        k: neighbors per query, in [1, n - 1].
        queries: indices of the rows to search for; None: all.
        block_rows: queries compared at once; None: as many as fit into a block of fixed size.

    Returns:
        Rows and similarities of the neighbors, nearest first. Ties are broken arbitrarily.

    Raises:
        ValueError: k outside its range, or rows that are not unit vectors.
    """
    if not 1 <= k < len(embeddings):
        raise ValueError(f"k must be in [1, {len(embeddings) - 1}] for {len(embeddings)} rows, got {k}")
    rows = unit_rows(embeddings)
    query_rows = np.arange(len(rows)) if queries is None else queries.astype(np.int64)
    neighbors = np.empty((len(query_rows), k), np.int64)
    similarity = np.empty((len(query_rows), k), np.float32)
    for part in blocks(len(query_rows), len(rows), block_rows):
        block = query_rows[part]
        scores = similarities(rows[block], rows)
        scores[np.arange(len(block)), block] = _NO_SIMILARITY
        candidates = np.argpartition(scores, -k, axis=1)[:, -k:]
        candidate_scores = np.take_along_axis(scores, candidates, axis=1)
        order = np.lexsort((candidates, -candidate_scores), axis=1)
        neighbors[part] = np.take_along_axis(candidates, order, axis=1)
        similarity[part] = np.take_along_axis(candidate_scores, order, axis=1)
    return neighbors, similarity


def search(
    vectors: Vectors,
    *,
    queries: Float32[np.ndarray, "q d"],
    k: int,
    allowed: Bool[np.ndarray, " n"] | None = None,
) -> tuple[Int64[np.ndarray, "q hits"], Float32[np.ndarray, "q hits"]]:
    """Find the k nearest unit rows of each query.

    What is searched and what is searched for look alike, so the queries are given by name.

    Similarities are cosines computed in float64 and rounded to float32, whatever the vectors are stored in; of equal
    ones the lower row comes first. So equal rows tie exactly, and no result depends on the blocks.

    Args:
        vectors: unit rows, in float32 or float16; others are converted. Checking all of them would take as long as the
            search, so only rows near a query are.
        queries: unit rows.
        k: hits per query, at least 1.
        allowed: mask of the rows that may be found; None: all.

    Returns:
        Rows and similarities, nearest first: k, or as many as are allowed.

    Raises:
        ValueError: a query or a row near it that is not a unit vector, a product that is not a number, k below 1, or
            arrays whose shapes do not fit.
    """
    _check_k(k)
    vectors, queries = _checked(vectors, queries)
    exact_queries = unit_rows(queries)
    if allowed is not None:
        if np.asarray(allowed).dtype != bool or np.shape(allowed) != (len(vectors),):
            raise ValueError(
                f"`allowed` says for each of {len(vectors)} rows whether it may be found: as many booleans"
            )
        rows = np.flatnonzero(allowed)
        if len(rows) * _COPY_BELOW_ONE_IN < len(vectors):
            hits, similarity = search(vectors[rows], queries=queries, k=k)
            return rows[hits], similarity
    k = min(k, len(vectors) if allowed is None else int(allowed.sum()))
    best = _TopK(len(queries), k)
    if k:
        for part in blocks(len(queries), 1, _QUERY_BATCH):
            _search_batch(vectors, exact_queries, part, allowed, best)
    return best.rows, best.similarity


def search_prefix(
    vectors: Vectors,
    prefixes: Float32[np.ndarray, "n p"] | Float16[np.ndarray, "n p"],
    queries: Float32[np.ndarray, "q d"],
    k: int,
    candidates: int,
    allowed: Bool[np.ndarray, " n"] | None = None,
) -> tuple[Int64[np.ndarray, "q hits"], Float32[np.ndarray, "q hits"]]:
    """Find the k nearest rows among the `candidates` rows whose first p components are nearest to the query's.

    If all rows are candidates, the result is that of `search`.

    Args:
        vectors: unit rows.
        prefixes: `core.vectors.prefix(vectors, p)`, made once for many searches: a matrix of its own, since the first
            components of whole rows lie too far apart in memory to be read faster.
        queries: unit rows.
        k: hits per query, at least 1.
        candidates: rows per query that are compared in full, at least k.
        allowed: mask of the rows that may be found; None: all.

    Returns:
        Rows and similarities, as from `search`.

    Raises:
        ValueError: as `search`, fewer candidates than k, or a query whose prefix is zero.
    """
    if candidates < k:
        raise ValueError(f"candidates must be at least k: got {candidates} candidates for k = {k}")
    query_prefixes = prefix(queries, prefixes.shape[1])
    rows, _ = search(prefixes, queries=query_prefixes, k=candidates, allowed=allowed)
    return rerank(vectors, queries=queries, rows=rows, k=k)


def rerank(
    vectors: Vectors,
    *,
    queries: Float32[np.ndarray, "q d"],
    rows: Int64[np.ndarray, "q c"],
    k: int,
) -> tuple[Int64[np.ndarray, "q hits"], Float32[np.ndarray, "q hits"]]:
    """Find the k nearest among given rows by exact similarities, for rows that an approximate search returned.

    Args:
        vectors: unit rows.
        queries: unit rows.
        rows: candidates of each query; no row twice for one query.
        k: hits per query, at least 1.

    Returns:
        Rows and similarities in the order of `search`: k, or c if there are fewer.

    Raises:
        ValueError: rows or queries that are not unit vectors, k below 1, or arrays whose shapes do not fit.
    """
    _check_k(k)
    vectors, queries = _checked(vectors, queries)
    if rows.ndim != 2 or len(rows) != len(queries) or rows.dtype.kind not in "iu":
        raise ValueError(f"each of {len(queries)} queries needs a row of candidates, not {rows.shape} {rows.dtype}")
    if rows.size and not 0 <= rows.min() <= rows.max() < len(vectors):
        raise ValueError(
            f"candidates are rows of the {len(vectors)} vectors, from 0 on, not {rows.min()} to {rows.max()}"
        )
    best = _TopK(len(queries), min(k, rows.shape[1]))
    query = np.repeat(np.arange(len(queries)), rows.shape[1])
    best.add(query, rows.ravel(), _exact_similarities(vectors, rows.ravel(), unit_rows(queries), query))
    return best.rows, best.similarity


def _check_k(k: int) -> None:
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")


def _checked(vectors: np.ndarray, queries: np.ndarray) -> tuple[Vectors, Float32[np.ndarray, "q d"]]:
    """Return both as arrays of numbers that can be searched, vectors of other types than float16 as float32."""
    arrays: list[np.ndarray] = []
    for name, array, dtypes in (("vectors", vectors, (np.float16, np.float32)), ("queries", queries, (np.float64,))):
        rows = np.asarray(array)
        if rows.dtype.kind != "f" or rows.ndim != 2:
            raise ValueError(
                f"{name} are rows of floats (n, d), not {rows.shape} {rows.dtype}: of a single one row[None]"
            )
        arrays.append(rows if rows.dtype in dtypes else rows.astype(np.float32, copy=False))
    if arrays[0].shape[1] != arrays[1].shape[1]:
        raise ValueError(f"vectors have {arrays[0].shape[1]} numbers, queries {arrays[1].shape[1]}: of another model?")
    return arrays[0], arrays[1]


class _TopK:
    """The k best rows so far of each query: nearest first, and the lower row first of equally near ones."""

    def __init__(self, queries: int, k: int) -> None:
        self.rows: Int64[np.ndarray, "q k"] = np.full((queries, k), -1, np.int64)
        self.similarity: Float32[np.ndarray, "q k"] = np.full((queries, k), _NO_SIMILARITY, np.float32)

    def add(
        self,
        query: Int64[np.ndarray, " m"],
        rows: Int64[np.ndarray, " m"],
        similarity: Float32[np.ndarray, " m"],
    ) -> None:
        """Merge in candidates: `rows[i]` has `similarity[i]` to query `query[i]`. No pair may be added twice."""
        updated = np.unique(query)
        index, column = np.nonzero(self.rows[updated] >= 0)
        earlier = updated[index]
        query = np.concatenate([earlier, query])
        rows = np.concatenate([self.rows[earlier, column], rows])
        similarity = np.concatenate([self.similarity[earlier, column], similarity])
        order = np.lexsort((rows, -similarity, query))
        query = query[order]
        rank = np.arange(len(query)) - np.searchsorted(query, query)
        top = rank < self.rows.shape[1]
        self.rows[query[top], rank[top]] = rows[order][top]
        self.similarity[query[top], rank[top]] = similarity[order][top]


def _search_batch(
    vectors: Vectors,
    exact_queries: Float64[np.ndarray, "q d"],
    part: slice,
    allowed: Bool[np.ndarray, " n"] | None,
    best: _TopK,
) -> None:
    """Add the nearest rows of a few queries to `best`."""
    queries = exact_queries[part].astype(np.float32)
    for tile in blocks(len(vectors), 1, _TILE_PRODUCTS // len(queries)):
        products = _products(vectors[tile], queries)
        if allowed is not None:
            products[:, ~allowed[tile]] = -np.inf
        query, rows = _candidates(
            products, best.rows.shape[1], best.similarity[part, -1] - np.float32(_PRODUCT_TOLERANCE)
        )
        query, rows = query + part.start, rows + tile.start
        best.add(query, rows, _exact_similarities(vectors, rows, exact_queries, query))


def _products(vectors: Vectors, queries: Float32[np.ndarray, "q d"]) -> Float32[np.ndarray, "q n"]:
    if vectors.dtype == np.float32:
        return queries @ vectors.T
    import cv2  # only here: NumPy takes ten times as long to convert float16 as to multiply it

    products = np.empty((len(queries), len(vectors)), np.float32)
    rows = max(1, _CONVERTED_VALUES // vectors.shape[1])
    buffer = np.empty((rows, vectors.shape[1]), np.float32)
    for block in blocks(len(vectors), 1, rows):
        halves = np.ascontiguousarray(vectors[block])
        converted = buffer[: len(halves)]
        if hasattr(cv2, "convertFp16"):
            cv2.convertFp16(halves.view(np.int16), converted)
        else:  # OpenCV 5, which takes float16 everywhere
            cv2.add(halves, 0, converted, dtype=cv2.CV_32F)  # pyright: ignore[reportCallIssue, reportArgumentType]
        np.matmul(queries, converted.T, out=products[:, block])
    return products


def _candidates(
    products: Float32[np.ndarray, "q n"], k: int, floor: Float32[np.ndarray, " q"]
) -> tuple[Int64[np.ndarray, " m"], Int64[np.ndarray, " m"]]:
    """Select every product that may belong to the k highest cosines and is not below the query's floor.

    At least k products are as high as the k-th highest among the highest of each group of rows, so only the few
    groups that reach it are compared row by row.

    Returns:
        Queries and rows of the products.
    """
    count: int = products.shape[1]
    width = max(1, min(_GROUP_ROWS, count // (4 * k)))
    starts = np.arange(0, count, width)
    highest = np.maximum.reduceat(products, starts, axis=1) if width > 1 else products
    if np.isnan(highest).any():
        raise ValueError("vectors with numbers that are not finite cannot be searched")
    if k <= len(starts):
        floor = np.maximum(floor, np.partition(highest, -k, axis=1)[:, -k] - np.float32(_PRODUCT_TOLERANCE))
    query, group = np.nonzero(highest >= floor[:, None])
    rows = starts[group][:, None] + np.arange(width)
    high = products[query[:, None], np.minimum(rows, count - 1)] >= floor[query][:, None]
    hit, member = np.nonzero(high & (rows < count))
    return query[hit], rows[hit, member]


def _exact_similarities(
    vectors: Vectors,
    rows: Int64[np.ndarray, " m"],
    exact_queries: Float64[np.ndarray, "q d"],
    query: Int64[np.ndarray, " m"],
) -> Float32[np.ndarray, " m"]:
    """Compute the cosine of `vectors[rows[i]]` and `exact_queries[query[i]]`, in the same order of sums for all i."""
    similarity = np.empty(len(rows), np.float32)
    for block in blocks(len(rows), 1, _EXACT_ROWS):
        block_rows = vectors[rows[block]].astype(np.float64)
        lengths = np.sqrt((block_rows * block_rows).sum(axis=1))
        bad = np.flatnonzero(~(np.abs(lengths - 1.0) <= UNIT_NORM_TOLERANCE))
        if bad.size:
            raise ValueError(f"row {rows[block][bad[0]]} is not a unit vector")
        similarity[block] = (block_rows * exact_queries[query[block]]).sum(axis=1) / lengths
    return np.clip(similarity, -1.0, 1.0, out=similarity)
