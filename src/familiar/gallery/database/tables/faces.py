"""The faces of a gallery."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from familiar.core.names import unify_spelling
from familiar.core.types import Detection
from familiar.gallery.database.tables.photos import FROM_PATH
from familiar.gallery.database.tables.table import Table

Box = tuple[float, float, float, float]
_BOX_COLUMNS = "left_px, top_px, right_px, bottom_px"


@dataclass(frozen=True)
class StoredFace:
    """The columns of a face that come from its detection and its embedding.

    Attributes:
        box_xyxy_px: in pixels of the whole upright photo; all 0 for a face that was enrolled as an embedding.
        landmarks: three or five points as little-endian float32, if known.
        score: of the detector, in [0, 1].
        quality: in [0, 1].
        embedding: encoded by `GalleryDatabase.encode_embeddings`.
    """

    box_xyxy_px: Box
    landmarks: bytes | None
    score: float
    quality: float
    embedding: bytes

    @staticmethod
    def from_detection(detection: Detection, quality: float, embedding: bytes) -> "StoredFace":
        """Combine a detection with its quality and its encoded embedding."""
        landmarks = detection.landmarks_px
        encoded_landmarks = None if landmarks is None else landmarks.astype("<f4").tobytes()
        return StoredFace(detection.box_xyxy_px, encoded_landmarks, detection.score, quality, embedding)

    @property
    def values(self) -> tuple[Any, ...]:
        """The values of left_px, top_px, right_px, bottom_px, landmarks_px, score, quality and embedding."""
        return (*self.box_xyxy_px, self.landmarks, self.score, self.quality, self.embedding)


class Faces(Table):
    """SQL statements on the table `faces`."""

    def count(self) -> int:
        """Return the number of faces."""
        return self._connection.execute("SELECT count(*) FROM faces").fetchone()[0]

    def exists(self, face: int) -> bool:
        """Whether there is a face with this number, which may be too large for SQLite."""
        row = self._connection.execute("SELECT 1 FROM faces WHERE id = CAST(? AS TEXT)", (str(face),)).fetchone()
        return row is not None

    def photo_of(self, face: int) -> int:
        """Return the photo of a face that exists."""
        return self._connection.execute("SELECT photo_id FROM faces WHERE id = ?", (face,)).fetchone()[0]

    def species_of(self, face: int) -> str | None:
        """Return the species of a face that exists."""
        return self._connection.execute("SELECT species FROM faces WHERE id = ?", (face,)).fetchone()[0]

    def path_of(self, face: int) -> str:
        """Return the path of the photo of a face that exists."""
        return self._connection.execute(
            "SELECT path FROM faces JOIN photos ON photos.id = photo_id WHERE faces.id = ?", (face,)
        ).fetchone()[0]

    def paths(self) -> dict[int, str]:
        """Return the path of every face's photo, by face."""
        return dict(
            self._connection.execute("SELECT faces.id, path FROM faces JOIN photos ON photos.id = photo_id").fetchall()
        )

    def boxes(self) -> Iterator[tuple[int, int, float, float, float, float]]:
        """Iterate over photo, face, left, top, right and bottom of every face, by rising face."""
        return self._connection.execute(f"SELECT photo_id, id, {_BOX_COLUMNS} FROM faces ORDER BY id")

    def boxes_in_photo(
        self, photo: int, *, except_face: int | None
    ) -> Iterator[tuple[int, float, float, float, float]]:
        """Iterate over face, left, top, right and bottom of the faces in a photo that have a box, except one."""
        return self._connection.execute(
            f"SELECT id, {_BOX_COLUMNS} FROM faces "
            "WHERE photo_id = ? AND id IS NOT ? AND left_px < right_px AND top_px < bottom_px",
            (photo, except_face),
        )

    def ids(self) -> list[int]:
        """Return all faces, rising."""
        return [face for (face,) in self._connection.execute("SELECT id FROM faces ORDER BY id")]

    def embeddings(self, faces: Sequence[int]) -> list[tuple[int, bytes]]:
        """Return id and embedding of some faces, in any order, without those that do not exist."""
        return self._connection.execute(
            "SELECT id, embedding FROM faces WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(list(faces)),)
        ).fetchall()

    def species(self) -> list[str | None]:
        """Return the species of all faces, by rising id."""
        return [species for (species,) in self._connection.execute("SELECT species FROM faces ORDER BY id")]

    def embeddings_at_path(self, path: Path, *, except_photo: int) -> list[tuple[int, int, bytes]]:
        """Return photo, face and encoded embedding of the faces in the other photos from a path, newest photo first."""
        return self._connection.execute(
            "SELECT photos.id, faces.id, embedding FROM faces JOIN photos ON photos.id = photo_id "
            f"WHERE {FROM_PATH} AND photos.id <> ?2 ORDER BY photos.id DESC, faces.id",
            (os.fsencode(path), except_photo),
        ).fetchall()

    def insert(self, photo: int, face: StoredFace, species: str | None) -> None:
        """Add a face."""
        self._connection.execute(
            f"INSERT INTO faces (photo_id, {_BOX_COLUMNS}, landmarks_px, score, quality, embedding, species) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (photo, *face.values, species and unify_spelling(species)),
        )

    def insert_by_hand(self, photo: int, face: StoredFace, species: str | None) -> int:
        """Add a face, and return its id; without a species, with that which all other faces in its photo have."""
        number = self._connection.execute(
            f"INSERT INTO faces ({_BOX_COLUMNS}, landmarks_px, score, quality, embedding, "
            "photo_id, species) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, coalesce(?10, (SELECT min(species) FROM "
            "faces WHERE photo_id = ?9 HAVING count(DISTINCT species) = 1)))",
            (*face.values, photo, species and unify_spelling(species)),
        ).lastrowid
        assert number is not None
        return number

    def insert_without_boxes(self, faces: Iterable[tuple[int, bytes]]) -> list[int]:
        """Add pairs of a photo and an encoded embedding, and return the ids of the new faces, rising."""
        (last_id,) = self._connection.execute("SELECT coalesce(max(id), 0) FROM faces").fetchone()
        self._connection.executemany(
            f"INSERT INTO faces (photo_id, {_BOX_COLUMNS}, score, quality, embedding) VALUES (?, 0, 0, 0, 0, 1, 1, ?)",
            faces,
        )
        rows = self._connection.execute("SELECT id FROM faces WHERE id > ? ORDER BY id", (last_id,))
        return [row[0] for row in rows]

    def move_to_photo(self, face: int, photo: int, stored: StoredFace, species: str | None = None) -> None:
        """Store a face as it was detected in another photo, and its species unless it is None."""
        self._connection.execute(
            "UPDATE faces SET photo_id = ?, left_px = ?, top_px = ?, right_px = ?, bottom_px = ?, "
            "landmarks_px = ?, score = ?, quality = ?, embedding = ?, species = coalesce(?, species) WHERE id = ?",
            (photo, *stored.values, species, face),
        )

    def update_in_photo(self, face: int, photo: int, stored: StoredFace) -> bool:
        """Store another box of a face; False if the photo has no such face. It is not detected in the old box again."""
        self.note_deleted_boxes("id = ?", [face])
        return bool(
            self._connection.execute(
                "UPDATE faces SET left_px = ?, top_px = ?, right_px = ?, bottom_px = ?, landmarks_px = ?, score = ?, "
                "quality = ?, embedding = ? WHERE id = ? AND photo_id = ?",
                (*stored.values, face, photo),
            ).rowcount
        )

    def set_embeddings(self, embeddings: Iterable[tuple[bytes, int]]) -> None:
        """Replace the embeddings of faces, given as pairs of an encoded embedding and a face."""
        self._connection.executemany("UPDATE faces SET embedding = ? WHERE id = ?", embeddings)

    def note_deleted_boxes(self, condition: str, values: Sequence[int] = ()) -> None:
        """Note where some faces are, before they are deleted or moved, so that they are not detected there again."""
        self._connection.execute(
            f"INSERT OR IGNORE INTO deleted_boxes (photo_id, {_BOX_COLUMNS}) SELECT photo_id, {_BOX_COLUMNS} "
            f"FROM faces WHERE left_px < right_px AND top_px < bottom_px AND {condition}",
            values,
        )

    def deleted_boxes(self, photo: int) -> list[Box]:
        """Return the boxes of the faces that were deleted from a photo, or moved."""
        return self._connection.execute(
            f"SELECT {_BOX_COLUMNS} FROM deleted_boxes WHERE photo_id = ?", (photo,)
        ).fetchall()

    def delete(self, face: int) -> None:
        """Delete a face by hand, and all rows that refer to it. It is not detected again."""
        self.note_deleted_boxes("id = ?", [face])
        self._connection.execute("DELETE FROM faces WHERE id = ?", (face,))

    # --- faces with their photos and identities ---

    def described(self, faces: Sequence[int]) -> list[tuple[Any, ...]]:
        """Describe some faces, by photo, then face.

        A row is (face, photo, left, top, right, bottom, score, quality, species, identity, name, by_user).
        """
        return self._describe(f"faces.id IN ({', '.join('?' * len(faces))})", faces)

    def described_of_identity(self, identity: int) -> list[tuple[Any, ...]]:
        """Describe the faces of an identity, as `described` does."""
        return self._describe("identity_id = ?", [identity])

    def described_in_photos(self, first: int, last: int) -> list[tuple[Any, ...]]:
        """Describe the faces in photos from the id `first` up to `last`, as `described` does."""
        return self._describe("photo_id BETWEEN ? AND ?", [first, last])

    def _describe(self, condition: str, values: Sequence[int]) -> list[tuple[Any, ...]]:
        return self._connection.execute(
            f"SELECT faces.id, photo_id, {_BOX_COLUMNS}, score, quality, species, identity_id, name, "
            "by_user FROM faces LEFT JOIN assignments ON face_id = faces.id "
            f"LEFT JOIN identities ON identities.id = identity_id WHERE {condition} ORDER BY photo_id, faces.id",
            values,
        ).fetchall()

    def choices(self, photos: Sequence[int]) -> list[tuple[int, int, float, str | None, int | None, str | None, int]]:
        """Return photo, face, quality, species, identity, name and by_user of the faces in photos, by photo, face."""
        return self._connection.execute(
            "SELECT photo_id, faces.id, quality, species, identity_id, name, coalesce(by_user, 0) FROM faces "
            "LEFT JOIN assignments ON face_id = faces.id LEFT JOIN identities ON identities.id = identity_id "
            "WHERE photo_id IN (SELECT value FROM json_each(?)) ORDER BY photo_id, faces.id",
            (json.dumps(list(photos)),),
        ).fetchall()

    def hits(self, faces: Sequence[int]) -> list[tuple[int, str, float, float, float, float, int | None, str | None]]:
        """Return id, path, left, top, right, bottom, identity and name of some faces, in any order."""
        return self._connection.execute(
            f"SELECT faces.id, path, {_BOX_COLUMNS}, identity_id, name FROM faces "
            "JOIN photos ON photos.id = photo_id LEFT JOIN assignments ON face_id = faces.id LEFT JOIN identities "
            "ON identities.id = identity_id WHERE faces.id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(faces)),),
        ).fetchall()

    def crops(self, faces: Sequence[int]) -> list[tuple[int, str, bytes, int, float, float, float, float]]:
        """Return face, path, SHA-256, size in bytes, left, top, right and bottom of some faces, in any order."""
        return self._connection.execute(
            f"SELECT faces.id, path, sha256, size_bytes, {_BOX_COLUMNS} FROM faces "
            "JOIN photos ON photos.id = photo_id WHERE faces.id IN (SELECT value FROM json_each(?))",
            (json.dumps(list(faces)),),
        ).fetchall()

    def details(self) -> list[tuple[Any, ...]]:
        """Return all that is known about every face but its landmarks and its embedding, by rising face.

        A row is (face, photo, path, identity, name, by_user, species, score, quality, left, top, right, bottom,
        taken_at).
        """
        return self._connection.execute(
            "SELECT faces.id, photo_id, path, identity_id, name, by_user, species, score, quality, "
            f"{_BOX_COLUMNS}, taken_at FROM faces JOIN photos ON photos.id = photo_id "
            "LEFT JOIN assignments ON face_id = faces.id LEFT JOIN identities ON identities.id = identity_id "
            "ORDER BY faces.id"
        ).fetchall()

    def export_rows(self) -> list[tuple[Any, ...]]:
        """Return what the columns of an exported table contain, of all faces, by path, then face.

        A row is (path, left, top, right, bottom, face, identity, name, by_user, SHA-256 as hex or None without a file).
        """
        return self._connection.execute(
            f"SELECT path, {_BOX_COLUMNS}, faces.id, identity_id, name, by_user, "
            "CASE WHEN size_bytes > 0 THEN lower(hex(sha256)) END FROM faces "
            "JOIN photos ON photos.id = photo_id LEFT JOIN assignments ON face_id = faces.id "
            "LEFT JOIN identities ON identities.id = identity_id ORDER BY path, faces.id"
        ).fetchall()

    def named(self) -> list[tuple[int, int, float, float, float, float, str | None, str]]:
        """Return photo, face, left, top, right, bottom, species and name of the faces with a box in named identities.

        They are sorted by face.
        """
        return self._connection.execute(
            f"SELECT photo_id, faces.id, {_BOX_COLUMNS}, species, name FROM faces "
            "JOIN assignments ON face_id = faces.id JOIN identities ON identities.id = identity_id "
            "WHERE name IS NOT NULL AND left_px < right_px AND top_px < bottom_px ORDER BY faces.id"
        ).fetchall()

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
        conditions: list[str] = []
        values: list[str | int] = []
        if identities is not None:
            conditions.append("identity_id IN (SELECT value FROM json_each(?))")  # there may be very many
            values.append(json.dumps(list(identities)))
        if species is not None:
            conditions.append("species = ?")
            values.append(unify_spelling(species))
        if since is not None:
            conditions.append("taken_at >= ?")
            values.append(since)
        if until is not None:
            conditions.append("substr(taken_at, 1, length(?)) <= ?")
            values += [until, until]
        rows = self._connection.execute(
            "SELECT faces.id FROM faces JOIN photos ON photos.id = photo_id "
            f"LEFT JOIN assignments ON face_id = faces.id WHERE {' AND '.join(conditions)}",
            values,
        ).fetchall()
        return [row[0] for row in rows]
