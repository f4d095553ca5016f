"""The embedding space of a gallery: which model its embeddings come from, and what their similarities mean."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Float, Int64

from familiar.core.blockwise import blocks
from familiar.core.calibration import Calibration
from familiar.core.json_codec import DOCUMENTS
from familiar.core.species_means import SpeciesMeans
from familiar.embedding.bundle import BundleMetadata
from familiar.embedding.embedder import Embedder
from familiar.metrics.calibration import uncalibrated
from familiar.neighbors.centering import Centering

_BLOCK_ROWS = 20_000


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
        parts: of several bundles, their spaces. The components of an embedding are those of each in turn, and all
            but those of one are zero, so embeddings of two parts have a similarity of 0. What similarities mean is
            different in each part (`part_spaces`), and is not said for the whole.
        species: of a part, those that its bundle embeds.
    """

    space_id: str
    embedding_dim: int
    prefixes: tuple[int, ...]
    calibration: Calibration
    species_means: SpeciesMeans | None = None
    prefix_calibrations: dict[int, Calibration] = field(default_factory=dict[int, Calibration])
    parts: "tuple[Space, ...]" = ()
    species: tuple[str, ...] = ()

    @property
    def part_spaces(self) -> tuple["Space", ...]:
        """The spaces of several bundles; of a single one, only its own."""
        return self.parts or (self,)

    @cached_property
    def part_columns(self) -> tuple[slice, ...]:
        """The components of each part."""
        ends = np.cumsum([0, *(part.embedding_dim for part in self.part_spaces)]).tolist()
        return tuple(map(slice, ends[:-1], ends[1:]))

    def part_of(self, embeddings: Float[np.ndarray, "n d"]) -> Int64[np.ndarray, " n"]:
        """Return the number of the part that each row belongs to, counted from 0.

        Args:
            embeddings: unit rows.
        """
        parts = np.zeros(len(embeddings), np.int64)
        if self.parts:
            for block in blocks(len(embeddings), 0, _BLOCK_ROWS):
                rows = embeddings[block].astype(np.float32)
                squares = [np.square(rows[:, columns]).sum(axis=1) for columns in self.part_columns]
                parts[block] = np.argmax(squares, axis=0)
        return parts

    def center(
        self, embeddings: Float[np.ndarray, "n d"], centerings: Sequence[Centering | None]
    ) -> Float[np.ndarray, "n d"]:
        """Subtract the means of each part from its embeddings, which may be truncated if there is one part.

        Args:
            embeddings: unit rows.
            centerings: of each part; None: nothing is subtracted. Empty: of no part.
        """
        if not len(embeddings) or not any(centerings):
            return embeddings
        centered, parts = embeddings.copy(), self.part_of(embeddings)
        for part, centering in enumerate(centerings):
            rows = np.flatnonzero(parts == part) if self.parts else slice(None)
            columns = self.part_columns[part]
            if centering is not None:
                centered[rows, columns] = centering.apply(embeddings[rows, columns])
        return centered

    def calibration_at(self, length: int, part: int = 0) -> Calibration:
        """Return the calibration of similarities between embeddings of a length, within a gallery.

        Args:
            length: one of `lengths`. A shorter one that the model is not calibrated for is uncalibrated.
            part: number of the part, if there are several.
        """
        if length == self.embedding_dim:
            return self.part_spaces[part].gallery_calibration
        return self.prefix_calibrations.get(length, uncalibrated())

    @property
    def gallery_calibration(self) -> Calibration:
        """The model's calibration of similarities within a gallery."""
        return self.calibration if self.species_means is None else self.species_means.calibration

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths of embeddings that can be compared with the stored ones, rising; the last is theirs."""
        return tuple(sorted({length for length in self.prefixes if length < self.embedding_dim} | {self.embedding_dim}))

    @staticmethod
    def from_model(model: Embedder) -> "Space":
        """Return the space of a model.

        Args:
            model: that embeds faces.
        """
        parts = tuple(
            replace(Space.from_metadata(each.metadata), species=names) for names, each in model.bundles.items()
        )
        if len(parts) == 1:
            return replace(parts[0], species=())
        space_id, embedding_dim, prefixes = model.space
        return Space(space_id, embedding_dim, prefixes, uncalibrated(), parts=parts)

    @staticmethod
    def from_metadata(metadata: BundleMetadata) -> "Space":
        """Return the space of a bundle.

        Args:
            metadata: of the bundle.
        """
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
        return json.dumps(DOCUMENTS.to_json(self), sort_keys=True)

    @staticmethod
    @lru_cache(maxsize=16)  # every query parses it, and the text hardly ever changes
    def from_json(text: str) -> "Space":
        """Parse the result of `to_json`.

        Args:
            text: as the database stores it.

        Raises:
            ValueError: the text does not describe a space.
        """
        return DOCUMENTS.from_json(Space, json.loads(text))
