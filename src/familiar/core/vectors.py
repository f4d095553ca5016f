"""Mathematics of unit vectors. Similarity is the cosine; distance, inside losses and mining, 2 - 2 cos."""

import numpy as np
from jaxtyping import Float32

UNIT_NORM_TOLERANCE = 1e-3  # float16 storage of a 128-d unit vector keeps its norm within 5e-4


def normalise(vectors: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, "n d"]:
    """Rows scaled to unit length. A zero row has no direction: ValueError."""
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0)
    if not np.isfinite(largest).all() or (largest == 0).any():
        raise ValueError("a row that is zero or not finite has no direction")
    scaled = vectors / largest  # first, since squares of float32 vanish below 1e-23 and overflow above 1e19
    return scaled / np.linalg.norm(scaled, axis=1, keepdims=True)


def check_unit_rows(vectors: Float32[np.ndarray, "n d"]) -> None:
    """ValueError unless every row has unit length (within 1e-3)."""
    norms = np.linalg.norm(vectors, axis=1)
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
    return normalise(vectors[:, :length])
