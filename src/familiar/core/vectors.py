"""Mathematics of unit vectors. Similarity is the cosine; distance, inside losses and mining, is 2 - 2 cos.

A bridge maps the vectors of one space to another; it is learned from photos that were embedded in both.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float16, Float32, Float64
from numpy.typing import NDArray

Rows = Float16[np.ndarray, "_ d"] | Float32[np.ndarray, "_ d"] | Float64[np.ndarray, "_ d"]
"""Vectors, one per row, in memory or mapped from a file."""

UNIT_NORM_TOLERANCE = 1e-3  # float16 storage of a 128-d unit vector keeps its norm within 5e-4
RIDGE_PENALTY = 0.25  # optimal if targets are predicted with a cosine of 0.9: (1 - 0.9^2) / 0.9^2


def normalize(vectors: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, "n d"]:
    """Scale rows to unit length.

    Args:
        vectors: one per row, of any length above zero.

    Raises:
        ValueError: a row that is zero or not finite.
    """
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0)
    if not np.isfinite(largest).all() or (largest == 0).any():
        raise ValueError("a row that is zero or not finite has no direction")
    scaled = vectors / largest  # first, since squares of float32 underflow below 1e-23 and overflow above 1e19
    return scaled / np.linalg.norm(scaled, axis=1, keepdims=True)


def check_unit_rows(vectors: Float32[np.ndarray, "n d"]) -> None:
    """Raise ValueError unless every row has unit length (within 1e-3)."""
    norms = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
    bad = np.flatnonzero(~(np.abs(norms - 1.0) <= UNIT_NORM_TOLERANCE))
    if bad.size:
        raise ValueError(f"{bad.size} of {len(vectors)} rows are not unit vectors, the first is row {bad[0]}")


def cosine_similarity(
    left: Float32[np.ndarray, "n d"], right: Float32[np.ndarray, "m d"]
) -> Float32[np.ndarray, "n m"]:
    """Compute the cosine similarity of every row on the left with every row on the right.

    Args:
        left: unit rows.
        right: unit rows.

    Returns:
        In [-1, 1]; row i and column j is the similarity of `left[i]` and `right[j]`.

    >>> a = np.eye(2, dtype=np.float32)
    >>> cosine_similarity(a, a).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return np.clip(left @ right.T, -1.0, 1.0)


def prefix(vectors: Float32[np.ndarray, "n d"], length: int) -> Float32[np.ndarray, "n k"]:
    """Truncate rows to their first `length` components and scale them to unit length.

    Raises:
        ValueError: `length` outside [1, d], or a row whose prefix is zero.
    """
    if not 1 <= length <= vectors.shape[1]:
        raise ValueError(f"prefix length must be in [1, {vectors.shape[1]}], got {length}")
    return normalize(vectors[:, :length])


def pca_project(vectors: Float32[np.ndarray, "n k"], length: int) -> Float32[np.ndarray, "n d"]:
    """Project rows on their `length` principal directions, without centering, and scale them to unit length.

    No projection to this many dimensions keeps more of the squared lengths (Eckart and Young 1936), so cosines change
    little. Rows with no more than `length` components are returned as they are.

    Raises:
        ValueError: fewer rows than `length`, or a row whose projection is zero.
    """
    if vectors.shape[1] <= length:
        return vectors
    if len(vectors) < length:
        raise ValueError(f"{len(vectors)} vectors span fewer than {length} directions")
    rows = vectors.astype(np.float64)
    directions = np.linalg.eigh(rows.T @ rows)[1][:, : -length - 1 : -1]  # largest variance first
    # Which sign comes out depends on the machine, so the largest component is made positive.
    largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=0)[None], axis=0)
    return normalize((rows @ (directions * np.sign(largest))).astype(np.float32))


@dataclass(frozen=True, eq=False)
class Bridge:
    """A map from one embedding space into another: `vectors @ matrix + offset`, scaled to unit length."""

    matrix: Float32[np.ndarray, "d_from d_to"]
    offset: Float32[np.ndarray, " d_to"]

    def __post_init__(self) -> None:
        if self.matrix.ndim != 2 or 0 in self.matrix.shape or self.offset.shape != self.matrix.shape[1:]:
            raise ValueError(
                f"a bridge is a matrix (d_from, d_to) and an offset (d_to,), "
                f"not {self.matrix.shape} and {self.offset.shape}"
            )
        if self.matrix.dtype != np.float32 or self.offset.dtype != np.float32:
            raise ValueError(f"a bridge is float32, not {self.matrix.dtype} and {self.offset.dtype}")
        if not (np.isfinite(self.matrix).all() and np.isfinite(self.offset).all()):
            raise ValueError("a bridge must be finite")

    def __call__(self, vectors: Float32[np.ndarray, "n d_from"]) -> Float32[np.ndarray, "n d_to"]:
        """Map rows to unit rows of the target space.

        Raises:
            ValueError: rows of another dimension, or a row that is mapped to zero.
        """
        if vectors.ndim != 2 or vectors.shape[1] != len(self.matrix):
            raise ValueError(f"this bridge takes rows of {len(self.matrix)} numbers, got {vectors.shape}")
        return normalize(vectors @ self.matrix + self.offset)


