"""Mean embeddings of species: what all photos of a species share, which is no evidence of identity."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from familiar.core.calibration import Calibration


@dataclass(frozen=True)
class SpeciesMeans:
    """The means that a gallery starts from, and what similarities mean once a gallery's own means are subtracted.

    Attributes:
        means: mean embedding of each species, by its name; all of the same dimension.
        calibration: of similarities between embeddings less the means of their collection.
    """

    means: dict[str, tuple[float, ...]]
    calibration: Calibration

    def __post_init__(self) -> None:
        rows = self.rows() if len({len(mean) for mean in self.means.values()}) == 1 else np.zeros((1, 1))
        norms = np.linalg.norm(rows, axis=1)
        if not (np.isfinite(norms).all() and (norms > 0).all() and (norms < 1.001).all()):
            raise ValueError("species means must be means of unit vectors of one dimension, and not zero")

    @property
    def embedding_dim(self) -> int:
        """Dimension of the embeddings."""
        return self.rows().shape[1]

    def rows(self) -> Float64[np.ndarray, "species d"]:
        """Return the means as an array, in the order of the names."""
        return np.array([self.means[name] for name in sorted(self.means)], np.float64)
