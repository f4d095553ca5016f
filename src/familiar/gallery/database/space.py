"""The embedding space of a gallery: which model its embeddings come from, and what their similarities mean."""

import dataclasses
import json
from dataclasses import dataclass, field
from functools import lru_cache

from familiar.core.calibration import Calibration, prefix_calibrations_from_dict, prefix_calibrations_to_dict
from familiar.core.species_means import SpeciesMeans
from familiar.embedding.bundle import BundleMetadata


@dataclass(frozen=True)
class Space:
    """An embedding space and the calibration of its similarities.

    Attributes:
        space_id: embeddings with the same id are comparable.
        embedding_dim: the dimension of the stored embeddings.
        prefixes: the lengths to which an embedding may be cut and still be compared.
        calibration: the thresholds and probabilities of the model that defines the space.
        prefix_calibrations: those of similarities between embeddings truncated to each of the shorter prefixes.
        species_means: the model's; None: embeddings are compared as they are. Otherwise less the means of the gallery's
            photos of each species (`neighbors.Centering`).
    """

    space_id: str
    embedding_dim: int
    prefixes: tuple[int, ...]
    calibration: Calibration
    species_means: SpeciesMeans | None = None
    prefix_calibrations: dict[int, Calibration] = field(default_factory=dict[int, Calibration])

    @property
    def gallery_calibration(self) -> Calibration:
        """The model's calibration of similarities within a gallery."""
        return self.calibration if self.species_means is None else self.species_means.calibration

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths of embeddings that can be compared with the stored ones, rising; the last is theirs."""
        return tuple(sorted({length for length in self.prefixes if length < self.embedding_dim} | {self.embedding_dim}))

    @staticmethod
    def from_metadata(metadata: BundleMetadata) -> "Space":
        """Return the space of a bundle."""
        return Space(
            metadata.space_id,
            metadata.embedding_dim,
            metadata.prefixes,
            metadata.calibration,
            metadata.species_means,
            metadata.prefix_calibrations,
        )

    def to_json(self) -> str:
        """Serialize as the database stores it."""
        stored = dataclasses.asdict(self)
        stored["prefix_calibrations"] = prefix_calibrations_to_dict(self.prefix_calibrations)
        return json.dumps(stored, sort_keys=True)

    @staticmethod
    @lru_cache(maxsize=16)  # every query parses it, and the text hardly ever changes
    def from_json(text: str) -> "Space":
        """Parse the result of `to_json`.

        Raises:
            ValueError, KeyError, TypeError: the text does not describe a space.
        """
        stored = json.loads(text)
        return Space(
            stored["space_id"],
            stored["embedding_dim"],
            tuple(stored["prefixes"]),
            Calibration.from_dict(stored["calibration"]),
            SpeciesMeans.from_dict(stored.get("species_means")),
            prefix_calibrations_from_dict(stored.get("prefix_calibrations")),
        )
