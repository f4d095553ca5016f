"""Clusters divided in two where their faces differ most: do they show two individuals?"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float64

_POWER_STEPS, _MEANS_STEPS = 10, 20


@dataclass(frozen=True, eq=False)
class Halves:
    """A cluster divided in two.

    Attributes:
        is_second: whether each face is in the second part; the first has the first face.
        across: mean similarity of two faces of different parts.
        within: mean similarity of two faces of one part, of the part where it is lower; 1 for parts of one face.
    """

    is_second: Bool[np.ndarray, " n"]
    across: float
    within: float

    @property
    def smaller(self) -> int:
        """Number of faces of the smaller part."""
        second = int(self.is_second.sum())
        return min(second, len(self.is_second) - second)


def halve(rows: Float[np.ndarray, "n d"]) -> Halves | None:
    """Divide a cluster where its faces differ most: two-means, begun from its principal direction.

    Args:
        rows: unit rows.

    Returns:
        Both parts; None if there is only one, as of equal rows.
    """
    if len(rows) < 2:
        return None
    vectors = rows.astype(np.float64)
    centered = vectors - vectors.mean(axis=0)
    direction = centered[np.square(centered).sum(axis=1).argmax()]
    for _ in range(_POWER_STEPS):
        direction = centered.T @ (centered @ direction)
        direction /= max(float(np.linalg.norm(direction)), np.finfo(np.float64).tiny)
    is_second = centered @ direction > 0
    for _ in range(_MEANS_STEPS):
        first, second = vectors[~is_second].sum(axis=0), vectors[is_second].sum(axis=0)
        lengths = [max(float(np.linalg.norm(each)), np.finfo(np.float64).tiny) for each in (first, second)]
        nearer = vectors @ second / lengths[1] > vectors @ first / lengths[0]
        if (nearer == is_second).all():
            break
        is_second = nearer
    if is_second[0]:
        is_second = ~is_second
    if not is_second.any():
        return None
    parts = vectors[~is_second], vectors[is_second]
    across = float(parts[0].mean(axis=0) @ parts[1].mean(axis=0))
    return Halves(is_second, across, min(mean_similarity(part) for part in parts))


def mean_similarity(rows: Float64[np.ndarray, "n d"]) -> float:
    """Return the mean similarity of two different rows; 1 for a single row."""
    if len(rows) == 1:
        return 1.0
    total = rows.sum(axis=0)
    return (float(total @ total) - float(np.square(rows).sum())) / (len(rows) * (len(rows) - 1))
