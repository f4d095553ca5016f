"""Look for faces again in photos that a gallery has: with another detector, or where nothing was found."""

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from familiar.core.types import Box, Face
from familiar.detection.detector import Detector
from familiar.detection.detectors import CenterSquare, WholePhoto
from familiar.embedding.embedder import Embedder
from familiar.gallery.enroll.enroll import NOTHING_ENROLLED, EnrollResult, skipped_in
from familiar.gallery.enroll.photo_reading import PhotoFile, embed_batches, read_enrolled_file
from familiar.gallery.enroll.photo_writing import encode_embedding
from familiar.gallery.store.photos import PhotoRow
from familiar.gallery.store.store import Store

_ROUNDING = 1e-3  # of a box's side: a photo may have been decoded at a reduced scale


def photos_to_search(store: Store, *, without_face: bool, paths: Collection[Path] | None = None) -> list[PhotoRow]:
    """List photos of a gallery that have a file.

    Args:
        store: that has them.
        without_face: only those that have no face.
        paths: only photos that were enrolled from these absolute paths; None: all.
    """
    with store.read() as repository:
        rows = repository.photos.without_face() if without_face else repository.photos.rows()
    return [row for row in rows if row.has_file and (paths is None or Path(row.path) in paths)]


def redetect_photos(
    store: Store,
    embedder: Embedder,
    photos: Sequence[PhotoRow],
    detector: Detector,
    *,
    enrolled_as_crops: bool = False,
    flip: bool = False,
    species: str | None = None,
    on_batch: Callable[[int, EnrollResult], None] = lambda _, __: None,
) -> EnrollResult:
    """Detect the faces of photos again, and add those that the gallery does not have.

    All faces stay that are there, with their boxes, identities and decisions, also those that are not detected now. A
    face that was deleted, moved or forgotten is not added again. If photos were enrolled as crops (detector "none" or
    "center"), the best face that is detected in one takes the place of the whole crop, and keeps its number.

    Args:
        store: to write to.
        embedder: the gallery's model.
        photos: from `photos_to_search`.
        detector: finds the faces.
        enrolled_as_crops: whether the gallery's detector was "none" or "center" until now.
        flip: as in `Embedder.embed`.
        species: stored with each new face; None: what the detector says.
        on_batch: as in `enroll`.

    Returns:
        What was found; `skipped` lists the photos whose files are missing or have changed.

    Raises:
        SpaceMismatch: the embedder is not the gallery's.
        NoBundleForSpecies: there is none for `species`.
    """
    store.check_space(*embedder.space)
    embedder.check_species(species)
    result, done = NOTHING_ENROLLED, 0
    for batch in embed_batches(photos, read_enrolled_file, embedder, detector, flip=flip, species=species):
        with store.write():
            store.check_space(*embedder.space)  # again: another process may have migrated the gallery
            for file in batch.files:
                result += _add_faces(store, file, enrolled_as_crops)
        result += skipped_in(batch)
        done += batch.count
        on_batch(done, result)
    return result


def _add_faces(store: Store, file: PhotoFile, enrolled_as_crops: bool) -> EnrollResult:
    """Add the new faces of a photo, within `store.write`, and return its counts."""
    detected = file.faces or ()
    with store.read() as repository:
        row = repository.photos.with_hash(file.sha256)
        if row is None:  # forgotten or edited meanwhile
            return NOTHING_ENROLLED
        faces = repository.faces.rows_in_photos([row.photo])
        boxes = {face.face: face.box_xyxy_px for face in faces if not face.box_xyxy_px.is_empty}
        crops = [face for face, box in boxes.items() if enrolled_as_crops and _is_crop(box, file.size_px)]
        known = [box for face, box in boxes.items() if face not in crops] + repository.faces.deleted_boxes(row.photo)
    new = [face for face in detected if not _is_at_any(face, known)]
    replaced = crops[: len(new)] + [None] * (len(new) - len(crops))
    if new:
        with store.write(faces_change=True) as repository:
            for face, crop in zip(new, replaced, strict=True):
                embedding = encode_embedding(store, face)
                if crop is None:
                    repository.faces.insert(row.photo, face, embedding)
                else:
                    repository.migration.delete_face(crop)  # an unfinished migration may have embedded it
                    repository.faces.move_to_photo(crop, row.photo, face, embedding, face.species)
    return EnrollResult(
        faces=replaced.count(None),
        searched_again=1,
        without_face=int(not detected and not file.faces_without_bundle and not boxes),
        without_bundle=int(not detected and file.faces_without_bundle > 0 and not boxes),
        not_detected=sum(not any(_is_at_any(face, [box]) for face in detected) for box in boxes.values()),
    )


def _is_crop(box: Box, size_px: tuple[int, int]) -> bool:
    """Whether a box is the whole photo, or its central square."""
    side = max(size_px)
    squares = [CenterSquare.box(size_px), WholePhoto.box(size_px)]
    return any(max(abs(a - b) for a, b in zip(box, square, strict=True)) <= side * _ROUNDING for square in squares)


def _is_at_any(face: Face, boxes: Iterable[Box]) -> bool:
    """Whether a face lies in the same place as any of the boxes."""
    return any(face.box_xyxy_px.is_same_face(box) for box in boxes)
