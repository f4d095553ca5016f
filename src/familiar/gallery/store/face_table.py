"""All faces of a gallery as arrays."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Float32, Int64

from familiar.core.gallery_types import StoredType
from familiar.core.vectors import prefix
from familiar.gallery.store.connection import Connection, damaged
from familiar.gallery.store.space import Space
from familiar.gallery.store.stored_embeddings import decode
from familiar.neighbors.centering import Centering

_FETCH_BATCH = 20_000  # rows
_SELECTED = "WHERE id IN (SELECT value FROM json_each(?))"


@dataclass(frozen=True, eq=False)
class EmbeddingTable:
    """Every face of a gallery, by increasing face id, as of one `revision` of the gallery's faces.

    `parts` are the numbers of the parts of the space that the faces belong to (`Space.part_of`). `centerings` are what
    was subtracted from the embeddings of each part, if anything.
    """

    ids: Int64[np.ndarray, " n"]
    photo_ids: Int64[np.ndarray, " n"]
    quality: Float32[np.ndarray, " n"]  # in [0, 1]
    embeddings: Float[np.ndarray, "n d"]  # float16 or float32, unit rows
    revision: int
    space: Space
    parts: Int64[np.ndarray, " n"]
    centerings: tuple[Centering | None, ...] = ()

    def rows_of(self, ids: Int64[np.ndarray, " k"]) -> Int64[np.ndarray, " k"]:
        """Return the row index of each face id.

        Raises:
            KeyError: an id is not in the table.
        """
        rows = np.searchsorted(self.ids, ids)
        if len(ids) and (rows.max() == len(self.ids) or (self.ids[rows] != ids).any()):
            raise KeyError("a face that is not in the gallery")
        return rows.astype(np.int64)

    def unit_rows(self, rows: Int64[np.ndarray, " k"] | None = None) -> Float32[np.ndarray, "k d"]:
        """Return the embeddings of some rows (None: of all) in float32."""
        return (self.embeddings if rows is None else self.embeddings[rows]).astype(np.float32, copy=False)

    def center_query(self, query: Float32[np.ndarray, " d"]) -> Float32[np.ndarray, " d"]:
        """Subtract from a query what was subtracted from the embeddings of its part."""
        return self.space.center(query[None], self.centerings)[0]

    def part_of_query(self, query: Float32[np.ndarray, " d"]) -> int:
        """Return the number of the part that a query is compared with."""
        return int(self.space.part_of(query[None])[0])

    def comparable(
        self, query: Float32[np.ndarray, " d"], allowed: Bool[np.ndarray, " n"] | None
    ) -> Bool[np.ndarray, " n"] | None:
        """Mark those of the `allowed` faces that a query can be compared with: of the same part of the space.

        Args:
            query: unit vector, not centered, of the table's length.
            allowed: None: all.

        Returns:
            None: all.
        """
        if not self.space.parts:
            return allowed
        same_part = self.parts == self.part_of_query(query)
        return same_part if allowed is None else allowed & same_part

    def truncated(self, length: int) -> "EmbeddingTable":
        """Return the table with embeddings of the first components, less the means of their species, if there are any.

        Args:
            length: number of components.
        """
        embeddings = prefix(self.unit_rows(), length) if len(self.ids) else self.unit_rows()[:, :length]
        return replace(self, embeddings=embeddings.astype(self.embeddings.dtype)).centered()

    def centered(self) -> "EmbeddingTable":
        """Return the table with the means of its species subtracted from its embeddings, where the model has means."""
        if all(space.species_means is None for space in self.space.part_spaces):
            return self
        centerings = list[Centering | None]()
        for part, space in enumerate(self.space.part_spaces):
            if space.species_means is None:
                centerings.append(None)
                continue
            rows = np.flatnonzero(self.parts == part) if self.space.parts else slice(None)
            stored = self.embeddings[rows, self.space.part_columns[part]]
            centerings.append(Centering.fit(stored, space.species_means.rows()[:, : stored.shape[1]]))
        return self.centered_by(centerings)

    def centered_by(self, centerings: Sequence[Centering | None]) -> "EmbeddingTable":
        """Return the table with given means subtracted from its embeddings.

        Args:
            centerings: of each part; None: nothing is subtracted.
        """
        embeddings = self.space.center(self.embeddings, centerings)
        return replace(self, embeddings=embeddings, centerings=tuple(centerings))


def load_face_table(
    connection: Connection,
    stored_type: StoredType,
    space: Space,
    revision: int,
    folder: Path,
    only: Collection[int] | None = None,
) -> EmbeddingTable:
    """Read the faces of a gallery.

    Args:
        connection: within a transaction.
        stored_type: of the embeddings.
        space: of the stored embeddings.
        revision: the gallery's `faces_revision`.
        folder: the gallery's folder, for the error message.
        only: numbers of the faces to read; None: all.

    Raises:
        CorruptGallery: an embedding has the wrong size or is not of unit length.
    """
    condition, values = ("", ()) if only is None else (_SELECTED, (json.dumps(list(only)),))
    cursor = connection.each(f"SELECT id, photo_id, quality, embedding FROM faces {condition} ORDER BY id", values)
    ids, photo_ids, quality = ([np.empty(0, dtype)] for dtype in (np.int64, np.int64, np.float32))
    embeddings = [decode(b"", stored_type, space.embedding_dim)]
    while batch := list(islice(cursor, _FETCH_BATCH)):
        for parts, values in zip((ids, photo_ids, quality), zip(*batch, strict=True), strict=False):
            parts.append(np.array(values, parts[0].dtype))
        encoded = b"".join(row[3] for row in batch)
        try:
            embeddings.append(decode(encoded, stored_type, space.embedding_dim))
        except ValueError as error:
            raise damaged(folder, f"embeddings: {error}") from error
    stored = np.concatenate(embeddings)
    return EmbeddingTable(
        np.concatenate(ids),
        np.concatenate(photo_ids),
        np.concatenate(quality),
        stored,
        revision,
        space,
        space.part_of(stored),
    )
