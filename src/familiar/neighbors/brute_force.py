"""Exact nearest-neighbor search, block by block, so that no n x n matrix is ever in memory.

`search` answers queries at the speed at which memory is read; `nearest_neighbors` searches among the rows themselves;
`rerank` computes exact similarities for candidates that an approximate search found.
"""

import numpy as np
from jaxtyping import Bool, Float16, Float32, Float64, Int, Int64

from familiar.core.blockwise import blocks, unit_rows
from familiar.core.vectors import UNIT_NORM_TOLERANCE

Vectors = Float32[np.ndarray, "n d"] | Float16[np.ndarray, "n d"]

_NO_SIMILARITY = -2.0  # below every similarity
_QUERY_BATCH = 256  # queries searched for at once
_TILE_PRODUCTS = 4_000_000  # products of queries and rows in memory at once: 16 MB
_GROUP_ROWS = 64  # neighboring rows of which only the highest product is compared first
_COPIED_VALUES = 1 << 18  # of rows copied or converted at once: as float32, 1 MB, they stay in the cache
_EXACT_ROWS = 16_384  # float64 rows at once: 16 MB in 128 dimensions
_PRODUCT_TOLERANCE = 2 * (UNIT_NORM_TOLERANCE + 1e-4)  # float32 products may be off by a row's length and by rounding


def nearest_neighbors(
    embeddings: Float32[np.ndarray, "n d"], k: int, queries: Int[np.ndarray, " q"] | None = None
) -> tuple[Int64[np.ndarray, "q k"], Float32[np.ndarray, "q k"]]:
    """Find the k nearest other rows of rows.

    Args:
        embeddings: unit rows.
        k: neighbors per query, in [1, n - 1].
        queries: indices of the rows to search for; None: all.

    Returns:
        Rows and similarities of the neighbors, as from `search`.

    Raises:
        ValueError: k outside its range, or a query or a row near it that is not a unit vector.
    """
    if not 1 <= k < len(embeddings):
        raise ValueError(f"k must be in [1, {len(embeddings) - 1}] for {len(embeddings)} rows, got {k}")
    numbers = np.arange(len(embeddings)) if queries is None else queries
    rows, similarity = search(embeddings, queries=embeddings[numbers], k=k + 1)
    is_other = rows != numbers[:, None]
    is_other[is_other.all(axis=1), -1] = False  # equal rows with lower numbers came before the row itself
    return rows[is_other].reshape(-1, k), similarity[is_other].reshape(-1, k)


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
    vectors, queries = _checked(vectors, queries, k)
    rows = None
    if allowed is not None:
        if np.asarray(allowed).dtype != bool or np.shape(allowed) != (len(vectors),):
            raise ValueError(
                f"`allowed` says for each of {len(vectors)} rows whether it may be found: as many booleans"
            )
        rows = np.flatnonzero(allowed)
    k = min(k, len(vectors) if rows is None else len(rows))
    hits, similarity = np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32)
    exact_queries = unit_rows(queries)
    for part in blocks(len(queries), 1, _QUERY_BATCH):
        hits[part], similarity[part] = _search_batch(vectors, rows, exact_queries[part], k)
    return hits, similarity


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
    vectors, queries = _checked(vectors, queries, k)
    if rows.ndim != 2 or len(rows) != len(queries) or rows.dtype.kind not in "iu":
        raise ValueError(f"each of {len(queries)} queries needs a row of candidates, not {rows.shape} {rows.dtype}")
    if rows.size and not 0 <= rows.min() <= rows.max() < len(vectors):
        raise ValueError(
            f"candidates are rows of the {len(vectors)} vectors, from 0 on, not {rows.min()} to {rows.max()}"
        )
    query = np.repeat(np.arange(len(queries)), rows.shape[1])
    similarity = _exact_similarities(vectors, rows.ravel(), unit_rows(queries), query)
    best, _ = _nearest_first(query, rows.ravel(), similarity, k)
    shape = len(queries), min(k, rows.shape[1])
    return rows.ravel()[best].reshape(shape), similarity[best].reshape(shape)


