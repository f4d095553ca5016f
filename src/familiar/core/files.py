"""Atomic writes of files and folders, content hashes and absolute paths."""

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Generator
from pathlib import Path
from urllib.parse import quote_from_bytes

from familiar.core.errors import CannotWrite, GalleryBusy

_UNFINISHED = ".familiar."
# What a file system answers that cannot open or sync folders, or a folder that may be written but not listed.
_CANNOT_SYNC_FOLDERS = frozenset(
    {errno.EACCES, errno.EBADF, errno.EINVAL, errno.EISDIR, errno.ENOSYS, errno.EOPNOTSUPP}
)
# Of the disk itself, so that the next file would fail too.
DISK_FAILURES = frozenset({errno.EDQUOT, errno.EIO, errno.ENOSPC, errno.EROFS})
_LOCKED_BY_OTHERS = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK})
_ERASED_BYTES = 1 << 24  # written at once
_RETRY_SECONDS = 0.002  # short: who follow each other closely leave a lock free for moments


def write_atomically(
    path: Path,
    content: bytes,
    *,
    keep_attributes: bool = False,
    private: bool = False,
    check: Callable[[Path], None] = lambda _: None,
) -> None:
    """Write a file so that, on any failure or crash, the path has either the old content or the new.

    Writes a temporary file in the same folder, flushes it to the disk, renames it and flushes the folder: what was
    written survives a power cut.

    Args:
        path: of the file.
        content: all of it.
        keep_attributes: copy the permissions and extended attributes of the file that is replaced, if there is one.
        private: no other user may read the file.
        check: called with the path of the temporary file before it is renamed; if it raises an error, the old file
            stays.

    Raises:
        CannotWrite: the system refuses.
    """
    temporary = path.parent / f"{_UNFINISHED}{secrets.token_hex(8)}"  # short even if the file's own name is long
    try:
        if private:
            temporary.touch(0o600, exist_ok=False)  # before it has content
        with temporary.open("wb" if private else "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if keep_attributes and path.exists():
            shutil.copystat(path, temporary)
            os.utime(temporary)  # changed now: programs that make backups compare the time
        check(temporary)
        temporary.replace(path)
        fsync_directory(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise CannotWrite(f"{path}: cannot be written ({error.strerror or error})") from error
        raise


@contextlib.contextmanager
def writing(path: Path, change: str = "written") -> Generator[None, None, None]:
    """Translate the system's errors in writing a file or folder to CannotWrite.

    Args:
        path: that the message names.
        change: what cannot be done, such as "erased".
    """
    try:
        yield
    except OSError as error:
        raise CannotWrite(f"{path}: cannot be {change} ({error.strerror or error})") from error


@contextlib.contextmanager
def draft_folder(folder: Path) -> Generator[Path, None, None]:
    """Make a temporary folder next to `folder`, removed at the end unless renamed by `publish_folder`.

    Raises:
        CannotWrite: the system refuses.
    """
    draft = folder.absolute().with_name(f".{folder.absolute().name}.{secrets.token_hex(4)}")
    make_folder(draft.parent)
    with writing(folder):
        draft.mkdir()
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def publish_folder(draft: Path, folder: Path) -> None:
    """Flush a folder with all that is in it to the disk and rename it: a power cut leaves all of it or nothing.

    Args:
        draft: on the same file system.
        folder: its new name; an empty folder there is replaced.

    Raises:
        CannotWrite: the system refuses, or there is a folder with contents.
    """
    with writing(folder):
        fsync_tree(draft)
        if folder.exists():
            folder.rmdir()  # not all systems replace an empty one by a rename
        draft.rename(folder)
        fsync_directory(folder.absolute().parent)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, if they are missing. They survive a power cut.

    Raises:
        CannotWrite: the system refuses.
    """
    with writing(folder, "created"):
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for each in missing:
            fsync_directory(each.parent)


def unused_path(folder: Path, name: str, suffix: str = "") -> Path:
    """Return a path in a folder at which nothing is: with a number after the name, if there is something."""
    names = (name, *(f"{name}-{number}" for number in range(2, 1000)))
    return next(path for each in names if not (path := folder / f"{each}{suffix}").exists())


def require_regular_file(path: Path) -> os.stat_result:
    """Return the status of a file that is to be read: reading a named pipe would wait forever.

    Raises:
        OSError: it is missing, a folder or a special file.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "a folder or a special file", str(path))
    return status


def content_sha256(path: Path) -> bytes:
    """Hash a file's content.

    Raises:
        OSError: the file cannot be read.
    """
    require_regular_file(path)
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").digest()


def absolute_path(path: Path | str) -> Path:
    """Make a path absolute and remove `..` lexically; symlinks are not resolved."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would follow links, `absolute` keeps `..`


def real_path(path: Path | str) -> Path:
    """Make a path absolute and resolve all symlinks; unlike `Path.resolve`, a cycle of links raises nothing."""
    return Path(os.path.realpath(path))  # `resolve` raises on a cycle of links


def sqlite_uri(path: Path) -> str:
    """Return the path of a database as the URI that SQLite opens: a path may contain bytes that are not UTF-8."""
    return f"file:{quote_from_bytes(os.fsencode(path.absolute()))}"


def fsync_directory(folder: Path) -> None:
    """Flush a folder's entries (new, renamed and removed files) to the disk, if its file system can.

    Raises:
        OSError: the disk fails.
    """
    if os.name == "nt":
        return
    try:
        fsync_file(folder)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC_FOLDERS:
            raise


def fsync_tree(folder: Path) -> None:
    """Flush all files and folders in a folder to the disk, and the folder itself.

    Raises:
        OSError: the disk fails.
    """
    for root, _, names in os.walk(folder):
        for name in names:
            file = Path(root, name)
            if file.is_file() and not file.is_symlink():
                fsync_file(file)
        fsync_directory(Path(root))


def fsync_file(path: Path) -> None:
    """Flush a file to the disk.

    Raises:
        OSError: the disk fails.
    """
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)  # Windows flushes what it may write
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unfinished_files(folder: Path) -> list[Path]:
    """List the temporary files that processes are writing in a folder, or left there when they were killed."""
    return [path for path in folder.glob(f"{_UNFINISHED}*") if path.is_file()]


def remove_unfinished_files(folder: Path, older_than_seconds: float = 0) -> None:
    """Remove the temporary files that killed processes left in a folder.

    Args:
        folder: the folder, without those in it.
        older_than_seconds: if other processes may be writing there, longer than writing one file takes.
    """
    for path in unfinished_files(folder):
        with contextlib.suppress(OSError):  # finished just now, or another user's
            if not older_than_seconds or time.time() - path.stat().st_mtime > older_than_seconds:
                path.unlink()


class FileLock:
    """A lock on a file, shared or exclusive, that the system releases if the process is killed.

    Two objects exclude each other also in one process. On Windows a shared lock is exclusive as well.
    """

    def __init__(self, path: Path) -> None:
        """Open the file; it is created if missing, and stays.

        Raises:
            CannotWrite: the file cannot be created.
        """
        self._path = path
        with writing(path):
            self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)

    def acquire(self, *, shared: bool = False, wait_seconds: float = 0) -> bool:
        """Lock the file; return whether it was free, at once or within some seconds.

        Raises:
            CannotWrite: the file system cannot lock files.
        """
        assert self._descriptor is not None, "the lock is closed"
        deadline = time.monotonic() + wait_seconds
        try:
            while not (is_locked := _lock(self._descriptor, shared=shared)) and time.monotonic() < deadline:
                time.sleep(_RETRY_SECONDS)
            return is_locked
        except OSError as error:
            raise CannotWrite(
                f"{self._path}: cannot be locked ({error.strerror}); use a file system that can lock files"
            ) from error

    def release(self) -> None:
        """Unlock the file."""
        if self._descriptor is not None:
            _unlock(self._descriptor)

    def close(self) -> None:
        """Unlock the file, and close it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def erase_file(path: Path) -> None:
    """Overwrite a file with zeros and remove it; does nothing if there is none.

    A file that has other names (hard links) keeps its content under those, and is not even opened: it may be a database
    that this process has open, and closing any descriptor of that would release its locks.

    File systems that write to other blocks instead (copy on write, snapshots, flash) may keep the old bytes; no program
    can erase those.

    Raises:
        CannotWrite: the system refuses.
    """
    can_remove_open_files = os.name != "nt"
    with writing(path, "erased"), contextlib.suppress(FileNotFoundError):
        if path.is_symlink() or path.stat().st_nlink > 1:
            path.unlink()
            fsync_directory(path.parent)
            return
        with path.open("r+b") as file:
            if can_remove_open_files:  # and first, so that no error and no power cut leaves a file without its content
                path.unlink()
                fsync_directory(path.parent)
            remaining = os.fstat(file.fileno()).st_size
            while remaining:  # and not truncated: a process that has it mapped would crash
                remaining -= file.write(bytes(min(remaining, _ERASED_BYTES)))
            file.flush()
            os.fsync(file.fileno())
        if not can_remove_open_files:
            path.unlink()


@contextlib.contextmanager
def held_lock(path: Path, wait_seconds: float, busy: str) -> Generator[None, None, None]:
    """Lock a file for this process. The system releases the lock if the process is killed.

    Args:
        path: created if missing; it stays.
        wait_seconds: for others that have it.
        busy: what to say if they still have it then.

    Raises:
        CannotWrite: the file cannot be created.
        GalleryBusy: others have it.
    """
    with process_lock(path, wait_seconds) as is_free:
        if not is_free:
            raise GalleryBusy(busy)
        yield


@contextlib.contextmanager
def process_lock(path: Path, wait_seconds: float = 0) -> Generator[bool, None, None]:
    """Lock a file for this process. The system releases the lock if the process is killed.

    Args:
        path: created if missing; it stays.
        wait_seconds: for others that have it.

    Yields:
        Whether the lock was free.

    Raises:
        CannotWrite: the file cannot be created.
    """
    lock = FileLock(path)
    try:
        yield lock.acquire(wait_seconds=wait_seconds)
    finally:
        lock.close()


def _lock(descriptor: int, *, shared: bool) -> bool:
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # pyright: ignore
        else:
            import fcntl

            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _LOCKED_BY_OTHERS:
            return False
        raise
    return True


def _unlock(descriptor: int) -> None:
    with contextlib.suppress(OSError):  # on Windows, unlocking what is not locked
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)  # pyright: ignore
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_UN)
