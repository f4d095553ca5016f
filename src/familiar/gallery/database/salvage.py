"""Recover readable rows of a damaged gallery file into a new one.

First, pages of rows with one flipped bit are mended, since the rows' checksums tell which bit it was. Then rows are
read through SQLite, from both ends of each table. If that fails - because a damaged page is the root of a table, or
contains the table definitions - each page of the file is read on its own, and the checksum of a row, or the types of
its columns in galleries without checksums, tell which table it belongs to.
"""

import contextlib
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from familiar.core.vectors import UNIT_NORM_TOLERANCE
from familiar.gallery.database.checksums import (
    COLUMN,
    Values,
    data_columns,
    mend,
    row_checksum,
    sequence_checksum,
    tables,
)
from familiar.gallery.database.pages import (
    TABLE_LEAF,
    UNREADABLE,
    PageReader,
    TableFormat,
    formats_by_kind,
    mend_pages,
    recognized_rows,
)
from familiar.gallery.database.schema import OLD_NAMES, create_tables, delete_orphan_rows, store_checksums
from familiar.gallery.database.space import Space
from familiar.gallery.database.tables.settings import Settings

UNDO_LOG = ("decisions", "changes", "previous_faces")
# Conditions that tell which table a row without checksum on a single page belongs to; c0 is its first column.
# Constraints and rejections are too similar to each other. A row with a checksum has one more column.
_ROW_CONDITIONS = {
    "gallery": "c3 IN (CAST('float16' AS BLOB), CAST('float32' AS BLOB), 'float16', 'float32') AND c14 IS NULL",
    "photos": "typeof(c1) = 'blob' AND length(c1) = 32 AND typeof(c2) = 'text' AND typeof(c3) = 'integer' "
    "AND c6 IS NULL",
    "identities": "typeof(c1) IN ('text', 'null') AND c2 IS NULL AND c0 IS NULL AND substr(c1, 1, 1) IS NOT '{'",
    "reports": "c1 IN ('lost', 'found', 'home') AND typeof(c6) = 'text' AND c7 IS NULL AND c0 IS NULL",
    "faces": "typeof(c1) = 'integer' AND typeof(c10) = 'blob' AND c11 IS NULL",
    "assignments": "typeof(c1) = 'integer' AND c2 IN (0, 1) AND c3 IS NULL AND c0 IS NULL",
    "domains": "typeof(c1) = 'integer' AND c2 IS NULL AND c0 IS NULL",
}
# Columns that older versions lack, and their values there. (`writes` follows from `revision`.)
_NEW_COLUMNS: dict[str, Any] = {
    "writes": 0,
    "model": None,
    "repaired_from": None,
    "schema_checksum": None,
    "sequence_checksum": None,
}


@dataclass
class SalvageResult:
    """What could be recovered.

    Attributes:
        saved: the number of rows of each table that had any.
        mended: table and values of each row of which a flipped bit was flipped back.
        lost: table and values, as they are now, of each row that is not as it was written and cannot be mended. Rows
            that could not be read at all are not among them.
        incomplete: tables of which rows were lost.
    """

    saved: dict[str, int] = field(default_factory=dict[str, int])
    mended: list[tuple[str, Values]] = field(default_factory=list[tuple[str, Values]])
    lost: list[tuple[str, Values]] = field(default_factory=list[tuple[str, Values]])
    incomplete: set[str] = field(default_factory=set[str])


