"""Damage of a gallery's database, each described by what it hits."""

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from familiar.gallery.database.checksums import (
    COLUMN,
    damaged_rows,
    data_columns,
    mend,
    row_checksum,
    schema_checksum,
    sequence_checksum,
    tables,
)
from familiar.gallery.database.row_names import column_name, row_name
from familiar.gallery.database.schema import APPLICATION_ID, VERSION
from familiar.gallery.database.sqlite_file import (
    ACKNOWLEDGED_FILE,
    DATABASE,
    HEADER_BYTES,
    is_acknowledged_file_damaged,
)

_UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError)
_HEADER_FIELDS = (  # offset, bytes and value of what never changes (sqlite.org/fileformat2.html, 1.3)
    ("file format", 18, 2, 0x0202),  # with a write-ahead log
    ("reserved bytes", 20, 1, 0),
    ("payload fractions", 21, 3, 0x402020),
    ("schema format", 44, 4, 4),
    ("cache size", 48, 4, 0),
    ("vacuum mode", 52, 4, 0),
    ("text encoding", 56, 4, 1),
    ("incremental vacuum mode", 64, 4, 0),
    ("reserved space", 72, 20, 0),
)


def database_problems(connection: sqlite3.Connection, folder: Path, header: bytes) -> list[str]:
    """Read every page of the file, and describe each damage, each damaged row and each reference to a missing row.

    Args:
        connection: to the database, within a transaction.
        folder: the gallery's folder.
        header: the first bytes of the file.
    """
    problems = header_problems(header)
    for name, value in (("user_version", VERSION), ("application_id", APPLICATION_ID)):
        if connection.execute(f"PRAGMA {name}").fetchone()[0] != value:
            problems.append(f"{DATABASE}: its header is damaged ({name})")
    problems += [row[0] for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
    problems += _definition_problems(connection)
    for table in tables(connection):
        try:
            problems += [
                _describe(connection, table, values, stored) for values, stored in damaged_rows(connection, table)
            ]
        except _UNREADABLE as error:
            problems.append(f"{table}: {_unreadable_part(connection, table)} ({error})")
    with contextlib.suppress(*_UNREADABLE):  # described above
        problems += [
            f"{table}, row {row}: refers to a missing row of {parent}"
            for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check")
        ]
    if is_acknowledged_file_damaged(folder):
        problems.append(
            f"{ACKNOWLEDGED_FILE}: damaged, so lost writes would not be noticed; the next change writes it anew"
        )
    return problems


def header_problems(header: bytes) -> list[str]:
    """Describe what is wrong in the first bytes of a database."""
    if len(header) < HEADER_BYTES:
        return [f"{DATABASE}: its header is cut short"]
    problems = [
        f"{DATABASE}: its header is damaged ({name})"
        for name, offset, length, value in _HEADER_FIELDS
        if int.from_bytes(header[offset : offset + length], "big") != value
    ]
    if header[24:28] != header[92:96]:
        problems.append(f"{DATABASE}: its header is damaged (change counter)")
    return problems


def _definition_problems(connection: sqlite3.Connection) -> list[str]:
    """Compare the definitions of the tables and the numbers given out with their checksums."""
    row = connection.execute("SELECT schema_checksum, sequence_checksum FROM gallery").fetchone()
    if row is None:
        return ["the row of the gallery itself is missing"]
    problems: list[str] = []
    if row[0] != schema_checksum(connection):
        problems.append("the definitions of the tables are damaged")
    other_types = connection.execute("SELECT 1 FROM sqlite_sequence WHERE typeof(name) <> 'text'").fetchone()
    if other_types or row[1] != sequence_checksum(connection):
        problems.append("the highest numbers of photos, faces and individuals (sqlite_sequence) are damaged")
    return problems


def _unreadable_part(connection: sqlite3.Connection, table: str) -> str:
    """Say which rows of a table cannot be read: those between the last from its front and the last from its back."""
    key = data_columns(connection, table)[0][0]
    ends: list[object] = []
    for direction in ("ASC", "DESC"):
        ends.append(None)
        with contextlib.suppress(*_UNREADABLE):
            # An index has the key as well: the last column is on the table's own page.
            for row in connection.execute(f"SELECT {key}, {COLUMN} FROM {table} ORDER BY {key} {direction}"):
                ends[-1] = row[0]
    first, last = ("the beginning" if ends[0] is None else ends[0]), ("the end" if ends[1] is None else ends[1])
    return f"the rows between {first} and {last} cannot be read"


def _describe(connection: sqlite3.Connection, table: str, values: Sequence[object], stored: int | None) -> str:
    """Describe a row that is not as it was written, and what of it is not, if a single bit explains it."""
    if row_checksum(table, *values) == stored:
        return f"{row_name(connection, table, values)}: a text has become binary data; repair mends it"
    mended = mend(table, tuple(values), stored)
    if mended is None:
        return f"{row_name(connection, table, values)}: damaged"
    was, index = mended
    name = row_name(connection, table, was)
    if index is None:
        return f"{name}: its {COLUMN} is damaged; repair mends it"
    column = data_columns(connection, table)[index][0]
    return f"{name}: damaged ({column_name(column)}; one bit was flipped, repair flips it back)"
