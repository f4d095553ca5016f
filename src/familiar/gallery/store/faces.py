"""The faces of a gallery."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from familiar.core.gallery_types import GalleryFace
from familiar.core.names import unify_spelling
from familiar.core.types import Box, Face
from familiar.gallery.store.photos import FROM_PATH
from familiar.gallery.store.table import Table

_BOX_COLUMNS = "left_px, top_px, right_px, bottom_px"


_ROW = (
    f"SELECT faces.id, photo_id, path, sha256, size_bytes, taken_at, {_BOX_COLUMNS}, landmarks_px, score, quality, "
    "species, identity_id, name, by_user FROM faces JOIN photos ON photos.id = photo_id "
    "LEFT JOIN assignments ON face_id = faces.id LEFT JOIN identities ON identities.id = identity_id"
)
_IN_LIST = "IN (SELECT value FROM json_each(?))"  # there may be too many for parameters


class Faces(Table):
    """SQL statements on the table `faces`."""

    def rows(self, faces: Iterable[int] | None = None) -> list[GalleryFace]:
        """Return some faces, or all, by photo, then face; without those that do not exist."""
        if faces is None:
            return self._select("true")
        return self._select(f"faces.id {_IN_LIST}", json.dumps(list(faces)))

    def rows_in_photos(self, photos: Iterable[int]) -> list[GalleryFace]:
        """Return the faces in photos, by photo, then face."""
        return self._select(f"photo_id {_IN_LIST}", json.dumps(list(photos)))

    def rows_of_identity(self, identity: int) -> list[GalleryFace]:
        """Return the faces of an identity, by photo, then face."""
        return self._select("identity_id = ?", identity)

    def rows_to_embed_again(self) -> list[GalleryFace]:
        """Return the faces without an embedding of the model that the gallery is being migrated to, as `rows`."""
        return self._select("faces.id NOT IN (SELECT face_id FROM next_embeddings)")

    def row(self, face: int) -> GalleryFace:
        """Return a face that exists."""
        return self.rows([face])[0]

    def _select(self, condition: str, *values: int | str) -> list[GalleryFace]:
        rows = self._connection.each(f"{_ROW} WHERE {condition} ORDER BY photo_id, faces.id", values)
        return [_to_face(row) for row in rows]

    def count(self) -> int:
        """Return the number of faces."""
        return self._connection.value("SELECT count(*) FROM faces")

    def exists(self, face: int) -> bool:
        """Whether there is a face with this number, which may be too large for SQLite."""
        return self._connection.first("SELECT 1 FROM faces WHERE id = ?", (str(face),)) is not None

    def ids(self) -> list[int]:
        """Return all faces, rising."""
        return [face for (face,) in self._connection.rows("SELECT id FROM faces ORDER BY id")]

    def species(self) -> list[str | None]:
        """Return the species of all faces, by rising id."""
        return [species for (species,) in self._connection.rows("SELECT species FROM faces ORDER BY id")]

    def all_species(self) -> list[str]:
        """Return the species of faces, the most frequent first."""
        rows = self._connection.rows(
            "SELECT species FROM faces WHERE species IS NOT NULL GROUP BY species ORDER BY count(*) DESC, species"
        )
        return [species for (species,) in rows]

    def embeddings(self, faces: Sequence[int]) -> list[tuple[int, bytes]]:
        """Return id and embedding of some faces, in any order, without those that do not exist."""
        return self._connection.rows(f"SELECT id, embedding FROM faces WHERE id {_IN_LIST}", (json.dumps(list(faces)),))

    def embeddings_at_path(self, path: Path, *, except_photo: int) -> list[tuple[int, int, bytes]]:
        """Return photo, face and encoded embedding of the faces in the other photos from a path, newest photo first."""
        return self._connection.rows(
            "SELECT photos.id, faces.id, embedding FROM faces JOIN photos ON photos.id = photo_id "
            f"WHERE {FROM_PATH} AND photos.id <> ?2 ORDER BY photos.id DESC, faces.id",
            (os.fsencode(path), except_photo),
        )

    def insert(self, photo: int, face: Face, embedding: bytes) -> int:
        """Add a face with its encoded embedding, and return its id."""
        self._connection.run(
            f"INSERT INTO faces (photo_id, {_BOX_COLUMNS}, landmarks_px, score, quality, embedding, species) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (photo, *_detected_values(face), embedding, face.species and unify_spelling(face.species)),
        )
        return self._connection.last_insert_rowid()

    def insert_without_boxes(self, faces: Iterable[tuple[int, bytes]]) -> list[int]:
        """Add pairs of a photo and an encoded embedding, and return the ids of the new faces, rising."""
        rows = self._connection.run_many(
            f"INSERT INTO faces (photo_id, {_BOX_COLUMNS}, score, quality, embedding) "
            "VALUES (?, 0, 0, 0, 0, 1, 1, ?) RETURNING id",
            faces,
        )
        return [face for (face,) in rows]

    def move_to_photo(self, number: int, photo: int, face: Face, embedding: bytes, species: str | None = None) -> None:
        """Store a face as it was detected in another photo, and its species unless it is None."""
        self._connection.run(
            "UPDATE faces SET photo_id = ?, left_px = ?, top_px = ?, right_px = ?, bottom_px = ?, "
            "landmarks_px = ?, score = ?, quality = ?, embedding = ?, species = coalesce(?, species) WHERE id = ?",
            (photo, *_detected_values(face), embedding, species, number),
        )

    def set_embeddings(self, embeddings: Iterable[tuple[bytes, int]]) -> None:
        """Replace the embeddings of faces, given as pairs of an encoded embedding and a face."""
        self._connection.run_many("UPDATE faces SET embedding = ? WHERE id = ?", embeddings)

    def note_deleted_boxes(self, condition: str, values: Sequence[int] = ()) -> None:
        """Note where some faces are, before they are deleted or moved, so that they are not detected there again."""
        self._connection.run(
            f"INSERT OR IGNORE INTO deleted_boxes (photo_id, {_BOX_COLUMNS}) SELECT photo_id, {_BOX_COLUMNS} "
            f"FROM faces WHERE left_px < right_px AND top_px < bottom_px AND {condition}",
            values,
        )

    def deleted_boxes(self, photo: int) -> list[Box]:
        """Return the boxes of the faces that were deleted from a photo, or moved."""
        rows = self._connection.rows(f"SELECT {_BOX_COLUMNS} FROM deleted_boxes WHERE photo_id = ?", (photo,))
        return [Box(*row) for row in rows]

    def delete(self, face: int) -> None:
        """Delete a face by hand, and all rows that refer to it. It is not detected again."""
        self.note_deleted_boxes("id = ?", [face])
        self._connection.run("DELETE FROM faces WHERE id = ?", (face,))

    def filtered(
        self, identities: Sequence[int] | None, species: str | None, since: str | None, until: str | None
    ) -> list[int]:
        """Return the faces that pass all conditions that are not None, of which there must be one.

        Args:
            identities: that the faces belong to.
            species: of the faces.
            since: ISO time; only photos taken then or later.
            until: ISO time; only photos taken then or earlier. As much of the capture time counts as `until` has.
        """
        value_of_condition = {
            f"identity_id {_IN_LIST}": None if identities is None else json.dumps(list(identities)),
            "species = ?": None if species is None else unify_spelling(species),
            "taken_at >= ?": since,
            "taken_at < ? || '~'": until,  # which sorts after all that a time may have, so what begins so is included
        }
        conditions = {condition: value for condition, value in value_of_condition.items() if value is not None}
        rows = self._connection.rows(
            "SELECT faces.id FROM faces JOIN photos ON photos.id = photo_id "
            f"LEFT JOIN assignments ON face_id = faces.id WHERE {' AND '.join(conditions)}",
            list(conditions.values()),
        )
        return [face for (face,) in rows]


def _detected_values(face: Face) -> tuple[Any, ...]:
    """Return the values of left_px, top_px, right_px, bottom_px, landmarks_px, score and quality."""
    landmarks = None if face.landmarks_px is None else face.landmarks_px.astype("<f4").tobytes()
    return (*face.box_xyxy_px, landmarks, face.score, face.quality)


def _to_face(row: tuple[Any, ...]) -> GalleryFace:
    face, photo, path, sha256, size_bytes, taken_at, *rest = row
    *box, landmarks, score, quality, species, identity, name, by_user = rest
    return GalleryFace(
        box_xyxy_px=Box(*box),
        landmarks_px=None if landmarks is None else np.frombuffer(landmarks, "<f4").reshape(-1, 2).astype(np.float32),
        score=score,
        quality=quality,
        species=species,
        face=face,
        photo=photo,
        identity=identity,
        name=name,
        by_user=bool(by_user),
        path=os.fsdecode(path),
        sha256=sha256,
        size_bytes=size_bytes,
        taken_at=taken_at,
    )