def create_from_damaged(path: Path, damaged: Path, space: Space | None, acknowledged: int = 0) -> SalvageResult:
    """Create a database with what can be read of a damaged one.

    Args:
        path: of the new database.
        damaged: a copy of the damaged file, which is changed.
        space: of the gallery's model, for when the gallery's own row is lost.
        acknowledged: the number of writes that the damaged gallery is known to have had.

    Returns:
        What could be recovered.

    Raises:
        KeyError: the gallery's own row is lost, and `space` is None.
        sqlite3.Error: the new database cannot be written; see `translate_sqlite_errors`.
    """
    result = SalvageResult()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as target:
        target.text_factory = bytes
        target.execute("PRAGMA synchronous = FULL")
        target.execute("BEGIN IMMEDIATE")
        create_tables(target)
        recovery = _Recovery(damaged, target, result)
        recovery.mend_pages()
        recovery.recover(["gallery"])  # first the row that says how embeddings are stored
        if not target.execute("SELECT 1 FROM gallery").fetchone():
            if space is None:
                raise KeyError("space")
            recovery.create_gallery_row(space)
        recovery.recover([table for table in tables(target) if table != "gallery"])
        counts = {table: target.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables(target)}
        result.saved = {table: count for table, count in counts.items() if count}
        recovery.copy_sequences()
        if result.incomplete.intersection(UNDO_LOG):
            _delete_incomplete_decisions(target)
        _restore_consistency(target, acknowledged)
        store_checksums(target)
        target.execute("COMMIT")
        target.execute("PRAGMA journal_mode = WAL")  # here, as it cannot wait for others that open the file at once
    return result


def _delete_incomplete_decisions(target: sqlite3.Connection) -> None:
    """Delete the decisions of which changes may be missing, and all earlier ones, as undo goes in reverse order."""
    # Changes are numbered without gaps, unless some of them are lost, undone or forgotten.
    target.execute(
        "DELETE FROM decisions WHERE id <= coalesce((SELECT decision_id FROM changes WHERE id > 1 "
        "AND id - 1 NOT IN (SELECT id FROM changes) ORDER BY id DESC LIMIT 1), 0) "
        "OR coalesce((SELECT max(id) FROM changes), 0) < "
        "coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'changes'), 0)"
    )
    target.execute(
        "DELETE FROM decisions WHERE id <= (SELECT max(decision_id) FROM changes WHERE table_name = 'faces' "
        "AND previous IS NOT NULL AND id NOT IN (SELECT change_id FROM previous_faces))"
    )
    target.execute("DELETE FROM changes WHERE decision_id NOT IN (SELECT id FROM decisions)")
    target.execute("DELETE FROM decisions WHERE id NOT IN (SELECT decision_id FROM changes)")


def _restore_consistency(target: sqlite3.Connection, acknowledged: int) -> None:
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
    for table in ("missing_photos", "deleted_boxes"):
        target.execute(f"DELETE FROM {table} WHERE photo_id NOT IN (SELECT id FROM photos)")
    target.execute(
        "DELETE FROM decisions WHERE id <= (SELECT max(decision_id) FROM changes JOIN previous_faces "
        "ON change_id = changes.id WHERE photo_id NOT IN (SELECT id FROM photos))"
    )
    target.execute("DELETE FROM changes WHERE decision_id NOT IN (SELECT id FROM decisions)")
    target.execute("DELETE FROM previous_faces WHERE change_id NOT IN (SELECT id FROM changes)")
    target.execute(
        # A new uid, so that a search index of the damaged gallery is not mistaken for one of this gallery; and numbers
        # that it never had, so that nothing that was cached of it is, either.
        "UPDATE gallery SET repaired_from = substr(coalesce(repaired_from, '') || ' ' || uid, -3300), "
        "uid = lower(hex(randomblob(16))), open_decision = NULL, erasure_due = 0, "
        "revision = max(revision, ?1) + 1, faces_revision = max(revision, ?1) + 1, "
        "writes = max(writes, revision, ?1) + 1",
        (acknowledged,),
    )


