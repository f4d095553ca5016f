"""Copies of a gallery's database that are made before the first change of a day.

Each is a database of its own in `backups/`, named after its day. The last days and the last weeks are kept. What was
forgotten is erased from them as well.
"""

import contextlib
import logging
import re
from collections.abc import Generator
from datetime import date, datetime
from pathlib import Path

import apsw

from familiar.core.errors import FamiliarError
from familiar.core.files import erase_file, fsync_directory, fsync_file, held_lock, make_folder, unused_path
from familiar.gallery.store.connection import (
    DATABASE,
    Connection,
    connect,
    copy_to_new_file,
    find_damage,
    translate_errors,
)
from familiar.gallery.store.drafts import erase_drafts
from familiar.gallery.store.erasure import Erasure, Forgotten
from familiar.gallery.store.retention import Retention, day_of, is_copy

FOLDER = "backups"
_UNFINISHED = ".unfinished"
_LOCK_FILE = ".lock"
_DAMAGED = re.compile(r"damaged-\d{8}-\d{6}(-\d+)?")  # as `recovery` names folders of damaged files
_WAIT_SECONDS = 60.0  # a copy of a million faces takes a part of it

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def _lock(folder: Path) -> Generator[None, None, None]:
    """Keep others from erasing copies while one is made, and from making one while what was forgotten is erased."""
    busy = f"{folder}: another process is writing automatic copies; try again when it is done"
    with held_lock(folder / FOLDER / _LOCK_FILE, _WAIT_SECONDS, busy):
        yield


def copies(folder: Path) -> list[Path]:
    """List the automatic copies of a gallery's database, newest first."""
    paths = [path for path in (folder / FOLDER).glob("*.sqlite") if is_copy(path)]
    return sorted(paths, key=lambda path: path.name, reverse=True)


def has_copy_of_today(folder: Path) -> bool:
    """Whether a gallery has an automatic copy of this day."""
    return any(day_of(path) == date.today() for path in copies(folder))


def copy(connection: Connection, folder: Path, retention: Retention, reason: str = "") -> Path | None:
    """Copy the database as it is now, verify the copy, and remove those that are older than what is kept.

    A copy that fails is reported in the log, and never keeps anybody from what they do.

    Args:
        connection: to the gallery's database, outside a transaction.
        folder: the gallery's folder.
        retention: which copies are kept.
        reason: a word for its name, if it is not that of the day.

    Returns:
        The copy; None if there is none, since there is no photo yet, or the copy failed.
    """
    if not retention or not connection.first("SELECT 1 FROM photos LIMIT 1"):
        return None
    target = unused_path(folder / FOLDER, f"{datetime.now():%Y-%m-%dT%H%M%S}{'-' if reason else ''}{reason}", ".sqlite")
    unfinished = folder / FOLDER / _UNFINISHED
    try:
        make_folder(target.parent)
        with _lock(folder), translate_errors(folder):
            unfinished.unlink(missing_ok=True)  # a killed process's
            try:
                copy_to_new_file(connection, unfinished)
                require_intact(unfinished)
                fsync_file(unfinished)
                unfinished.replace(target)
            finally:
                unfinished.unlink(missing_ok=True)
            fsync_directory(target.parent)
            for path in set(copies(folder)) - retention.keep(copies(folder)) - {target}:
                erase_file(path)
    except (FamiliarError, OSError) as error:
        _log.warning("%s: the automatic copy failed (%s); changes are made all the same", target, error)
        return None
    return target


def require_intact(path: Path) -> None:
    """Check every page of a copy.

    Raises:
        apsw.Error: it is damaged.
    """
    with contextlib.closing(connect(path, read_only=True)) as connection:
        if problems := find_damage(connection):
            raise apsw.CorruptError("; ".join(problems[:3]))


def damaged_files(folder: Path) -> list[Path]:
    """List the files that repairs and restores have moved aside, and kept."""
    folders = (each for each in folder.glob("damaged-*") if _DAMAGED.fullmatch(each.name))
    return sorted(path for each in folders for path in each.glob(f"{DATABASE}*"))


def forget(folder: Path, forgotten: Forgotten) -> None:
    """Erase what the gallery has forgotten from its automatic copies; what cannot be read is erased as a whole.

    So is what killed or finished restores and repairs have left.

    Raises:
        CannotWrite: the disk is full or failing.
        GalleryBusy: another process has been making a copy for a minute, or is restoring a gallery there.
    """
    erase_drafts(folder)
    for path in damaged_files(folder):
        erase_file(path)
    if (folder / FOLDER).is_dir():
        with _lock(folder):
            _forget_in_copies(folder, forgotten)


def _forget_in_copies(folder: Path, forgotten: Forgotten) -> None:
    for path in (folder / FOLDER).glob(f"{_UNFINISHED}*"):  # and its log
        erase_file(path)
    for path in copies(folder):
        try:
            with contextlib.closing(connect(path)) as connection:
                connection.set("secure_delete", True)
                connection.set("foreign_keys", True)
                with connection:
                    Erasure(connection).erase_in_copy(forgotten)
                connection.set("temp_store", "MEMORY")
                connection.run("VACUUM")
        except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError, apsw.IOError):
            erase_file(path)
