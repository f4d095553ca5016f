"""Faces that a user adds to a photo, moves or deletes. Each call is one decision that `undo` takes back whole.

A face is looked at and embedded before anything is written, so that nobody waits for that; what others have written
meanwhile is looked at then.
"""

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from familiar.core.errors import Contradiction, NotInGallery, UnreadablePhoto
from familiar.core.files import content_sha256
from familiar.core.types import Detection, Photo
from familiar.detection.alignment import align
from familiar.detection.quality import SAME_FACE_OVERLAP, box_intersection_px, face_quality
from familiar.embedding.embedder import Embedder
from familiar.gallery.clustering.assignments import check_faces, load_assignments
from familiar.gallery.clustering.cluster import delete_empty_identities, recluster
from familiar.gallery.database.connection import Gallery
from familiar.gallery.editing.undo_log import decision
from familiar.neighbors.domains import IN_DOMAIN, extend_domains
from familiar.photos.decoding import load_photo
from familiar.photos.preprocessing import to_tensor

MIN_SIDE_PX = 8  # of a box, as far as it lies on the photo: a smaller one is a slip of the hand

Box = tuple[float, float, float, float]


@dataclass(frozen=True, eq=False)
class _Seen:
    """A face as it was looked at in one photo."""

    photo: int
    detection: Detection
    quality: float
    embedding: Float32[np.ndarray, " d"]


def add_face(
    gallery: Gallery,
    embedder: Embedder,
    photo: int,
    box_xyxy_px: Box,
    landmarks_px: Float32[np.ndarray, "5 2"] | None = None,
    *,
    path: Path | None = None,
) -> int:
    """A face that the detector missed; its number. It joins those whom it is like at once.

    Box and landmarks, as in `Detection`, are in pixels of the whole upright photo, which is read from `path` (None:
    where it was enrolled from). The face is of the species that all others in the photo are of.

    NotInGallery where there is no such photo, UnreadablePhoto where it cannot be read, SpaceMismatch where the embedder
    is not the gallery's. Contradiction where the photo has changed since it was enrolled, where less than 8 px of the
    box's width or height lie on it, or where a face is there already. NoFaceFound where the landmarks lie elsewhere.
    """
    seen = _look(gallery, embedder, photo, box_xyxy_px, landmarks_px, path)
    with decision(gallery, "add face", faces_change=True) as connection:
        _require_place(gallery, connection, embedder, seen, but=None)
        face = connection.execute(
            "INSERT INTO faces (left_px, top_px, right_px, bottom_px, landmarks_px, score, quality, embedding, "
            "photo_id, species) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, (SELECT min(species) FROM faces "
            "WHERE photo_id = ?9 HAVING count(DISTINCT species) = 1))",
            (*_values(gallery, seen), photo),
        ).lastrowid
        assert face is not None
        _find_place(gallery, connection, face)
    return face


def move_face(gallery: Gallery, embedder: Embedder, face: int, box_xyxy_px: Box, *, path: Path | None = None) -> None:
    """Another box for a face, which keeps its number and is embedded anew.

    It stays whose it is where the user said so, or it is their only one; else that is judged anew. Errors as in
    `add_face`.
    """
    with gallery.reading() as connection:
        check_faces(gallery, [face])
        (photo,) = connection.execute("SELECT photo_id FROM faces WHERE id = ?", (face,)).fetchone()
    seen = _look(gallery, embedder, photo, box_xyxy_px, None, path)
    with decision(gallery, "move face", faces_change=True) as connection:
        _require_place(gallery, connection, embedder, seen, but=face)
        moved = connection.execute(
            "UPDATE faces SET left_px = ?, top_px = ?, right_px = ?, bottom_px = ?, landmarks_px = ?, score = ?, "
            "quality = ?, embedding = ? WHERE id = ? AND photo_id = ?",
            (*_values(gallery, seen), face, photo),
        )
        if not moved.rowcount:
            raise NotInGallery(f"{gallery.folder}: face {face} has been deleted meanwhile")
        # What a migration under way has made of it was made of the old box.
        connection.execute("DELETE FROM next_embeddings WHERE face_id = ?", (face,))
        connection.execute("DELETE FROM kinds WHERE face_id = ?", (face,))
        connection.execute(
            "DELETE FROM assignments WHERE face_id = ? AND by_user = 0 AND EXISTS (SELECT 1 FROM assignments AS other "
            "WHERE other.identity_id = assignments.identity_id AND other.face_id <> assignments.face_id)",
            (face,),
        )
        _find_place(gallery, connection, face)


def delete_face(gallery: Gallery, face: int) -> None:
    """Takes a face out of its photo, with all that was said of it. The photo stays known, so it does not come back.

    Its bytes stay for `undo`; `forget` removes them. NotInGallery where there is no such face.
    """
    with decision(gallery, "delete face", faces_change=True) as connection:
        check_faces(gallery, [face])
        connection.execute("DELETE FROM faces WHERE id = ?", (face,))  # and all that refers to it
        delete_empty_identities(connection)


