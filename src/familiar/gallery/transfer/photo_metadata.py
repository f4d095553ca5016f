"""The files with metadata of a gallery's photos: the photos, XMP sidecars beside them, Picasa's file in a folder."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path

from familiar.core.errors import BadMetadata, UnreadablePhoto
from familiar.gallery.database.repository import Repository
from familiar.gallery.photo_paths import CHANGED
from familiar.photos.decoding import PhotoMetadata, read_metadata, read_photo_bytes
from familiar.photos.metadata import picasa
from familiar.photos.metadata.jpeg import is_jpeg, read_extended_packet, read_packet
from familiar.photos.metadata.regions import Region
from familiar.photos.metadata.xml_tree import MAX_BYTES
from familiar.photos.metadata.xmp import extension_id

SUFFIX = ".xmp"


@dataclass(frozen=True)
class StoredPhoto:
    """A photo of the gallery, as its table has it."""

    photo: int
    path: Path
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
    """Return the photos that were enrolled with files, by path."""
    rows = [StoredPhoto(photo, Path(path), sha256) for photo, path, sha256 in repository.photos.contents()]
    return {path: list(photos) for path, photos in groupby(rows, key=lambda photo: photo.path)}


def read_photo(path: Path, photos: Sequence[StoredPhoto]) -> tuple[StoredPhoto, PhotoContent]:
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


def read_limited(path: Path) -> bytes:
    """Read a file with metadata.

    Raises:
        BadMetadata: it cannot be read, or is too large.
    """
    try:
        if (size_bytes := path.stat().st_size) > MAX_BYTES:
            raise BadMetadata(f"{path}: has {size_bytes:,} bytes, more than the limit of {MAX_BYTES:,}; it is left out")
        return path.read_bytes()
    except OSError as error:
        raise BadMetadata(f"{path}: cannot be read ({error.strerror})") from error


@dataclass
class MetadataFolders:
    """The folders of photos, each listed once."""

    _file_names: dict[Path, Mapping[str, Sequence[str]]] = field(
        default_factory=dict[Path, Mapping[str, Sequence[str]]]
    )
    _picasa: dict[Path, tuple[Path, Mapping[str, list[Region]]] | None] = field(
        default_factory=dict[Path, tuple[Path, Mapping[str, list[Region]]] | None]
    )

    def sidecars(self, path: Path) -> list[Path]:
        """Return the XMP sidecars that a photo has.

        `photo.jpg.xmp` (digiKam, darktable) comes before `photo.xmp` (Lightroom). The latter counts only if no other
        file is called `photo`, such as a raw file that it may belong to.
        """
        names = self._names(path.parent).get(path.stem, ())
        sidecars: list[Path] = []
        own_sidecar = path.with_name(path.name + SUFFIX)
        if own_sidecar.name in self._names(path.parent).get(path.name, ()):
            sidecars.append(own_sidecar)
        others = {name for name in names if name not in (path.name, path.stem + SUFFIX)}
        if path.stem + SUFFIX in names and not others:
            sidecars.append(path.with_name(path.stem + SUFFIX))
        return sidecars

    def picasa_regions(self, path: Path) -> tuple[Path, list[Region]] | None:
        """Return the regions of a photo in Picasa's file of its folder, and the path of that file.

        Raises:
            BadMetadata: the file cannot be read.
        """
        folder = path.parent
        if folder not in self._picasa:
            self._picasa[folder] = None
            for name in picasa.INI_NAMES:
                if name in self._names(folder).get(Path(name).stem, ()):
                    file = folder / name
                    self._picasa[folder] = (file, picasa.read_picasa_ini(read_limited(file)))
                    break
        if (entry := self._picasa[folder]) is None:
            return None
        return entry[0], entry[1].get(path.name.casefold(), [])

    def _names(self, folder: Path) -> Mapping[str, Sequence[str]]:
        """Return the names of the files in a folder, by their stems; none if it cannot be listed."""
        if folder not in self._file_names:
            by_stem: dict[str, list[str]] = {}
            try:
                for name in os.listdir(folder):  # noqa: PTH208 - names are enough, a Path each is slow
                    by_stem.setdefault(Path(name).stem, []).append(name)
            except OSError:
                pass  # the photo is reported as missing
            self._file_names[folder] = by_stem
        return self._file_names[folder]
