"""Species classification of embeddings: a linear softmax classifier in one bundle's space. Independent of photos."""

import re
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64

from familiar.core.errors import SpaceMismatch
from familiar.core.vectors import check_unit_rows

MIN_PROBABILITY = 0.9  # of the most probable species; below, the species is unsure and the photo is skipped


@dataclass(frozen=True)
class HeldOutAccuracy:
    """Cross-validated accuracy: each photo is classified once, by a classifier not fitted on its identity.

    Attributes:
        accuracy: share of photos whose most probable species is right, in [0, 1]; all species have equal weight.
        confusion: `confusion[i][j]` is the number of photos of species i classified as species j; the last column
            counts unsure ones.
    """

    accuracy: float
    confusion: tuple[tuple[int, ...], ...]

    @property
    def unsure_rate(self) -> float:
        """Share of unsure photos, in [0, 1]; all species have equal weight."""
        return float(np.mean([counts[-1] / sum(counts) for counts in self.confusion]))

    @property
    def misrouted_rate(self) -> float:
        """Share of photos classified as another species, in [0, 1]; all species have equal weight."""
        correct = np.mean([counts[species] / sum(counts) for species, counts in enumerate(self.confusion)])
        return float(1 - correct - self.unsure_rate)


@dataclass(frozen=True, eq=False)
class SpeciesClassifier:
    """A linear classifier of embeddings: `softmax((weights @ embedding + bias) / temperature)`.

    Attributes:
        names: the species, in the order of the rows of `weights`.
        weights: a row for each species.
        bias: a number for each species.
        temperature: above 0.
        space_id: the space of the embeddings.
        training_counts: for each species the number of identities and photos it was fitted on.
        held_out: cross-validated accuracy.
        min_probability: below it a photo is unsure, in [0, 1].

    Raises:
        ValueError: shapes that do not agree, or numbers that are not finite or out of range.
    """

    names: tuple[str, ...]
    weights: Float64[np.ndarray, "k d"]
    bias: Float64[np.ndarray, " k"]
    temperature: float
    space_id: str
    training_counts: dict[str, dict[str, int]]
    held_out: HeldOutAccuracy
    min_probability: float = MIN_PROBABILITY

    def __post_init__(self) -> None:
        check_species_names(self.names)
        count = len(self.names)
        if self.weights.ndim != 2 or 0 in self.weights.shape or len(self.weights) != count:
            raise ValueError(f"weights for {count} species must have the shape ({count}, d), got {self.weights.shape}")
        if self.bias.shape != (count,):
            raise ValueError(f"bias for {count} species must have the shape ({count},), got {self.bias.shape}")
        if not (np.isfinite(self.weights).all() and np.isfinite(self.bias).all()):
            raise ValueError("weights and bias must be finite")
        if not 0 < self.temperature < np.inf:
            raise ValueError(f"temperature must be above 0 and finite, got {self.temperature}")
        if not 0 <= self.min_probability <= 1:
            raise ValueError(f"min_probability must be in [0, 1], got {self.min_probability}")
        if [len(row) for row in self.held_out.confusion] != [count + 1] * count:
            raise ValueError(f"confusion for {count} species must be {count} x {count + 1}")

    @property
    def embedding_dim(self) -> int:
        """Dimension of the embeddings."""
        return self.weights.shape[1]

    def probabilities(self, embeddings: Float32[np.ndarray, "n d"], space_id: str) -> Float64[np.ndarray, "n k"]:
        """Compute the probability of each species.

        Args:
            embeddings: unit rows.
            space_id: the space of the embeddings.

        Returns:
            A row for each embedding and a column for each species; each row sums to 1.

        Raises:
            SpaceMismatch: the embeddings have another space or dimension than those it was fitted on.
            ValueError: rows that are not unit vectors.
        """
        self.check_space(space_id, embeddings.shape[1])
        check_unit_rows(embeddings)
        return softmax((embeddings.astype(np.float64) @ self.weights.T + self.bias) / self.temperature)

    def check_space(self, space_id: str, embedding_dim: int) -> None:
        """Raise SpaceMismatch unless the classifier was fitted on embeddings of this space and dimension."""
        if (space_id, embedding_dim) != (self.space_id, self.embedding_dim):
            raise SpaceMismatch(
                f"the species classifier was fitted in the space {self.space_id} ({self.embedding_dim} numbers), these "
                f"embeddings are of {space_id} ({embedding_dim}); use the bundle it was fitted with, or fit it again"
            )


def check_species_names(names: tuple[str, ...]) -> None:
    """Raise ValueError unless these are two or more distinct names of letters, digits, `-` and `_`."""
    if len(names) < 2:
        raise ValueError(f"at least two species are needed, got {len(names)}")
    if len(set(names)) != len(names):
        raise ValueError(f"each species must have its own name, got {', '.join(names)}")
    # They are the names of arrays in a file.
    if invalid := [name for name in names if not re.fullmatch(r"[\w-]+", name)]:
        raise ValueError(f"species name {invalid[0]!r}: use only letters, digits, '-' and '_'")


def softmax(logits: Float64[np.ndarray, "n k"]) -> Float64[np.ndarray, "n k"]:
    """Convert rows of logits to rows of probabilities.

    >>> softmax(np.array([[0.0, 0.0], [1000.0, 0.0]])).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))  # at most 1, so that exp does not overflow
    return exponentials / exponentials.sum(axis=1, keepdims=True)
