"""Photos as parts of a request: read piece by piece, and only one file open at a time."""

import os
from pathlib import Path
from typing import Any, BinaryIO

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
    """A readable file that is open only from the first `read` to the last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        try:
            self._size = path.stat().st_size
        except OSError as error:
            raise self._unreadable(error) from error

    def tell(self) -> int:
        """Return 0: nothing has been read when a request asks."""
        return 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to the beginning; to the end only to return the size."""
        self._close()
        return self._size if whence == os.SEEK_END else offset

    def read(self, size: int = -1) -> bytes:
        """Read at most `size` bytes; the file is closed at its end. UnreadablePhoto if it cannot be read."""
        try:
            if self._file is None:
                self._file = self._path.open("rb")
            piece = self._file.read(size)
        except OSError as error:
            raise self._unreadable(error) from error
        if not piece:
            self._close()
        return piece

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _unreadable(self, error: OSError) -> UnreadablePhoto:
        return UnreadablePhoto(f"{self._path}: cannot be read ({error.strerror})")
