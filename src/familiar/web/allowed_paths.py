"""The folders that a client may read photos from. No path that it names, and no link within, leads out of them."""

import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.parse import unquote

from familiar.core.errors import FamiliarError
from familiar.core.terminal_text import printable
from familiar.gallery.database.connection import UPLOADED_PHOTOS, Gallery
from familiar.web.errors import Refused

LONGEST = 4096  # characters of a path, PATH_MAX of Linux
_SHOWN = 200  # characters of a path that are told back
_ENCODINGS = 8  # one within another that are looked through; what is encoded more often is refused
_DRIVE = re.compile(r"[A-Za-z]:")
_DEVICE = re.compile(r"(CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(COM|LPT)[0-9¹²³])", re.IGNORECASE)


@dataclass(frozen=True)
class Roots:
    """`folders`, from the file system's root and without links in them, and the gallery's `own`."""

    folders: tuple[Path, ...]
    own: Path

    @staticmethod
    def of(gallery: Gallery, told: Sequence[Path]) -> "Roots":
        """The folders that were `told`, or else the topmost of those that the gallery's photos lie in.

        FamiliarError where one that was told is no folder.
        """
        for folder in told:
            if not folder.is_dir():
                raise FamiliarError(f"{folder}: no such folder")
        folders = told or _folders_of(gallery)
        own = Path(os.path.realpath(gallery.folder / UPLOADED_PHOTOS))
        return Roots(_topmost(Path(os.path.realpath(folder)) for folder in folders), own)

    def inside(self, path: Path) -> Path:
        """Where a path leads, with every link followed. Refused with 403 where that is outside.

        Whoever reads it then checks that it is a regular file, as `load_photo` does.
        """
        try:
            resolved = Path(os.path.realpath(path))
        except (OSError, ValueError) as error:  # a loop of links; a zero byte
            raise _outside(path) from error
        if not any(resolved.is_relative_to(root) for root in (self.own, *self.folders)):
            raise _outside(path)
        return resolved

    def named(self, said: str) -> Path:
        """A folder or file that a user named, absolute or as seen from a root.

        Refused with 403 where it lies outside, or is written in a way that only an attack is: with "..", "~", a
        backslash, a drive, a device's name, a trailing dot or space, characters that cannot be shown, or any of these
        encoded; with 404 where nothing is there.
        """
        if _is_odd(said):
            raise _outside(said)
        places = (self.inside(root / said) for root in (*self.folders, self.own))  # an absolute one replaces the root
        for place in places:
            if os.path.exists(place):  # noqa: PTH110 - `Path.exists` raises where a name is too long
                return place
        raise Refused(HTTPStatus.NOT_FOUND, "no-such-place", f"{_told(said)}: no such file or folder")


def _folders_of(gallery: Gallery) -> list[Path]:
    """Where photos lie. Not / itself, which is everything; and what was imported as embeddings lies nowhere."""
    with gallery.reading() as connection:
        rows = connection.execute("SELECT path FROM photos")
        folders = [Path(name) for name in {os.path.dirname(path) for (path,) in rows}]  # noqa: PTH120 - of a million
    return [folder for folder in folders if folder.is_absolute() and folder != folder.parent]


def _topmost(folders: Iterable[Path]) -> tuple[Path, ...]:
    kept: list[Path] = []
    for folder in sorted(set(folders)):  # a folder comes before those within it
        if not any(folder.is_relative_to(other) for other in kept[-1:]):
            kept.append(folder)
    return tuple(kept)


def _is_odd(said: str) -> bool:
    """Whether a path is written as only an attack is, or would be after a decoding that we never do, but others may."""
    if not said or len(said) > LONGEST:
        return True
    form = said
    for _ in range(_ENCODINGS):
        folded = unicodedata.normalize("NFKC", form)  # full stops and slashes that merely look like others
        if _is_oddly_written(form) or ".." in folded.split("/") or _separators(folded) != _separators(said):
            return True
        before, form = form, unquote(form)
        if form == before:
            return False
    return True


def _is_oddly_written(path: str) -> bool:
    return (
        printable(path) != path
        or path.startswith(("~", "//"))
        or "\\" in path
        or _DRIVE.match(path) is not None
        or any(part != "." and _is_odd_part(part) for part in path.split("/"))
    )


def _is_odd_part(part: str) -> bool:
    """What Windows takes for a device, or for the same without its last characters; ".." is one of the latter."""
    return part != part.rstrip(". ") or _DEVICE.fullmatch(part.partition(".")[0].rstrip()) is not None


def _separators(path: str) -> int:
    return path.count("/") + path.count("\\")


def _outside(path: Path | str) -> Refused:
    return Refused(
        HTTPStatus.FORBIDDEN,
        "outside-roots",
        f"{_told(path)}: lies outside the folders that this server reads; start it with --root FOLDER",
    )


def _told(path: Path | str) -> str:
    return printable(str(path)[:_SHOWN])[:_SHOWN]
