"""The rows that can still be read of a damaged gallery file, put into the tables of a new one.

First as SQLite finds them, from both ends of each table. Where it does not come through - a damaged page is the root of
a table, or tells of the tables themselves - each page of the file is looked at by itself: a page full of rows says by
their kind whose they are.
"""

import contextlib
import json
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from familiar.core.vectors import UNIT_NORM_TOLERANCE
from familiar.gallery.database.connection import Space

# Parents before children. The log of decisions is not among them: half a one cannot be taken back.
TABLES = (
    "gallery",
    "photos",
    "identities",
    "faces",
    "assignments",
    "kinds",
    "constraints",
    "rejections",
    "next_embeddings",
    "migration",
)
# By which a row on a page of its own is known; c0 is its first column. Constraints and rejections look too much alike.
_KNOWN_BY = {
    "gallery": "c3 IN (CAST('float16' AS BLOB), CAST('float32' AS BLOB), 'float16', 'float32')",
    "photos": "typeof(c1) = 'blob' AND length(c1) = 32 AND typeof(c2) = 'text' AND typeof(c3) = 'integer'",
    "identities": "typeof(c1) IN ('text', 'null') AND c2 IS NULL AND c0 IS NULL AND substr(c1, 1, 1) IS NOT '{'",
    "faces": "typeof(c1) = 'integer' AND typeof(c10) = 'blob'",
    "assignments": "typeof(c1) = 'integer' AND c2 IN (0, 1) AND c3 IS NULL AND c0 IS NULL",
    "kinds": "typeof(c1) = 'integer' AND c2 IS NULL AND c0 IS NULL",
}
_COLUMNS = 11  # of the widest of them
_LEAF = 0x0D  # first byte of a page of rows (sqlite.org/fileformat2.html, 1.6)
_PAGE_BYTES = 4096  # where the file does not say

_UNREADABLE = (
    sqlite3.DatabaseError,
    UnicodeDecodeError,
)  # the latter where SQLite's message quotes garbled text


def recover_rows(damaged: Path, target: sqlite3.Connection, space: Space | None) -> None:
    """Fills the empty tables of `target`, whose text is bytes. KeyError where nothing tells the model's space: the
    gallery's own row is lost, and `space` is None."""
    rescued = _Rescued(damaged, target)
    # First the row that says what an embedding must be like.
    rescued.take(TABLES[:1])
    if not target.execute("SELECT 1 FROM gallery").fetchone():
        if space is None:
            raise KeyError("space")
        rescued.begin_anew(space)
    rescued.take(TABLES[1:])


