"""Exact search: the nearest rows, block by block, so that no n x n matrix is ever held.

`nearest` looks among the rows themselves, for grouping and metrics; `search` answers queries as fast as memory is
read; `search_prefix` reads less of it, and `rerank` puts right what was only found roughly, there or by an index.
"""

import numpy as np
from jaxtyping import Bool, Float16, Float32, Float64, Int, Int64

from familiar.core.blockwise import blocks, similarities, unit_rows
from familiar.core.vectors import UNIT_NORM_TOLERANCE, prefix

Vectors = Float32[np.ndarray, "n d"] | Float16[np.ndarray, "n d"]

_EXCLUDED = -2.0  # below every similarity
_QUERIES = 256  # looked for at once
_TILE_PRODUCTS = 4_000_000  # of queries and rows, held at once: 16 MB
_GROUP = 64  # neighboring rows of which only the highest product is looked at first
_CONVERTED_VALUES = 1 << 18  # of float16 at once: as float32, 1 MB, they stay in the cache
_EXACT_ROWS = 16_384  # of float64 at once: 16 MB in 128 dimensions
_SPARSE = 8  # fewer than one row in so many allowed: they are copied rather than all multiplied
_SLACK = 2 * (UNIT_NORM_TOLERANCE + 1e-4)  # float32 products may be off by a row's length and by rounding


def nearest_neighbors(
    embeddings: Float32[np.ndarray, "n d"],
    k: int,
    queries: Int[np.ndarray, " q"] | None = None,
    block_rows: int | None = None,
) -> tuple[Int64[np.ndarray, "q k"], Float32[np.ndarray, "q k"]]:
    """Rows and similarities of the k nearest others of each row in `queries` (None: of all), nearest first.

    Which of several equally near rows is taken is left open. `k` lies in [1, n - 1], or `ValueError`.
    """
    if not 1 <= k < len(embeddings):
        raise ValueError(f"each of {len(embeddings)} rows has 1 to that many less one neighbors, not {k}")
    rows = unit_rows(embeddings)
    asked = np.arange(len(rows)) if queries is None else queries.astype(np.int64)
    neighbors = np.empty((len(asked), k), np.int64)
    closeness = np.empty((len(asked), k), np.float32)
    for part in blocks(len(asked), len(rows), block_rows):
        of = asked[part]
        scores = similarities(rows[of], rows)
        scores[np.arange(len(of)), of] = _EXCLUDED
        candidates = np.argpartition(scores, -k, axis=1)[:, -k:]
        found = np.take_along_axis(scores, candidates, axis=1)
        by_closeness = np.lexsort((candidates, -found), axis=1)
        neighbors[part] = np.take_along_axis(candidates, by_closeness, axis=1)
        closeness[part] = np.take_along_axis(found, by_closeness, axis=1)
    return neighbors, closeness


def search(
    vectors: Vectors,
    queries: Float32[np.ndarray, "q d"],
    k: int,
    allowed: Bool[np.ndarray, " n"] | None = None,
) -> tuple[Int64[np.ndarray, "q found"], Float32[np.ndarray, "q found"]]:
    """Rows and similarities of the k nearest unit rows of each query, nearest first: k, or as many as are allowed.

    Similarities are cosines computed in float64 and rounded to float32, whatever the vectors are stored in; of equal
    ones the lower row comes first. So equal rows tie exactly, and no answer depends on the blocks. `allowed` marks the
    rows that may be found (None: all).

    Reading all vectors to check them would take as long as the search: of those only the rows that come near are
    checked. `ValueError` where one of them or a query is no unit vector, where any product is not a number, or for k
    below 1.
    """
    if k < 1:
        raise ValueError(f"a search finds 1 row or more, not {k}")
    wanted = unit_rows(queries)
    if allowed is not None:
        rows = np.flatnonzero(allowed)
        if len(rows) * _SPARSE < len(vectors):
            found, closeness = search(vectors[rows], queries, k)
            return rows[found], closeness
    k = min(k, len(vectors) if allowed is None else int(allowed.sum()))
    best = _Best(len(queries), k)
    if k:
        for part in blocks(len(queries), 1, _QUERIES):
            _search_part(vectors, wanted, part, allowed, best)
    return best.rows, best.similarity


def search_prefix(
    vectors: Vectors,
    prefixes: Float32[np.ndarray, "n p"] | Float16[np.ndarray, "n p"],
    queries: Float32[np.ndarray, "q d"],
    k: int,
    candidates: int,
    allowed: Bool[np.ndarray, " n"] | None = None,
) -> tuple[Int64[np.ndarray, "q found"], Float32[np.ndarray, "q found"]]:
    """As `search`, but only among the `candidates` rows whose first p components are nearest to the query's.

    `prefixes` is `core.vectors.prefix(vectors, p)`, made once for many searches: a matrix of its own, since the first
    components of whole rows lie too far apart in memory to be read faster. Where all rows are candidates the answer is
    that of `search`. `ValueError` as there, for fewer candidates than k, or where a query's prefix is zero.
    """
    if candidates < k:
        raise ValueError(f"{k} rows cannot be found among {candidates} candidates")
    rows, _ = search(prefixes, prefix(queries, prefixes.shape[1]), candidates, allowed)
    return rerank(vectors, queries, rows, k)


