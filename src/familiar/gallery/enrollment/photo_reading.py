"""Read the photos of an enrollment, and detect and embed the faces of new ones."""

import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from familiar.core.errors import FamiliarError, UnreadablePhoto
from familiar.core.files import absolute_path, content_sha256
from familiar.detection.detector import Detector
from familiar.embedding.all_faces import EmbeddedFace, FaceBatch
from familiar.embedding.model import Model
from familiar.gallery.store.store import Store
from familiar.photos.decoding import load_photo
from familiar.photos.exif import capture_time


@dataclass(frozen=True, eq=False)
class PhotoFile:
    """A photo's file as it was read. `faces` is None if its content is enrolled already."""

    path: Path
    sha256: bytes
    size_bytes: int
    modified_ns: int
    taken_at: str | None = None
    faces: tuple[EmbeddedFace, ...] | None = None


@dataclass(frozen=True, eq=False)
class EnrolledPhotos:
    """The photos that a gallery has when a call begins."""

    size_and_time: Mapping[str, tuple[int, int]]  # of each path: bytes, and modification time in ns
    hashes: frozenset[bytes]


def load_enrolled_photos(gallery: Store) -> EnrolledPhotos:
    """Read which photos a gallery has."""
    with gallery.read() as repository:
        rows = repository.photos.rows()
    return EnrolledPhotos(
        {row.path: (row.size_bytes, row.modified_ns) for row in rows}, frozenset(row.sha256 for row in rows)
    )


def embed_new_photos(
    paths: Sequence[Path],
    enrolled: EnrolledPhotos,
    embedder: Model,
    detector: Detector,
    flip: bool,
    species: str | None,
    min_score: float,
) -> tuple[list[PhotoFile], list[tuple[Path, FamiliarError]], list[FamiliarError]]:
    """Read the photos that are not enrolled unchanged, and embed the faces of new ones. Does not use the gallery.

    Args:
        paths: of the photos, embedded as one batch.
        enrolled: the photos that the gallery has.
        embedder: the gallery's model.
        detector: finds the faces.
        flip: as in `Embedder.embed`.
        species: of all faces; None: what the detector or the router says.
        min_score: detections below it are ignored.

    Returns:
        The files that were read, those that could not be, each with its error, and the errors of faces that no bundle
        of a router can embed.
    """
    files: list[PhotoFile] = []
    skipped: list[tuple[Path, FamiliarError]] = []
    new_files: list[int] = []  # the indices of those whose faces are embedded
    batch = FaceBatch(embedder, detector, min_score)
    for path in paths:
        try:
            file = _read_file(absolute_path(path), enrolled)
            if file is not None and file.sha256 not in enrolled.hashes:
                file = replace(file, taken_at=capture_time(file.path), faces=())
                batch.add(load_photo(file.path, min_side_px=embedder.min_decoded_side_px(detector)))
                new_files.append(len(files))
        except FamiliarError as error:
            skipped.append((path, error))
        else:
            files += [] if file is None else [file]
    faces, without_bundle = batch.embed(flip=flip, species=species)
    for index, faces_of_file in zip(new_files, faces, strict=True):
        files[index] = replace(files[index], faces=tuple(faces_of_file))
    return files, skipped, [error for _, error in without_bundle]


def _read_file(path: Path, enrolled: EnrolledPhotos) -> PhotoFile | None:
    """Hash a file. None if its size and modification time are those it was enrolled with."""
    try:
        status = path.stat()
        if enrolled.size_and_time.get(str(path)) == (status.st_size, status.st_mtime_ns):
            return None
        if not stat.S_ISREG(status.st_mode):  # hashing a named pipe would wait forever
            raise UnreadablePhoto(f"{path}: a folder or a special file, not a photo")
        sha256 = content_sha256(path)
    except OSError as error:
        raise UnreadablePhoto(f"{path}: {error.strerror}") from error
    except ValueError as error:  # a zero byte, or half of a character
        raise UnreadablePhoto(f"{path}: {error}") from error
    return PhotoFile(path, sha256, status.st_size, status.st_mtime_ns)
