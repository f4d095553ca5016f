"""Look for faces again in photos that a gallery has: with another detector, or where nothing was found."""

from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from familiar.core.errors import FamiliarError, UnreadablePhoto
from familiar.core.files import content_sha256
from familiar.detection.boxes import SAME_FACE_OVERLAP, box_intersection_px
from familiar.detection.detector import Detector
from familiar.detection.detectors import CenterSquare, WholePhoto
from familiar.embedding.all_faces import EmbeddedFace, FaceBatch
from familiar.embedding.model import Model
from familiar.gallery.enrollment.enroll import NOTHING_ENROLLED, EnrollResult
from familiar.gallery.enrollment.photo_writing import stored_face
from familiar.gallery.store.photos import PhotoRow
from familiar.gallery.store.repository import Repository
from familiar.gallery.store.store import Store
from familiar.photos.decoding import load_photo

_ROUNDING = 1e-3  # of a box's side: a photo may have been decoded at a reduced scale


@dataclass(frozen=True, eq=False)
class _SearchedPhoto:
    """A photo, its width and height, and the faces that were detected in it, best first."""

    photo: PhotoRow
    size_px: tuple[int, int]
    faces: list[EmbeddedFace]


_ReadBatch: TypeAlias = tuple[list[_SearchedPhoto], list[FamiliarError], list[FamiliarError]]


def photos_to_search(gallery: Store, *, without_face: bool, paths: Collection[Path] | None = None) -> list[PhotoRow]:
    """List photos of a gallery that have a file.

    Args:
        gallery: that has them.
        without_face: only those that have no face.
        paths: only photos that were enrolled from these absolute paths; None: all.
    """
    with gallery.read() as repository:
        rows = repository.photos.without_face() if without_face else repository.photos.rows()
    return [row for row in rows if row.has_file and (paths is None or Path(row.path) in paths)]


