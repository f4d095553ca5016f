"""Read the photos of an enrollment, and detect and embed the faces of new ones."""

import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar

from familiar.core.errors import FamiliarError, UnreadablePhoto
from familiar.core.files import absolute_path, content_sha256
from familiar.core.types import Face, Photo
from familiar.detection.detector import Detector
from familiar.detection.faces import MIN_SCORE
from familiar.embedding.embedder import Embedder
from familiar.gallery.store.photo_paths import require_sha256
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
        faces_without_bundle: number of the detected faces that no bundle embeds.
    """

    path: Path
    sha256: bytes
    size_bytes: int
    modified_ns: int
    taken_at: str | None = None
    size_px: tuple[int, int] = (0, 0)
    faces: tuple[Face, ...] | None = None
    faces_without_bundle: int = 0


@dataclass(eq=False)
class EmbeddedBatch(Generic[Item]):
    """Photos that were read and embedded together.

    Attributes:
        count: their number, also of those that needed not be read.
        files: those that were read.
        skipped: those that could not be, each with its error.
        skipped_faces: the errors of faces that no bundle embeds.
    """

    count: int = 0
    files: list[PhotoFile] = field(default_factory=list[PhotoFile])
    skipped: list[tuple[Item, FamiliarError]] = field(default_factory=list[tuple[Item, FamiliarError]])
    skipped_faces: list[FamiliarError] = field(default_factory=list[FamiliarError])


def embed_batches(
    items: Sequence[Item],
    read: Callable[[Item], PhotoFile | None],
    embedder: Embedder,
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
        flip: as in `Embedder.faces`.
        species: of all faces; None: what the detector says.
        min_score: faces below it are ignored.
    """
    files: dict[int, PhotoFile | None] = {}

    def open_photo(number: int, *, min_side_px: int | None = None) -> Photo:
        file = files[number] = read(items[number])
        if file is None or file.faces is None:
            raise _NothingToEmbed
        return load_photo(file.path, min_side_px=min_side_px)

    photos = embedder.faces(
        range(len(items)), detector, open_photo=open_photo, species=species, flip=flip, min_score=min_score
    )
    size, batch = embedder.photos_per_batch(len(items)), EmbeddedBatch[Item]()
    for number, photo in enumerate(photos):
        file = files.pop(number, None)
        batch.count += 1
        if isinstance(photo, _NothingToEmbed):
            batch.files += [] if file is None else [file]
        elif isinstance(photo, FamiliarError):
            batch.skipped.append((items[number], photo))
        else:
            assert file is not None
            skipped = len(photo.skipped)
            batch.files.append(replace(file, size_px=photo.size_px, faces=photo.faces, faces_without_bundle=skipped))
            batch.skipped_faces += photo.skipped
        if batch.count == size or number == len(items) - 1:
            yield batch
            batch = EmbeddedBatch[Item]()


class _NothingToEmbed(FamiliarError):
    """A file whose faces the gallery has."""


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