class _Recovery:
    """The tables of a new gallery, and the damaged file that fills them."""

    def __init__(self, damaged: Path, target: sqlite3.Connection, result: SalvageResult) -> None:
        self._damaged = damaged
        self._target = target
        self._result = result
        self._columns: dict[str, list[str]] = {}
        self._keys: dict[str, list[str]] = {}
        self._inserts: dict[str, str] = {}
        self._formats: list[TableFormat] = []
        for table in tables(target):
            info = target.execute(f"PRAGMA table_info({table})").fetchall()
            columns = self._columns[table] = [row[1].decode() for row in info]
            self._keys[table] = [row[1].decode() for row in info if row[5]]
            # Text is read as bytes, since a path may be in any encoding.
            values = ["CAST(? AS TEXT)" if row[2] == b"TEXT" else "?" for row in info]
            self._inserts[table] = f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({', '.join(values)})"
            column_types = tuple(kind for _, kind in data_columns(target, table))
            (sql,) = target.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
            self._formats.append(TableFormat(table, column_types, b"WITHOUT ROWID" not in sql))
        self._encoding: tuple[np.dtype[Any], int] | None = None

    def mend_pages(self) -> None:
        """Flip back the bit of each page of which one was flipped. Writes the log of the copy back first."""
        with contextlib.suppress(*UNREADABLE), contextlib.closing(sqlite3.connect(self._damaged)) as source:
            source.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            source.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if not Path(f"{self._damaged}-wal").exists() or not Path(f"{self._damaged}-wal").stat().st_size:
            self._result.mended += mend_pages(self._damaged, self._formats)

    def recover(self, names: Sequence[str]) -> None:
        """Read tables through SQLite, and page by page what is missing if one could not be read to its end."""
        with contextlib.closing(sqlite3.connect(self._damaged, isolation_level=None)) as source:
            source.text_factory = bytes
            incomplete = [table for table in names if not self._copy_table(source, table)]
            is_intact = _is_intact(source)
        self._result.incomplete.update(incomplete)
        if incomplete or not is_intact:
            self._copy_pages(names)  # of the others, too: a part of a table may be out of reach without an error

    def copy_sequences(self) -> None:
        """Copy the highest numbers that were given out, so that they are not given out again."""
        with (
            contextlib.suppress(*UNREADABLE),
            contextlib.closing(sqlite3.connect(self._damaged, isolation_level=None)) as source,
        ):
            source.text_factory = bytes
            values: Values = tuple(
                value
                for row in source.execute("SELECT CAST(name AS BLOB), seq FROM sqlite_sequence ORDER BY name")
                for value in row
            )
            stored = None
            with contextlib.suppress(*UNREADABLE):
                (stored,) = source.execute("SELECT sequence_checksum FROM gallery").fetchone() or (None,)
            if stored is not None and stored != sequence_checksum(source):
                mended = mend("sqlite_sequence", values, stored)
                if mended is None:
                    return  # the numbers of the rows that there are tell enough
                values = mended[0]
            for name, number in zip(values[::2], values[1::2], strict=True):
                self._target.execute(
                    "UPDATE sqlite_sequence SET seq = max(seq, ?2) WHERE name = CAST(?1 AS TEXT)", (name, number)
                )
                self._target.execute(
                    "INSERT INTO sqlite_sequence (name, seq) SELECT name, ?2 FROM sqlite_schema WHERE "
                    "name = CAST(?1 AS TEXT) AND name NOT IN (SELECT name FROM sqlite_sequence)",
                    (name, number),
                )

    def _copy_pages(self, names: Sequence[str]) -> None:
        """Copy rows of tables from every page on which they can be recognized."""
        by_kind = formats_by_kind([each for each in self._formats if each.name in names])
        with PageReader(self._damaged) as reader:
            for _, page in reader.pages():
                if page[0] not in by_kind:
                    continue
                for row in recognized_rows(reader.rows(page), by_kind[page[0]]):
                    if row is not None:
                        self._insert(*row)
                if page[0] == TABLE_LEAF and (database := reader.load(page)) is not None:
                    for table in names:
                        if table in _ROW_CONDITIONS:
                            columns = self._old_columns(table)
                            selected = ", ".join(["rowid", *(f"c{index}" for index in range(1, len(columns)))])
                            # A stretch of zeros reads as row 0, but numbers begin with 1. "+", as without it SQLite
                            # would seek in an order that a damaged page may lack.
                            query = f"SELECT {selected} FROM page WHERE +rowid > 0 AND {_ROW_CONDITIONS[table]}"
                            self._copy_rows(database, table, query, columns)

    def _old_columns(self, table: str) -> list[str]:
        """Return the columns that a table had before there were checksums."""
        return [column for column in self._columns[table] if column not in _NEW_COLUMNS]

    def create_gallery_row(self, space: Space) -> None:
        """Create the gallery's own row. The length of an embedding on any page tells how embeddings are stored."""
        embedding_dtype = "float16"
        faces = [each for each in self._formats if each.name == "faces"]
        with PageReader(self._damaged) as reader:
            for _, page in reader.pages():
                if page[0] != TABLE_LEAF:
                    continue
                recognized = recognized_rows(reader.rows(page), faces)
                lengths = [len(row[1][-1]) for row in recognized if row is not None]
                with contextlib.suppress(*UNREADABLE):
                    query = f"SELECT length(c10) FROM page WHERE {_ROW_CONDITIONS['faces']} LIMIT 1"
                    if not lengths and (database := reader.load(page)) is not None:
                        lengths = [length for (length,) in database.execute(query)]
                if lengths:
                    embedding_dtype = "float32" if lengths[0] == 4 * space.embedding_dim else "float16"
                    break
        Settings(self._target).create(space, embedding_dtype)

    def _copy_table(self, source: sqlite3.Connection, table: str) -> bool:
        """Copy a table from its front up to an unreadable row and, if there is one, from its back down to one.

        Returns:
            Whether every row could be read.
        """
        source_table, source_columns, columns = self._source_names(source, table)
        lost = len(self._result.lost)
        for direction in ("ASC", "DESC"):
            order = ", ".join(f"{column} {direction}" for column in self._keys[table])
            query = f"SELECT {', '.join(source_columns)} FROM {source_table} ORDER BY {order}"
            if self._copy_rows(source, table, query, columns):
                return (
                    direction == "ASC"
                    and lost == len(self._result.lost)
                    and (table != "gallery" or self._embedding_encoding() is not None)
                )
        return False

    def _source_names(self, source: sqlite3.Connection, table: str) -> tuple[str, list[str], list[str]]:
        """Return the names that a table and its columns have in the damaged file, which may be of an older version.

        Returns:
            The table, its columns there, and those of the new table that they fill, the checksum among them.
        """
        columns = [*self._columns[table], COLUMN]
        older = self._old_columns(table)
        candidates = [(table, columns, columns), (table, older, older)]
        if table in OLD_NAMES:
            old_table, renamed = OLD_NAMES[table]
            candidates.append((old_table, [renamed.get(column, column) for column in older], older))
        for source_table, source_columns, target_columns in candidates:
            with contextlib.suppress(*UNREADABLE):
                source.execute(f"SELECT {', '.join(source_columns)} FROM {source_table} LIMIT 0")
                return source_table, source_columns, target_columns
        return candidates[0]

    def _copy_rows(self, source: sqlite3.Connection, table: str, query: str, columns: Sequence[str]) -> bool:
        """Copy the valid rows that a query selects, up to an unreadable one; whether there was none."""
        try:
            rows = source.execute(query)
        except UNREADABLE:
            return False
        while True:
            try:
                row = rows.fetchone()
            except UNREADABLE:
                return False
            if row is None:
                return True
            if columns[-1] == COLUMN:
                values = self._verified(table, row[:-1], row[-1])
            else:
                present = dict(zip(columns, row, strict=True))
                values = tuple(present.get(column, _NEW_COLUMNS.get(column)) for column in self._columns[table])
            if values is not None:
                self._insert(table, values)

    def _verified(self, table: str, values: Values, stored: int | None) -> Values | None:
        """Return the values of a row if they are as they were written, or can be mended; note those that are not."""
        if row_checksum(table, *values) == stored:
            return values
        mended = mend(table, values, stored)
        if mended is None:
            self._result.lost.append((table, values))
            return None
        self._result.mended.append((table, mended[0]))
        return mended[0]

    def _insert(self, table: str, values: Values) -> None:
        if self._is_valid(table, values):
            with contextlib.suppress(sqlite3.IntegrityError):
                self._target.execute(self._inserts[table], values)

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


def _is_intact(source: sqlite3.Connection) -> bool:
    """Whether SQLite reports no damage of a file."""
    try:
        return source.execute("PRAGMA integrity_check(1)").fetchone()[0] in ("ok", b"ok")
    except UNREADABLE:
        return False


def _is_space(text: object) -> bool:
    try:
        Space.from_json(text.decode() if isinstance(text, bytes) else "")
    except (ValueError, KeyError, TypeError):
        return False
    return True
