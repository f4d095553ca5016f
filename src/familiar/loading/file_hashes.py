"""SHA-256 of files, stored in a database so that unchanged files are not read again."""

import hashlib
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import apsw

from familiar.core.files import sqlite_uri

_MIN_AGE_NS = 2_000_000_000  # a file changed again within a clock tick of its time stamp would seem unchanged
_BUSY_MS = 10_000
_TABLE = "CREATE TABLE IF NOT EXISTS contents (path BLOB PRIMARY KEY, stamp TEXT, sha256 TEXT) WITHOUT ROWID"


def content_hashes(paths: Sequence[Path], database: Path | None = None) -> list[str | None]:
    """Compute the SHA-256 of each file.

    Args:
        paths: of the files.
        database: SQLite file, made if missing, of hashes by path, size, times and inode. It only saves time: if it
            cannot be used, every file is read.

    Returns:
        Hexadecimal hashes; None for a file that cannot be read.
    """
    stamps = [_stamp(path) for path in paths]
    stored = _load_hashes(database, paths) if database else {}
    hashes: dict[int, str | None] = {}
    for row, (path, stamp) in enumerate(zip(paths, stamps, strict=True)):
        entry = stored.get(os.fsencode(path.absolute()))
        if stamp is not None and entry is not None and entry[0] == stamp:
            hashes[row] = entry[1]
    missing = [row for row in range(len(paths)) if row not in hashes]
    with ThreadPoolExecutor() as pool:
        hashes |= zip(missing, pool.map(lambda row: _sha256(paths[row]), missing), strict=True)
    if database and missing:
        now = time.time_ns()
        _store_hashes(
            database,
            [
                (os.fsencode(paths[row].absolute()), stamp, sha256)
                for row in missing
                if (stamp := stamps[row]) and (sha256 := hashes[row]) and _changed_ns(stamp) < now - _MIN_AGE_NS
            ],
        )
    return [hashes[row] for row in range(len(paths))]


def _stamp(path: Path) -> str | None:
    """Describe a file's state: last change, modification, size and inode; None if it cannot be read."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return f"{max(stat.st_mtime_ns, stat.st_ctime_ns)} {stat.st_mtime_ns} {stat.st_size} {stat.st_ino}"


def _changed_ns(stamp: str) -> int:
    return int(stamp.split(" ", 1)[0])


def _sha256(path: Path) -> str | None:
    try:
        # Reading a named pipe would block forever.
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
    except OSError:
        return None


def _load_hashes(database: Path, paths: Sequence[Path]) -> dict[bytes, tuple[str, str]]:
    try:
        with closing(_connect(database)) as connection:
            hashes: dict[bytes, tuple[str, str]] = {}
            for path in paths:
                key = os.fsencode(path.absolute())
                row = connection.execute("SELECT stamp, sha256 FROM contents WHERE path = ?", (key,)).fetchone()
                if row is not None:
                    hashes[key] = row
            return hashes
    except (apsw.CorruptError, apsw.NotADBError):  # start a new one
        with suppress(OSError):
            database.unlink()
    except apsw.Error:  # another process writes, or the folder is read-only
        pass
    return {}


def _store_hashes(database: Path, rows: list[tuple[bytes, str, str]]) -> None:
    try:
        with closing(_connect(database)) as connection, connection:
            connection.executemany("INSERT OR REPLACE INTO contents VALUES (?, ?, ?)", rows)
    except apsw.Error:
        return


def _connect(database: Path) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    connection = apsw.Connection(sqlite_uri(database), flags)
    connection.set_busy_timeout(_BUSY_MS)
    connection.execute(_TABLE)
    return connection
