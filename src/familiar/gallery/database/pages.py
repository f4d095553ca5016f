"""Rows of single pages of a damaged database, recognized by their checksums, and pages with one flipped bit.

A page is read as the only content of an in-memory database, so no other page has to be intact. Rows that continue on
other pages cannot be read like this.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from familiar.gallery.database.checksums import Values, row_checksum

MAX_COLUMNS = 16  # of a table, with its checksum
TABLE_LEAF = 0x0D  # first byte of a page of rows (sqlite.org/fileformat2.html, 1.6)
INDEX_LEAF = 0x0A  # of an index, or of the rows of a table WITHOUT ROWID
_PAGE_SIZES = (512, 1024, 2048, 4096, 8192, 16384, 32768)
_DEFAULT_PAGE_SIZE = 4096  # if the file's header has no valid one
_HEADER_BYTES = 8  # of a page of rows
_ROW_HEADER_BYTES = 48  # lengths, number and types of a row
_MAX_MENDED_PAGES = 100  # beyond that, it is no matter of single bits

UNREADABLE = (
    sqlite3.DatabaseError,
    UnicodeDecodeError,  # if SQLite's message quotes garbled text
)


@dataclass(frozen=True)
class TableFormat:
    """How the rows of a table lie on its pages.

    Attributes:
        name: of the table.
        column_types: the type of each column except the checksum.
        has_rowid: whether its key is the number of the row.
    """

    name: str
    column_types: tuple[str, ...]
    has_rowid: bool

    def recognize(self, row: Sequence[Any]) -> Values | None:
        """Return the values of a row as it lies on a page if its checksum is that of a row of this table."""
        count = len(self.column_types)
        if not isinstance(row[count], int) or any(value is not None for value in row[count + 1 :]):
            return None
        values = tuple(
            float(value) if kind == "REAL" and isinstance(value, int) else value  # as SQLite stores it
            for value, kind in zip(row, self.column_types, strict=False)
        )
        return values if row_checksum(self.name, *values) == row[count] else None


class PageReader:
    """Reads rows of single pages.

    Args:
        path: of a database, which nobody else has open.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            in_header = int.from_bytes(file.read(18)[16:18], "big")
        self._page_size = in_header if in_header in _PAGE_SIZES else _DEFAULT_PAGE_SIZE
        columns = [f"c{index}" for index in range(MAX_COLUMNS)]
        self._databases: dict[int, sqlite3.Connection] = {}
        self._first_pages: dict[int, bytes] = {}
        for kind, definition in (
            (TABLE_LEAF, f"CREATE TABLE page ({', '.join(columns)})"),
            (INDEX_LEAF, f"CREATE TABLE page ({', '.join(columns)}, PRIMARY KEY (c0)) WITHOUT ROWID"),
        ):
            database = self._databases[kind] = sqlite3.connect(":memory:")
            database.execute(f"PRAGMA page_size = {self._page_size}")
            database.execute(definition)
            self._first_pages[kind] = database.serialize()[: self._page_size]
            database.text_factory = bytes
        self._columns = ", ".join(columns)

    def __enter__(self) -> "PageReader":
        return self

    def __exit__(self, *_: object) -> None:
        for database in self._databases.values():
            database.close()

    def pages(self) -> Iterator[tuple[int, bytes]]:
        """Iterate over offset and content of every page after the first."""
        with self._path.open("rb") as file:
            file.seek(self._page_size)
            offset = self._page_size
            while page := file.read(self._page_size):
                yield offset, page.ljust(self._page_size, b"\0")
                offset += self._page_size

    def load(self, page: bytes) -> sqlite3.Connection | None:
        """Return a database of which a page of rows is the table `page`; None for other pages."""
        if page[0] not in self._databases:
            return None
        database = self._databases[page[0]]
        database.deserialize(self._first_pages[page[0]] + page)
        return database

    def rows(self, page: bytes) -> list[tuple[Any, ...] | None]:
        """Read the rows of a page, with the number of the row as the first column if it has one.

        Returns:
            Each row, and None for one that is unreadable.
        """
        rows = self.whole_page(page)
        if rows is not None:
            return [*rows]
        if page[0] not in self._databases or _end_of_pointers(page) > len(page):
            return []
        return [self._row(page, index) for index in range(_cells(page))]

    def whole_page(self, page: bytes) -> list[tuple[Any, ...]] | None:
        """Read the rows of a page; None if one is unreadable."""
        try:
            rows = self._select(page)
        except UNREADABLE:
            return None
        return rows if len(rows) == _cells(page) else None

    def _row(self, page: bytes, index: int) -> tuple[Any, ...] | None:
        """Read one row of a page, without the others."""
        pointer = _HEADER_BYTES + 2 * index
        single = page[:3] + b"\0\1" + page[5:_HEADER_BYTES] + page[pointer : pointer + 2] + page[_HEADER_BYTES + 2 :]
        try:
            rows = self._select(single)
        except UNREADABLE:
            return None
        return rows[0] if rows else None

    def _select(self, page: bytes) -> list[tuple[Any, ...]]:
        if (database := self.load(page)) is None:
            return []
        columns = self._columns.replace("c0", "rowid", 1) if page[0] == TABLE_LEAF else self._columns
        return database.execute(f"SELECT {columns} FROM page").fetchall()


