"""Read the photos of an enrollment, and detect and embed the faces of new ones."""

import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from familiar.core.errors import FamiliarError, UnreadablePhoto
from familiar.core.files import absolute_path, content_sha256
from familiar.core.types import Face
from familiar.detection.detector import Detector
from familiar.embedding.all_faces import MIN_SCORE, PhotoBatch
from familiar.embedding.model import Model, map_batches
from familiar.gallery.photo_paths import require_sha256
from familiar.gallery.store.photos import PhotoRow
from familiar.photos.decoding import load_photo
from familiar.photos.exif import capture_time

Item = TypeVar("Item")


@dataclass(frozen=True, eq=False)
class PhotoFile:
    """A photo's file as it was read.

    Attributes:
        path, sha256, size_bytes, modified_ns, taken_at: as of a `PhotoRow`.
        size_px: width and height, if it was decoded.
        faces: best first; None if they are not needed, as its content is enrolled already.
    """

    path: Path
    sha256: bytes
    size_bytes: int
    modified_ns: int
    taken_at: str | None = None
    size_px: tuple[int, int] = (0, 0)
    faces: tuple[Face, ...] | None = None


@dataclass(frozen=True, eq=False)
class EmbeddedBatch(Generic[Item]):
    """Photos that were read and embedded together.

    Attributes:
        count: their number, also of those that needed not be read.
        files: those that were read.
        skipped: those that could not be, each with its error.
        skipped_faces: the errors of faces that no bundle of a router can embed.
    """

    count: int
    files: list[PhotoFile]
    skipped: list[tuple[Item, FamiliarError]]
    skipped_faces: list[FamiliarError]


def embed_batches(
    items: Sequence[Item],
    read: Callable[[Item], PhotoFile | None],
    embedder: Model,
    detector: Detector,
    *,
    flip: bool,
    species: str | None,
    min_score: float = MIN_SCORE,
) -> Iterator[EmbeddedBatch[Item]]:
    """Read photos, and detect and embed their faces, batch by batch. Does not use the gallery.

    Args:
        items: one for each photo.
        read: returns the file of an item, without faces: None if they need not be embedded. None: the file is known.
        embedder: the gallery's model.
        detector: finds the faces.
        flip: as in `Embedder.embed`.
        species: of all faces; None: what the detector or the router says.
        min_score: faces below it are ignored.
    """

    def embed_batch(batch: Sequence[Item]) -> EmbeddedBatch[Item]:
        files, skipped = list[PhotoFile](), list[tuple[Item, FamiliarError]]()
        faces_of_files = PhotoBatch(embedder, detector, min_score)
        for item in batch:
            try:
                file = read(item)
                if file is not None and file.faces is not None:
                    photo = load_photo(file.path, min_side_px=embedder.min_decoded_side_px(detector))
                    faces_of_files.add(photo)
                    file = replace(file, size_px=photo.source_size_px)
            except FamiliarError as error:
                skipped.append((item, error))
            else:
                files += [] if file is None else [file]
        faces, without_bundle = faces_of_files.embed(flip=flip, species=species)
        remaining = iter(faces)
        files = [file if file.faces is None else replace(file, faces=tuple(next(remaining))) for file in files]
        return EmbeddedBatch(len(batch), files, skipped, [error for _, error in without_bundle])

    return (embedded for _, embedded in map_batches(embedder, items, embed_batch))


def read_new_file(
    path: Path, size_and_time: Mapping[str, tuple[int, int]], hashes: Collection[bytes]
) -> PhotoFile | None:
    """Hash a file. Its faces are to be embedded if its content is new.

    Args:
        path: of the file.
        size_and_time: of each enrolled path: bytes, and modification time in ns. None is returned if they are the same.
        hashes: of the content of enrolled photos.
    """
    path = absolute_path(path)
    try:
        status = path.stat()
        if size_and_time.get(str(path)) == (status.st_size, status.st_mtime_ns):
            return None
        if not stat.S_ISREG(status.st_mode):  # hashing a named pipe would wait forever
            raise UnreadablePhoto(f"{path}: a folder or a special file, not a photo")
        sha256 = content_sha256(path)
    except OSError as error:
        raise UnreadablePhoto(f"{path}: {error.strerror}") from error
    except ValueError as error:  # a zero byte, or half of a character
        raise UnreadablePhoto(f"{path}: {error}") from error
    file = PhotoFile(path, sha256, status.st_size, status.st_mtime_ns)
    return file if sha256 in hashes else replace(file, taken_at=capture_time(path), faces=())


def read_enrolled_file(row: PhotoRow) -> PhotoFile:
    """Check that the file of an enrolled photo has not changed; its faces are to be embedded."""
    path = Path(row.path)
    if require_sha256(path) != row.sha256:
        raise UnreadablePhoto(f"{path}: has changed since it was enrolled; enroll it again")
    return PhotoFile(path, row.sha256, row.size_bytes, row.modified_ns, faces=())
