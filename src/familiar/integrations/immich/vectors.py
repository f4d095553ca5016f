"""Embeddings as Immich stores and compares them: 512 numbers, by the cosine distance, with one limit for all.

Each space of embeddings has its own block of the 512 numbers, and zeros elsewhere. So two faces of different spaces,
such as a person's and a cat's, have a distance of 1, and never match. Within a space, similarities are mapped so that
the balanced threshold of the bundle becomes a distance of .5, Immich's default.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float32, Float64

from familiar import Bundle, Comparison, FamiliarError
from familiar.core.vectors import normalize

STORED_NUMBERS = 512
DEFAULT_DISTANCE = 0.5
"""Immich's default for the largest distance of two faces of one person."""
RANDOM_NUMBERS = 80
"""Appended where similarities have to become lower and the means of the species cannot do it."""


@dataclass(frozen=True, eq=False)
class Block:
    """Where the embeddings of one space are stored, and how their similarities are mapped.

    A threshold t of .5 or less is raised to .5 exactly: a constant number is appended, so that a similarity c becomes
    `1 - a (1 - c)` with `a = .5 / (1 - t)`.

    A higher one is lowered: of the mean m of all photos of a species, which is no evidence of identity, as large a
    share s is subtracted as makes t become .5 for two embeddings that are as similar to m as the average:
    `(2 s - s^2) |m|^2 = 2 t - 1`. If the bundle has no means, or they are too short, random numbers are appended, drawn
    from the embedding itself: c becomes `a c` with `a = .5 / t` and an error of about `(1 - a) / sqrt(80)`.

    Attributes:
        start: index of its first number.
        embedding_dim: of the space.
        threshold: similarity of the space that becomes a distance of .5, in (0, 1).
        species_means: of the bundle; None: it has none.
    """

    start: int
    embedding_dim: int
    threshold: float
    species_means: Float64[np.ndarray, "species d"] | None = None

    @property
    def end(self) -> int:
        """Index after its last number."""
        appended = RANDOM_NUMBERS if self._subtracted is None else 0
        if self.threshold <= DEFAULT_DISTANCE:
            appended = 1
        return self.start + self.embedding_dim + appended

    def store(self, embedding: Float32[np.ndarray, " d"]) -> Float32[np.ndarray, "512"]:
        """Return the unit vector that Immich stores for an embedding.

        Args:
            embedding: unit vector of the space.
        """
        if self._subtracted is not None:
            directions, subtracted = self._subtracted
            numbers = normalize((embedding - subtracted[(directions @ embedding).argmax()])[None].astype(np.float32))[0]
        elif self.threshold <= DEFAULT_DISTANCE:
            numbers = _append(embedding, np.ones(1, np.float32), DEFAULT_DISTANCE / (1 - self.threshold))
        else:
            numbers = _append(embedding, _random_direction(embedding), DEFAULT_DISTANCE / self.threshold)
        stored = np.zeros(STORED_NUMBERS, np.float32)
        stored[self.start : self.end] = numbers
        return stored

    @cached_property
    def _subtracted(self) -> tuple[Float64[np.ndarray, "species d"], Float64[np.ndarray, "species d"]] | None:
        """The direction of each species' mean, and what of it is subtracted; None: nothing."""
        if self.threshold <= DEFAULT_DISTANCE or self.species_means is None:
            return None
        squares = np.square(self.species_means).sum(axis=1, keepdims=True)
        if squares.min() < 2 * self.threshold - 1:
            return None
        shares = 1 - np.sqrt(1 - (2 * self.threshold - 1) / squares)
        return self.species_means / np.sqrt(squares), shares * self.species_means


def make_blocks(bundles: Sequence[Bundle]) -> dict[str, Block]:
    """Give the space of each bundle its block, in the order of the bundles.

    Returns:
        Blocks by space id.

    Raises:
        FamiliarError: the spaces together have more than 512 numbers, or a bundle has no positive threshold.
    """
    blocks: dict[str, Block] = {}
    start = 0
    for bundle in bundles:
        metadata = bundle.metadata
        if metadata.space_id in blocks:
            continue
        threshold = Comparison(metadata.calibration, faces=2).pair_threshold
        if not 0 < threshold < 1:
            raise FamiliarError(
                f"{bundle.path}: its balanced threshold is {threshold:.3f}, where 0 to 1 is needed; calibrate it with "
                "familiar evaluate --calibrate"
            )
        means = None if metadata.species_means is None else metadata.species_means.rows()
        block = Block(start, metadata.embedding_dim, threshold, means)
        if block.end > STORED_NUMBERS:
            raise FamiliarError(
                f"{bundle.path}: its {metadata.embedding_dim} numbers do not fit into what is left of the "
                f"{STORED_NUMBERS} that Immich stores ({STORED_NUMBERS - start}); choose a smaller model, such as "
                "pet-nano and person-mobile together"
            )
        blocks[metadata.space_id] = block
        start = block.end
    return blocks


def _append(
    embedding: Float32[np.ndarray, " d"], appended: Float32[np.ndarray, " a"], share: float
) -> Float32[np.ndarray, " n"]:
    return np.concatenate([math.sqrt(share) * embedding, math.sqrt(1 - share) * appended]).astype(np.float32)


def _random_direction(embedding: Float32[np.ndarray, " d"]) -> Float32[np.ndarray, " r"]:
    """Draw a unit vector from an embedding: the same for the same embedding, and nearly orthogonal to all others."""
    seed = int.from_bytes(hashlib.sha256(embedding.tobytes()).digest()[:8], "little")
    numbers = np.random.default_rng(seed).standard_normal((1, RANDOM_NUMBERS), dtype=np.float32)
    return normalize(numbers)[0]