def mend_pages(path: Path, formats: Sequence[TableFormat]) -> Iterator[tuple[str, Values]]:
    """Find pages of rows of which one bit was flipped, and flip it back in the file.

    Args:
        path: of a copy of the damaged database, which nobody else has open.
        formats: of all tables.

    Yields:
        The table and the values of each row that can be read again, or is as it was again.
    """
    by_kind = formats_by_kind(formats)
    mended = 0
    with PageReader(path) as reader, path.open("r+b") as file:
        for offset, page in reader.pages():
            if mended >= _MAX_MENDED_PAGES:
                return
            if (result := _mend_page(reader, page, by_kind)) is None:
                continue
            content, rows = result
            file.seek(offset)
            file.write(content)
            mended += 1
            yield from rows


def formats_by_kind(formats: Sequence[TableFormat]) -> dict[int, list[TableFormat]]:
    """Group the formats of tables by the first byte of their pages."""
    return {
        TABLE_LEAF: [each for each in formats if each.has_rowid],
        INDEX_LEAF: [each for each in formats if not each.has_rowid],
    }


def recognized_rows(
    rows: Sequence[tuple[Any, ...] | None], formats: Sequence[TableFormat]
) -> list[tuple[str, Values] | None]:
    """Return table and values of each row whose checksum says that it belongs to one of the tables, None for others."""
    recognized: list[tuple[str, Values] | None] = []
    ordered = list(formats)
    for row in rows:
        recognized.append(None)
        for index, each in enumerate(ordered):
            if row is not None and (values := each.recognize(row)) is not None:
                recognized[-1] = (each.name, values)
                ordered.insert(0, ordered.pop(index))  # the next row is probably of the same table
                break
    return recognized


def _mend_page(
    reader: PageReader, page: bytes, by_kind: Mapping[int, list[TableFormat]]
) -> tuple[bytes, list[tuple[str, Values]]] | None:
    """Return the page as it was, and the rows that were hit; None if it is intact, not one of rows, or beyond this."""
    before: set[tuple[str, Values]] = set()
    candidates: Iterable[bytes] = ()
    if page[0] in by_kind:
        rows = reader.rows(page)
        recognized = recognized_rows(rows, by_kind[page[0]])
        before = {row for row in recognized if row is not None}
        if not before:  # a page of an index or of the table definitions
            return None
        if None in recognized or len(rows) != _cells(page):
            candidates = _flipped(page, recognized.index(None) if None in recognized else 0)
        elif page[_end_of_pointers(page) : _end_of_pointers(page) + 2] != b"\0\0":  # perhaps one more
            candidates = _flipped_bytes(page, range(3, 5))
    elif any(page[1:]):
        page_types = [kind for kind in by_kind if (page[0] ^ kind).bit_count() == 1]
        candidates = (bytes([kind]) + page[1:] for kind in page_types)
    for candidate in candidates:
        rows = reader.whole_page(candidate)
        if not rows or len(rows) < len(before):
            continue
        after = [row for row in recognized_rows(rows, by_kind[candidate[0]]) if row is not None]
        if len(after) == len(rows) and set(after) > before:
            return candidate, [row for row in after if row not in before]
    return None


def _flipped(page: bytes, index: int) -> Iterator[bytes]:
    """Iterate over the pages that differ in one bit of what describes the page or its row of some index.

    Values are left out: the checksum of the row tells which bit of them was flipped (`checksums.mend`).
    """
    pointer = _HEADER_BYTES + 2 * index
    cell = int.from_bytes(page[pointer : pointer + 2], "big")
    yield from _flipped_bytes(page, [*range(1, _HEADER_BYTES), pointer, pointer + 1])
    yield from _flipped_bytes(page, range(cell, cell + _ROW_HEADER_BYTES))


def _flipped_bytes(page: bytes, positions: Iterable[int]) -> Iterator[bytes]:
    flipped = bytearray(page)
    for position in positions:
        if position < len(page):
            for bit in range(8):
                flipped[position] ^= 1 << bit
                yield bytes(flipped)
                flipped[position] ^= 1 << bit


def _cells(page: bytes) -> int:
    return int.from_bytes(page[3:5], "big")


def _end_of_pointers(page: bytes) -> int:
    return _HEADER_BYTES + 2 * _cells(page)
