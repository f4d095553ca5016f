"""The SQLite file of a gallery: connect to it, check it, and detect when it was replaced or rolled back."""

import contextlib
import errno
import os
import re
import sqlite3
import threading
import zlib
from pathlib import Path
from urllib.parse import quote_from_bytes

from familiar.core.errors import BadGallery, CorruptGallery
from familiar.gallery.database.checksums import add_function
from familiar.gallery.database.schema import APPLICATION_ID, VERSION, update_tables
from familiar.gallery.database.space import Space

DATABASE = "gallery.sqlite"
ACKNOWLEDGED_FILE = "gallery.revision"  # the number of acknowledged writes
HEADER_BYTES = 100
_CACHE_KB = 64 * 1024  # the index by content is read at random: of a million photos it is as large
_LOG_PAGES = 4_000  # 16 MB of write-ahead log, after which it is written back
_MAGIC = b"SQLite format 3\0"

# Of each file that this process has open: how often, and a descriptor. Closing a descriptor of a file releases all
# locks that the process has on it (as POSIX wants it), also those of SQLite: another process would then delete a log
# that we still write to. So the descriptor that reads the header is closed last.
_open_files: dict[tuple[int, int], tuple[int, int]] = {}
open_files_lock = threading.RLock()


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
    add_function(connection)
    return connection


def open_descriptor(folder: Path, *, check: bool = True) -> tuple[int, int]:
    """Note that this process opens a folder's database once more, before SQLite opens it, and check its header.

    Args:
        folder: the gallery's folder.
        check: whether to check the header.

    Returns:
        Its `file_id`, for `close_descriptor` after SQLite has closed it.

    Raises:
        BadGallery: the file is missing, unreadable, a link or another program's database.
        CorruptGallery: the file is not an SQLite database.
    """
    path = folder / DATABASE
    require_no_link(folder)
    with open_files_lock:
        file = file_id(folder)
        if file is not None and file in _open_files:
            count, descriptor = _open_files[file]
            _open_files[file] = (count + 1, descriptor)
            return file
        descriptor = _open_to_read(path)
        try:
            if check:
                _check_header(path, os.pread(descriptor, HEADER_BYTES, 0))
            status = os.fstat(descriptor)
        except OSError as error:
            os.close(descriptor)
            raise BadGallery(f"{path}: cannot be read ({error.strerror})") from error
        except BaseException:
            os.close(descriptor)
            raise
        file = (status.st_dev, status.st_ino)
        _open_files[file] = (1, descriptor)
        return file


def require_no_link(folder: Path) -> None:
    """Check that a folder's database is not a symbolic link: SQLite keeps the log beside the file that it leads to.

    Raises:
        BadGallery: it is one.
    """
    path = folder / DATABASE
    if path.is_symlink():
        raise BadGallery(
            f"{path}: is a link to {path.readlink()}. Link to the folder of a gallery instead, or move that file and "
            "those beside it here, when no program has the gallery open"
        )


def close_descriptor(file: tuple[int, int]) -> None:
    """Note that this process has a file open once less."""
    with open_files_lock:
        count, descriptor = _open_files.pop(file)
        if count > 1:
            _open_files[file] = (count - 1, descriptor)
        else:
            os.close(descriptor)


def read_open_file(file: tuple[int, int], length: int = HEADER_BYTES, offset: int = 0) -> bytes:
    """Return bytes of a file that this process has open: its header, or others; at the end of the file fewer."""
    with open_files_lock:
        return os.pread(_open_files[file][1], length, offset)


