"""The files beside photos that may name their faces: XMP sidecars, and Picasa's file in a folder."""

import os
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from familiar.core.errors import BadMetadata
from familiar.core.file_names import PHOTO_SUFFIXES
from familiar.core.files import require_regular_file
from familiar.integrations.xmp import picasa
from familiar.integrations.xmp.rdf import MAX_BYTES
from familiar.integrations.xmp.regions import Region
from familiar.photos import RAW_SUFFIXES, UNREAD_SUFFIXES

SUFFIX = ".xmp"
_PICTURES = PHOTO_SUFFIXES | RAW_SUFFIXES | UNREAD_SUFFIXES | {".jxl"}


@dataclass(frozen=True)
class Sidecar:
    """An XMP sidecar that is a photo's, or may be.

    Attributes:
        path: of the sidecar.
        owner: "photo": it is the photo's own; "raw": it is that of a raw file, which shows the same picture; "unclear":
            it may be that of several photos, or of one that is missing.
        reason: whose it is and what to do, unless it is the photo's own.
    """

    path: Path
    owner: Literal["photo", "raw", "unclear"]
    reason: str = ""


@dataclass
class MetadataFolders:
    """The folders of photos, each listed once. Names are compared without regard to case and Unicode form."""

    _folders: dict[Path, Mapping[str, list[str]]] = field(default_factory=dict[Path, Mapping[str, list[str]]])
    _picasa: dict[Path, Mapping[str, list[Region]]] = field(default_factory=dict[Path, Mapping[str, list[Region]]])

    def sidecars(self, path: Path) -> list[Sidecar]:
        """Return the XMP sidecars that are a photo's or may be, its own first.

        `photo.jpg.xmp` (digiKam, darktable) comes before `photo.xmp` (Lightroom). The latter is that
        of the raw file called `photo`, or else of the only picture called `photo`.

        Raises:
            BadMetadata: the folder cannot be listed.
        """
        listed = self._pictures(path)
        same = [name for name in listed if _key(name) == _key(path.name)]
        photo = path.name if path.name in listed or not same else same[0]
        named = (*self._names(path, path.name), *self._names(path, path.stem))
        names = {name for name in named if _suffix(name) == SUFFIX}
        pictures = sorted({*listed, photo})
        sidecars = [
            each for name in sorted(names) if (each := _find_owner(path.with_name(name), photo, pictures)) is not None
        ]
        name_key = _key(path.name)
        return sorted(sidecars, key=lambda each: (_key(each.path.stem) != name_key, each.path.suffix != SUFFIX))

    def picasa_files(self, path: Path) -> list[Path]:
        """Return Picasa's files in a photo's folder.

        Raises:
            BadMetadata: the folder cannot be listed.
        """
        names = (name for each in picasa.INI_NAMES for name in self._names(path, each))
        return [path.with_name(name) for name in names if _suffix(name) == ".ini"]

    def picasa_regions(self, file: Path, photo: str) -> list[Region]:
        """Return the regions of a photo in Picasa's file.

        Raises:
            BadMetadata: the file cannot be read.
        """
        if file not in self._picasa:
            self._picasa[file] = picasa.read_picasa_ini(read_limited(file))
        return self._picasa[file].get(photo.casefold(), [])

    def _pictures(self, path: Path) -> list[str]:
        """List the pictures with the stem of a photo, in its folder."""
        return [name for name in self._names(path, path.stem) if _suffix(name) in _PICTURES]

    def _names(self, path: Path, name: str) -> list[str]:
        """List the files in a photo's folder that are looked up by a name."""
        if path.parent not in self._folders:
            self._folders[path.parent] = _list_names(path.parent)
        return self._folders[path.parent].get(_key(name), [])


def _list_names(folder: Path) -> dict[str, list[str]]:
    """List the names of files in a folder that matter here, by those that they are looked up by.

    These are: of a picture, its stem; of a sidecar, its name without `.xmp`, and if that is the whole name of a
    picture, its stem too; of Picasa's file, its name.
    """
    names: defaultdict[str, list[str]] = defaultdict(list)
    try:
        for name in os.listdir(folder):  # noqa: PTH208 - names are enough, a Path each is slow
            suffix, stem = _suffix(name), Path(name).stem
            keys = [stem] if suffix in _PICTURES or suffix == SUFFIX else []
            if suffix == SUFFIX and _suffix(stem) in _PICTURES:
                keys.append(Path(stem).stem)
            if name.lower() in picasa.INI_NAMES:
                keys.append(name)
            for key in keys:
                names[_key(key)].append(name)
    except (FileNotFoundError, NotADirectoryError):
        pass  # the photo is reported as missing
    except OSError as error:
        raise BadMetadata(
            f"{folder}: cannot be listed ({error.strerror}), so sidecars in it are left out; allow listing it"
        ) from error
    return names


def read_limited(path: Path) -> bytes:
    """Read a file with metadata.

    Raises:
        BadMetadata: it cannot be read, or is too large.
    """
    try:
        if (size_bytes := require_regular_file(path).st_size) > MAX_BYTES:
            raise BadMetadata(f"has {size_bytes:,} bytes, more than the limit of {MAX_BYTES:,}")
        return path.read_bytes()
    except OSError as error:
        raise BadMetadata(f"cannot be read ({error.strerror})") from error


def _find_owner(sidecar: Path, photo: str, pictures: Sequence[str]) -> Sidecar | None:
    """Tell whose a sidecar is; None: another picture's that is there.

    Args:
        sidecar: its name begins with the stem of the photo.
        photo: the photo's name.
        pictures: the pictures of that stem; the photo is one.
    """
    owners = _possible_owners(sidecar, photo, pictures)
    if owners == [photo]:
        return Sidecar(sidecar, "photo")
    if photo in owners:
        names = f"{SUFFIX} or ".join(owners)
        return Sidecar(sidecar, "unclear", f"may belong to {' or '.join(owners)}; rename it {names}{SUFFIX}")
    reason = f"belongs to {owners[0]}; if it is about {photo} too, copy it to {photo}{SUFFIX}"
    if _suffix(owners[0]) in RAW_SUFFIXES:
        return Sidecar(sidecar, "raw", reason)
    return None if owners[0] in pictures else Sidecar(sidecar, "unclear", reason)


def _possible_owners(sidecar: Path, photo: str, pictures: Sequence[str]) -> list[str]:
    """List the names of the pictures that a sidecar may belong to; see `_find_owner`."""
    base = sidecar.stem
    if named := [name for name in pictures if _key(name) == _key(base)]:
        return [name for name in named if name == base] or named
    if _key(base) != _key(Path(photo).stem):  # it begins with the name of a picture that is not there
        return [base]
    same_case = [name for name in pictures if Path(name).stem == base] or list(pictures)
    return [name for name in same_case if _suffix(name) in RAW_SUFFIXES] or same_case


def _key(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _suffix(name: str) -> str:
    return Path(name).suffix.lower()
