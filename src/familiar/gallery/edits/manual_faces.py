"""Add, move and delete faces by hand. Each call is one decision that `undo` restores as a whole.

A face is read and embedded before the write begins, so that no other writer waits for that; the write then checks what
others have changed in the meantime.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Float32

from familiar.core.errors import Contradiction, NotInGallery
from familiar.core.types import Box, Face, Photo
from familiar.detection.detectors import KnownFaces
from familiar.embedding.embedder import Embedder
from familiar.gallery.cluster.cluster import recluster
from familiar.gallery.enroll.photo_writing import encode_embedding
from familiar.gallery.same.assignments import check_faces
from familiar.gallery.same.decisions import decision
from familiar.gallery.store.photo_paths import require_sha256
from familiar.gallery.store.photos import PhotoRow
from familiar.gallery.store.repository import Repository
from familiar.gallery.store.store import Store
from familiar.photos.decoding import load_photo

MIN_SIDE_PX = 8  # of the part of a box that is on the photo: a smaller one is a slip of the mouse


def add_face(
    store: Store,
    embedder: Embedder,
    photo: int,
    box_xyxy_px: tuple[float, float, float, float],
    landmarks_px: Float32[np.ndarray, "p 2"] | None = None,
    *,
    path: Path | None = None,
    species: str | None = None,
) -> int:
    """Add a face that the detector missed, and assign it to the identity that it resembles, if any.

    Args:
        store: to write to.
        embedder: the gallery's model.
        photo: the photo's number.
        box_xyxy_px: in pixels of the whole upright photo, as in `Face`: left, top, right, bottom.
        landmarks_px: likewise.
        path: where to read the photo (None: where it was enrolled from).
        species: of the face; None: that of all other faces in the photo, if they are of one.

    Returns:
        The number of the new face.

    Raises:
        NotInGallery: there is no such photo.
        UnreadablePhoto: the photo cannot be read.
        SpaceMismatch: the embedder is not the gallery's.
        Contradiction: the photo has changed since it was enrolled, the box overlaps it by less than 8 px in width or
            height, or another face is in the same place.
        NoFaceFound: the landmarks cannot be aligned, such as five on one point.
        UnknownSpecies: the model has a bundle for each species, and nothing says of which the face is.
    """
    box = Box(*box_xyxy_px)
    if species is None:
        with store.read() as repository:
            others = {each.species for each in repository.faces.rows_in_photos([photo])} - {None}
        species = others.pop() if len(others) == 1 else None
    face = _embed_box(store, embedder, photo, box, landmarks_px, path, species)
    with decision(store, "add face", faces_change=True) as repository:
        _check_still_valid(store, repository, embedder, photo, box)
        number = repository.faces.insert(photo, face, encode_embedding(store, face))
        _assign_face(store, repository, number)
    return number


def set_face_box(
    store: Store,
    embedder: Embedder,
    face: int,
    box_xyxy_px: tuple[float, float, float, float],
    *,
    path: Path | None = None,
) -> None:
    """Give a face another box and embed it again. It keeps its number.

    It keeps its identity if the user confirmed it, or if it is the identity's only face; otherwise it is assigned
    again.

    Args:
        store: to write to.
        embedder: the gallery's model.
        face: the face's number.
        box_xyxy_px: the new box, in pixels of the whole upright photo.
        path: where to read the photo (None: where it was enrolled from).

    Raises:
        NotInGallery: there is no such face.
        UnreadablePhoto, SpaceMismatch, Contradiction, NoFaceFound: as in `add_face`.
    """
    with store.read() as repository:
        check_faces(store, [face])
        row = repository.faces.row(face)
    box = Box(*box_xyxy_px)
    embedded = _embed_box(store, embedder, row.photo, box, None, path, row.species)
    with decision(store, "move face", faces_change=True) as repository:
        _check_still_valid(store, repository, embedder, row.photo, box, except_face=face)
        if [each.photo for each in repository.faces.rows([face])] != [row.photo]:
            raise NotInGallery(f"{store.folder}: face {face} has just been deleted by another process")
        repository.faces.note_deleted_boxes("id = ?", [face])
        repository.faces.move_to_photo(face, row.photo, embedded, encode_embedding(store, embedded))
        repository.migration.delete_face(face)  # an unfinished migration may have embedded the old box
        repository.assignments.unassign_unconfirmed(face)
        _assign_face(store, repository, face)


def delete_face(store: Store, face: int) -> None:
    """Delete a face and its assignments and constraints. The photo stays, so enrolling again does not re-detect it.

    The face's bytes are kept for `undo`; `forget` removes them.

    Raises:
        NotInGallery: there is no such face.
    """
    with decision(store, "delete face", faces_change=True) as repository:
        check_faces(store, [face])
        repository.faces.delete(face)
        repository.identities.delete_empty()


# --- embedding a box of a photo: outside of any write --------------------------------------------------------------


def _embed_box(
    store: Store,
    embedder: Embedder,
    photo_number: int,
    box: Box,
    landmarks: Float32[np.ndarray, "p 2"] | None,
    path: Path | None,
    species: str | None = None,
) -> Face:
    store.check_space(*embedder.space)
    with store.read() as repository:
        row = _find_photo(store, repository, photo_number)
    path = path or Path(row.path)
    photo = load_photo(path)  # first: it rejects a file that cannot be read to its end
    if require_sha256(path) != row.sha256:
        raise Contradiction(f"{path}: has changed since it was enrolled; enroll it again first")
    _check_box_on_photo(box, photo)
    known = KnownFaces({photo.source: [Face(box, landmarks, 1.0)]})
    return embedder.face(photo, known, species=species)


def _find_photo(store: Store, repository: Repository, number: int) -> PhotoRow:
    photo = repository.photos.row(number)
    if photo is None:
        raise NotInGallery(f"{store.folder}: has no photo {number}")
    return photo


def _check_box_on_photo(box: Box, photo: Photo) -> None:
    width, height = photo.size_px
    side = min(min(box.right, width) - max(box.left, 0), min(box.bottom, height) - max(box.top, 0))
    if not (np.isfinite(box).all() and side >= MIN_SIDE_PX):
        raise Contradiction(
            f"{photo.source}: the box {tuple(box)} overlaps the photo, which is {width} x {height} px, by less than "
            f"{MIN_SIDE_PX} px; give left, top, right and bottom"
        )


# --- writing the face: within a decision ---------------------------------------------------------------------------


def _check_still_valid(
    store: Store, repository: Repository, embedder: Embedder, photo: int, box: Box, except_face: int | None = None
) -> None:
    """Check that the model and the photo are still there, and that no face but `except_face` is in the same place."""
    store.check_space(*embedder.space)
    path = _find_photo(store, repository, photo).path
    for other in repository.faces.rows_in_photos([photo]):
        if other.face != except_face and not other.box_xyxy_px.is_empty and box.is_same_face(other.box_xyxy_px):
            raise Contradiction(f"{path}: face {other.face} is there already; move or delete that one")


def _assign_face(store: Store, repository: Repository, face: int) -> None:
    """Find the identity of a face, if it is unassigned."""
    if not repository.assignments.exists(face):
        recluster(store, repository, np.array([face], np.int64), [])
