"""Replacing a gallery's database as a whole: no write is lost, and a crash at any point leaves the old one or the new.

Every write, and every opening, holds a shared lock on `gallery.lock`; who replaces the database holds it exclusively
from before it is copied until the new one is in place. SQLite's own locks are of no use there, since they need a file
that SQLite can read. The replacement itself takes several steps, as the log of the old database must never lie beside
the new one. So they are written to a file first, and whoever opens the gallery after a crash finishes them.
"""

import contextlib
import itertools
import json
import os
import time
from collections.abc import Generator
from pathlib import Path

from familiar.core.errors import CannotWrite, GalleryBusy
from familiar.core.files import FileLock, fsync_directory, write_atomically
from familiar.gallery.database.external_index import FILE as EXTERNAL_INDEX_FILE
from familiar.gallery.database.sqlite_file import ACKNOWLEDGED_FILE, DATABASE, require_no_link

LOCK_FILE = "gallery.lock"
SWITCH_FILE = "gallery.switch"
_RETRY_SECONDS = 0.002  # short: writers that follow each other closely leave the lock free for moments
MAX_WAIT_SECONDS = 60.0  # until running writes are done


@contextlib.contextmanager
def exclusive(folder: Path, wait_seconds: float = MAX_WAIT_SECONDS) -> Generator[None, None, None]:
    """Keep all connections of all processes from writing to a gallery, and from opening it. Reading goes on.

    Args:
        folder: the gallery's folder, which exists.
        wait_seconds: how long to wait for running writes.

    Raises:
        BadGallery: the database is a link.
        CannotWrite: the folder cannot be written to.
        GalleryBusy: others have been writing for all that time.
    """
    require_no_link(folder)
    lock = FileLock(folder / LOCK_FILE)
    try:
        if not wait_for(lock, shared=False, seconds=wait_seconds):
            raise GalleryBusy(f"{folder}: another process is writing to the gallery; try again when it is done")
        _finish(folder)
        yield
    finally:
        lock.close()


def wait_for(lock: FileLock, *, shared: bool, seconds: float) -> bool:
    """Acquire a lock within some seconds; return whether that succeeded."""
    deadline = time.monotonic() + seconds
    while not lock.acquire(shared=shared):
        if time.monotonic() > deadline:
            return False
        time.sleep(_RETRY_SECONDS)
    return True


def is_unfinished(folder: Path) -> bool:
    """Whether a process was killed while it replaced the database."""
    return os.path.lexists(folder / SWITCH_FILE)


def finish_switch(folder: Path) -> None:
    """Finish a replacement of the database that a crash has interrupted, if there is one.

    Raises:
        CannotWrite: the folder cannot be written to.
        GalleryBusy: another process is replacing the database.
    """
    if is_unfinished(folder):
        with exclusive(folder):
            pass


def switch_database(
    folder: Path, replacement: Path, previous: Path, *, keeps_index: bool = True, index: Path | None = None
) -> None:
    """Put a new database in place, to be called within `exclusive`.

    Args:
        folder: the gallery's folder.
        replacement: the new database, a closed file in that folder without a log.
        previous: a folder in that folder, to which the files of the old database are moved. It is created.
        keeps_index: whether `EXTERNAL_INDEX_FILE` stays.
        index: otherwise the file in that folder that becomes the new one; None: there is none.

    Raises:
        OSError: the system refuses. The gallery has its old database, or the next opening finishes.
        CannotWrite: likewise.
    """
    flush_file(replacement)
    fsync_directory(folder)
    steps = {
        "replacement": replacement.name,
        "previous": previous.name,
        "keeps_index": keeps_index,
        "index": None if index is None else index.name,
    }
    write_atomically(folder / SWITCH_FILE, json.dumps(steps).encode())
    _finish(folder)


def flush_file(path: Path) -> None:
    """Flush a file's content to the disk."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def dated_folder(folder: Path, name: str) -> Path:
    """Return a path in a folder, named by a word and the time, at which there is nothing."""
    now = time.strftime("%Y%m%d-%H%M%S")
    names = itertools.chain([f"{name}-{now}"], (f"{name}-{now}-{number}" for number in itertools.count(1)))
    return next(folder / dated for dated in names if not (folder / dated).exists())


def _finish(folder: Path) -> None:
    """Do the steps that `SWITCH_FILE` describes, as far as they are not done yet, in an order that can be repeated."""
    marker = folder / SWITCH_FILE
    if not is_unfinished(folder):
        return
    try:
        steps = json.loads(marker.read_text())
        replacement, previous = folder / steps["replacement"], folder / steps["previous"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CannotWrite(
            f"{marker}: cannot be read ({error}), so it is unknown which file a repair or a restore wanted to put in "
            f"place; move it away to continue with {DATABASE} as it is"
        ) from error
    try:
        if replacement.exists():  # else it is in place
            previous.mkdir(exist_ok=True)
            _keep_database(folder / DATABASE, previous / DATABASE)
            for name in (f"{DATABASE}-wal", f"{DATABASE}-shm", ACKNOWLEDGED_FILE):
                _move(folder / name, previous / name)
            if not steps.get("keeps_index", True):
                _replace_external_index(folder, steps["index"], previous)
            fsync_directory(previous)
            fsync_directory(folder)  # the old log is away before the new database comes
            replacement.replace(folder / DATABASE)
            fsync_directory(folder)
        elif _is_still_old(folder / DATABASE, previous / DATABASE):
            raise CannotWrite(
                f"{folder}: {replacement.name} is missing, which was to replace {DATABASE}; to continue with the old "
                f"gallery, move the files in {previous} back, and delete {marker}"
            )
        marker.unlink()
        fsync_directory(folder)
    except OSError as error:
        raise CannotWrite(f"{folder}: the database cannot be replaced ({error.strerror or error})") from error


def _keep_database(database: Path, previous: Path) -> None:
    """Give the old database a second name, by which it is kept: so the gallery always has a database."""
    if not previous.exists():
        try:
            os.link(database, previous)
        except FileNotFoundError:  # there was none
            pass
        except OSError:  # a file system without hard links
            database.replace(previous)  # not copied: to close a file that was read would release the locks of SQLite


def _is_still_old(database: Path, previous: Path) -> bool:
    """Whether the database is still the old one, or not there, as on a file system without hard links."""
    return previous.exists() and (not database.exists() or database.samefile(previous))


def _replace_external_index(folder: Path, name: str | None, previous: Path) -> None:
    if name is None or (folder / name).exists():  # else it is in place
        _move(folder / EXTERNAL_INDEX_FILE, previous / EXTERNAL_INDEX_FILE)
        if name is not None:
            (folder / name).replace(folder / EXTERNAL_INDEX_FILE)


def _move(path: Path, to: Path) -> None:
    with contextlib.suppress(FileNotFoundError):  # there was none, or the last connection has just deleted it
        path.replace(to)