def _high_products(
    products: Float32[np.ndarray, "q n"], k: int, floor: Float32[np.ndarray, " q"]
) -> tuple[Int64[np.ndarray, " m"], Int64[np.ndarray, " m"]]:
    """Select every product that may belong to the k highest cosines and is not below the query's floor.

    At least k products are as high as the k-th highest among the highest of each group of rows, so only the few
    groups that reach it are compared row by row.

    Args:
        products: of queries and unit rows, of which cosines may differ by `_PRODUCT_TOLERANCE` / 2.
        k: at least 1.
        floor: of each query.

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


def _nearest_first(
    query: Int64[np.ndarray, " m"], rows: Int64[np.ndarray, " m"], similarity: Float32[np.ndarray, " m"], k: int
) -> tuple[Int64[np.ndarray, " b"], Int64[np.ndarray, " b"]]:
    """Sort candidates by query, falling similarity and row, and drop all but the k best of each query.

    Returns:
        Their indices, and their ranks from 0.
    """
    order = np.lexsort((rows, -similarity, query))
    rank = np.arange(len(order)) - np.searchsorted(query[order], query[order])
    return order[rank < k], rank[rank < k]


def _checked(vectors: np.ndarray, queries: np.ndarray, k: int) -> tuple[Vectors, Float32[np.ndarray, "q d"]]:
    """Return both as arrays of numbers that can be searched, vectors of other types than float16 as float32."""
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
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


def _search_batch(
    vectors: Vectors, searched: Int64[np.ndarray, " s"] | None, exact_queries: Float64[np.ndarray, "q d"], k: int
) -> tuple[Int64[np.ndarray, "q k"], Float32[np.ndarray, "q k"]]:
    """Find the nearest of the rows `searched` (None: of all) for a few queries."""
    queries = exact_queries.astype(np.float32)
    query, rows, similarity = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32)
    floor = np.full(len(queries), _NO_SIMILARITY, np.float32)
    count = len(vectors) if searched is None else len(searched)
    for tile in blocks(count if k else 0, 1, _TILE_PRODUCTS // len(queries)):
        products = _products(vectors, searched, tile, queries)
        near_query, near = _high_products(products, k, floor - np.float32(_PRODUCT_TOLERANCE))
        near = near + tile.start if searched is None else searched[near + tile.start]
        near_similarity = _exact_similarities(vectors, near, exact_queries, near_query)
        query, rows = np.concatenate([query, near_query]), np.concatenate([rows, near])
        similarity = np.concatenate([similarity, near_similarity])
        best, rank = _nearest_first(query, rows, similarity, k)
        query, rows, similarity = query[best], rows[best], similarity[best]
        floor[query[rank == k - 1]] = similarity[rank == k - 1]
    return rows.reshape(len(queries), k), similarity.reshape(len(queries), k)


def _products(
    vectors: Vectors, searched: Int64[np.ndarray, " s"] | None, tile: slice, queries: Float32[np.ndarray, "q d"]
) -> Float32[np.ndarray, "q t"]:
    """Multiply queries by a tile of the rows `searched` (None: of all)."""
    if searched is None and vectors.dtype == np.float32:
        return queries @ vectors[tile].T
    import cv2  # only here: NumPy takes ten times as long to convert float16 as to multiply it

    products = np.empty((len(queries), tile.stop - tile.start), np.float32)
    step = max(1, _COPIED_VALUES // vectors.shape[1])
    buffer = np.empty((step, vectors.shape[1]), np.float32)
    for block in blocks(products.shape[1], 1, step):
        part = slice(tile.start + block.start, tile.start + block.stop)
        rows = np.ascontiguousarray(vectors[part] if searched is None else vectors[searched[part]])
        if vectors.dtype == np.float16:
            halves, rows = rows, buffer[: len(rows)]
            if hasattr(cv2, "convertFp16"):
                cv2.convertFp16(halves.view(np.int16), rows)
            else:  # OpenCV 5, which takes float16 everywhere
                cv2.add(halves, 0, rows, dtype=cv2.CV_32F)  # pyright: ignore[reportCallIssue, reportArgumentType]
        np.matmul(queries, rows.T, out=products[:, block])
    return products


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
