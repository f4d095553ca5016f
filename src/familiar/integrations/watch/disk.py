"""The photos in the watched folders as they are on the disk. Knows nothing of the gallery."""

import os
import stat
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from familiar.photos.listing import Exclusion, FolderWalk, file_kind, folder_kind

_MAX_FOLDERS = 50  # changed folders whose files are looked for among all


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


NO_STATUS = FileStatus(0, 0, 0)  # of a folder
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
        self._has_links = False
        self._scanned: dict[str, _FolderState] = {}

    def scan(self) -> None:
        """Search all folders."""
        self.files, self.unreadable, self.passed_over, self._has_links = {}, {}, Counter(), False
        self._scanned = {folder: _folder_state(folder) for folder in self.folders}
        for folder in self.folders:
            self._walk(folder)

    @property
    def unavailable(self) -> dict[str, str]:
        """Watched folders that are missing, empty or cannot be listed, each with the reason.

        What was in them is unknown: an empty folder is where a disk or a share is not mounted.
        """
        return {folder: reason for folder, (_, reason) in self._scanned.items() if reason is not None}

    def is_outdated(self) -> bool:
        """Tell whether a watched folder was mounted, unmounted, replaced or emptied since it was searched."""
        return any(_folder_state(folder) != self._scanned.get(folder) for folder in self.folders)

    def refresh(self, paths: Iterable[str]) -> None:
        """Look at some paths again.

        Args:
            paths: of files and folders in the watched folders that may have changed.
        """
        changed = set(paths)
        # What is gone may have been a folder.
        folders = tuple(path + os.sep for path in changed if path not in self.files and not os.path.isfile(path))  # noqa: PTH113
        # A folder that is linked, too, may be listed at another path now.
        has_links = self._has_links or any(map(os.path.islink, folders))
        if has_links or len(folders) > _MAX_FOLDERS or not all(map(self.contains, changed)):
            self.scan()
            return
        for entries in (self.files, self.unreadable):
            for path in [path for path in entries if path in changed or path.startswith(folders)]:
                del entries[path]
        for path in filter(self._is_visible, changed):
            if os.path.isdir(path):  # noqa: PTH112
                self._walk(path)
                if self._has_links:
                    self.scan()
                    return
            elif file_kind(os.path.basename(path)) is None:  # noqa: PTH119
                self._add_file(path)

    def is_unknown(self, path: str) -> bool:
        """Tell whether it cannot be said if there is a file at a path."""
        return any(path == each or path.startswith(each + os.sep) for each in (*self.unavailable, *self.unreadable))

    def contains(self, path: str) -> bool:
        """Tell whether a path is in a watched folder."""
        return path.startswith(tuple(map(_with_separator, self.folders)))

    def _is_visible(self, path: str) -> bool:
        """Tell whether neither a path nor a folder between it and the watched one is passed over."""
        without = tuple(map(_with_separator, self._without))
        for folder in self.folders:
            parts = path.removeprefix(_with_separator(folder)).split(os.sep)  # noqa: PTH206
            below = [os.path.join(folder, *parts[: end + 1]) for end in range(len(parts))]  # noqa: PTH118
            if (
                path.startswith(_with_separator(folder))
                and not any(self._exclusion.matches(each, folder) or folder_kind(each) for each in below)
                and not _with_separator(path).startswith(without)
            ):
                return True
        return False

    def _walk(self, folder: str) -> None:
        """Add the photos in a folder; what is deleted meanwhile is left out."""
        walk = FolderWalk(self._exclusion, self.passed_over, lambda error: self._note_error(error.filename, error))
        for path in walk.photos(folder, self._without):
            self._add_file(path)
        self._has_links |= walk.follows_links

    def _add_file(self, path: str) -> None:
        """Add a photo."""
        try:
            status = os.stat(path)  # noqa: PTH116
        except OSError as error:
            self._note_error(path, error)
            return
        if not stat.S_ISDIR(status.st_mode):  # a link to a folder
            self.files[path] = FileStatus(status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    def _note_error(self, path: str, error: OSError) -> None:
        """Note that a path cannot be read, unless it is a broken link, or was deleted just now."""
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            self.unreadable[path] = _reason(error)


def _with_separator(folder: str) -> str:
    return folder.rstrip(os.sep) + os.sep


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
