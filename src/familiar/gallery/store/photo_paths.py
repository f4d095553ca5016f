"""Which photo of a gallery a path means: its file may be gone, or have the content of another photo by now."""

from collections.abc import Sequence
from pathlib import Path

from familiar.core.errors import Contradiction, UnreadablePhoto
from familiar.core.files import absolute_path, content_sha256, real_path
from familiar.gallery.store.photos import PhotoRow
from familiar.gallery.store.repository import Repository
from familiar.gallery.store.store import Store

CHANGED = (
    "has changed since it was enrolled; put the earlier file back, or enroll it again (if that notices no change, "
    "touch it first)"  # a file of the same size and time is not read again
)


def file_sha256(path: Path) -> bytes | None:
    """Hash a photo's file. None if there is none; a folder or a named pipe in its place is none.

    Raises:
        UnreadablePhoto: it cannot be read.
    """
    try:
        return content_sha256(path) if path.is_file() else None
    except FileNotFoundError:  # deleted just now
        return None
    except OSError as error:
        raise UnreadablePhoto(f"{path}: cannot be read ({error.strerror})") from error


def require_sha256(path: Path) -> bytes:
    """Hash a photo's file. UnreadablePhoto if it cannot be read, or there is none."""
    try:
        return content_sha256(path)
    except OSError as error:
        raise UnreadablePhoto(f"{path}: {error.strerror}") from error


def photos_at_path(store: Store, path: Path | str, sha256: bytes | None) -> list[int]:
    """Return the numbers of the photos that a path means; none if nothing was enrolled from there.

    This is the photo that was enrolled from there and whose content the file has; or, if the file is gone, the only one
    that was enrolled from there. Of embeddings that were enrolled without photos a path is the name, and all that have
    it are returned.

    Args:
        store: of the photos.
        path: absolute, relative, or through links.
        sha256: of the file at the path, from `file_sha256`.

    Raises:
        Contradiction: the file has other content; or it is gone, and several photos were enrolled from there.
    """
    with store.read() as repository:
        rows = _enrolled_from(repository, path)
        if unchanged := [row.photo for row in rows if row.sha256 == sha256]:
            return unchanged
        photos = [row.photo for row in rows]
        if not any(row.has_file for row in rows) or (sha256 is None and len(photos) == 1):
            return photos
        cause = CHANGED if sha256 is not None else "is gone, and several photos were enrolled from there"
        raise Contradiction(f"{path}: {cause}; or give a number: {_list_numbers(repository, photos)}")


def _enrolled_from(repository: Repository, path: Path | str) -> list[PhotoRow]:
    if "\0" in str(path):  # the system refuses to look for it
        return []
    for spelling in (absolute_path, str, real_path):
        if rows := repository.photos.at_path(spelling(path)):
            return rows
    return []


def _list_numbers(repository: Repository, photos: Sequence[int]) -> str:
    """Write `photo 3 with face 5; photo 4 without a face`."""
    faces: dict[int, list[str]] = {photo: [] for photo in photos}
    for row in repository.faces.rows_in_photos(photos):
        faces[row.photo].append(str(row.face))
    return "; ".join(
        f"photo {photo} with face {', '.join(numbers)}" if numbers else f"photo {photo} without a face"
        for photo, numbers in faces.items()
    )
