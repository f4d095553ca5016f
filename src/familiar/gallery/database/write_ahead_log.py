"""The write-ahead log of a damaged gallery: SQLite drops everything after a damaged frame, and we do not.

SQLite takes the first frame whose checksum is wrong for the end of the log, as after a crash. If that loses writes that
are known to be acknowledged, the frame was damaged later: the frames behind it are intact, and are applied as well.
"""

import contextlib
import sqlite3
import struct
from pathlib import Path
from urllib.parse import quote_from_bytes

_HEADER_BYTES = 32  # sqlite.org/fileformat2.html, 4.1
_FRAME_HEADER_BYTES = 24
_BIG_ENDIAN_CHECKSUMS = 0x377F0683
_MAX_PAGES = 2**32 - 2


def apply_damaged_log(database: Path, acknowledged: int) -> None:
    """Write the pages of a damaged log into a database, and delete the log, if SQLite would lose writes of it.

    Args:
        database: a copy of the gallery's database, with a copy of its log beside it, that nobody has open.
        acknowledged: the number of writes that are known to be acknowledged.
    """
    log = Path(f"{database}-wal")
    if not log.is_file() or log.stat().st_size <= _HEADER_BYTES or _writes(database) >= acknowledged:
        return
    content = log.read_bytes()
    page_size = int.from_bytes(content[8:12], "big")
    if not 512 <= page_size <= 65536:
        page_size = int.from_bytes(database.read_bytes()[16:18], "big")
    frames = _frames(content, page_size)
    last_commit = max((index for index, (_, pages, _) in enumerate(frames) if pages), default=-1)
    with database.open("r+b") as file:
        for number, _, page in frames[: last_commit + 1]:
            file.seek((number - 1) * page_size)
            file.write(page)
        if last_commit >= 0:
            file.truncate(frames[last_commit][1] * page_size)
    log.unlink()
    Path(f"{database}-shm").unlink(missing_ok=True)


def _writes(database: Path) -> int:
    """Return the number of writes that SQLite reads from a database and its log."""
    for column in ("writes", "revision"):  # the second in older versions
        with contextlib.suppress(sqlite3.Error, UnicodeDecodeError):
            uri = f"file:{quote_from_bytes(bytes(database.absolute()))}?mode=ro"  # so that the log is not written back
            with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
                row = connection.execute(f"SELECT {column} FROM gallery").fetchone()
                return int(row[0]) if row is not None else 0
    return 0


def _frames(content: bytes, page_size: int) -> list[tuple[int, int, bytes]]:
    """Return page number, size of the database in pages (0 but in the last frame of a commit) and page of each frame.

    Frames of an earlier use of the log, which differ in their salts, are left out.
    """
    order = ">" if int.from_bytes(content[:4], "big") == _BIG_ENDIAN_CHECKSUMS else "<"
    salts, checksum = content[16:24], struct.unpack(">II", content[24:32])
    frames: list[tuple[int, int, bytes]] = []
    size = _FRAME_HEADER_BYTES + page_size
    for start in range(_HEADER_BYTES, len(content) - size + 1, size):
        header, page = content[start : start + _FRAME_HEADER_BYTES], content[start + _FRAME_HEADER_BYTES : start + size]
        if _different_bits(header[8:16], salts) > 1:  # one may have been flipped
            break
        stored: tuple[int, int] = struct.unpack(">II", header[16:24])
        fields = _mended_fields(header[:8], page, checksum, stored, order)
        number, pages = struct.unpack(">II", fields)
        if not 0 < number <= _MAX_PAGES:
            break
        frames.append((number, pages, page))
        checksum = stored
    return frames


def _mended_fields(fields: bytes, page: bytes, previous: tuple[int, int], stored: tuple[int, int], order: str) -> bytes:
    """Return a frame's page number and size of the database, with the bit flipped back that its checksum tells."""
    if _checksum(fields + page, previous, order) == stored:
        return fields
    for bit in range(8 * len(fields)):
        candidate = (int.from_bytes(fields, "big") ^ (1 << bit)).to_bytes(len(fields), "big")
        if _checksum(candidate + page, previous, order) == stored:
            return candidate
    return fields


def _checksum(content: bytes, previous: tuple[int, int], order: str) -> tuple[int, int]:
    first, second = previous
    words = struct.unpack(f"{order}{len(content) // 4}I", content)
    for index in range(0, len(words), 2):
        first = (first + words[index] + second) & 0xFFFFFFFF
        second = (second + words[index + 1] + first) & 0xFFFFFFFF
    return first, second


def _different_bits(left: bytes, right: bytes) -> int:
    return (int.from_bytes(left, "big") ^ int.from_bytes(right, "big")).bit_count()