class _Rescued:
    """The new tables, and the damaged file that fills them."""

    def __init__(self, damaged: Path, target: sqlite3.Connection) -> None:
        self._damaged = damaged
        self._target = target
        self._columns: dict[str, list[str]] = {}
        self._keys: dict[str, list[str]] = {}
        self._put: dict[str, str] = {}
        for table in TABLES:
            facts = target.execute(f"PRAGMA table_info({table})").fetchall()
            columns = self._columns[table] = [row[1].decode() for row in facts]
            self._keys[table] = [row[1].decode() for row in facts if row[5]]
            # What is read as bytes may be a path in any encoding.
            values = ["CAST(? AS TEXT)" if row[2] == b"TEXT" else "?" for row in facts]
            self._put[table] = f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({', '.join(values)})"
        self._embedding: tuple[np.dtype[Any], int] | None = None

    def take(self, tables: Sequence[str]) -> None:
        with contextlib.closing(sqlite3.connect(self._damaged, isolation_level=None)) as source:
            source.text_factory = bytes
            unread = [table for table in tables if not self._read(source, table)]
        if wanted := [table for table in unread if table in _KNOWN_BY]:
            for page in _pages_of_rows(self._damaged):
                for table in wanted:
                    columns = ", ".join(["rowid", *(f"c{place}" for place in range(1, len(self._columns[table])))])
                    self._take_rows(page, table, f"SELECT {columns} FROM page WHERE {_KNOWN_BY[table]}")

    def begin_anew(self, space: Space) -> None:
        """With a row for the gallery; an embedding on a page tells how they are kept."""
        element = "float16"
        for page in _pages_of_rows(self._damaged):
            with contextlib.suppress(*_UNREADABLE):
                query = f"SELECT length(c10) FROM page WHERE {_KNOWN_BY['faces']} LIMIT 1"
                if (row := page.execute(query).fetchone()) is not None:
                    element = "float32" if row[0] == 4 * space.embedding_dim else "float16"
                    break
        self._target.execute(
            "INSERT INTO gallery (id, uid, space, element) VALUES (1, ?, ?, ?)",
            (secrets.token_hex(16), space.to_json(), element),
        )

    def _read(self, source: sqlite3.Connection, table: str) -> bool:
        """From the front up to what cannot be read and, if that is not the end, from the back down to it."""
        for direction in ("ASC", "DESC"):
            order = ", ".join(f"{column} {direction}" for column in self._keys[table])
            query = f"SELECT {', '.join(self._columns[table])} FROM {table} ORDER BY {order}"
            if self._take_rows(source, table, query):
                return direction == "ASC" and (table != "gallery" or self._known() is not None)
        return False

    def _take_rows(self, source: sqlite3.Connection, table: str, query: str) -> bool:
        """Those that are what they should be. Could all be read?"""
        try:
            rows = source.execute(query)
        except _UNREADABLE:
            return False
        while True:
            try:
                row = rows.fetchone()
            except _UNREADABLE:
                return False
            if row is None:
                return True
            if self._is_sound(table, row):
                with contextlib.suppress(sqlite3.IntegrityError):
                    self._target.execute(self._put[table], row)

    def _is_sound(self, table: str, row: tuple[Any, ...]) -> bool:
        columns = self._columns[table]
        if table == "gallery":
            return _is_space(row[columns.index("space")])
        if table not in ("faces", "next_embeddings"):
            return True
        kept_as, dim = self._known() or (np.dtype("<f2"), 0)
        packed = row[columns.index("embedding")]
        if not isinstance(packed, bytes) or len(packed) != dim * kept_as.itemsize:
            return False
        length = float(np.linalg.norm(np.frombuffer(packed, kept_as).astype(np.float64)))
        return abs(length - 1) <= UNIT_NORM_TOLERANCE

    def _known(self) -> tuple[np.dtype[Any], int] | None:
        """How embeddings are kept, and their width, once that is known."""
        if self._embedding is None:
            row = self._target.execute("SELECT space, element FROM gallery").fetchone()
            if row is not None:
                kept_as = np.dtype(row[1].decode()).newbyteorder("<")
                self._embedding = (kept_as, json.loads(row[0])["embedding_dim"])
        return self._embedding


def _is_space(text: object) -> bool:
    try:
        Space.from_json(text.decode() if isinstance(text, bytes) else "")
    except (ValueError, KeyError, TypeError):
        return False
    return True


def _pages_of_rows(damaged: Path) -> Iterator[sqlite3.Connection]:
    """Each page that looks like one of rows, as the whole of the table `page` in a database in memory."""
    with damaged.open("rb") as file, contextlib.closing(sqlite3.connect(":memory:")) as alone:
        told = int.from_bytes(file.read(18)[16:18], "big")
        size = told if told in (512, 1024, 2048, 4096, 8192, 16384, 32768) else _PAGE_BYTES
        alone.execute(f"PRAGMA page_size = {size}")
        alone.execute(f"CREATE TABLE page ({', '.join(f'c{place}' for place in range(_COLUMNS))})")
        first = alone.serialize()[:size]
        file.seek(0)
        while page := file.read(size):
            if page[0] == _LEAF:
                alone.deserialize(first + page.ljust(size, b"\0"))
                alone.text_factory = bytes
                yield alone