def orthogonal_bridge(source: Float32[np.ndarray, "n d_from"], target: Float32[np.ndarray, "n d_to"]) -> Bridge:
    """Fit the rotation (reflections allowed) that brings the source rows closest to their target rows.

    Orthogonal Procrustes (Schoenemann 1966): `U V^T` of the singular value decomposition `U S V^T` of
    `source^T target`. Similarities within the source space are preserved, and unit rows remain unit rows.

    If `d_from < d_to`, the same formula embeds the source without distortion in the wider space. In both cases no
    other such map has a smaller squared error or, for unit rows, a larger mean cosine with the target. If
    `d_from > d_to`, it is a projection, the transpose of the best embedding of the target in the source. It maximizes
    the mean inner product *before* rows are scaled to unit length; neither squared error nor mean cosine is then
    guaranteed to be the best (for those no closed form is known). With enough photos `ridge_bridge` fits better there.

    Args:
        source: rows of the source space. Directions without variance are mapped arbitrarily.
        target: the rows of the same photos, in the same order, in the target space.

    Raises:
        ValueError: fewer rows than the smaller of the two dimensions, or rows that do not pair up or are not finite.
    """
    x, y = _check_pairs(source, target, at_least=min(source.shape[1], target.shape[1]))
    left, _, right = np.linalg.svd(x.T @ y, full_matrices=False)
    return Bridge((left @ right).astype(np.float32), np.zeros((y.shape[1],), np.float32))


def ridge_bridge(
    source: Float32[np.ndarray, "n d_from"],
    target: Float32[np.ndarray, "n d_to"],
    penalty: float = RIDGE_PENALTY,
) -> Bridge:
    """Fit the affine map from source to target rows by ridge regression.

    `A = (X^T X + w I)^-1 X^T Y` and `offset = mean(target) - mean(source) A`, where X and Y are the rows minus their
    means, and `w = penalty * (mean squared norm of X's rows)`, so the penalty does not depend on the vectors' scale.
    Nor should it depend on their number: if a random matrix maps the one space to the other and explains a share r of
    its variance, the best penalty is (1 - r) / r (ridge regression as a posterior mean). So the default suits closely
    related spaces, little is lost a few times above or below it, and it matters only if the rows are not many times
    the dimensions. Offsets are not penalized.

    Args:
        source: rows of the source space.
        target: the rows of the same photos, in the same order, in the target space.
        penalty: above 0, relative to the squared norm of the rows.

    Raises:
        ValueError: fewer than two rows, source rows that are all the same, rows that do not pair up or are not
            finite, or a penalty that is not above 0.
    """
    if not (np.isfinite(penalty) and penalty > 0):
        raise ValueError(f"penalty must be a finite number above 0, got {penalty}")
    x, y = _check_pairs(source, target, at_least=2)
    if not np.ptp(x, axis=0).any():
        raise ValueError("all source vectors are the same; use vectors of different photos")
    x_mean: NDArray[np.float64] = x.mean(axis=0)
    y_mean: NDArray[np.float64] = y.mean(axis=0)
    x, y = x - x_mean, y - y_mean
    weight = penalty * float(np.square(x).sum()) / len(x)
    gram = x.T @ x + weight * np.eye(x.shape[1])
    matrix = np.linalg.solve(gram, x.T @ y)
    return Bridge(matrix.astype(np.float32), (y_mean - x_mean @ matrix).astype(np.float32))


def _check_pairs(
    source: Float32[np.ndarray, "n d_from"], target: Float32[np.ndarray, "n d_to"], at_least: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if len(source) != len(target):
        raise ValueError(
            f"{len(source)} source and {len(target)} target vectors do not pair up; "
            f"embed the same photos, in the same order, in both spaces"
        )
    if len(source) < at_least:
        raise ValueError(
            f"{len(source)} pairs are too few for this bridge; embed {at_least} photos or more in both spaces"
        )
    for name, vectors in (("source", source), ("target", target)):
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if bad.size:
            raise ValueError(
                f"{bad.size} of {len(vectors)} {name} vectors are not finite, the first is row {bad[0]}; "
                f"leave these pairs out"
            )
    return source.astype(np.float64), target.astype(np.float64)
