"""Centering: subtracting the mean of a collection's photos of a species from its embeddings.

What all photos of a species in one collection share (the species, the camera, the light) is no evidence of identity.
The mean of other collections of the same species cannot replace it (docs/explanation/left-out-collections.md).
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64

from familiar.core.blockwise import blocks
from familiar.core.vectors import normalize

# Both chosen on cats23 and dogs29 with one embedder.
PRIOR_PHOTOS = 10
"""As many photos as the model's mean of a species counts: the mean of a few individuals is largely theirs."""
SHARE = 0.9
"""Share of the mean that is subtracted."""
_BLOCK_ROWS = 20_000


@dataclass(frozen=True, eq=False)
class Centering:
    """The means of one collection, by species.

    Attributes:
        species: unit vectors; a photo is of the species that it is most similar to.
        means: what is subtracted from the embeddings of each species.
    """

    species: Float64[np.ndarray, "k d"]
    means: Float64[np.ndarray, "k d"]

    @staticmethod
    def fit(
        embeddings: Float[np.ndarray, "n d"], species_means: Float64[np.ndarray, "k d"] | None = None
    ) -> "Centering":
        """Estimate the means of a collection.

        Args:
            embeddings: unit rows of all its photos.
            species_means: of other photos, by which species are told apart, and which count as `PRIOR_PHOTOS` photos.
                None: all photos have one mean, their own.
        """
        if species_means is None:
            mean: Float64[np.ndarray, "1 d"] = embeddings.mean(axis=0, keepdims=True, dtype=np.float64)
            return Centering.fit(embeddings, mean)
        species = species_means / np.linalg.norm(species_means, axis=1, keepdims=True)
        sums, counts = PRIOR_PHOTOS * species_means, np.full(len(species), float(PRIOR_PHOTOS))
        for block in blocks(len(embeddings), 0, _BLOCK_ROWS):
            rows = embeddings[block].astype(np.float64)
            assigned = _most_similar(rows, species)
            for number in np.unique(assigned):  # far faster than np.add.at
                members = rows[assigned == number]
                sums[number] += members.sum(axis=0)
                counts[number] += len(members)
        return Centering(species, SHARE * sums / counts[:, None])

    def apply(self, embeddings: Float[np.ndarray, "n d"]) -> Float32[np.ndarray, "n d"]:
        """Subtract from each row the mean of its species, and scale it to unit length.

        Args:
            embeddings: unit rows, of the collection or not.
        """
        centered = np.empty(embeddings.shape, np.float32)
        for block in blocks(len(embeddings), 0, _BLOCK_ROWS):
            rows = embeddings[block].astype(np.float64)
            centered[block] = normalize((rows - self.means[_most_similar(rows, self.species)]).astype(np.float32))
        return centered


def _most_similar(rows: Float64[np.ndarray, "n d"], species: Float64[np.ndarray, "k d"]) -> Int64[np.ndarray, " n"]:
    return (rows @ species.T).argmax(axis=1)
