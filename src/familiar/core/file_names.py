"""Names of files and folders: those of photos, and those that are made from other names."""

import os
import re
from pathlib import Path

from familiar.core.terminal_text import printable

PHOTO_SUFFIXES = frozenset(
    {
        *(".jpg", ".jpeg", ".jfif", ".mpo", ".heic", ".heif", ".hif", ".avif"),
        *(".png", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm", ".pgm"),
    }
)
"""In lower case; of the files in folders that are taken for photos."""
_MAX_BYTES = 200  # of a name that is made; a number may be appended
_NAME_MAX_BYTES = 255  # of file systems


def name_before_upload(path: Path | str) -> str:
    """Return a photo's file name; of an uploaded photo, the name that its sender gave it.

    >>> name_before_upload("/album/photos/aa/" + 64 * "a" + "-tom.jpg"), name_before_upload("/home/tom.jpg")
    ('tom.jpg', 'tom.jpg')
    """
    return re.sub("^[0-9a-f]{64}-(?=.)", "", Path(path).name)


def safe_file_name(name: str) -> str:
    """Turn a name into that of a file or folder which any system accepts.

    >>> safe_file_name("Tom/Jerry: twins"), safe_file_name("..hidden")
    ('Tom_Jerry_ twins', '_.hidden')
    """
    safe = "".join("_" if letter in '/\\:*?"<>|' or printable(letter) != letter else letter for letter in name)
    safe = safe.encode()[:_MAX_BYTES].decode(errors="ignore").rstrip(" .")
    return "_" + safe[1:] if safe.startswith(".") or not safe else safe


def unused_name(stem: str, suffix: str, used_names: set[str]) -> str:
    """Return the file name, with -2, -3, ... appended if it is used, also in other case; record it as used.

    The stem of a name that this makes too long is shortened.
    """
    name, count = stem + suffix, 1
    while name.casefold() in used_names:
        count += 1
        while stem and len(os.fsencode(f"{stem}-{count}{suffix}")) > _NAME_MAX_BYTES:
            stem = stem[:-1]
        name = f"{stem}-{count}{suffix}"
    used_names.add(name.casefold())
    return name
