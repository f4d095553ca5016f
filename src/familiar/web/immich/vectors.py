"""Embeddings as Immich stores and compares them: 512 numbers, by the cosine distance, with one limit for all.

Each space of embeddings has its own block of the 512 numbers, and zeros elsewhere. So two faces of different spaces,
such as a person's and a cat's, have a distance of 1, and never match. Within a space, similarities are mapped so that
the balanced threshold of the bundle becomes a distance of .5, Immich's default.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

from familiar.core.errors import FamiliarError
from familiar.core.vectors import normalize
from familiar.embedding.bundle import Bundle
from familiar.metrics.calibration import uncalibrated

STORED_NUMBERS = 512
DEFAULT_DISTANCE = 0.5
"""Immich's default for the largest distance of two faces of one person."""
RANDOM_NUMBERS = 80
"""Appended where all similarities have to become lower."""


@dataclass(frozen=True)
class Block:
    """Where the embeddings of one space are stored, and how their similarities are mapped.

    A threshold t of .5 or less becomes .5 exactly: a constant number is appended, so that a similarity c becomes
    `a c + 1 - a`. A higher one is lowered: what is appended is random, drawn from the embedding itself, so that c
    becomes `a c` with an error of about `(1 - a) / sqrt(80)`; equal embeddings stay equal.

    Attributes:
        start: index of its first number.
        embedding_dim: of the space.
        threshold: similarity of the space that becomes a distance of .5, in (0, 1).
    """

    start: int
    embedding_dim: int
    threshold: float

    @property
    def raises(self) -> bool:
        """Whether similarities become higher."""
        return self.threshold <= DEFAULT_DISTANCE

    @property
    def share(self) -> float:
        """The factor a of similarities."""
        return DEFAULT_DISTANCE / (1 - self.threshold if self.raises else self.threshold)

    @property
    def end(self) -> int:
        """Index after its last number."""
        return self.start + self.embedding_dim + (1 if self.raises else RANDOM_NUMBERS)

    def store(self, embedding: Float32[np.ndarray, " d"]) -> Float32[np.ndarray, "512"]:
        """Return the unit vector that Immich stores for an embedding.

        Args:
            embedding: unit vector of the space.
        """
        appended = np.ones(1, np.float32) if self.raises else _random_direction(embedding)
        stored = np.zeros(STORED_NUMBERS, np.float32)
        stored[self.start : self.start + self.embedding_dim] = math.sqrt(self.share) * embedding
        stored[self.start + self.embedding_dim : self.end] = math.sqrt(1 - self.share) * appended
        return stored


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
        threshold = (metadata.calibration or uncalibrated()).balanced.similarity
        if not 0 < threshold < 1:
            raise FamiliarError(
                f"{bundle.path}: its balanced threshold is {threshold:.3f}, where 0 to 1 is needed; calibrate it with "
                "familiar evaluate --calibrate"
            )
        block = Block(start, metadata.embedding_dim, threshold)
        if block.end > STORED_NUMBERS:
            raise FamiliarError(
                f"{bundle.path}: its {metadata.embedding_dim} numbers do not fit into what is left of the "
                f"{STORED_NUMBERS} that Immich stores ({STORED_NUMBERS - start}); choose a smaller model, such as "
                "pet-nano and person-mobile together"
            )
        blocks[metadata.space_id] = block
        start = block.end
    return blocks


def _random_direction(embedding: Float32[np.ndarray, " d"]) -> Float32[np.ndarray, " r"]:
    """Draw a unit vector from an embedding: the same for the same embedding, and nearly orthogonal to all others."""
    seed = int.from_bytes(hashlib.sha256(embedding.tobytes()).digest()[:8], "little")
    numbers = np.random.default_rng(seed).standard_normal((1, RANDOM_NUMBERS), dtype=np.float32)
    return normalize(numbers)[0]
