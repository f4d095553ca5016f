"""Similarities of many rows, block by block, so that no n x n matrix is ever in memory.

They are computed in float64 and rounded to float32, so that equal vectors tie exactly and no result depends on the
block size or on the number of threads.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from jaxtyping import Float32, Float64

from familiar.core.cpu import available_cores
from familiar.core.vectors import check_unit_rows

BLOCK_SCORES = 16_000_000  # similarities of one block: 64 MB
MAX_THREADS = 8  # of `map_blocks`: each has a block in memory, together less than a gigabyte
_TILE_COLUMNS = 2048  # of a block, computed at once: more of them in float64 would not fit into the cache

T = TypeVar("T")


def unit_rows(embeddings: Float32[np.ndarray, "n d"]) -> Float64[np.ndarray, "n d"]:
    """Convert float32 unit rows to float64 and normalize them again, so that equal rows have a similarity of exactly 1.

    Raises:
        ValueError: rows that are not unit vectors.
    """
    check_unit_rows(embeddings)
    rows = embeddings.astype(np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def similarities(left: Float64[np.ndarray, "n d"], right: Float64[np.ndarray, "m d"]) -> Float32[np.ndarray, "n m"]:
    """Compute the cosines of unit rows, rounded to float32, in [-1, 1].

    A float32 product differs in its last bit with the shape of the block it was computed in, which would break ties
    by chance (and let a collapsed model look perfect or hopeless).
    """
    scores = np.empty((len(left), len(right)), np.float32)
    for start in range(0, len(right), _TILE_COLUMNS):
        tile = slice(start, start + _TILE_COLUMNS)
        scores[:, tile] = left @ right[tile].T
    return np.clip(scores, -1.0, 1.0, out=scores)


def blocks(rows: int, columns: int, block_rows: int | None) -> Iterator[slice]:
    """Split `rows` into slices: of `block_rows`, or so that a slice times `columns` is at most `BLOCK_SCORES`."""
    step = block_rows or max(1, BLOCK_SCORES // max(1, columns))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def map_blocks(work: Callable[[slice], T], rows: int, columns: int, block_rows: int | None) -> list[T]:
    """Call `work` on each of the `blocks`, in as many threads as there are cores, and return the results in order."""
    with ThreadPoolExecutor(min(available_cores(), MAX_THREADS)) as pool:
        return list(pool.map(work, blocks(rows, columns, block_rows)))
