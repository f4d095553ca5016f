"""What files hold, as SHA-256, remembered so that an unchanged file is not read again."""

import hashlib
import os
import sqlite3
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

_MIN_AGE_NS = 2_000_000_000  # a file changed again within a clock tick of its time stamp would look unchanged
_TABLE = "CREATE TABLE IF NOT EXISTS contents (path BLOB PRIMARY KEY, stamp TEXT, sha256 TEXT) WITHOUT ROWID"


def content_hashes(paths: Sequence[Path], database: Path | None = None) -> list[str | None]:
    """SHA-256 of each file, hexadecimal; None where it cannot be read.

    `memory` is an SQLite file, made if missing, of hashes by path, size, times and inode. It only saves time:
    where it cannot be used, every file is read.
    """
    stamps = [_stamp(path) for path in paths]
    known = _load_hashes(database, paths) if database else {}
    found: dict[int, str | None] = {}
    for row, (path, stamp) in enumerate(zip(paths, stamps, strict=True)):
        remembered = known.get(os.fsencode(path.absolute()))
        if stamp is not None and remembered is not None and remembered[0] == stamp:
            found[row] = remembered[1]
    unknown = [row for row in range(len(paths)) if row not in found]
    with ThreadPoolExecutor() as pool:
        found |= zip(unknown, pool.map(lambda row: _sha256(paths[row]), unknown), strict=True)
    if database and unknown:
        now = time.time_ns()
        _store_hashes(
            database,
            [
                (os.fsencode(paths[row].absolute()), stamp, sha256)
                for row in unknown
                if (stamp := stamps[row]) and (sha256 := found[row]) and _changed_ns(stamp) < now - _MIN_AGE_NS
            ],
        )
    return [found[row] for row in range(len(paths))]


def _stamp(path: Path) -> str | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return f"{max(stat.st_mtime_ns, stat.st_ctime_ns)} {stat.st_mtime_ns} {stat.st_size} {stat.st_ino}"


def _changed_ns(stamp: str) -> int:
    return int(stamp.split(" ", 1)[0])


def _sha256(path: Path) -> str | None:
    try:
        # Reading a named pipe would wait for ever.
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
    except OSError:
        return None


def _load_hashes(memory: Path, paths: Sequence[Path]) -> dict[bytes, tuple[str, str]]:
    try:
        with closing(sqlite3.connect(memory, timeout=10)) as database:
            database.execute(_TABLE)
            found: dict[bytes, tuple[str, str]] = {}
            for path in paths:
                key = os.fsencode(path.absolute())
                row = database.execute("SELECT stamp, sha256 FROM contents WHERE path = ?", (key,)).fetchone()
                if row is not None:
                    found[key] = row
            return found
    except sqlite3.OperationalError:  # another process writes, or the folder is read-only
        return {}
    except sqlite3.DatabaseError:  # no database any more: begin a new one
        with suppress(OSError):
            memory.unlink()
        return {}


def _store_hashes(memory: Path, rows: list[tuple[bytes, str, str]]) -> None:
    try:
        with closing(sqlite3.connect(memory, timeout=10)) as database, database:
            database.execute(_TABLE)
            database.executemany("INSERT OR REPLACE INTO contents VALUES (?, ?, ?)", rows)
    except sqlite3.Error:
        return
