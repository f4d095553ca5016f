"""Mathematics of unit vectors. Similarity is the cosine; distance, inside losses and mining, 2 - 2 cos.

A bridge carries the vectors of one space into another, learned from photos that were embedded in both.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray

UNIT_NORM_TOLERANCE = 1e-3  # float16 storage of a 128-d unit vector keeps its norm within 5e-4
RIDGE_PENALTY = 0.25  # right where the target is foretold with a cosine of .9: (1 - .9^2) / .9^2


def normalize(vectors: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, "n d"]:
    """Rows scaled to unit length. A zero row has no direction: ValueError."""
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0)
    if not np.isfinite(largest).all() or (largest == 0).any():
        raise ValueError("a row that is zero or not finite has no direction")
    scaled = vectors / largest  # first, since squares of float32 vanish below 1e-23 and overflow above 1e19
    return scaled / np.linalg.norm(scaled, axis=1, keepdims=True)


def check_unit_rows(vectors: Float32[np.ndarray, "n d"]) -> None:
    """ValueError unless every row has unit length (within 1e-3)."""
    norms = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
    bad = np.flatnonzero(~(np.abs(norms - 1.0) <= UNIT_NORM_TOLERANCE))
    if bad.size:
        raise ValueError(f"{bad.size} of {len(vectors)} rows are not unit vectors, the first is row {bad[0]}")


def cosine_similarity(
    left: Float32[np.ndarray, "n d"], right: Float32[np.ndarray, "m d"]
) -> Float32[np.ndarray, "n m"]:
    """Similarities of unit rows, in [-1, 1].

    >>> a = np.eye(2, dtype=np.float32)
    >>> cosine_similarity(a, a).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return np.clip(left @ right.T, -1.0, 1.0)


def prefix(vectors: Float32[np.ndarray, "n d"], length: int) -> Float32[np.ndarray, "n k"]:
    """The first `length` components, scaled back to unit length."""
    if not 1 <= length <= vectors.shape[1]:
        raise ValueError(f"a prefix of {vectors.shape[1]} dimensions has 1 to that many, not {length}")
    return normalize(vectors[:, :length])


def pca_project(vectors: Float32[np.ndarray, "n k"], length: int) -> Float32[np.ndarray, "n d"]:
    """Unit rows in the `length` directions in which the rows lie most; rows that are no longer stay as they are.

    Principal components without centering: of all projections to so few dimensions none keeps more of the squared
    lengths (Eckart and Young 1936), so cosines change little. ValueError where there are fewer rows than `length`, or
    nothing is left of one.
    """
    if vectors.shape[1] <= length:
        return vectors
    if len(vectors) < length:
        raise ValueError(f"{len(vectors)} vectors span no {length} directions")
    rows = vectors.astype(np.float64)
    directions = np.linalg.eigh(rows.T @ rows)[1][:, : -length - 1 : -1]  # from the widest on
    # Either sign is as good, and which one comes out is the machine's choice: the largest number shall be positive.
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
            raise ValueError("a bridge whose numbers are not finite")

    def __call__(self, vectors: Float32[np.ndarray, "n d_from"]) -> Float32[np.ndarray, "n d_to"]:
        """Unit rows of the target space. ValueError where the width is another, or a row lands on zero."""
        if vectors.ndim != 2 or vectors.shape[1] != len(self.matrix):
            raise ValueError(f"this bridge takes rows of {len(self.matrix)} numbers, not {vectors.shape}")
        return normalize(vectors @ self.matrix + self.offset)


def orthogonal_bridge(source: Float32[np.ndarray, "n d_from"], target: Float32[np.ndarray, "n d_to"]) -> Bridge:
    """The rotation (reflections allowed) that brings each source row as near to its target row as one can.

    Orthogonal Procrustes (Schoenemann 1966): `U V^T` of the singular value decomposition `U S V^T` of
    `source^T target`. Similarities within the source space stay what they were, and unit rows stay unit rows.

    Where `d_from < d_to` the same formula embeds the source without distortion in the wider space. In both cases
    no other such map has a smaller squared error or, for unit rows, a larger mean cosine with the target.
    Where `d_from > d_to` it is a projection, the transpose of the best embedding of the target in the source.
    It maximizes the mean inner product *before* rows are scaled to unit length; neither squared error nor mean
    cosine is then guaranteed to be the best (for those no closed form is known). With enough
    photos `ridge_bridge` fits better there.

    Directions in which the rows do not spread are mapped arbitrarily. ValueError where there are fewer rows than the
    smaller of the two dimensions, where rows do not pair up or are not finite.
    """
    x, y = _check_pairs(source, target, at_least=min(source.shape[1], target.shape[1]))
    left, _, right = np.linalg.svd(x.T @ y, full_matrices=False)
    return Bridge((left @ right).astype(np.float32), np.zeros((y.shape[1],), np.float32))


def ridge_bridge(
    source: Float32[np.ndarray, "n d_from"],
    target: Float32[np.ndarray, "n d_to"],
    penalty: float = RIDGE_PENALTY,
) -> Bridge:
    """The affine map of least squared error from source to target rows, its matrix held small.

    `A = (X^T X + w I)^-1 X^T Y` and `offset = mean(target) - mean(source) A`, where X and Y are the rows less their
    means, and `w = penalty * (mean squared norm of X's rows)`: the penalty, above 0, does not hang on the vectors'
    scale. Nor should it on how many they are: where a random matrix maps the one space to the other and explains a
    share r of its variance, the best penalty is (1 - r) / r (ridge regression as a posterior mean). So the default
    suits well related spaces, little is lost a few times above or below it, and it matters only where the rows
    are not many times the dimensions. Offsets are not penalized.

    ValueError where there are fewer than two rows, where all source rows are the same, and as in
    `orthogonal_bridge` where rows do not pair up or are not finite.
    """
    if not (np.isfinite(penalty) and penalty > 0):
        raise ValueError(f"the penalty is a number above 0, not {penalty}")
    x, y = _check_pairs(source, target, at_least=2)
    if not np.ptp(x, axis=0).any():
        raise ValueError("all source vectors are the same; pair vectors of different photos")
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