def redetect(
    gallery: Store,
    embedder: Model,
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
        gallery: to write to.
        embedder: the gallery's model.
        photos: from `photos_to_search`.
        detector: finds the faces.
        enrolled_as_crops: whether the gallery's detector was "none" or "center" until now.
        flip: as in `Embedder.embed`.
        species: stored with each new face; None: what the detector or the router says.
        on_batch: as in `enroll`.

    Returns:
        What was found; `skipped` lists the photos whose files are missing or have changed.

    Raises:
        SpaceMismatch: the embedder is not the gallery's.
        NoBundleForSpecies: the router has none for `species`.
    """
    gallery.check_space(*embedder.space)
    embedder.check_species(species)
    size = max(1, min(embedder.batch_size, -(-len(photos) // embedder.threads)))
    batches = [photos[start : start + size] for start in range(0, len(photos), size)]

    def embed_batch(batch: Sequence[PhotoRow]) -> _ReadBatch:
        return _embed_batch(batch, embedder, detector, flip, species)

    result, done = NOTHING_ENROLLED, 0
    pool = ThreadPoolExecutor(embedder.threads)
    try:
        results = pool.map(embed_batch, batches)
        for batch, (searched, skipped, skipped_faces) in zip(batches, results, strict=True):
            with gallery.write():
                gallery.check_space(*embedder.space)  # again: another process may have migrated the gallery
                counts = _write_batch(gallery, searched, enrolled_as_crops)
            result += replace(counts, skipped=tuple(skipped), skipped_faces=tuple(skipped_faces))
            done += len(batch)
            on_batch(done, result)
    finally:
        pool.shutdown(cancel_futures=True)
    return result


def _embed_batch(
    photos: Sequence[PhotoRow], embedder: Model, detector: Detector, flip: bool, species: str | None
) -> _ReadBatch:
    """Read photos, and detect and embed their faces. Does not use the gallery.

    Returns:
        The photos that were read, the errors of the others, and those of faces without a bundle.
    """
    batch, read, skipped = FaceBatch(embedder, detector), list[_SearchedPhoto](), list[FamiliarError]()
    for photo in photos:
        try:
            if content_sha256(Path(photo.path)) != photo.sha256:
                raise UnreadablePhoto(f"{photo.path}: has changed since it was enrolled; enroll it again")
            loaded = load_photo(Path(photo.path), min_side_px=embedder.min_decoded_side_px(detector))
            batch.add(loaded)
            read.append(_SearchedPhoto(photo, loaded.source_size_px, []))
        except FamiliarError as error:
            skipped.append(error)
        except OSError as error:
            skipped.append(UnreadablePhoto(f"{photo.path}: {error.strerror}"))
    faces, without_bundle = batch.embed(flip=flip, species=species)
    for searched, faces_of_photo in zip(read, faces, strict=True):
        searched.faces.extend(faces_of_photo)
    return read, skipped, [error for _, error in without_bundle]


def _write_batch(gallery: Store, photos: Iterable[_SearchedPhoto], enrolled_as_crops: bool) -> EnrollResult:
    """Add the new faces of photos, within `gallery.write`."""
    counts, to_write = NOTHING_ENROLLED, list[tuple[int, EmbeddedFace, int | None]]()
    with gallery.read() as repository:
        for searched in photos:
            row = repository.photos.row(searched.photo.photo)
            if row is not None and row.sha256 == searched.photo.sha256:  # else forgotten or edited meanwhile
                new, photo_counts = _compare(repository, searched, enrolled_as_crops)
                counts += photo_counts
                to_write += [(searched.photo.photo, face, replaced) for face, replaced in new]
    if to_write:
        with gallery.write(faces_change=True) as repository:
            for photo, face, replaced in to_write:
                at_stored_length = replace(face, embedding=gallery.truncate_query(face.embedding))
                stored = stored_face(gallery, at_stored_length)
                if replaced is None:
                    repository.faces.insert(photo, stored, face.species)
                else:
                    repository.migration.delete_face(replaced)  # an unfinished migration may have embedded the crop
                    repository.domains.delete([replaced])
                    repository.faces.move_to_photo(replaced, photo, stored, face.species)
    return counts


def _compare(
    repository: Repository, searched: _SearchedPhoto, enrolled_as_crops: bool
) -> tuple[list[tuple[EmbeddedFace, int | None]], EnrollResult]:
    """Compare the detected faces of a photo with those that it has.

    Returns:
        The faces to store, each with the face whose place it takes, if any; and the counts of the photo.
    """
    photo = searched.photo.photo
    boxes = {row.face: row.box_xyxy_px for row in repository.faces.rows_in_photos([photo]) if row.has_box}
    crops = [face for face, box in boxes.items() if enrolled_as_crops and _is_crop(box, searched.size_px)]
    known = [box for face, box in boxes.items() if face not in crops] + repository.faces.deleted_boxes(photo)
    new = [face for face in searched.faces if not _is_at_any(face, known)]
    replaced = crops[: len(new)] + [None] * (len(new) - len(crops))
    not_detected = sum(not any(_is_at_any(face, [box]) for face in searched.faces) for box in boxes.values())
    return list(zip(new, replaced, strict=True)), replace(
        NOTHING_ENROLLED,
        faces=replaced.count(None),
        searched_again=1,
        without_face=int(not new and not boxes),
        not_detected=not_detected,
    )


def _is_crop(box: Sequence[float], size_px: tuple[int, int]) -> bool:
    """Whether a box is the whole photo, or its central square."""
    side = max(size_px)
    squares = [CenterSquare.box(size_px), WholePhoto.box(size_px)]
    return any(max(abs(a - b) for a, b in zip(box, square, strict=True)) <= side * _ROUNDING for square in squares)


def _is_at_any(face: EmbeddedFace, boxes: Iterable[Sequence[float]]) -> bool:
    """Whether a face lies in the same place as any of the boxes."""

    def is_at(left: float, top: float, right: float, bottom: float) -> bool:
        smaller_px = min(face.detection.area_px, (right - left) * (bottom - top))
        overlap_px = box_intersection_px(face.detection.box_xyxy_px, (left, top, right, bottom))
        return overlap_px >= SAME_FACE_OVERLAP * smaller_px

    return any(is_at(*box) for box in boxes)
