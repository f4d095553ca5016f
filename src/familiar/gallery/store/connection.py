"""Connections to a gallery's database, and SQLite's errors in the package's own words.

SQLite is apsw's, which brings a current version. Its checksum VFS writes a checksum into each page and compares it when
the page is read, so a bit that has flipped on the disk is an error instead of another name or another vector.
"""

import contextlib
import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import apsw
import apsw.sqlite_extra

from familiar.core.errors import BadGallery, CannotWrite, CorruptGallery, GalleryBusy
from familiar.core.files import sqlite_uri
from familiar.core.terminal_text import one_line

DATABASE = "gallery.sqlite"
LOG = f"{DATABASE}-wal"
BUSY_SECONDS = 10.0  # how long a writer waits for another

Values: TypeAlias = Sequence[Any]

_CHECKSUM_BYTES = 8  # at the end of each page, as the checksum VFS wants it
_CACHE_KB = 64 * 1024  # the index by content is read at random: of a million photos it is as large
_LOG_PAGES = 4_000  # 16 MB of write-ahead log, after which it is written back
MAX_INTEGER = 2**63 - 1  # of SQLite


class Connection(apsw.Connection):
    """A connection whose results have no declared types: what a statement returns is known where it is written."""

    def rows(self, statement: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        return list(self._cursor(statement, values))

    def each(self, statement: str, values: Values = ()) -> Iterator[tuple[Any, ...]]:
        """Iterate over the rows of a query."""
        return iter(self._cursor(statement, values))

    def first(self, statement: str, values: Values = ()) -> tuple[Any, ...] | None:
        """Return the first row of a query, if it has one."""
        return next(iter(self._cursor(statement, values)), None)

    def row(self, statement: str, values: Values = ()) -> tuple[Any, ...]:
        """Return the first row of a query. ValueError if it has none, as in a damaged gallery."""
        first = self.first(statement, values)
        if first is None:
            raise ValueError(f"no row: {statement}")
        return first

    def value(self, statement: str, values: Values = ()) -> Any:
        """Return the first column of the first row of a query, which has one."""
        return self.row(statement, values)[0]

    def run(self, statement: str, values: Values = ()) -> int:
        """Run a statement; return how many rows it has changed."""
        self._cursor(statement, values)
        return self.changes()

    def run_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
        """Run a statement with each of some rows of values, and return the rows that it returns."""
        return list(self.executemany(statement, rows))  # pyright: ignore

    def set(self, pragma: str, value: bool | int | str) -> Any:
        """Set a pragma; return what it is now."""
        return self.pragma(pragma, value)  # pyright: ignore

    def get(self, pragma: str) -> Any:
        """Return the value of a pragma."""
        return self.pragma(pragma)  # pyright: ignore

    def _cursor(self, statement: str, values: Values) -> Any:
        return self.execute(statement, tuple(values))  # pyright: ignore


@cache
def _checksum_vfs() -> str:
    """Register the checksum VFS, once in a process."""
    with contextlib.closing(apsw.Connection(":memory:")) as connection:
        apsw.sqlite_extra.load(connection, "cksumvfs")
    return "cksmvfs"


def connect(path: Path, *, create: bool = False, read_only: bool = False, verify: bool = True) -> Connection:
    """Connect to a database whose pages have checksums.

    Args:
        path: of its file.
        create: make an empty database, where there is none.
        read_only: for a file in a folder that cannot be written to: nobody changes it, and SQLite locks nothing.
        verify: compare checksums; False to read what another program has written, or what is damaged.

    Returns:
        A connection in autocommit mode, for one thread at a time.
    """
    flags = apsw.SQLITE_OPEN_URI | (apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE)
    flags |= apsw.SQLITE_OPEN_CREATE if create else 0
    uri = f"{sqlite_uri(path)}{'?immutable=1' if read_only else ''}"
    connection = Connection(uri, flags, vfs=_checksum_vfs())
    connection.set_busy_timeout(int(BUSY_SECONDS * 1000))
    if create:
        connection.reserve_bytes("main", _CHECKSUM_BYTES)
        connection.run("VACUUM")  # writes the first page: those that are written before it have no checksums
    if not verify:
        connection.set("checksum_verification", False)
    return connection


def connect_raw(path: Path) -> Connection:
    """Connect to a database, or a new one, whose pages are read and written as they are, without their checksums."""
    return Connection(str(path), vfs=next(name for name in apsw.vfs_names() if name != _checksum_vfs()))


def copy_to_new_file(connection: Connection, path: Path) -> None:
    """Copy a database as it is now into a new file, while others may go on writing.

    By SQLite's backup API: if the database is larger than the cache, `VACUUM INTO` writes pages without checksums.

    Args:
        connection: outside a transaction.
        path: of the new file.
    """
    with contextlib.closing(connect(path, create=True)) as target:
        with target.backup("main", connection, "main") as backup:
            backup.step(-1)
        target.set("journal_mode", "delete")  # so that it is one file


def configure(connection: Connection, folder: Path) -> None:
    """Let a connection write: to a write-ahead log, commits reach the disk, and deleted bytes are zeroed.

    Raises:
        CannotWrite: the file system has no locks that processes share.
    """
    if connection.set("journal_mode", "wal") != "wal":
        raise CannotWrite(f"{folder}: this file system cannot hold a gallery; move it to another one")
    for name, value in (
        ("synchronous", "FULL"),
        ("foreign_keys", True),
        ("secure_delete", True),
        ("cache_size", -_CACHE_KB),
    ):
        connection.set(name, value)
    connection.wal_autocheckpoint(_LOG_PAGES)


@contextlib.contextmanager
def translate_errors(folder: Path) -> Generator[None, None, None]:
    """Translate SQLite's errors into `FamiliarError` subclasses that name the gallery's folder.

    Raises:
        GalleryBusy: another process is writing.
        CannotWrite: the disk is full or failing, or the file cannot be opened for writing.
        CorruptGallery: the file is damaged, or another program has written to it.
    """
    try:
        yield
    except apsw.Error as error:
        translated = _translate(error, folder)
        if translated is None:  # a mistake of this program
            raise
        raise translated from error
    except UnicodeDecodeError as error:
        raise damaged(folder, "a text is garbled") from error


def damaged(folder: Path, reason: object) -> CorruptGallery:
    """Make the error for a damaged gallery, with what can be done about it."""
    return CorruptGallery(
        f"{folder}: the gallery's file is damaged, or another program has written to it ({reason}); go back to a "
        f"backup with: familiar gallery restore {folder}, or keep what can be read: familiar gallery repair {folder}"
    )


def _translate(error: apsw.Error, folder: Path) -> Exception | None:
    # SQLite's backup API gives no text, but a number.
    reason = (
        f"SQLite's error {getattr(error, 'extendedresult', '')}"
        if str(error) == "not an error"
        else one_line(str(error))
    )
    is_of_the_file = getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_DATA  # a checksum differs
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return GalleryBusy(f"{folder}: another process is writing to the gallery; try again when it is done")
        case apsw.IOError() if is_of_the_file:
            return damaged(folder, "the checksum of a page is another")
        case apsw.CorruptError() | apsw.NotADBError() | apsw.SQLError():
            return damaged(folder, reason)
        case apsw.FullError() | apsw.IOError():
            return CannotWrite(
                f"{folder}: the disk is full or failing ({reason}); nothing was changed, nothing is lost"
            )
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError() | apsw.AuthError():
            return CannotWrite(f"{folder}: the gallery cannot be opened for writing ({reason})")
        case _:
            return None


def find_damage(connection: Connection) -> list[str]:
    """Read every page, and describe each damage and each reference to a missing row.

    Args:
        connection: within a transaction.
    """
    try:
        problems = [text for (text,) in connection.rows("PRAGMA integrity_check") if text != "ok"]
        return problems + [
            f"{table}, row {row}: refers to a missing row of {parent}"
            for table, row, parent, _ in connection.rows("PRAGMA foreign_key_check")
        ]
    except (apsw.CorruptError, apsw.NotADBError, apsw.IOError, UnicodeDecodeError) as error:
        return [f"{DATABASE}: {one_line(str(error))}: a page is damaged, or another program has written it"]


def require_database(folder: Path) -> None:
    """Check that a folder has a file of the name of a gallery's database.

    Raises:
        BadGallery: it has none.
    """
    path = folder / DATABASE
    if path.is_dir():
        raise BadGallery(f"{path}: is a folder, not a gallery's database; move it away")
    if not path.exists():
        raise BadGallery(
            f"{folder}: no gallery here; create one with: familiar gallery enroll {folder} PHOTOS --model MODEL"
        )
    # Not opened to see: to close any descriptor of the file would release the locks that SQLite has on it.
    if not os.access(path, os.R_OK):
        raise BadGallery(f"{path}: cannot be read; give yourself the right to")
