"""Which bytes of an SQLite file are used, and for what; read from its pages (sqlite.org/fileformat2.html).

Unused are free pages, the gap between the cell pointers and the cells of a page, the content of free blocks, fragments
of up to three bytes, and what follows the last byte of a row on its last overflow page.
"""

from dataclasses import dataclass

HEADER_BYTES = 100
UNUSED_IN_HEADER = (range(40, 44), range(96, 100))  # a counter of schema changes, the version of the last writer
_TABLE_INTERIOR, _TABLE_LEAF, _INDEX_INTERIOR, _INDEX_LEAF = 5, 13, 2, 10


@dataclass(frozen=True)
class Use:
    """What a byte is used for.

    Attributes:
        tree: the table or index, or "header" or "free list".
        part: "header", "pointers", "cell", "key" (of an interior page of a table: any number between two children finds
            the same rows), "number type" (of the column that is the row's number, which is stored elsewhere), "order"
            (of the rows of tables of SQLite itself), "free block" or "overflow".
        row: the number of the row; None in an index and for what is no row.
    """

    tree: str
    part: str
    row: int | None = None


class Layout:
    """The uses of the bytes of a file.

    Args:
        content: of an intact file without a log.
        roots: root page of each table and index, with its name.
    """

    def __init__(self, content: bytes, roots: dict[int, str]) -> None:
        self._content = content
        self._page_size = int.from_bytes(content[16:18], "big")
        self.uses: dict[int, Use] = {}
        self._mark(0, HEADER_BYTES, Use("header", "header"))
        for unused in UNUSED_IN_HEADER:
            for offset in unused:
                del self.uses[offset]
        self._walk(1, "sqlite_schema")
        for root, name in roots.items():
            self._walk(root, name)
        self._free_list()

    def _mark(self, start: int, length: int, use: Use) -> None:
        for offset in range(start, start + length):
            assert offset not in self.uses, f"byte {offset} has two uses"
            self.uses[offset] = use

    def _number(self, offset: int, length: int) -> int:
        return int.from_bytes(self._content[offset : offset + length], "big")

    def _varint(self, offset: int) -> tuple[int, int]:
        value = 0
        for index in range(9):
            byte = self._content[offset + index]
            if index == 8:
                return value << 8 | byte, 9
            value = value << 7 | byte & 0x7F
            if byte < 0x80:
                return value, index + 1
        raise AssertionError

    def _walk(self, number: int, tree: str) -> None:
        start = (number - 1) * self._page_size
        header = start + (HEADER_BYTES if number == 1 else 0)
        kind = self._content[header]
        is_interior = kind in (_TABLE_INTERIOR, _INDEX_INTERIOR)
        length = 12 if is_interior else 8
        cells = self._number(header + 3, 2)
        self._mark(header, length, Use(tree, "header"))
        self._mark(header + length, 2 * cells, Use(tree, "pointers"))
        for index in range(cells):
            self._cell(start + self._number(header + length + 2 * index, 2), kind, tree)
        block = self._number(header + 1, 2)
        while block:
            self._mark(start + block, 4, Use(tree, "free block"))
            block = self._number(start + block, 2)
        if is_interior:
            self._walk(self._number(header + 8, 4), tree)

    def _cell(self, offset: int, kind: int, tree: str) -> None:
        start, row = offset, None
        if kind in (_TABLE_INTERIOR, _INDEX_INTERIOR):
            self._walk(self._number(offset, 4), tree)
            offset += 4
        if kind == _TABLE_INTERIOR:
            _, length = self._varint(offset)
            self._mark(start, 4, Use(tree, "pointers"))
            self._mark(offset, length, Use(tree, "key"))
            return
        payload, length = self._varint(offset)
        offset += length
        if kind == _TABLE_LEAF:
            row, length = self._varint(offset)
            offset += length
        local = self._local_bytes(payload, kind)
        end = offset + local + (4 if local < payload else 0)
        self._mark(start, max(end - start, 4), Use(tree, "cell", row))
        if tree in ("sqlite_schema", "sqlite_sequence") and kind == _TABLE_LEAF:
            for position in range(start + self._varint(start)[1], offset):
                self.uses[position] = Use(tree, "order", row)
        if row is not None and not tree.startswith("sqlite_"):
            self.uses[offset + self._varint(offset)[1]] = Use(tree, "number type", row)
        if local < payload:
            self._overflow(self._number(offset + local, 4), payload - local, Use(tree, "overflow", row))

    def _local_bytes(self, payload: int, kind: int) -> int:
        usable = self._page_size
        most = usable - 35 if kind == _TABLE_LEAF else (usable - 12) * 64 // 255 - 23
        if payload <= most:
            return payload
        least = (usable - 12) * 32 // 255 - 23
        fitting = least + (payload - least) % (usable - 4)
        return fitting if fitting <= most else least

    def _overflow(self, number: int, remaining: int, use: Use) -> None:
        while number:
            start = (number - 1) * self._page_size
            length = min(remaining, self._page_size - 4)
            self._mark(start, 4 + length, use)
            remaining -= length
            number = self._number(start, 4)

    def _free_list(self) -> None:
        trunk = self._number(32, 4)
        while trunk:
            start = (trunk - 1) * self._page_size
            self._mark(start, 8 + 4 * self._number(start + 4, 4), Use("free list", "pointers"))
            trunk = self._number(start, 4)
