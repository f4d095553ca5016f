"""Recover readable rows of a damaged gallery file into a new one.

First, rows are read through SQLite, from both ends of each table. If that fails - because a damaged page is the root
of a table, or contains the table definitions - each page of the file is read on its own, and the types of the columns
tell which table its rows belong to.
"""

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from familiar.core.vectors import UNIT_NORM_TOLERANCE
from familiar.gallery.database.schema import OLD_NAMES, create_tables, delete_orphan_rows
from familiar.gallery.database.space import Space
from familiar.gallery.database.tables.settings import Settings

# Parents before children. The undo log is not among them, as an incomplete one cannot be undone; nor are the learned
# faces, as the next decision chooses them again, and the tables of `familiar watch`, which compares with the disk anew.
TABLES = (
    "gallery",
    "photos",
    "identities",
    "reports",
    "faces",
    "assignments",
    "domains",
    "constraints",
    "rejections",
    "next_embeddings",
    "migration",
)
# Conditions that tell which table a row on a single page belongs to; c0 is its first column. Constraints and rejections
# are too similar to each other.
_ROW_CONDITIONS = {
    "gallery": "c3 IN (CAST('float16' AS BLOB), CAST('float32' AS BLOB), 'float16', 'float32')",
    "photos": "typeof(c1) = 'blob' AND length(c1) = 32 AND typeof(c2) = 'text' AND typeof(c3) = 'integer'",
    "identities": "typeof(c1) IN ('text', 'null') AND c2 IS NULL AND c0 IS NULL AND substr(c1, 1, 1) IS NOT '{'",
    "reports": "c1 IN ('lost', 'found', 'home') AND typeof(c6) = 'text' AND c7 IS NULL AND c0 IS NULL",
    "faces": "typeof(c1) = 'integer' AND typeof(c10) = 'blob'",
    "assignments": "typeof(c1) = 'integer' AND c2 IN (0, 1) AND c3 IS NULL AND c0 IS NULL",
    "domains": "typeof(c1) = 'integer' AND c2 IS NULL AND c0 IS NULL",
}
_MAX_COLUMNS = 11  # of these tables
_TABLE_LEAF = 0x0D  # first byte of a page of rows (sqlite.org/fileformat2.html, 1.6)
_PAGE_SIZES = (512, 1024, 2048, 4096, 8192, 16384, 32768)
_DEFAULT_PAGE_SIZE = 4096  # if the file's header has no valid one

_UNREADABLE = (
    sqlite3.DatabaseError,
    UnicodeDecodeError,  # if SQLite's message quotes garbled text
)


def create_from_damaged(path: Path, damaged: Path, space: Space | None) -> dict[str, int]:
    """Create a database with what can be read of a damaged one.

    Args:
        path: of the new database.
        damaged: the damaged file.
        space: of the gallery's model, for when the gallery's own row is lost.

    Returns:
        The number of rows recovered from each table that had any.

    Raises:
        KeyError: the gallery's own row is lost, and `space` is None.
        sqlite3.Error: the new database cannot be written; see `translate_sqlite_errors`.
    """
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as target:
        target.text_factory = bytes
        target.execute("BEGIN IMMEDIATE")
        create_tables(target)
        _recover_rows(damaged, target, space)
        saved = {table: target.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}
        _restore_consistency(target)
        target.execute("COMMIT")
    return {table: count for table, count in saved.items() if count}


def _recover_rows(damaged: Path, target: sqlite3.Connection, space: Space | None) -> None:
    """Fill the empty tables of a new gallery, within a transaction, with the readable rows of a damaged one."""
    recovery = _Recovery(damaged, target)
    recovery.recover(TABLES[:1])  # first the row that says how embeddings are stored
    if not target.execute("SELECT 1 FROM gallery").fetchone():
        if space is None:
            raise KeyError("space")
        recovery.create_gallery_row(space)
    recovery.recover(TABLES[1:])


def _restore_consistency(target: sqlite3.Connection) -> None:
    """Add placeholder rows for lost photos and identities, and delete rows that refer to lost faces."""
    target.execute(
        "INSERT INTO photos (id, sha256, path, size_bytes, modified_ns) SELECT DISTINCT photo_id, randomblob(32), "
        "'(lost)', 0, 0 FROM faces WHERE photo_id NOT IN (SELECT id FROM photos)"
    )
    for table in ("assignments", "rejections", "reports"):
        target.execute(
            f"INSERT INTO identities (id) SELECT DISTINCT identity_id FROM {table} "
            "WHERE identity_id NOT IN (SELECT id FROM identities)"
        )
    delete_orphan_rows(target)
    target.execute(
        # A new uid, so that a search index of the damaged gallery is not mistaken for one of this gallery.
        "UPDATE gallery SET uid = lower(hex(randomblob(16))), open_decision = NULL, "
        "faces_revision = revision + 1, revision = revision + 1"
    )


