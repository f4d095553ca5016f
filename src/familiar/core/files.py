"""Files that are whole or absent."""

import contextlib
import hashlib
import os
import secrets
import time
from pathlib import Path

from familiar.core.errors import CannotWrite

_UNFINISHED = ".familiar."


def write_atomically(path: Path, content: bytes) -> None:
    """`content` at `path`; on any failure, and after a crash, what was there before.

    Written beside its place, flushed to the disk, then renamed. CannotWrite where the system refuses.
    """
    temporary = path.parent / f"{_UNFINISHED}{secrets.token_hex(8)}"  # as short where the name itself is long
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise CannotWrite(f"{path}: cannot be written ({error.strerror or error})") from error
        raise


def content_sha256(path: Path) -> bytes:
    """Of a file's bytes. OSError where it cannot be read."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").digest()


def absolute_path(path: Path | str) -> Path:
    """From the root, without `..`; links stay as they are."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - `resolve` would follow links, `absolute` keeps `..`


def real_path(path: Path | str) -> Path:
    """From the root, every link followed, as far as there are any."""
    return Path(os.path.realpath(path))  # `resolve` raises where links lead round


def fsync_directory(folder: Path) -> None:
    """What was named, renamed or unlinked in a folder is so on the disk, where the system has a way to say that."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_unfinished_files(folder: Path, older_than_seconds: float = 0) -> None:
    """Remove what processes killed while they wrote left in a folder.

    Where others may be writing there, only what is older than it takes to write a file.
    """
    for path in folder.glob(f"{_UNFINISHED}*"):
        with contextlib.suppress(FileNotFoundError):  # finished just now
            if not older_than_seconds or time.time() - path.stat().st_mtime > older_than_seconds:
                path.unlink()
