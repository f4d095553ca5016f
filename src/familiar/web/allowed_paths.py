"""The folders that a client may read photos from. No path it gives, and no link within, leads out of them."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from familiar.core.errors import FamiliarError
from familiar.core.terminal_text import printable
from familiar.gallery import Gallery
from familiar.web.errors import HttpProblem

MAX_PATH_CHARACTERS = 4096  # PATH_MAX of Linux
_MAX_SHOWN_CHARACTERS = 200  # of a path in an error message


@dataclass(frozen=True)
class AllowedPaths:
    """Readable folders, as absolute paths without links.

    Attributes:
        folders: the configured roots, or the folders of the gallery's photos.
        uploads: the gallery's folder of uploaded photos.
    """

    folders: tuple[Path, ...]
    uploads: Path

    @staticmethod
    def for_gallery(gallery: Gallery, configured: Sequence[Path]) -> "AllowedPaths":
        """Return the `configured` folders, or if there are none, the topmost folders of the gallery's photos.

        Raises:
            FamiliarError: a configured folder does not exist.
        """
        for folder in configured:
            if not folder.is_dir():
                raise FamiliarError(f"{folder}: no such folder")
        folders = configured or _photo_folders(gallery)
        uploads = Path(os.path.realpath(gallery.uploads))
        return AllowedPaths(_drop_nested(Path(os.path.realpath(folder)) for folder in folders), uploads)

    def hidden_folders(self, gallery: Gallery) -> tuple[Path, ...]:
        """List the topmost folders of the gallery's photos that lie outside, so that these photos are not shown."""
        folders = (Path(os.path.realpath(folder)) for folder in _photo_folders(gallery))
        return _drop_nested(folder for folder in folders if not self._includes(folder))

    def _includes(self, resolved: Path) -> bool:
        return any(resolved.is_relative_to(root) for root in (self.uploads, *self.folders))

    def resolve(self, path: Path) -> Path:
        """Follow every link of a path.

        The caller still has to check that the result is a regular file, as `load_photo` does.

        Raises:
            HttpProblem: 403, the path leads out of the allowed folders.
        """
        try:
            resolved = Path(os.path.realpath(path))
        except (OSError, ValueError) as error:  # a loop of links; a zero byte
            raise _outside_error(path) from error
        if not self._includes(resolved):
            raise _outside_error(path)
        return resolved

    def resolve_user_path(self, text: str) -> Path:
        """Resolve a folder or file that a user entered, absolute or relative to a root.

        Raises:
            HttpProblem: 403, the path lies outside, or is written as only an attack would be: with "..", a backslash,
                two slashes at its beginning, or unprintable characters; 404, nothing exists there. It is not decoded.
        """
        if _is_suspicious(text):
            raise _outside_error(text)
        candidates = (self.resolve(root / text) for root in (*self.folders, self.uploads))  # `text` may be absolute
        for candidate in candidates:
            if os.path.exists(candidate):  # noqa: PTH110 - `Path.exists` raises if a name is too long
                return candidate
        raise HttpProblem(404, "no-such-path", f"{_printable_excerpt(text)}: no such file or folder")


def _photo_folders(gallery: Gallery) -> list[Path]:
    """List the folders of the gallery's photos.

    Without "/", which contains everything, and without those of embeddings that were imported: these have no folder.
    """
    names = {os.path.dirname(path) for path in gallery.photo_paths()}  # noqa: PTH120 - faster, for a million photos
    folders = map(Path, names)
    return [folder for folder in folders if folder.is_absolute() and folder != folder.parent]


def _drop_nested(folders: Iterable[Path]) -> tuple[Path, ...]:
    topmost: list[Path] = []
    for folder in sorted(set(folders)):  # a folder comes before those within it
        if not any(folder.is_relative_to(previous) for previous in topmost[-1:]):
            topmost.append(folder)
    return tuple(topmost)


def _is_suspicious(text: str) -> bool:
    """Tell whether a path is written as only an attack would be. What it leads to is checked in any case."""
    leaves = ".." in text.split("/") or "\\" in text or text.startswith("//")  # "//" is another machine on Windows
    return not text or len(text) > MAX_PATH_CHARACTERS or printable(text) != text or leaves


def _outside_error(path: Path | str) -> HttpProblem:
    return HttpProblem(
        403,
        "outside-roots",
        f"{_printable_excerpt(path)}: lies outside the folders that this server reads; start it with --root FOLDER",
    )


def _printable_excerpt(path: Path | str) -> str:
    return printable(str(path)[:_MAX_SHOWN_CHARACTERS])[:_MAX_SHOWN_CHARACTERS]
