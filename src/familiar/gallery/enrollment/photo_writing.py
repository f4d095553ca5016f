"""Write the photos of an enrollment, within a transaction: known, moved, copied, edited or new."""

import sqlite3
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from familiar.core.files import content_sha256
from familiar.gallery.database.connection import Gallery
from familiar.gallery.enrollment.photo_reading import EmbeddedFace, PhotoFile

SAME_PICTURE = 0.9
"""Least similarity of a face before and after its photo was edited; another photo's face is hardly so similar."""


def write_photo(
    connection: sqlite3.Connection, gallery: Gallery, file: PhotoFile, species: str | None
) -> Mapping[str, int]:
    """Write one photo and its faces: known, edited or new.

    Returns:
        Counts to add to those of `EnrollResult`.
    """
    row = connection.execute("SELECT id, path FROM photos WHERE sha256 = ?", (file.sha256,)).fetchone()
    if row is not None:
        return _update_known_photo(connection, file, photo=row[0], enrolled_path=row[1])
    if file.faces is None:  # forgotten since the call began, and it stays forgotten
        return {}
    photo = _insert_photo(connection, file)
    faces_before_edit = _match_edited_faces(connection, gallery, file, photo)
    for index, face in enumerate(file.faces):
        values = _face_values(gallery, photo, face)
        if index in faces_before_edit:
            _update_face(connection, faces_before_edit[index], values)
        else:
            _insert_face(connection, values, species)
    # Only after the faces were updated: deleting a photo deletes the faces that still belong to it.
    is_edited = _delete_photos_without_faces(connection, file.encoded_path, except_photo=photo) > 0
    return {
        "edited" if is_edited else "photos": 1,
        "faces": len(file.faces) - len(faces_before_edit),
        "without_face": int(not file.faces),
    }


def _update_known_photo(
    connection: sqlite3.Connection, file: PhotoFile, photo: int, enrolled_path: str
) -> Mapping[str, int]:
    """Update the path, size and time of an enrolled photo, unless the file is a copy of it."""
    has_moved = enrolled_path != str(file.path)
    if has_moved and _is_same_content(Path(enrolled_path), file):
        return {"known": 1, "copies": 1}
    connection.execute(
        "UPDATE photos SET path = CAST(? AS TEXT), size_bytes = ?, modified_ns = ? WHERE id = ?",
        (file.encoded_path, file.size_bytes, file.modified_ns, photo),
    )
    return {"known": 1, "moved": int(has_moved)}


def _insert_photo(connection: sqlite3.Connection, file: PhotoFile) -> int:
    (photo,) = connection.execute(
        "INSERT INTO photos (sha256, path, size_bytes, modified_ns, taken_at) VALUES (?, CAST(? AS TEXT), ?, ?, ?) "
        "RETURNING id",
        (file.sha256, file.encoded_path, file.size_bytes, file.modified_ns, file.taken_at),
    ).fetchone()
    return photo


def _face_values(gallery: Gallery, photo: int, face: EmbeddedFace) -> tuple[Any, ...]:
    """Return the photo's id, the box, landmarks_px, score, quality and embedding as they are stored."""
    landmarks = face.detection.landmarks_px
    return (
        photo,
        *face.detection.box_xyxy_px,
        None if landmarks is None else landmarks.astype("<f4").tobytes(),
        face.detection.score,
        face.quality,
        gallery.encode_embeddings(face.embedding[None])[0],
    )


def _insert_face(connection: sqlite3.Connection, values: tuple[Any, ...], species: str | None) -> None:
    connection.execute(
        "INSERT INTO faces (photo_id, left_px, top_px, right_px, bottom_px, landmarks_px, score, quality, "
        "embedding, species) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*values, species),
    )


def _update_face(connection: sqlite3.Connection, face: int, values: tuple[Any, ...]) -> None:
    # An unfinished migration may have embedded the face from the photo before it was edited.
    connection.execute("DELETE FROM next_embeddings WHERE face_id = ?", (face,))
    connection.execute(
        "UPDATE faces SET photo_id = ?, left_px = ?, top_px = ?, right_px = ?, bottom_px = ?, "
        "landmarks_px = ?, score = ?, quality = ?, embedding = ? WHERE id = ?",
        (*values, face),
    )


def _delete_photos_without_faces(connection: sqlite3.Connection, encoded_path: bytes, except_photo: int) -> int:
    """Delete photos at a path whose faces now belong to an edited version, or that never had any.

    Returns:
        The number of photos deleted.
    """
    return connection.execute(
        "DELETE FROM photos WHERE path = CAST(? AS TEXT) AND id <> ? "
        "AND NOT EXISTS (SELECT 1 FROM faces WHERE photo_id = photos.id)",
        (encoded_path, except_photo),
    ).rowcount


def _is_same_content(path: Path, file: PhotoFile) -> bool:
    """Check whether `path` still has the content of `file`: another photo may have taken its name."""
    try:
        is_same_size = path.stat().st_size == file.size_bytes and path.is_file()
        return is_same_size and content_sha256(path) == file.sha256
    except OSError:
        return False


def _match_edited_faces(
    connection: sqlite3.Connection, gallery: Gallery, file: PhotoFile, photo: int
) -> dict[int, int]:
    """Match the faces of a photo with those of an earlier photo at the same path, which it may be an edit of.

    They match only if every face of the earlier photo is still there. Otherwise another photo has taken the name, and
    the earlier one keeps its faces, in case it turns up elsewhere. Of several earlier photos the latest is tried
    first.

    Returns:
        The id of the earlier face for each index into `file.faces` that has one.
    """
    rows = connection.execute(
        "SELECT photos.id, faces.id, embedding FROM faces JOIN photos ON photos.id = photo_id "
        "WHERE path = CAST(? AS TEXT) AND photos.id <> ? ORDER BY photos.id DESC, faces.id",
        (file.encoded_path, photo),
    ).fetchall()
    if not file.faces:
        return {}
    new_embeddings = np.stack([face.embedding for face in file.faces])
    for _, earlier_rows in groupby(rows, key=lambda row: row[0]):
        earlier_faces, encoded = zip(*((row[1], row[2]) for row in earlier_rows), strict=True)
        earlier_embeddings = np.stack([np.frombuffer(row, gallery.embedding_dtype) for row in encoded])
        similarity = earlier_embeddings.astype(np.float32) @ new_embeddings.T
        indices = similarity.argmax(axis=1).tolist()
        if len(set(indices)) == len(earlier_faces) and similarity.max(axis=1).min() >= SAME_PICTURE:
            return dict(zip(indices, earlier_faces, strict=True))
    return {}
