"""Partial whitening of embeddings from outside the embedder's training domain."""

import numpy as np
from jaxtyping import Float32, Float64

from familiar.core.blockwise import unit_rows
from familiar.core.vectors import normalize

# Both chosen on cats, ORL and LFW with one embedder (docs/explanation/clustering.md).
OUT_OF_DOMAIN_SIMILARITY = 0.25
"""Mean similarity of any two photos from which on a collection counts as wholly out of domain."""
SHRINKAGE = 0.5
"""Share of the covariance replaced by a multiple of the identity with the same trace."""
_IN_DOMAIN_SHIFT = 0.1  # below it nothing is whitened; people outside the training set reach 0.04 by chance


def domain_shift(embeddings: Float32[np.ndarray, "n d"]) -> float:
    """Measure how far a collection is from the embedder's training domain.

    The mean similarity of any two rows over `OUT_OF_DOMAIN_SIMILARITY`: among many individuals most pairs are
    negatives, and negatives of the training domain have a mean similarity of 0.

    Args:
        embeddings: unit rows of one collection.

    Returns:
        A number in [0, 1]; 0 for fewer than two rows.

    Raises:
        ValueError: rows that are not unit vectors.
    """
    rows = unit_rows(embeddings)
    count = len(rows)
    if count < 2:
        return 0.0
    total = rows.sum(axis=0)
    mean_similarity = (float(total @ total) - count) / (count * (count - 1))
    return min(1.0, max(0.0, mean_similarity / OUT_OF_DOMAIN_SIMILARITY))


def whiten_to_domain(embeddings: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, "n d"]:
    """Remove a collection's mean and strongest directions, in proportion to its domain shift.

    An embedder spreads the identities it was trained for all around the sphere. Those of another domain share a
    direction, which tells what they are but not who, and differ most in a few more, such as the light. With g the
    `domain_shift`, rows become `(row - g mean) C^(-g/2)`, scaled to unit length: a collection within the domain (g
    below 0.1) stays as it is, and one wholly outside is whitened. C is the covariance, shrunk towards a multiple of
    the identity as by Ledoit and Wolf 2004 (but by a fixed share), so that directions in which few rows differ are
    not amplified. Whitening as domain adaptation: Sun et al. 2016, arXiv 1511.05547.

    Args:
        embeddings: unit rows of one collection. It should show eight individuals or more: of a single one, whatever
            its photos share would be removed too.

    Returns:
        Unit rows. Their similarities are lower and mean something only within this collection. Rows that are all the
        same are returned as they are. Components that are zero in all rows stay zero and do not count.

    Raises:
        ValueError: rows that are not unit vectors.
    """
    rows = unit_rows(embeddings)
    if len(rows) < 2 or not np.ptp(rows, axis=0).any():
        return embeddings
    strength = domain_shift(embeddings)
    if strength < _IN_DOMAIN_SHIFT:
        return embeddings
    used = rows.any(axis=0)
    mean = rows[:, used].mean(axis=0)
    matrix = _whitening_matrix(rows[:, used] - mean, strength)
    whitened = np.zeros_like(embeddings)
    whitened[:, used] = normalize(((rows[:, used] - strength * mean) @ matrix).astype(np.float32))
    return whitened


def _whitening_matrix(centered: Float64[np.ndarray, "n d"], strength: float) -> Float64[np.ndarray, "d d"]:
    """Return the shrunk covariance to the power `-strength / 2`, up to a constant factor.

    The matrix is symmetric, so it does not rotate the rows.
    """
    variances, directions = np.linalg.eigh(centered.T @ centered)
    relative = (1 - SHRINKAGE) * np.maximum(variances, 0.0) / variances.mean() + SHRINKAGE
    return (directions * relative ** (-strength / 2)) @ directions.T
