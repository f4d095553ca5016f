"""The photos of a gallery that have files, and the metadata in these."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path

from familiar.core.errors import UnreadablePhoto
from familiar.core.files import content_sha256
from familiar.gallery.database.repository import Repository
from familiar.photos.decoding import PhotoMetadata, read_metadata, read_photo_bytes
from familiar.photos.metadata.jpeg import is_jpeg, read_extended_packet, read_packet
from familiar.photos.metadata.xmp import extension_id


@dataclass(frozen=True)
class StoredPhoto:
    """A photo of the gallery, as its table has it."""

    photo: int
    path: Path
    size_bytes: int
    modified_ns: int
    sha256: bytes


@dataclass(frozen=True, eq=False)
class PhotoContent:
    """The content of a photo's file, and what its header says."""

    data: bytes
    metadata: PhotoMetadata

    @property
    def is_jpeg(self) -> bool:
        """Whether it is a JPEG."""
        return is_jpeg(self.data)

    @cached_property
    def packet(self) -> bytes | None:
        """The XMP packet in the photo.

        Raises:
            BadMetadata: the photo has several.
        """
        return read_packet(self.data) if self.is_jpeg else self.metadata.xmp

    @cached_property
    def extended_packet(self) -> bytes | None:
        """The extended packet of a JPEG, which contains what does not fit into its packet.

        Raises:
            BadMetadata: the packet cannot be read.
        """
        number = None if self.packet is None or not self.is_jpeg else extension_id(self.packet)
        return None if number is None else read_extended_packet(self.data, number)


def load_photos(repository: Repository) -> dict[Path, list[StoredPhoto]]:
    """Return the photos that have files, by path; of several at one path the newest first."""
    rows = [StoredPhoto(row[0], Path(row[1]), *row[2:]) for row in repository.photos.contents()]
    return {path: list(photos) for path, photos in groupby(rows, key=lambda photo: photo.path)}


def find_unchanged(path: Path, photos: Sequence[StoredPhoto]) -> StoredPhoto:
    """Return the photo whose content a file has, of those that were enrolled from its path.

    Raises:
        UnreadablePhoto: the file is missing, cannot be read, or has changed since it was enrolled.
    """
    try:
        status = path.stat()
        for photo in photos:
            if (photo.size_bytes, photo.modified_ns) == (status.st_size, status.st_mtime_ns):
                return photo
        sha256 = content_sha256(path)
    except OSError as error:
        raise UnreadablePhoto(f"{path}: {error.strerror}") from error
    for photo in photos:
        if photo.sha256 == sha256:
            return photo
    raise UnreadablePhoto(f"{path}: has changed since it was enrolled; enroll it again first")


def read_photo(path: Path) -> PhotoContent:
    """Read a photo's file.

    Raises:
        UnreadablePhoto: it cannot be read.
    """
    data = read_photo_bytes(path)
    return PhotoContent(data, read_metadata(data, path))
