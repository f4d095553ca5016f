"""Photos as parts of a request: read piece by piece, and a file is open only while a piece is read."""

import os
from pathlib import Path
from typing import Any

from familiar.core.errors import UnreadablePhoto
from familiar.core.terminal_text import printable

Source = Path | str | bytes
Part = tuple[str, Any]  # as httpx2 takes them


def part(field: str, source: Source) -> Part:
    """Return a photo as a part of a multipart form. UnreadablePhoto if the file does not exist."""
    if isinstance(source, bytes):
        return field, ("photo", source)
    path = Path(source)
    return field, (printable(path.name), LazyFile(path))


class LazyFile:
    """A file that can be read, and is open only while a piece is read. UnreadablePhoto if it cannot be."""

    def __init__(self, path: Path) -> None:
        self._path, self._position = path, 0
        self.read(0)

    def tell(self) -> int:
        """Return the position of the next piece."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position, counted from the beginning or the end."""
        self._position = offset if whence == os.SEEK_SET else self._path.stat().st_size + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Read at most `size` bytes."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                piece = file.read(size)
        except OSError as error:
            raise UnreadablePhoto(f"{self._path}: cannot be read ({error.strerror})") from error
        self._position += len(piece)
        return piece
