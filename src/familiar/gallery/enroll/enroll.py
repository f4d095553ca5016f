"""Enroll photos in a gallery: each photo is identified by its content, and its faces are embedded once."""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from familiar.core.errors import FamiliarError
from familiar.detection.detector import Detector
from familiar.detection.detectors import WholePhoto
from familiar.detection.faces import MIN_SCORE
from familiar.embedding.embedder import Embedder
from familiar.gallery.enroll.photo_reading import EmbeddedBatch, embed_batches, read_new_file
from familiar.gallery.enroll.photo_writing import WrittenPhoto, write_photo
from familiar.gallery.store.store import Store

_INSERT_BATCH = 20_000  # rows per transaction, which writes nearly every page of a large gallery's index by content


@dataclass(frozen=True)
class EnrolledBatch:
    """What became of the photos of one transaction.

    Attributes:
        written: the photos that were read, unless the gallery has them unchanged.
        skipped: the paths that could not be read, each with its error.
    """

    written: tuple[WrittenPhoto, ...]
    skipped: tuple[tuple[Path, FamiliarError], ...]


@dataclass(frozen=True)
class EnrollResult:
    """Counts of what a call did with its photos.

    Attributes:
        photos: new photos.
        faces: new faces.
        without_face: those of `photos`, `edited` and `searched_again` that have no face, as none was detected.
        without_bundle: those that have none, as there is no bundle for any that was detected.
        known: photos that were enrolled before.
        moved: those of `known` that have another path now.
        copies: those of `known` that lie at another path, too.
        edited: photos whose content has changed since they were enrolled from the same path.
        skipped: errors of the photos that could not be read.
        skipped_faces: errors of the faces that are not in the gallery because there is no bundle for them.
        searched_again: photos of the gallery in which faces were looked for again.
        not_detected: faces that were in these photos, and were not detected again. They stay.
    """

    photos: int = 0
    faces: int = 0
    without_face: int = 0
    without_bundle: int = 0
    known: int = 0
    moved: int = 0
    copies: int = 0
    edited: int = 0
    skipped: tuple[FamiliarError, ...] = ()
    skipped_faces: tuple[FamiliarError, ...] = ()
    searched_again: int = 0
    not_detected: int = 0

    def __add__(self, other: "EnrollResult") -> "EnrollResult":
        return EnrollResult(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


NOTHING_ENROLLED = EnrollResult()


def enroll(
    store: Store,
    embedder: Embedder,
    paths: Sequence[Path],
    detector: Detector | None = None,
    *,
    flip: bool = False,
    species: str | None = None,
    min_score: float = MIN_SCORE,
    on_batch: Callable[[int, EnrollResult], None] = lambda _, __: None,
    record: Callable[[EnrolledBatch], None] | None = None,
) -> EnrollResult:
    """Detect and embed the faces of photos, and add them to a gallery.

    An interrupted run resumes when the call is repeated: a photo that was enrolled costs a comparison of its size and
    modification time. If these differ, its content decides whether it is new, was moved, or was edited; the faces of
    a moved or edited photo keep their numbers and identities.

    Args:
        store: to write to.
        embedder: the gallery's model.
        paths: of the photos.
        detector: finds the faces (None: each photo is one crop already).
        flip: as in `Embedder.embed`.
        species: stored with each new face; None: what the detector says.
        min_score: detections below it are ignored.
        on_batch: called with the number of photos done and the result so far, after each batch has been committed. An
            exception that it raises ends the call before another batch begins.
        record: called within the transaction of each batch that changes or skips something, to write what belongs to
            it: both are on the disk, or neither.

    Returns:
        What became of the photos.

    Raises:
        SpaceMismatch: the embedder is not the gallery's.
        NoBundleForSpecies: there is none for `species`.
    """
    store.check_space(*embedder.space)
    embedder.check_species(species)
    with store.read() as repository:
        rows = repository.photos.rows()
    size_and_time = {row.path: (row.size_bytes, row.modified_ns) for row in rows}
    read = partial(read_new_file, size_and_time=size_and_time, hashes=frozenset(row.sha256 for row in rows))
    detector, result, done = detector or WholePhoto(), NOTHING_ENROLLED, 0
    for batch in embed_batches(paths, read, embedder, detector, flip=flip, species=species, min_score=min_score):
        result += EnrollResult(known=batch.count - len(batch.files) - len(batch.skipped)) + skipped_in(batch)
        if batch.files or (batch.skipped and record):
            with store.write(faces_change=any(file.faces for file in batch.files)) as repository:
                store.check_space(*embedder.space)  # again: another process may have migrated the gallery
                written = [write_photo(repository, store, file) for file in batch.files]
                new = [photo.photo for photo in written if photo.change == "new" and photo.photo is not None]
                if new:
                    repository.events.add("enrolled", first=min(new), last=max(new))
                if record:
                    record(EnrolledBatch(tuple(written), tuple(batch.skipped)))
            result = sum(map(_count, written), result)
        done += batch.count
        on_batch(done, result)
    return result


def _count(written: WrittenPhoto) -> EnrollResult:
    """Return the counts of a photo as a part of the result."""
    change = written.change
    if change == "forgotten":
        return NOTHING_ENROLLED
    if change not in ("new", "edited"):
        return EnrollResult(known=1, moved=int(change == "moved"), copies=int(change == "copy"))
    return EnrollResult(
        photos=int(change == "new"),
        edited=int(change == "edited"),
        faces=written.new_faces,
        without_face=int(not written.file.faces and not written.file.faces_without_bundle),
        without_bundle=int(not written.file.faces and written.file.faces_without_bundle > 0),
    )


def skipped_in(batch: EmbeddedBatch[Any]) -> EnrollResult:
    """Return the errors of a batch as a part of the result."""
    return EnrollResult(skipped=tuple(error for _, error in batch.skipped), skipped_faces=tuple(batch.skipped_faces))


def enroll_embeddings(
    store: Store, embeddings: Float32[np.ndarray, "n d"], names: Sequence[str], space_id: str
) -> list[int]:
    """Add embeddings that were computed elsewhere, each as the only face of a photo.

    An embedding that was added before under the same name is not added again. Rows are written 20,000 per
    transaction.

    Args:
        store: to write to.
        embeddings: unit rows.
        names: of the photos, one per row; they take the place of paths.
        space_id: of the model that computed the embeddings.

    Returns:
        The numbers of the new faces.

    Raises:
        SpaceMismatch: the gallery has another space or dimension.
        ValueError: a row is not of unit length, and none of its 20,000 rows are added; or a name cannot be that of a
            file, and no row is added.
    """
    store.check_space(space_id, embeddings.shape[1])
    file_names = [_encode_name(name) for name in names]
    added: list[int] = []
    for start in range(0, len(embeddings), _INSERT_BATCH):
        batch = slice(start, start + _INSERT_BATCH)
        encoded_rows = store.encode_embeddings(embeddings[batch])
        by_hash = {
            hashlib.sha256(name + b"\0" + row).digest(): (name, row)
            for name, row in zip(file_names[batch], encoded_rows, strict=True)
        }
        with store.write(faces_change=True) as repository:
            store.check_space(space_id, embeddings.shape[1])
            new_photos = repository.photos.insert_without_files((sha256, name) for sha256, (name, _) in by_hash.items())
            if new_photos:
                repository.events.add("enrolled", first=new_photos[0][0], last=new_photos[-1][0])
            added += repository.faces.insert_without_boxes((photo, by_hash[sha256][1]) for photo, sha256 in new_photos)
    return added


def _encode_name(name: str) -> bytes:
    try:
        return os.fsencode(name)
    except UnicodeEncodeError as error:
        raise ValueError(f"{name!a} cannot be the name of a photo: it has half of a character") from error
