"""The photos of a gallery that have files, and the metadata in these."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path

from familiar.core.errors import UnreadablePhoto
from familiar.core.gallery_types import GalleryFace
from familiar.gallery.store.photo_paths import CHANGED
from familiar.gallery.store.photos import PhotoRow
from familiar.gallery.store.repository import Repository
from familiar.photos.decoding import PhotoMetadata, read_metadata, read_photo_bytes
from familiar.photos.metadata.jpeg import is_jpeg, read_extended_packet, read_packet
from familiar.photos.metadata.xmp import extension_id


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


def load_photos(repository: Repository) -> dict[Path, list[PhotoRow]]:
    """Return the photos that were enrolled with files, by path."""
    rows = sorted((row for row in repository.photos.rows() if row.has_file), key=lambda row: os.fsencode(row.path))
    return {Path(path): list(photos) for path, photos in groupby(rows, key=lambda row: row.path)}


def load_faces(repository: Repository) -> dict[int, list[GalleryFace]]:
    """Return all faces, by the numbers of their photos."""
    return {photo: list(faces) for photo, faces in groupby(repository.faces.rows(), key=lambda row: row.photo)}


def read_photo(path: Path, photos: Sequence[PhotoRow]) -> tuple[PhotoRow, PhotoContent]:
    """Read a file, and find the photo whose content it has among those that were enrolled from its path.

    Raises:
        UnreadablePhoto: the file is missing, cannot be read, or has changed since it was enrolled.
    """
    data = read_photo_bytes(path)
    sha256 = hashlib.sha256(data).digest()
    for photo in photos:
        if photo.sha256 == sha256:
            return photo, PhotoContent(data, read_metadata(data, path))
    raise UnreadablePhoto(f"{path}: {CHANGED}")
