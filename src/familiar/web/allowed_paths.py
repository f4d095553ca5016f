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
from familiar.web.errors import HttpProblem

MAX_PATH_CHARACTERS = 4096  # characters of a path, PATH_MAX of Linux
_MAX_SHOWN_CHARACTERS = 200  # characters of a path that are told back
_MAX_DECODINGS = 8  # one within another that are looked through; what is encoded more often is refused
_WINDOWS_DRIVE = re.compile(r"[A-Za-z]:")
_WINDOWS_DEVICE = re.compile(r"(CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(COM|LPT)[0-9¹²³])", re.IGNORECASE)


@dataclass(frozen=True)
class AllowedPaths:
    """`folders`, from the file system's root and without links in them, and the gallery's `own`."""

    folders: tuple[Path, ...]
    uploads: Path

    @staticmethod
    def for_gallery(gallery: Gallery, told: Sequence[Path]) -> "AllowedPaths":
        """The folders that were `told`, or else the topmost of those that the gallery's photos lie in.

        FamiliarError where one that was told is no folder.
        """
        for folder in told:
            if not folder.is_dir():
                raise FamiliarError(f"{folder}: no such folder")
        folders = told or _photo_folders(gallery)
        own = Path(os.path.realpath(gallery.folder / UPLOADED_PHOTOS))
        return AllowedPaths(_drop_nested(Path(os.path.realpath(folder)) for folder in folders), own)

    def resolve(self, path: Path) -> Path:
        """Where a path leads, with every link followed. Refused with 403 where that is outside.

        Whoever reads it then checks that it is a regular file, as `load_photo` does.
        """
        try:
            resolved = Path(os.path.realpath(path))
        except (OSError, ValueError) as error:  # a loop of links; a zero byte
            raise _outside_error(path) from error
        if not any(resolved.is_relative_to(root) for root in (self.uploads, *self.folders)):
            raise _outside_error(path)
        return resolved

    def resolve_user_path(self, said: str) -> Path:
        """A folder or file that a user named, absolute or as seen from a root.

        Refused with 403 where it lies outside, or is written in a way that only an attack is: with "..", "~", a
        backslash, a drive, a device's name, a trailing dot or space, characters that cannot be shown, or any of these
        encoded; with 404 where nothing is there.
        """
        if _is_suspicious(said):
            raise _outside_error(said)
        places = (self.resolve(root / said) for root in (*self.folders, self.uploads))  # an absolute one replaces the root
        for place in places:
            if os.path.exists(place):  # noqa: PTH110 - `Path.exists` raises where a name is too long
                return place
        raise HttpProblem(HTTPStatus.NOT_FOUND, "no-such-place", f"{_printable_excerpt(said)}: no such file or folder")


def _photo_folders(gallery: Gallery) -> list[Path]:
    """Where photos lie. Not / itself, which is everything; and what was imported as embeddings lies nowhere."""
    with gallery.reading() as connection:
        rows = connection.execute("SELECT path FROM photos")
        folders = [Path(name) for name in {os.path.dirname(path) for (path,) in rows}]  # noqa: PTH120 - of a million
    return [folder for folder in folders if folder.is_absolute() and folder != folder.parent]


def _drop_nested(folders: Iterable[Path]) -> tuple[Path, ...]:
    kept: list[Path] = []
    for folder in sorted(set(folders)):  # a folder comes before those within it
        if not any(folder.is_relative_to(other) for other in kept[-1:]):
            kept.append(folder)
    return tuple(kept)


def _is_suspicious(said: str) -> bool:
    """Whether a path is written as only an attack is, or would be after a decoding that we never do, but others may."""
    if not said or len(said) > MAX_PATH_CHARACTERS:
        return True
    form = said
    for _ in range(_MAX_DECODINGS):
        folded = unicodedata.normalize("NFKC", form)  # full stops and slashes that merely look like others
        if _has_suspicious_characters(form) or ".." in folded.split("/") or _count_separators(folded) != _count_separators(said):
            return True
        before, form = form, unquote(form)
        if form == before:
            return False
    return True


def _has_suspicious_characters(path: str) -> bool:
    return (
        printable(path) != path
        or path.startswith(("~", "//"))
        or "\\" in path
        or _WINDOWS_DRIVE.match(path) is not None
        or any(part != "." and _is_suspicious_part(part) for part in path.split("/"))
    )


def _is_suspicious_part(part: str) -> bool:
    """What Windows takes for a device, or for the same without its last characters; ".." is one of the latter."""
    return part != part.rstrip(". ") or _WINDOWS_DEVICE.fullmatch(part.partition(".")[0].rstrip()) is not None


def _count_separators(path: str) -> int:
    return path.count("/") + path.count("\\")


def _outside_error(path: Path | str) -> HttpProblem:
    return HttpProblem(
        HTTPStatus.FORBIDDEN,
        "outside-roots",
        f"{_printable_excerpt(path)}: lies outside the folders that this server reads; start it with --root FOLDER",
    )


def _printable_excerpt(path: Path | str) -> str:
    return printable(str(path)[:_MAX_SHOWN_CHARACTERS])[:_MAX_SHOWN_CHARACTERS]
