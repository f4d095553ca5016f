"""The SQLite file of a gallery: connect to it, check it, and detect when it was replaced or rolled back."""

import contextlib
import os
import re
import sqlite3
from pathlib import Path

from familiar.core.errors import BadGallery, CorruptGallery
from familiar.gallery.database.schema import APPLICATION_ID, VERSION, update_tables
from familiar.gallery.database.space import Space

DATABASE = "gallery.sqlite"
COMMITTED_REVISION_FILE = "gallery.revision"
_CACHE_KB = 64 * 1024  # the index by content is read at random: of a million photos it is as large
_LOG_PAGES = 4_000  # 16 MB of write-ahead log, after which it is written back
_MAGIC = b"SQLite format 3\0"


def file_id(folder: Path) -> tuple[int, int] | None:
    """Return (st_dev, st_ino) of a folder's database, or None if there is none."""
    try:
        status = (folder / DATABASE).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def connect(path: Path, busy_seconds: float) -> sqlite3.Connection:
    """Connect to a database file, creating it if missing.

    Args:
        path: of the file.
        busy_seconds: how long a statement waits for another connection's lock.

    Returns:
        A connection in autocommit mode that any thread may use, one at a time.
    """
    connection = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
    connection.text_factory = os.fsdecode  # a path may contain bytes that are not UTF-8
    return connection


def configure(connection: sqlite3.Connection) -> None:
    """Set the pragmas of an open gallery: WAL, durable commits, foreign keys, deleted bytes zeroed."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")


def check_header(path: Path) -> None:
    """Check that a file is a gallery of this program, before SQLite touches it.

    Raises:
        BadGallery: the file is missing, unreadable or another program's database.
        CorruptGallery: the file is not an SQLite database.
    """
    try:
        with path.open("rb") as file:
            header = file.read(72)
    except FileNotFoundError as error:
        raise BadGallery(
            f"{path.parent}: no gallery here; create one with: familiar gallery enroll {path.parent} PHOTOS "
            "--model MODEL"
        ) from error
    except OSError as error:
        raise BadGallery(f"{path}: cannot be read ({error.strerror})") from error
    if not header.startswith(_MAGIC):
        raise CorruptGallery(
            f"{path}: does not start like an SQLite database: it is damaged, or not a gallery. "
            f"Recover what can be read with: familiar gallery repair {path.parent}"
        )
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise BadGallery(f"{path}: is a database, but not a familiar gallery; move it away, or name another folder")


def prepare(connection: sqlite3.Connection, folder: Path, *, check: bool) -> None:
    """Configure a new connection, update the tables of an older version, and check the file.

    Args:
        connection: to the gallery's database.
        folder: the gallery's folder.
        check: whether to read every page of the file.

    Raises:
        BadGallery: the gallery was made by a newer version.
        CorruptGallery: the gallery's row is damaged, or the file is older than the last acknowledged write.
        sqlite3.Error: the file is damaged; see `translate_sqlite_errors`.
    """
    configure(connection)
    if check:
        (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if result != "ok":
            raise _check_error(result)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise BadGallery(
            f"{folder}: was made by a newer version of familiar (schema version {version}; this one reads up to "
            f"{VERSION}); update familiar: pip install --upgrade familiar-faces"
        )
    if version < 1:
        raise sqlite3.DatabaseError("its schema version is lost")
    if version < VERSION:
        connection.execute("BEGIN IMMEDIATE")
        update_tables(connection, connection.execute("PRAGMA user_version").fetchone()[0])
        connection.execute("COMMIT")
    acknowledged = committed_revision(folder)  # read first: other processes may write in between
    revision = _read_revision(connection, folder)
    if revision < acknowledged:
        raise CorruptGallery(
            f"{folder}: contains {revision} of {acknowledged} acknowledged writes: {DATABASE}-wal was deleted, or an "
            f"older {DATABASE} was restored. Put the missing file back; to continue with what is here: "
            f"familiar gallery repair {folder}"
        )


def _check_error(result: str) -> sqlite3.Error:
    """Make the error that a failed check stands for: of the disk if a page cannot be read, else of the file."""
    error = sqlite3.DatabaseError(result)
    code = re.search(r"error code=(\d+)", result)
    if code is not None:
        error.sqlite_errorcode = int(code[1])
    return error


def committed_revision(folder: Path) -> int:
    """Return the last revision known to be committed, or 0 if none was ever noted."""
    try:
        return int((folder / COMMITTED_REVISION_FILE).read_text())
    except (OSError, ValueError):
        return 0


def record_committed_revision(folder: Path, revision: int) -> None:
    """Note that a revision was committed; failing to do so is no error."""
    # Twenty digits in place: never longer, never half written. Written after the commit, so it never promises too much.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder / COMMITTED_REVISION_FILE, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(descriptor, f"{revision:020}\n".encode(), 0)
        finally:
            os.close(descriptor)


def _read_revision(connection: sqlite3.Connection, folder: Path) -> int:
    """Read the revision. CorruptGallery if the gallery's row is missing or its space is not readable."""
    try:
        space, revision = connection.execute("SELECT space, revision FROM gallery").fetchone()
        Space.from_json(space)
    except (TypeError, ValueError, KeyError) as error:
        raise CorruptGallery(
            f"{folder}: the row that says which model the gallery belongs to is damaged; recover the other rows with: "
            f"familiar gallery repair {folder}"
        ) from error
    return int(revision)
