"""Atomic writes of files and folders, content hashes and absolute paths."""

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Generator
from pathlib import Path

from familiar.core.errors import CannotWrite

_UNFINISHED = ".familiar."
_ERASED_BYTES = 1 << 24  # written at once


def write_atomically(
    path: Path,
    content: bytes,
    *,
    keep_attributes: bool = False,
    check: Callable[[Path], None] = lambda _: None,
) -> None:
    """Write a file so that, on any failure or crash, the path has either the old content or the new.

    Writes a temporary file in the same folder, flushes it to the disk and renames it.

    Args:
        path: of the file.
        content: all of it.
        keep_attributes: copy the permissions and extended attributes of the file that is replaced, if there is one.
        check: called with the path of the temporary file before it is renamed; if it raises an error, the old file
            stays.

    Raises:
        CannotWrite: the system refuses.
    """
    temporary = path.parent / f"{_UNFINISHED}{secrets.token_hex(8)}"  # short even if the file's own name is long
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if keep_attributes and path.exists():
            shutil.copystat(path, temporary)
            os.utime(temporary)  # changed now: programs that make backups compare the time
        check(temporary)
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise CannotWrite(f"{path}: cannot be written ({error.strerror or error})") from error
        raise


@contextlib.contextmanager
def draft_folder(folder: Path) -> Generator[Path, None, None]:
    """Make a temporary folder next to `folder`, removed at the end unless renamed.

    Raises:
        CannotWrite: the system refuses.
    """
    draft = folder.absolute().with_name(f".{folder.absolute().name}.{secrets.token_hex(4)}")
    try:
        draft.mkdir(parents=True)
    except OSError as error:
        raise CannotWrite(f"{folder}: cannot be written ({error.strerror})") from error
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, if they are missing.

    Raises:
        CannotWrite: the system refuses.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(f"{folder}: cannot be created ({error.strerror or error})") from error


def content_sha256(path: Path) -> bytes:
    """Hash a file's content.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").digest()


def absolute_path(path: Path | str) -> Path:
    """Make a path absolute and remove `..` lexically; symlinks are not resolved."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would follow links, `absolute` keeps `..`


def real_path(path: Path | str) -> Path:
    """Make a path absolute and resolve all symlinks; unlike `Path.resolve`, a cycle of links raises nothing."""
    return Path(os.path.realpath(path))  # `resolve` raises on a cycle of links


def fsync_directory(folder: Path) -> None:
    """Flush a folder's entries (new, renamed and removed files) to the disk; does nothing on Windows."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unfinished_files(folder: Path) -> list[Path]:
    """List the temporary files that processes are writing in a folder, or left there when they were killed."""
    return list(folder.glob(f"{_UNFINISHED}*"))


def remove_unfinished_files(folder: Path, older_than_seconds: float = 0) -> None:
    """Remove the temporary files that killed processes left in a folder.

    Args:
        folder: the folder, without those in it.
        older_than_seconds: if other processes may be writing there, longer than writing one file takes.
    """
    for path in unfinished_files(folder):
        with contextlib.suppress(FileNotFoundError):  # finished just now
            if not older_than_seconds or time.time() - path.stat().st_mtime > older_than_seconds:
                path.unlink()


def erase_file(path: Path) -> None:
    """Overwrite a file with zeros and remove it; does nothing if there is none.

    File systems that write to other blocks instead (copy on write, snapshots, flash) may keep the old bytes; no program
    can erase those.

    Raises:
        CannotWrite: the system refuses.
    """
    try:
        if path.exists() and not os.access(path.parent, os.W_OK):  # before the content is overwritten
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        with path.open("r+b") as file:
            remaining = os.fstat(file.fileno()).st_size
            while remaining:  # and not truncated: a process that has it mapped would crash
                remaining -= file.write(bytes(min(remaining, _ERASED_BYTES)))
            file.flush()
            os.fsync(file.fileno())
        path.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        raise CannotWrite(f"{path}: cannot be erased ({error.strerror or error})") from error


@contextlib.contextmanager
def process_lock(path: Path) -> Generator[bool, None, None]:
    """Lock a file for this process, without waiting. The system releases the lock if the process is killed.

    Args:
        path: created if missing; it stays.

    Yields:
        Whether the lock was free.

    Raises:
        CannotWrite: the file cannot be created.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise CannotWrite(f"{path}: cannot be written ({error.strerror})") from error
    try:
        yield _lock(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # pyright: ignore
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