def rerank(
    vectors: Vectors,
    queries: Float32[np.ndarray, "q d"],
    rows: Int64[np.ndarray, "q c"],
    k: int,
) -> tuple[Int64[np.ndarray, "q found"], Float32[np.ndarray, "q found"]]:
    """The k nearest among the `rows` given for each query (c, where they are fewer), as `search` orders them.

    For rows that were found by less than the whole vectors. None is given twice to one query. `ValueError` for rows or
    queries that are no unit vectors, or k below 1.
    """
    if k < 1:
        raise ValueError(f"a search finds 1 row or more, not {k}")
    best = _Best(len(queries), min(k, rows.shape[1]))
    query = np.repeat(np.arange(len(queries)), rows.shape[1])
    best.take(query, rows.ravel(), _exactly(vectors, rows.ravel(), unit_rows(queries), query))
    return best.rows, best.similarity


class _Best:
    """The k rows found so far for each query: nearest first, and the lower row first of those equally near."""

    def __init__(self, queries: int, k: int) -> None:
        self.rows: Int64[np.ndarray, "q k"] = np.full((queries, k), -1, np.int64)
        self.similarity: Float32[np.ndarray, "q k"] = np.full((queries, k), _EXCLUDED, np.float32)

    def take(
        self,
        query: Int64[np.ndarray, " m"],
        rows: Int64[np.ndarray, " m"],
        similarity: Float32[np.ndarray, " m"],
    ) -> None:
        """`rows[i]` is `similarity[i]` alike to query `query[i]`; none of them was taken before."""
        asked = np.unique(query)
        before, place = np.nonzero(self.rows[asked] >= 0)
        before = asked[before]
        query = np.concatenate([before, query])
        rows = np.concatenate([self.rows[before, place], rows])
        similarity = np.concatenate([self.similarity[before, place], similarity])
        order = np.lexsort((rows, -similarity, query))
        query = query[order]
        rank = np.arange(len(query)) - np.searchsorted(query, query)
        kept = rank < self.rows.shape[1]
        self.rows[query[kept], rank[kept]] = rows[order][kept]
        self.similarity[query[kept], rank[kept]] = similarity[order][kept]


def _search_part(
    vectors: Vectors,
    wanted: Float64[np.ndarray, "q d"],
    part: slice,
    allowed: Bool[np.ndarray, " n"] | None,
    best: _Best,
) -> None:
    """The nearest rows of a few queries, into `best`."""
    queries = wanted[part].astype(np.float32)
    for tile in blocks(len(vectors), 1, _TILE_PRODUCTS // len(queries)):
        products = _products(vectors[tile], queries)
        if allowed is not None:
            products[:, ~allowed[tile]] = -np.inf
        query, rows = _candidates(products, best.rows.shape[1], best.similarity[part, -1] - np.float32(_SLACK))
        query, rows = query + part.start, rows + tile.start
        best.take(query, rows, _exactly(vectors, rows, wanted, query))


def _products(vectors: Vectors, queries: Float32[np.ndarray, "q d"]) -> Float32[np.ndarray, "q n"]:
    if vectors.dtype == np.float32:
        return queries @ vectors.T
    import cv2  # only here: NumPy takes ten times as long to convert float16 as to multiply it

    products = np.empty((len(queries), len(vectors)), np.float32)
    rows = max(1, _CONVERTED_VALUES // vectors.shape[1])
    whole = np.empty((rows, vectors.shape[1]), np.float32)
    for block in blocks(len(vectors), 1, rows):
        halves = np.ascontiguousarray(vectors[block])
        converted = whole[: len(halves)]
        cv2.convertFp16(halves.view(np.int16), converted)
        np.matmul(queries, converted.T, out=products[:, block])
    return products


def _candidates(
    products: Float32[np.ndarray, "q n"], k: int, floor: Float32[np.ndarray, " q"]
) -> tuple[Int64[np.ndarray, " m"], Int64[np.ndarray, " m"]]:
    """Queries and rows of every product that may belong to the k highest cosines, and is not below the query's floor.

    At least k products are as high as the k-th highest among the highest of each group of rows, so that only the few
    groups that reach it are looked at one by one.
    """
    count: int = products.shape[1]
    width = max(1, min(_GROUP, count // (4 * k)))
    starts = np.arange(0, count, width)
    highest = np.maximum.reduceat(products, starts, axis=1) if width > 1 else products
    if np.isnan(highest).any():
        raise ValueError("vectors with numbers that are not finite cannot be searched")
    if k <= len(starts):
        floor = np.maximum(floor, np.partition(highest, -k, axis=1)[:, -k] - np.float32(_SLACK))
    query, group = np.nonzero(highest >= floor[:, None])
    rows = starts[group][:, None] + np.arange(width)
    high = products[query[:, None], np.minimum(rows, count - 1)] >= floor[query][:, None]
    each, member = np.nonzero(high & (rows < count))
    return query[each], rows[each, member]


def _exactly(
    vectors: Vectors,
    rows: Int64[np.ndarray, " m"],
    wanted: Float64[np.ndarray, "q d"],
    query: Int64[np.ndarray, " m"],
) -> Float32[np.ndarray, " m"]:
    """The cosine of `vectors[rows[i]]` and `wanted[query[i]]`, summed alike wherever the row stands."""
    similarity = np.empty(len(rows), np.float32)
    for block in blocks(len(rows), 1, _EXACT_ROWS):
        found = vectors[rows[block]].astype(np.float64)
        lengths = np.sqrt((found * found).sum(axis=1))
        bad = np.flatnonzero(~(np.abs(lengths - 1.0) <= UNIT_NORM_TOLERANCE))
        if bad.size:
            raise ValueError(f"row {rows[block][bad[0]]} is no unit vector")
        similarity[block] = (found * wanted[query[block]]).sum(axis=1) / lengths
    return np.clip(similarity, -1.0, 1.0, out=similarity)
