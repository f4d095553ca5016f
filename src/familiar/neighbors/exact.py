"""Exact search: the nearest rows of each row, block by block, so that no n x n matrix is ever held."""

import numpy as np
from jaxtyping import Float32, Int, Int64

from familiar.core.blocks import blocks, similarities, unit_rows

_EXCLUDED = -2.0  # below every similarity


def nearest(
    embeddings: Float32[np.ndarray, "n d"],
    k: int,
    queries: Int[np.ndarray, " q"] | None = None,
    block_rows: int | None = None,
) -> tuple[Int64[np.ndarray, "q k"], Float32[np.ndarray, "q k"]]:
    """Rows and similarities of the k nearest others of each row in `queries` (None: of all), nearest first.

    Which of several equally near rows is taken is left open. `k` lies in [1, n - 1], or `ValueError`.
    """
    if not 1 <= k < len(embeddings):
        raise ValueError(f"each of {len(embeddings)} rows has 1 to that many less one neighbours, not {k}")
    rows = unit_rows(embeddings)
    asked = np.arange(len(rows)) if queries is None else queries.astype(np.int64)
    neighbours = np.empty((len(asked), k), np.int64)
    closeness = np.empty((len(asked), k), np.float32)
    for part in blocks(len(asked), len(rows), block_rows):
        of = asked[part]
        scores = similarities(rows[of], rows)
        scores[np.arange(len(of)), of] = _EXCLUDED
        candidates = np.argpartition(scores, -k, axis=1)[:, -k:]
        found = np.take_along_axis(scores, candidates, axis=1)
        by_closeness = np.lexsort((candidates, -found), axis=1)
        neighbours[part] = np.take_along_axis(candidates, by_closeness, axis=1)
        closeness[part] = np.take_along_axis(found, by_closeness, axis=1)
    return neighbours, closeness
