"""Checksums of rows: computed by SQLite with every change of a row, compared by `check`, and used to mend single bits.

Each table has a generated column `checksum`, which SQLite fills by calling `row_checksum` whenever a row is written. A
bit that flips on the disk later, in the row or in its checksum, makes the two differ. The definitions of the tables and
the numbers given out so far (`sqlite_sequence`) are no rows of ours: their checksums are in the row of the gallery.
"""

import sqlite3
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

Values = tuple[Any, ...]  # of a row, without its checksum; texts as bytes, since a path may not be UTF-8

FUNCTION = "row_checksum"
COLUMN = "checksum"
_INTEGER_BYTES = (1, 2, 3, 4, 6, 8)  # in which SQLite stores integers (sqlite.org/fileformat2.html, 2.1)


def row_checksum(table: str, *values: Any) -> int:
    """Compute the CRC-32 of a row.

    Args:
        table: its name, so that a row never passes for one of another table.
        *values: integers, floats, bytes (also for text) and None; text only where damage has put it.
    """
    # `repr` of numbers is exact and the same in every Python. + 0.0: SQLite stores -0.0 as 0.
    numbers = [
        len(value) if value.__class__ is bytes else value + 0.0 if value.__class__ is float else value
        for value in values
    ]
    crc = zlib.crc32(repr((table, numbers)).encode())
    for value in values:
        if value.__class__ is bytes:
            crc = zlib.crc32(value, crc)
    return crc


def add_function(connection: sqlite3.Connection) -> None:
    """Let a connection write to tables that have checksums."""
    connection.create_function(FUNCTION, -1, row_checksum, deterministic=True)
    connection.execute("PRAGMA trusted_schema = ON")  # some builds of SQLite call no function of ours in a table


def checksum_call(table: str, columns: Iterable[tuple[str, str]]) -> str:
    """Return the SQL expression of a table's checksum.

    Args:
        table: its name.
        columns: name and type of each column except the checksum.
    """
    return f"{FUNCTION}('{table}', {', '.join(_as_bytes(*column) for column in columns)})"


def data_columns(connection: sqlite3.Connection, table: str) -> list[tuple[str, str]]:
    """Return name and type of each column of a table, except the checksum."""
    return [
        (_text(name), _text(kind))
        for _, name, kind, *_ in connection.execute(f"PRAGMA table_info({table})")  # which leaves out generated ones
        if _text(name) != COLUMN
    ]


def tables(connection: sqlite3.Connection) -> list[str]:
    """Return the names of all tables of the gallery."""
    return [
        _text(name)
        for (name,) in connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY rowid"
        )
    ]


def damaged_rows(connection: sqlite3.Connection, table: str) -> list[tuple[Values, int | None]]:
    """Return the rows of a table that are not as they were written, each as (values, stored checksum).

    Raises:
        sqlite3.DatabaseError: a page of the table is damaged.
    """
    columns = data_columns(connection, table)
    query = f"SELECT {', '.join(name for name, _ in columns)}, {COLUMN} FROM {table}"
    # A text that has become binary data, or the reverse, has the same bytes, and so the same checksum.
    other_type = {"TEXT": "blob", "BLOB": "text"}
    conditions = [f"typeof({name}) = '{other_type[kind]}'" for name, kind in columns if kind in other_type]
    text_factory = connection.text_factory
    connection.text_factory = bytes
    try:
        damaged = [
            (tuple(values), stored)
            for *values, stored in connection.execute(query)
            if row_checksum(table, *values) != stored
        ]
        if conditions:
            others = connection.execute(f"{query} WHERE {' OR '.join(conditions)}").fetchall()
            damaged += [(tuple(values), stored) for *values, stored in others if (tuple(values), stored) not in damaged]
    finally:
        connection.text_factory = text_factory
    return damaged


def mend(table: str, values: Values, stored: int | None) -> tuple[Values, int | None] | None:
    """Find the single bit whose flip explains why a row and its checksum differ.

    Args:
        table: its name.
        values: of the row as it is now.
        stored: its checksum as it is now.

    Returns:
        The values as they were, and the index of the one that was hit (None: the checksum itself); None if no single
        bit explains it.
    """
    if not isinstance(stored, int):
        return None
    if _is_one_bit(row_checksum(table, *values) ^ stored):
        return values, None
    for index, value in enumerate(values):
        for candidate in _flipped(value):
            mended = (*values[:index], candidate, *values[index + 1 :])
            if row_checksum(table, *mended) == stored:
                return mended, index
    return None


def schema_checksum(connection: sqlite3.Connection) -> int:
    """Compute the checksum of the definitions of all tables, indexes and triggers."""
    rows = connection.execute(
        "SELECT CAST(type AS BLOB), CAST(name AS BLOB), CAST(tbl_name AS BLOB), CAST(sql AS BLOB), "
        "CAST(typeof(type) || typeof(name) || typeof(tbl_name) || typeof(sql) AS BLOB), "
        "CASE type WHEN 'trigger' THEN rootpage END FROM sqlite_schema "  # VACUUM moves the others
        "WHERE name NOT LIKE 'sqlite_stat%' ORDER BY name"
    ).fetchall()
    return row_checksum("sqlite_schema", *(value for row in rows for value in row))


def sequence_checksum(connection: sqlite3.Connection) -> int:
    """Compute the checksum of the highest numbers that were given out, which are never given out again."""
    rows = connection.execute("SELECT CAST(name AS BLOB), seq FROM sqlite_sequence ORDER BY name").fetchall()
    return row_checksum("sqlite_sequence", *(value for row in rows for value in row))


def _as_bytes(column: str, kind: str) -> str:
    return f"CAST({column} AS BLOB)" if kind == "TEXT" else column


def _text(value: str | bytes) -> str:
    """Decode a name, of a connection whose text factory may be `bytes`."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _is_one_bit(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def _flipped(value: Any) -> Iterator[Any]:
    """Iterate over what a stored value may have been before one of its bits flipped."""
    if isinstance(value, bytes):
        flipped = bytearray(value)
        for position in range(8 * len(value)):
            flipped[position // 8] ^= 1 << position % 8
            yield bytes(flipped)
            flipped[position // 8] ^= 1 << position % 8
    elif isinstance(value, int):
        yield from _flipped_integers(value)
    elif isinstance(value, float):
        (bits,) = struct.unpack("<q", struct.pack("<d", value))
        yield from (struct.unpack("<d", struct.pack("<q", other))[0] for other in _flipped_integers(bits))
        if value.is_integer():  # SQLite stores it as an integer
            yield from (float(other) for other in _flipped_integers(int(value)))


def _flipped_integers(value: int) -> Sequence[int]:
    """Return the integers of which one bit differs, stored in as few bytes as SQLite does or in eight."""
    widths = [size for size in _INTEGER_BYTES if -(1 << 8 * size - 1) <= value < 1 << 8 * size - 1]
    integers: list[int] = []
    for size in widths:
        mask = (1 << 8 * size) - 1
        for bit in range(8 * size):
            other = (value & mask) ^ (1 << bit)
            integers.append(other - (mask + 1) if other >> (8 * size - 1) else other)
    return list(dict.fromkeys(integers))
