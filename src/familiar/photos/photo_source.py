"""What a photo may be given as: a path, bytes, an open file, pixels. One place that decides for all callers."""

import contextlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from jaxtyping import UInt8

from familiar.core.types import Photo


class PhotoFile(Protocol):
    """A file that is open in binary mode."""

    def read(self, size: int = -1, /) -> bytes:
        """Return the bytes that follow, at most `size`."""
        ...


class PhotoUpload(Protocol):
    """A file that a browser sent, such as an `UploadFile` of FastAPI and Starlette."""

    @property
    def file(self) -> PhotoFile:
        """Its content."""
        ...


PhotoSource: TypeAlias = (
    Path | str | bytes | bytearray | memoryview | PhotoFile | PhotoUpload | UInt8[np.ndarray, "h w 3"] | Photo
)
"""A path, the bytes of an image file, a file that is open in binary mode, an upload, pixels in RGB, or a photo."""


def photo_name(source: Any) -> Path | str:
    """Name a photo in messages: its path, the name of its file, or else what was given.

    Args:
        source: a `PhotoSource`.
    """
    if isinstance(source, Photo):
        return source.source
    if isinstance(source, Path | str):
        return Path(source)
    if isinstance(source, bytes | bytearray | memoryview):
        return f"the {len(source):,} bytes given"
    if isinstance(source, np.ndarray):
        return "the array given"
    names = (getattr(source, attribute, None) for attribute in ("filename", "name"))  # of an upload, of a file
    return next((name for name in names if name and isinstance(name, str)), "the file given")


def read_content(source: Any, max_bytes: int) -> bytes:
    """Return the bytes of an image file that are given as such, or as an open file, which is read from its beginning.

    Args:
        source: bytes or an open file.
        max_bytes: a file is not read much further.

    Raises:
        OSError: the file cannot be read.
        TypeError: it is neither bytes nor a file that is open in binary mode.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    read: Callable[[int], Any] | None = getattr(source, "read", None)
    if read is None:
        raise TypeError(
            "a photo is a path, bytes, a file that is open in binary mode, a uint8 array (h, w, 3) or a Photo, "
            f"not {type(source).__name__}"
        )
    if inspect.iscoroutinefunction(read):  # of a `PhotoUpload`
        return read_content(source.file, max_bytes)
    if getattr(source, "closed", False):
        raise TypeError(f"{photo_name(source)}: is closed already")
    with contextlib.suppress(AttributeError, OSError):  # of a stream
        source.seek(0)  # it may have been read already
    content = read(max_bytes + 1)
    if not isinstance(content, bytes):
        raise TypeError(f"{photo_name(source)}: is open in text mode; open it with mode 'rb'")
    return content
