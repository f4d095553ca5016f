"""The photos in the watched folders as they are on the disk. Knows nothing of the gallery."""

import os
import stat
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from familiar.photos import Exclusion, FolderWalk


class FileStatus(NamedTuple):
    """By what a file is recognized as unchanged.

    Attributes:
        size_bytes: its size.
        modified_ns: its modification time.
        changed_ns: when its content, name or permissions last changed.
    """

    size_bytes: int
    modified_ns: int
    changed_ns: int

    @property
    def content(self) -> tuple[int, int]:
        """Size and modification time, by which the content is recognized as the same."""
        return self.size_bytes, self.modified_ns


_FolderState = tuple[tuple[int, int] | None, str | None]


class Disk:
    """The photos in some folders and their subfolders.

    What is a photo, and which folders are searched, is as for `find_photos`: half-copied files have hidden names, or
    names such as `a.jpg.part`.

    Args:
        folders: absolute.
        without: absolute folders that are not searched.
        exclude: patterns of files and folders to leave out.

    Attributes:
        passed_over: counts the files that are no photos, by kind, as of the last search.
        files: the status of each photo by its path.
        unreadable: folders that cannot be listed and files whose status is unknown, each with the reason.
    """

    def __init__(self, folders: Sequence[Path], without: Collection[Path] = (), exclude: Sequence[str] = ()) -> None:
        self.folders = tuple(dict.fromkeys(map(str, folders)))
        self.files: dict[str, FileStatus] = {}
        self.unreadable: dict[str, str] = {}
        self.passed_over = Counter[str]()
        self._without, self._exclusion = tuple(map(str, without)), Exclusion(exclude)
        self._scanned: dict[str, _FolderState] = {}

    def scan(self) -> None:
        """Search all folders; what is deleted meanwhile is left out."""
        self.files, self.unreadable, self.passed_over = {}, {}, Counter()
        self._scanned = {folder: _folder_state(folder) for folder in self.folders}
        for folder in self.folders:
            walk = FolderWalk(self._exclusion, self.passed_over, lambda error: self._note_error(error.filename, error))
            self.refresh(walk.photos(folder, self._without))

    def refresh(self, paths: Iterable[str]) -> None:
        """Look at some photos again.

        Args:
            paths: of files in the watched folders that were photos.
        """
        for path in paths:
            self.files.pop(path, None)
            self.unreadable.pop(path, None)
            try:
                status = os.stat(path)  # noqa: PTH116
            except OSError as error:
                self._note_error(path, error)
                continue
            if not stat.S_ISDIR(status.st_mode):  # a link to a folder
                self.files[path] = FileStatus(status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    @property
    def unavailable(self) -> dict[str, str]:
        """Watched folders that are missing, empty or cannot be listed, each with the reason.

        What was in them is unknown: an empty folder is where a disk or a share is not mounted.
        """
        return {folder: reason for folder, (_, reason) in self._scanned.items() if reason is not None}

    def is_outdated(self) -> bool:
        """Tell whether a watched folder was mounted, unmounted, replaced or emptied since it was searched."""
        return any(_folder_state(folder) != self._scanned.get(folder) for folder in self.folders)

    def is_unknown(self, path: str) -> bool:
        """Tell whether it cannot be said if there is a file at a path."""
        return any(path == each or path.startswith(each + os.sep) for each in (*self.unavailable, *self.unreadable))

    def contains(self, path: str) -> bool:
        """Tell whether a path is in a watched folder."""
        return path.startswith(tuple(folder.rstrip(os.sep) + os.sep for folder in self.folders))

    def _note_error(self, path: str, error: OSError) -> None:
        """Note that a path cannot be read, unless it is a broken link, or was deleted just now."""
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            self.unreadable[path] = _reason(error)


def _folder_state(folder: str) -> _FolderState:
    """Return by what a watched folder is recognized as the same, and why it is unavailable, if it is."""
    try:
        status = os.stat(folder)  # noqa: PTH116
        with os.scandir(folder) as entries:
            reason = None if next(entries, None) else "the folder is empty"
    except OSError as error:
        return None, _reason(error)
    return (status.st_dev, status.st_ino), reason


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
