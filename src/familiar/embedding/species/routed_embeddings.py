"""Embeddings of photos by the bundles of their species."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int64

from familiar.core.errors import FamiliarError


@dataclass(frozen=True, eq=False)
class SpeciesEmbeddings:
    """Embeddings by the bundle of one species.

    Attributes:
        rows: indices among the photos given, ascending.
        probabilities: of this species.
        embeddings: unit rows in the space of the species' bundle.
    """

    rows: Int64[np.ndarray, " n"]
    probabilities: Float64[np.ndarray, " n"]
    embeddings: Float32[np.ndarray, "n d"]


@dataclass(frozen=True, eq=False)
class RoutedEmbeddings:
    """Embeddings by species, kept apart because those of different species do not compare.

    Attributes:
        by_species: the embeddings of every species that has a bundle.
        skipped: an error for each photo without an embedding: `UnsureSpecies`, `NoBundleForSpecies`, unreadable, or
            without a face.
    """

    by_species: Mapping[str, SpeciesEmbeddings]
    skipped: tuple[FamiliarError, ...]

    def by_row(self) -> list[tuple[int, str, float]]:
        """List (row, species, probability of the species) of each row with an embedding, by row."""
        return sorted(
            (row, name, probability)
            for name, species in self.by_species.items()
            for row, probability in zip(species.rows.tolist(), species.probabilities.tolist(), strict=True)
        )


def concatenate(parts: Sequence[RoutedEmbeddings]) -> RoutedEmbeddings:
    """Join the embeddings of batches; there is at least one, if only of no photos."""

    def species(name: str) -> SpeciesEmbeddings:
        pieces = [part.by_species[name] for part in parts]
        return SpeciesEmbeddings(
            np.concatenate([piece.rows for piece in pieces]),
            np.concatenate([piece.probabilities for piece in pieces]),
            np.concatenate([piece.embeddings for piece in pieces]),
        )

    return RoutedEmbeddings(
        {name: species(name) for name in parts[0].by_species}, tuple(e for part in parts for e in part.skipped)
    )
