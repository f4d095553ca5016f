"""Whitening: what is done to an album's embeddings before its faces are compared."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64

from familiar.core.blockwise import blocks
from familiar.core.vectors import normalize

# Chosen on albums drawn from cats23, dogs29, ORL and LFW's peopleDevTrain (docs/explanation/clustering.md).
PRIOR_FACES = 3000
"""As many faces as the assumption counts that the embeddings vary alike in all directions."""
MAX_MEASURED = 0.2
"""Share at most of the measured covariance in the one that embeddings are whitened by; the rest is that assumption."""
SAMPLE_FACES = 1500
"""So many faces of a large album tell how similar pairs are."""
_FITTED_FACES = 20_000
_BLOCK_ROWS = 20_000
_ROUNDING = 1e-12  # of the largest variance: a smaller one is none
_SHORTEST = 1e-6  # what is left of a row that equals the mean has no direction


@dataclass(frozen=True, eq=False)
class InverseRoot:
    """A symmetric matrix, `scale I + directions diag(weights) directions^T`.

    Attributes:
        scale: what rows are multiplied by in all other directions.
        directions: orthonormal columns, as many as rows were measured, and d at most.
        weights: what is added to `scale` in each of them.
    """

    scale: float
    directions: Float32[np.ndarray, "d k"]
    weights: Float32[np.ndarray, " k"]

    def multiply(self, rows: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, "n d"]:
        """Multiply rows by the matrix, which is not written out: k is often far below d."""
        return self.scale * rows + ((rows @ self.directions) * self.weights) @ self.directions.T


@dataclass(frozen=True, eq=False)
class Whitening:
    """What is done to an album's embeddings before its faces are compared.

    What differs most among all faces is light, pose and breed rather than identity. So the album's mean is subtracted,
    and the directions in which its faces differ most are damped: rows become `(row - mean) C^(-1/2)`, scaled to unit
    length. C is the covariance, shrunk towards a multiple of the identity matrix (Ledoit and Wolf 2004): its share is
    `min(n / (n + 3000), .2)`, so that a small album is hardly changed.

    Attributes:
        mean: of the album.
        matrix: C^(-1/2), up to a constant factor; symmetric, so it does not rotate the rows
            (`within_identity.sharpen` multiplies it by another one).
    """

    mean: Float32[np.ndarray, " d"]
    matrix: Float32[np.ndarray, "d d"]

    @staticmethod
    def fit(embeddings: Float[np.ndarray, "n d"]) -> "Whitening":
        """Measure an album; of a large one, 20,000 faces.

        Args:
            embeddings: unit rows, at least one, of several individuals: what a single one's photos share is subtracted
                too.
        """
        rows = embeddings[evenly_spaced(len(embeddings), _FITTED_FACES)].astype(np.float64)
        mean = rows.mean(axis=0)
        share = min(len(embeddings) / (len(embeddings) + PRIOR_FACES), MAX_MEASURED)
        root = inverse_root(rows - mean, share)
        return Whitening(mean.astype(np.float32), root.multiply(np.eye(rows.shape[1], dtype=np.float32)))

    def apply(self, embeddings: Float[np.ndarray, "n d"]) -> Float32[np.ndarray, "n d"]:
        """Whiten rows of the album, or others that are compared with them.

        Args:
            embeddings: unit rows.

        Returns:
            Unit rows. Those that equal the mean are returned as they are.
        """
        whitened = np.empty(embeddings.shape, np.float32)
        for block in blocks(len(embeddings), 0, _BLOCK_ROWS):
            rows = embeddings[block].astype(np.float32)
            moved = (rows - self.mean) @ self.matrix
            is_mean = np.linalg.norm(moved, axis=1, keepdims=True) < _SHORTEST
            whitened[block] = normalize(np.where(is_mean, rows, moved))
        return whitened


def inverse_root(rows: Float64[np.ndarray, "n d"], share: float) -> InverseRoot:
    """Compute C^(-1/2), with C the covariance of rows of mean 0, shrunk towards the identity matrix.

    C is `share S + (1 - share) I`, with S the covariance, divided by the mean of its d variances. Of fewer rows than d,
    the n x n matrix of products has the same variances: of 80 faces with 1,024 numbers each, that takes a hundredth of
    the time.

    Args:
        rows: of mean 0.
        share: of the measured covariance, in [0, 1).
    """
    count, length = rows.shape
    few = count < length
    variances, directions = np.linalg.eigh(rows @ rows.T if few else rows.T @ rows)
    if few:
        is_nonzero = variances > _ROUNDING * variances.max(initial=0.0)
        variances = variances[is_nonzero]
        directions = rows.T @ directions[:, is_nonzero] / variances**0.5
    average = max(float(variances.sum()) / length, np.finfo(np.float64).tiny)
    elsewhere = (1 - share) ** -0.5
    relative = share * np.maximum(variances, 0.0) / average + 1 - share
    return InverseRoot(elsewhere, directions.astype(np.float32), (relative**-0.5 - elsewhere).astype(np.float32))


def evenly_spaced(count: int, limit: int = SAMPLE_FACES) -> Int64[np.ndarray, " k"]:
    """Return at most `limit` of the rows 0 to `count` - 1."""
    return np.unique(np.linspace(0, count - 1, min(count, limit)).astype(np.int64))
