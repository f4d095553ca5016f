"""All faces of a gallery as arrays."""

import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int64

from familiar.core.errors import CorruptGallery
from familiar.core.species_means import SpeciesMeans
from familiar.core.vectors import check_unit_rows, prefix
from familiar.neighbors.centering import Centering

_FETCH_BATCH = 20_000  # rows


@dataclass(frozen=True, eq=False)
class FaceTable:
    """Every face of a gallery, by increasing face id, as of one `revision` of the gallery's faces.

    `centering` is what was subtracted from the embeddings, if anything.
    """

    ids: Int64[np.ndarray, " n"]
    photo_ids: Int64[np.ndarray, " n"]
    quality: Float32[np.ndarray, " n"]  # in [0, 1]
    embeddings: Float[np.ndarray, "n d"]  # float16 or float32, unit rows
    revision: int
    centering: Centering | None = None

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
        """Subtract from a query what was subtracted from the embeddings."""
        return query if self.centering is None else self.centering.apply(query[None])[0]

    def truncated(self, length: int, species_means: SpeciesMeans | None) -> "FaceTable":
        """Return the table with embeddings of the first components, less the means of their species, if there are any.

        Args:
            length: number of components.
            species_means: of the whole embeddings.
        """
        embeddings = prefix(self.unit_rows(), length) if len(self.ids) else self.unit_rows()[:, :length]
        table = replace(self, embeddings=embeddings.astype(self.embeddings.dtype))
        return table if species_means is None else table.centered(species_means)

    def centered(self, species_means: SpeciesMeans) -> "FaceTable":
        """Return the table with the means of its species subtracted from its embeddings."""
        centering = Centering.fit(self.embeddings, species_means.rows()[:, : self.embeddings.shape[1]])
        embeddings = centering.apply(self.embeddings).astype(self.embeddings.dtype)
        return replace(self, embeddings=embeddings, centering=centering)


def load_face_table(
    connection: sqlite3.Connection, embedding_dtype: np.dtype[Any], embedding_dim: int, revision: int, folder: Path
) -> FaceTable:
    """Read all faces of a gallery.

    Args:
        connection: within a transaction.
        embedding_dtype: the stored type, little-endian float16 or float32.
        embedding_dim: the dimension of the stored embeddings.
        revision: the gallery's `faces_revision`.
        folder: the gallery's folder, for the error message.

    Raises:
        CorruptGallery: an embedding has the wrong size or is not of unit length.
    """
    cursor = connection.execute("SELECT id, photo_id, quality, embedding FROM faces ORDER BY id")
    ids, photo_ids, quality = ([np.empty(0, dtype)] for dtype in (np.int64, np.int64, np.float32))
    embeddings = [np.empty((0, embedding_dim), embedding_dtype)]
    while batch := cursor.fetchmany(_FETCH_BATCH):
        for parts, values in zip((ids, photo_ids, quality), zip(*batch, strict=True), strict=False):
            parts.append(np.array(values, parts[0].dtype))
        encoded = b"".join(row[3] for row in batch)
        try:
            embeddings.append(np.frombuffer(encoded, embedding_dtype).reshape(len(batch), embedding_dim))
            check_unit_rows(embeddings[-1].astype(np.float32))
        except ValueError as error:
            raise CorruptGallery(
                f"{folder}: embeddings are damaged ({error}); recover the others with: familiar gallery repair {folder}"
            ) from error
    return FaceTable(
        np.concatenate(ids),
        np.concatenate(photo_ids),
        np.concatenate(quality),
        np.concatenate(embeddings),
        revision,
    )
