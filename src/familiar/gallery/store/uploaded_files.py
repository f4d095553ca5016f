"""Tell the files of uploaded photos from others: they are named by the SHA-256 of what was uploaded.

The folder that they are in is the gallery's own, but users may put photos there too, and those are not ours to delete.
"""

import re
from pathlib import Path

from familiar.core.files import content_sha256

# As `familiar.web.uploads` names them. Not a sidecar, which has a second suffix.
_NAME = re.compile(r"([0-9a-f]{64})(?:-([\w -]+))?\.[a-z]+")


def uploaded_sha256(path: Path) -> str | None:
    """Return the SHA-256, in hex, that the path of an uploaded photo says; None for the path of any other file.

    The content may differ: the disk may have damaged it, and `export_xmp` writes names into photos.

    >>> uploaded_sha256(Path("album/photos/aa") / (64 * "a" + "-mia.jpg")) == 64 * "a"
    True
    >>> uploaded_sha256(Path("album/photos/mia.jpg"))
    """
    name = _NAME.fullmatch(path.name)
    return name[1] if name is not None and path.parent.name == name[1][:2] else None


def stem_before_upload(path: Path) -> str:
    """Return a photo's name without suffix; of an uploaded photo, the name that it had before, if that is known.

    >>> stem_before_upload(Path("album/photos/aa") / (64 * "a" + "-IMG_0029.jpg"))
    'IMG_0029'
    """
    name = _NAME.fullmatch(path.name) if uploaded_sha256(path) else None
    return (name and name[2]) or path.stem


def has_uploaded_content(path: Path) -> bool:
    """Tell whether a file is an uploaded photo that can be read, with exactly the content that was uploaded."""
    try:
        return path.is_file() and content_sha256(path).hex() == uploaded_sha256(path)
    except OSError:
        return False