# --- looking at the photo: without writing ------------------------------------------------------------------------


def _look(
    gallery: Gallery,
    embedder: Embedder,
    number: int,
    box: Box,
    landmarks: Float32[np.ndarray, "5 2"] | None,
    path: Path | None,
) -> _Seen:
    _check_space(gallery, embedder)
    with gallery.reading() as connection:
        enrolled_from, sha256 = _photo(gallery, connection, number)
    photo = _read(path or Path(enrolled_from), sha256)
    _require_on_photo(box, photo)
    detection = Detection(box, landmarks, 1.0)
    preprocessing = embedder.metadata.preprocessing
    crop = align(photo, detection, preprocessing)
    (embedding,) = embedder.run(to_tensor([crop], preprocessing))
    return _Seen(number, detection, face_quality(detection, photo.size_px, crop.rgb_u8), embedding)


def _check_space(gallery: Gallery, embedder: Embedder) -> None:
    gallery.check_space(embedder.metadata.space_id, embedder.metadata.embedding_dim)


def _photo(gallery: Gallery, connection: sqlite3.Connection, number: int) -> tuple[str, bytes]:
    """Its path and SHA-256."""
    row = connection.execute("SELECT path, sha256 FROM photos WHERE id = CAST(? AS TEXT)", (str(number),)).fetchone()
    if row is None:
        raise NotInGallery(f"{gallery.folder}: has no photo {number}")
    return row


def _read(path: Path, sha256: bytes) -> Photo:
    photo = load_photo(path)  # first: it refuses what could not be read to its end
    try:
        same = content_sha256(path) == sha256
    except OSError as error:
        raise UnreadablePhoto(f"{path}: {error.strerror}") from error
    if not same:
        raise Contradiction(f"{path}: has changed since it was enrolled; enroll it again first")
    return photo


def _require_on_photo(box: Box, photo: Photo) -> None:
    left, top, right, bottom = box
    width, height = photo.size_px
    side = min(min(right, width) - max(left, 0), min(bottom, height) - max(top, 0))
    if not (np.isfinite(box).all() and side >= MIN_SIDE_PX):
        raise Contradiction(
            f"{photo.source}: less than {MIN_SIDE_PX} px of the box {box} lie on the photo, which is {width} x "
            f"{height} px; give left, top, right and bottom"
        )


# --- writing it down ----------------------------------------------------------------------------------------------


def _require_place(
    gallery: Gallery, connection: sqlite3.Connection, embedder: Embedder, seen: _Seen, but: int | None
) -> None:
    """The gallery and the photo are what they were when it was looked at, and no face but one lies there."""
    _check_space(gallery, embedder)
    path, _ = _photo(gallery, connection, seen.photo)
    for face, *there in connection.execute(
        "SELECT id, left_px, top_px, right_px, bottom_px FROM faces "
        "WHERE photo_id = ? AND id IS NOT ? AND left_px < right_px AND top_px < bottom_px",
        (seen.photo, but),
    ):
        box = seen.detection.box_xyxy_px
        smaller = min(seen.detection.area_px, (there[2] - there[0]) * (there[3] - there[1]))
        if box_intersection_px(box, tuple(there)) >= SAME_FACE_OVERLAP * smaller:
            raise Contradiction(f"{path}: face {face} is there already; move or delete that one")


def _values(gallery: Gallery, seen: _Seen) -> tuple[Any, ...]:
    """Of the columns left_px, top_px, right_px, bottom_px, landmarks_px, score, quality and embedding."""
    landmarks = seen.detection.landmarks_px
    return (
        *seen.detection.box_xyxy_px,
        None if landmarks is None else landmarks.astype("<f4").tobytes(),
        seen.detection.score,
        seen.quality,
        gallery.encode_embeddings(seen.embedding[None])[0],
    )


def _find_place(gallery: Gallery, connection: sqlite3.Connection, face: int) -> None:
    """The kind of a face, and, where it is nobody's, whose it is."""
    if connection.execute("SELECT 1 FROM kinds LIMIT 1").fetchone():
        who = load_assignments(gallery)
        row = who.faces.rows_of(np.array([face], np.int64))
        asked = np.union1d(np.flatnonzero(who.domain != IN_DOMAIN), row)
        kind = int(extend_domains(who.faces.unit_rows(asked), who.domain[asked])[asked == row][0])
        if kind != IN_DOMAIN:
            connection.execute("INSERT INTO kinds (face_id, kind) VALUES (?, ?)", (face, kind))
    if not connection.execute("SELECT 1 FROM assignments WHERE face_id = ?", (face,)).fetchone():
        recluster(gallery, connection, np.array([face], np.int64), [])
