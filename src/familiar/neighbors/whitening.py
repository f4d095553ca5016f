"""Embeddings of a collection unlike what the embedder was trained on: what all its photos share is taken out."""

import numpy as np
from jaxtyping import Float32, Float64

from familiar.core.blockwise import unit_rows
from familiar.core.vectors import normalize

# Both chosen on cats, ORL and LFW with one embedder (docs/clustering.md).
FOREIGN = 0.25
"""Mean similarity of any two photos from which a collection counts as wholly foreign."""
SHRINKAGE = 0.5
"""Share of the covariance replaced by a ball of the same size."""
_AT_HOME = 0.1  # people outside the training's are at .04, by who happens to be among them


def domain_shift(embeddings: Float32[np.ndarray, "n d"]) -> float:
    """How unlike the embedder's own kind a collection is, in [0, 1]; 0 of fewer than two rows.

    The mean similarity of any two rows, over `FOREIGN`, at most 1: among many individuals most pairs are strangers,
    and strangers of the embedder's own kind are alike by 0 on average. `ValueError` for rows that are no unit vectors.
    """
    rows = unit_rows(embeddings)
    count = len(rows)
    if count < 2:
        return 0.0
    total = rows.sum(axis=0)
    alike = (float(total @ total) - count) / (count * (count - 1))
    return min(1.0, max(0.0, alike / FOREIGN))


def whiten_to_domain(embeddings: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, "n d"]:
    """The rows with the collection's own mean and strongest directions taken out, as far as it is foreign.

    An embedder spreads the identities it was trained for all around the sphere. Those of another kind share a
    direction, which says what they are and not who, and differ most in a few more, such as the light. With g the
    `foreignness`, rows become `(row - g mean) C^(-g/2)`, scaled to unit length: nothing happens to a collection at
    home (g under .1), and a foreign one is whitened. C is the covariance, shrunk towards a ball as in Ledoit and Wolf
    2004 (but by a fixed share), so that directions in which few rows differ are not blown up. Whitening as adaptation
    to a domain: Sun et al. 2016, arXiv 1511.05547.

    Similarities of adapted rows are lower and mean something only within this collection. It should hold eight
    individuals or more: what the photos of a single one share would be taken out too. Rows that are all the same come
    back as they are. `ValueError` for rows that are no unit vectors.
    """
    rows = unit_rows(embeddings)
    if len(rows) < 2 or not np.ptp(rows, axis=0).any():
        return embeddings
    strength = domain_shift(embeddings)
    if strength < _AT_HOME:
        return embeddings
    mean = rows.mean(axis=0)
    return normalize(((rows - strength * mean) @ _whitening(rows - mean, strength)).astype(np.float32))


def _whitening(centered: Float64[np.ndarray, "n d"], strength: float) -> Float64[np.ndarray, "d d"]:
    """The shrunk covariance to the power of minus half the strength, up to a factor: symmetric, so nothing turns."""
    spread, directions = np.linalg.eigh(centered.T @ centered)
    relative = (1 - SHRINKAGE) * np.maximum(spread, 0.0) / spread.mean() + SHRINKAGE
    return (directions * relative ** (-strength / 2)) @ directions.T
