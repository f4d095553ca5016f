"""Tell the files of uploaded photos from others: they are named by the SHA-256 of what was uploaded.

The folder that they are in is the gallery's own, but users may put photos there too, and those are not ours to delete.
"""

import os
import re
from pathlib import Path

from familiar.core.files import absolute_path, content_sha256, real_path
from familiar.gallery.store.store import UPLOADED_PHOTOS, Store

# As `familiar.web.uploads` names them. Not a sidecar, which has a second suffix.
_NAME = re.compile(r"([0-9a-f]{64})(?:-[\w -]+)?\.[a-z]+")


def uploaded_sha256(path: Path) -> str | None:
    """Return the SHA-256, in hex, that the path of an uploaded photo says; None for the path of any other file.

    The content may differ: the disk may have damaged it, and `export_xmp` writes names into photos.

    >>> uploaded_sha256(Path("album/photos/aa") / (64 * "a" + "-mia.jpg")) == 64 * "a"
    True
    >>> uploaded_sha256(Path("album/photos/mia.jpg"))
    """
    name = _NAME.fullmatch(path.name)
    return name[1] if name is not None and path.parent.name == name[1][:2] else None


def has_uploaded_content(path: Path) -> bool:
    """Tell whether a file is an uploaded photo that can be read, with exactly the content that was uploaded."""
    try:
        return path.is_file() and content_sha256(path).hex() == uploaded_sha256(path)
    except OSError:
        return False


def folders_of_uploads(folder: Path) -> list[str]:
    """Return the beginnings of the paths of a gallery's uploaded photos: as given, and with links resolved."""
    return sorted({os.path.join(path(folder), UPLOADED_PHOTOS, "") for path in (absolute_path, real_path)})  # noqa: PTH118


def find_moved_uploads(store: Store) -> None:
    """Note where uploaded photos are now, if the gallery's folder was moved, or copied, since they were enrolled."""
    if store.read_only:
        return
    uploads = folders_of_uploads(store.folder)
    with store.read() as repository:
        rows = repository.photos.in_other_folders(os.path.join(os.sep, UPLOADED_PHOTOS, ""), uploads)  # noqa: PTH118
    moved = {row.photo: Path(uploads[0], *Path(row.path).parts[-2:]) for row in rows if uploaded_sha256(Path(row.path))}
    if moved := {photo: path for photo, path in moved.items() if path.is_file()}:
        with store.write(faces_change=True) as repository:
            for row in rows:
                if row.photo in moved:
                    repository.photos.update_file(row.photo, moved[row.photo], row.size_bytes, row.modified_ns)
