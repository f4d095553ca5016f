"""The photos of a gallery that have files, and the metadata in these."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path

from familiar import Gallery, UnreadablePhoto
from familiar.gallery import GalleryFace, PhotoRow
from familiar.integrations.xmp.jpeg import is_jpeg, read_packets
from familiar.photos import PhotoMetadata, read_metadata, read_photo_bytes


@dataclass(frozen=True, eq=False)
class PhotoContent:
    """The content of a photo's file, and what its header says."""

    data: bytes
    metadata: PhotoMetadata

    @cached_property
    def packets(self) -> list[bytes]:
        """The XMP packet in the photo, if it has one, and in a JPEG the extended packet with what does not fit there.

        Raises:
            BadMetadata: the photo has several.
        """
        if is_jpeg(self.data):
            return read_packets(self.data)
        return [] if self.metadata.xmp is None else [self.metadata.xmp]


def load_photos(gallery: Gallery) -> dict[Path, list[PhotoRow]]:
    """Return the photos that were enrolled with files, by path."""
    rows = sorted(gallery.photos_to_search(without_face=False), key=lambda row: os.fsencode(row.path))
    return {Path(path): list(photos) for path, photos in groupby(rows, key=lambda row: row.path)}


def load_faces(gallery: Gallery) -> dict[int, list[GalleryFace]]:
    """Return all faces, by the numbers of their photos."""
    return {photo: list(faces) for photo, faces in groupby(gallery.faces(), key=lambda row: row.photo)}


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
    raise UnreadablePhoto(
        f"{path}: has changed since it was enrolled; put the earlier file back, or enroll it again (if that notices no "
        "change, touch it first)"  # a file of the same size and time is not read again
    )