class _Recovery:
    """The tables of a new gallery, and the damaged file that fills them."""

    def __init__(self, damaged: Path, target: sqlite3.Connection) -> None:
        self._damaged = damaged
        self._target = target
        self._columns: dict[str, list[str]] = {}
        self._keys: dict[str, list[str]] = {}
        self._inserts: dict[str, str] = {}
        for table in TABLES:
            info = target.execute(f"PRAGMA table_info({table})").fetchall()
            columns = self._columns[table] = [row[1].decode() for row in info]
            self._keys[table] = [row[1].decode() for row in info if row[5]]
            # Text is read as bytes, since a path may be in any encoding.
            values = ["CAST(? AS TEXT)" if row[2] == b"TEXT" else "?" for row in info]
            self._inserts[table] = f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({', '.join(values)})"
        self._encoding: tuple[np.dtype[Any], int] | None = None

    def recover(self, tables: Sequence[str]) -> None:
        """Read tables through SQLite, and page by page those that could not be read to their end."""
        with contextlib.closing(sqlite3.connect(self._damaged, isolation_level=None)) as source:
            source.text_factory = bytes
            incomplete = [table for table in tables if not self._copy_table(source, table)]
        if recognizable := [table for table in incomplete if table in _ROW_CONDITIONS]:
            for page in _table_pages(self._damaged):
                for table in recognizable:
                    columns = ", ".join(["rowid", *(f"c{index}" for index in range(1, len(self._columns[table])))])
                    self._copy_rows(page, table, f"SELECT {columns} FROM page WHERE {_ROW_CONDITIONS[table]}")

    def create_gallery_row(self, space: Space) -> None:
        """Create the gallery's own row. The length of an embedding on any page tells how embeddings are stored."""
        embedding_dtype = "float16"
        for page in _table_pages(self._damaged):
            with contextlib.suppress(*_UNREADABLE):
                query = f"SELECT length(c10) FROM page WHERE {_ROW_CONDITIONS['faces']} LIMIT 1"
                if (row := page.execute(query).fetchone()) is not None:
                    embedding_dtype = "float32" if row[0] == 4 * space.embedding_dim else "float16"
                    break
        Settings(self._target).create(space, embedding_dtype)

    def _copy_table(self, source: sqlite3.Connection, table: str) -> bool:
        """Copy a table from its front up to an unreadable row and, if there is one, from its back down to one.

        Returns:
            Whether every row could be read.
        """
        source_table, source_columns = self._source_names(source, table)
        for direction in ("ASC", "DESC"):
            order = ", ".join(f"{column} {direction}" for column in self._keys[table])
            query = f"SELECT {', '.join(source_columns)} FROM {source_table} ORDER BY {order}"
            if self._copy_rows(source, table, query):
                return direction == "ASC" and (table != "gallery" or self._embedding_encoding() is not None)
        return False

    def _source_names(self, source: sqlite3.Connection, table: str) -> tuple[str, list[str]]:
        """Return the names that a table and its columns have in the damaged file, which may be of an older version."""
        columns = self._columns[table]
        if table in OLD_NAMES:
            old_table, renamed = OLD_NAMES[table]
            old_columns = [renamed.get(column, column) for column in columns]
            with contextlib.suppress(*_UNREADABLE):
                source.execute(f"SELECT {', '.join(old_columns)} FROM {old_table} LIMIT 0")
                return old_table, old_columns
        return table, columns

    def _copy_rows(self, source: sqlite3.Connection, table: str, query: str) -> bool:
        """Copy the valid rows that a query selects, up to an unreadable one; whether there was none."""
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
            if self._is_valid(table, row):
                with contextlib.suppress(sqlite3.IntegrityError):
                    self._target.execute(self._inserts[table], row)

    def _is_valid(self, table: str, row: tuple[Any, ...]) -> bool:
        columns = self._columns[table]
        if table == "gallery":
            return _is_space(row[columns.index("space")])
        if table not in ("faces", "next_embeddings"):
            return True
        embedding_dtype, embedding_dim = self._embedding_encoding() or (np.dtype("<f2"), 0)
        encoded = row[columns.index("embedding")]
        if not isinstance(encoded, bytes) or len(encoded) != embedding_dim * embedding_dtype.itemsize:
            return False
        norm = float(np.linalg.norm(np.frombuffer(encoded, embedding_dtype).astype(np.float64)))
        return abs(norm - 1) <= UNIT_NORM_TOLERANCE

    def _embedding_encoding(self) -> tuple[np.dtype[Any], int] | None:
        """Return the stored type and the dimension of embeddings, or None before the gallery's row is recovered."""
        if self._encoding is None:
            row = self._target.execute("SELECT space, embedding_dtype FROM gallery").fetchone()
            if row is not None:
                embedding_dtype = np.dtype(row[1].decode()).newbyteorder("<")
                self._encoding = (embedding_dtype, json.loads(row[0])["embedding_dim"])
        return self._encoding


def _is_space(text: object) -> bool:
    try:
        Space.from_json(text.decode() if isinstance(text, bytes) else "")
    except (ValueError, KeyError, TypeError):
        return False
    return True


def _table_pages(damaged: Path) -> Iterator[sqlite3.Connection]:
    """Yield each page that looks like one of rows, as the only content of the table `page` of an in-memory database."""
    with damaged.open("rb") as file, contextlib.closing(sqlite3.connect(":memory:")) as database:
        header_page_size = int.from_bytes(file.read(18)[16:18], "big")
        page_size = header_page_size if header_page_size in _PAGE_SIZES else _DEFAULT_PAGE_SIZE
        database.execute(f"PRAGMA page_size = {page_size}")
        database.execute(f"CREATE TABLE page ({', '.join(f'c{index}' for index in range(_MAX_COLUMNS))})")
        first_page = database.serialize()[:page_size]
        file.seek(0)
        while page := file.read(page_size):
            if page[0] == _TABLE_LEAF:
                database.deserialize(first_page + page.ljust(page_size, b"\0"))
                database.text_factory = bytes
                yield database