def configure(connection: sqlite3.Connection) -> None:
    """Set the pragmas of an open gallery: WAL, durable commits, foreign keys, deleted bytes zeroed."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")


def _open_to_read(path: Path) -> int:
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    except FileNotFoundError as error:
        raise BadGallery(
            f"{path.parent}: no gallery here; create one with: familiar gallery enroll {path.parent} PHOTOS "
            "--model MODEL"
        ) from error
    except OSError as error:
        raise BadGallery(f"{path}: cannot be read ({error.strerror})") from error


def _check_header(path: Path, header: bytes) -> None:
    """Check that a file is a gallery of this program, before SQLite touches it."""
    if not header.startswith(_MAGIC):
        raise CorruptGallery(
            f"{path}: does not start like an SQLite database: it is damaged, or not a gallery. "
            f"Recover what can be read with: familiar gallery repair {path.parent}"
        )
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise BadGallery(f"{path}: is a database, but not a familiar gallery; move it away, or name another folder")


def check_log(path: Path, folder: Path) -> None:
    """Check that a write-ahead log that was left behind has every acknowledged write, before SQLite writes it back.

    Raises:
        CorruptGallery: it has not.
    """
    try:
        if not path.with_name(f"{DATABASE}-wal").stat().st_size:
            return
    except OSError:
        return
    acknowledged = acknowledged_writes(folder)  # read first: other processes may write in between
    with contextlib.suppress(sqlite3.Error):  # which the next connection meets again, unless it is of an older version
        # Read-only: closing it does not write the log back.
        connection = sqlite3.connect(f"file:{quote_from_bytes(bytes(path.absolute()))}?mode=ro", uri=True)
        with contextlib.closing(connection):
            row = connection.execute("SELECT writes FROM gallery").fetchone()
            if row is not None and isinstance(row[0], int):
                _check_acknowledged(row[0], acknowledged, folder)


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
        with contextlib.suppress(sqlite3.OperationalError):  # in use by another process, or no room on the disk
            connection.execute("VACUUM")  # the tables were copied
    acknowledged = acknowledged_writes(folder)  # read first: other processes may write in between
    _check_acknowledged(_read_writes(connection, folder), acknowledged, folder)


def _check_error(result: str) -> sqlite3.Error:
    """Make the error that a failed check stands for: of the disk if a page cannot be read, else of the file."""
    error = sqlite3.DatabaseError(result)
    code = re.search(r"error code=(\d+)", result)
    if code is not None:
        error.sqlite_errorcode = int(code[1])
    return error


def acknowledged_writes(folder: Path) -> int:
    """Return the number of writes known to be acknowledged, or 0 if none was ever noted or the note is damaged."""
    try:
        content = (folder / ACKNOWLEDGED_FILE).read_bytes()
    except OSError:
        return 0
    number, _, crc = content.strip().partition(b" ")
    if not number.isdigit() or (crc and crc != _crc(number)):  # older versions wrote no checksum
        return 0
    return int(number)


def is_acknowledged_file_damaged(folder: Path) -> bool:
    """Whether the note of acknowledged writes exists and cannot be used. A power cut may leave it empty, or zeros."""
    path = folder / ACKNOWLEDGED_FILE
    return path.is_file() and bool(path.read_bytes().strip(b"\0")) and not acknowledged_writes(folder)


def record_acknowledged_writes(folder: Path, writes: int) -> None:
    """Note that a write was committed; failing to do so is no error."""
    # Written in place: never longer, never half written. Written after the commit, so it never promises too much.
    number = f"{writes:020}".encode()
    with contextlib.suppress(OSError):
        descriptor = os.open(folder / ACKNOWLEDGED_FILE, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(descriptor, number + b" " + _crc(number) + b"\n", 0)
        finally:
            os.close(descriptor)


def _crc(content: bytes) -> bytes:
    return f"{zlib.crc32(content):08x}".encode()


def _check_acknowledged(writes: int, acknowledged: int, folder: Path) -> None:
    if writes < acknowledged:
        raise CorruptGallery(
            f"{folder}: contains {writes} of {acknowledged} acknowledged writes: {DATABASE}-wal was deleted or is "
            f"damaged, or an older {DATABASE} was put there. Put the missing file back; to continue with what is here: "
            f"familiar gallery repair {folder}"
        )


def _read_writes(connection: sqlite3.Connection, folder: Path) -> int:
    """Read the number of writes. CorruptGallery if the gallery's row is missing or its space is not readable."""
    try:
        space, writes = connection.execute("SELECT space, writes FROM gallery").fetchone()
        Space.from_json(space)
    except (TypeError, ValueError, KeyError) as error:
        raise CorruptGallery(
            f"{folder}: the row that says which model the gallery belongs to is damaged; recover the other rows with: "
            f"familiar gallery repair {folder}"
        ) from error
    return int(writes)
