"""The photos in the watched folders as they are on the disk. Knows nothing of the gallery."""

import os
import stat
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from familiar.photos.decoding import PHOTO_SUFFIXES

_SUFFIXES = tuple(PHOTO_SUFFIXES)
_MAX_REFRESHED = 10_000  # paths; beyond them a full scan is as fast
_MAX_FOLDERS = 50  # changed folders whose files are looked for among all


@dataclass(frozen=True)
class FileStatus:
    """By what a file is recognized as unchanged.

    Attributes:
        size_bytes: its size.
        modified_ns: its modification time.
        changed_ns: when its content, name or permissions last changed.
    """

    size_bytes: int
    modified_ns: int
    changed_ns: int

    def has_content_of(self, other: "FileStatus") -> bool:
        """Tell whether size and modification time are the same."""
        return (self.size_bytes, self.modified_ns) == (other.size_bytes, other.modified_ns)


NO_STATUS = FileStatus(0, 0, 0)  # of a folder


class Disk:
    """The photos in some folders and their subfolders.

    Hidden files and folders are no photos, nor are files with another suffix: half-copied files have hidden names, or
    names such as `a.jpg.part`. Links to folders are not followed.

    Args:
        folders: absolute.
        excluded: absolute folders that are not searched.

    Attributes:
        files: the status of each photo by its path.
        unreadable: folders that cannot be listed and files whose status is unknown, each with the reason.
        unavailable: watched folders that are missing, empty or cannot be listed, each with the reason. What was in them
            is unknown: an empty folder is where a disk or a share is not mounted.
    """

    def __init__(self, folders: Sequence[Path], excluded: Collection[Path] = ()) -> None:
        self.folders = tuple(dict.fromkeys(map(str, folders)))
        self.files: dict[str, FileStatus] = {}
        self.unreadable: dict[str, str] = {}
        self.unavailable: dict[str, str] = {}
        self._excluded = frozenset(map(str, excluded))
        self._scanned_ids: dict[str, tuple[int, int] | None] = {}

    def scan(self) -> None:
        """Search all folders."""
        self.files, self.unreadable, self.unavailable = {}, {}, {}
        for folder in self.folders:
            self._scanned_ids[folder] = _folder_id(folder)
            if (reason := _unavailable_reason(folder)) is not None:
                self.unavailable[folder] = reason
            self._walk(folder)

    def is_outdated(self) -> bool:
        """Tell whether a watched folder was mounted, unmounted, replaced or emptied since it was searched."""
        return any(
            _folder_id(folder) != self._scanned_ids.get(folder, (0, 0))
            or (folder in self.unavailable) != (_unavailable_reason(folder) is not None)
            for folder in self.folders
        )

    def refresh(self, paths: Iterable[str]) -> bool:
        """Look at some paths again.

        Args:
            paths: of files and folders in the watched folders that may have changed.

        Returns:
            Whether a photo is new, gone or different.
        """
        before, changed = dict(self.files), set(paths)
        folders = tuple(path + os.sep for path in changed if path not in self.files and _may_be_folder(path))
        is_simple = len(changed) <= _MAX_REFRESHED and len(folders) <= _MAX_FOLDERS
        if not is_simple or not all(map(self.contains, changed)):
            self.scan()
            return self.files != before
        for entries in (self.files, self.unreadable):
            for path in [path for path in entries if path in changed or path.startswith(folders)]:
                del entries[path]
        for path in filter(self._is_visible, changed):
            self._look_at(path)
        return self.files != before

    def is_unknown(self, path: str) -> bool:
        """Tell whether it cannot be said if there is a file at a path."""
        return any(path == each or path.startswith(each + os.sep) for each in (*self.unavailable, *self.unreadable))

    def contains(self, path: str) -> bool:
        """Tell whether a path is in a watched folder."""
        return any(path.startswith(folder.rstrip(os.sep) + os.sep) for folder in self.folders)

    def _is_visible(self, path: str) -> bool:
        """Tell whether neither a path nor a folder between it and the watched one is hidden or excluded."""
        for folder in self.folders:
            parts = Path(path).relative_to(folder).parts if Path(path).is_relative_to(folder) else ()
            between = {str(Path(folder, *parts[: count + 1])) for count in range(len(parts))}
            if parts and not any(part.startswith(".") for part in parts) and self._excluded.isdisjoint(between):
                return True
        return False

    def _look_at(self, path: str) -> None:
        try:
            is_folder = stat.S_ISDIR(os.lstat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self.unreadable[path] = _reason(error)
            return
        if is_folder:
            self._walk(path)
        elif _is_photo_name(Path(path).name):
            self._add_file(path)

    def _walk(self, folder: str) -> None:
        """Add the photos in a folder; what is deleted meanwhile is left out."""
        pending = [folder]
        while pending:
            current = pending.pop()
            try:
                with os.scandir(current) as entries:
                    for entry in entries:
                        if entry.name.startswith("."):
                            continue
                        if entry.is_dir(follow_symlinks=False):
                            if entry.path not in self._excluded:
                                pending.append(entry.path)
                        elif _is_photo_name(entry.name):
                            self._add_file(entry.path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self.unreadable[current] = _reason(error)

    def _add_file(self, path: str) -> None:
        try:
            status = os.stat(path)  # noqa: PTH116 - a Path each is slow for a hundred thousand
        except (FileNotFoundError, NotADirectoryError):  # a broken link, or deleted just now
            return
        except OSError as error:
            self.unreadable[path] = _reason(error)
            return
        if not stat.S_ISDIR(status.st_mode):  # a link to a folder
            self.files[path] = FileStatus(status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _may_be_folder(path: str) -> bool:
    """Tell whether a path is a folder, or is gone, so that it may have been one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return True


def _is_photo_name(name: str) -> bool:
    return not name.startswith(".") and name.lower().endswith(_SUFFIXES)


def _folder_id(folder: str) -> tuple[int, int] | None:
    try:
        status = os.stat(folder)  # noqa: PTH116
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _unavailable_reason(folder: str) -> str | None:
    try:
        with os.scandir(folder) as entries:
            if next(entries, None) is not None:
                return None
    except OSError as error:
        return _reason(error)
    return "the folder is empty"


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
