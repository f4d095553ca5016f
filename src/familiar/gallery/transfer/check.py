"""Check the integrity of a gallery."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from familiar.core.errors import CorruptGallery
from familiar.core.files import content_sha256
from familiar.gallery.search.external_search import check_external_index
from familiar.gallery.store.photos import PhotoRow
from familiar.gallery.store.store import UPLOADED_PHOTOS, Store
from familiar.gallery.store.uploaded_files import uploaded_sha256

ERASURE_DUE = (
    "the bytes of forgotten photos or identities are still on the disk, since another process had the gallery open, or "
    "in Milvus, since that could not be reached; open the gallery again after that"
)


@dataclass(frozen=True)
class CheckResult:
    """The outcome of an integrity check.

    Attributes:
        photos: the number of photos.
        faces: the number of faces.
        problems: one description per problem; empty if the gallery is intact.
        missing: paths of photos that are not where they were enrolled, or cannot be read. Their faces are still in the
            gallery; enroll the folder that they are in now.
        changed: paths of photos with other content than when they were enrolled; likewise.
    """

    photos: int
    faces: int
    problems: tuple[str, ...]
    missing: tuple[str, ...]
    changed: tuple[str, ...]

    @property
    def needs_repair(self) -> bool:
        """Whether there is a problem that does not end by itself."""
        return bool(set(self.problems) - {ERASURE_DUE})


def check(store: Store) -> CheckResult:
    """Check every page, every reference and every embedding of a gallery, and whether the photos are still there.

    An index outside the gallery's folder is compared with it. A photo's content is read only if its size is the same
    and its modification time is not.
    """
    with store.read() as repository:
        problems = store.damage()
        if repository.erasure.forgotten():
            problems.append(ERASURE_DUE)
        files = sorted(repository.photos.rows(), key=lambda row: row.path)
        problems += check_external_index(store)
        photos, faces = repository.photos.count(), repository.faces.count()
        problems += damaged_uploads(store)
        try:
            store.faces()
        except CorruptGallery as error:
            problems.append(str(error))
    states = {row.path: _file_state(row) for row in files}
    missing, changed = (tuple(path for path in states if states[path] == state) for state in ("missing", "changed"))
    return CheckResult(photos, faces, tuple(problems), missing, changed)


def _file_state(row: PhotoRow) -> Literal["same", "missing", "changed"]:
    """Compare a photo's file with what was enrolled."""
    if not row.has_file:  # enrolled as an embedding, without a file
        return "same"
    try:
        status = os.stat(row.path)  # noqa: PTH116 - a Path each is slow for a hundred thousand
        if not stat.S_ISREG(status.st_mode):
            return "missing"
        if status.st_size != row.size_bytes:
            return "changed"
        is_same = status.st_mtime_ns == row.modified_ns or content_sha256(Path(row.path)) == row.sha256
        return "same" if is_same else "changed"
    except OSError:
        return "missing"


def damaged_uploads(store: Store) -> list[str]:
    """Describe the uploaded photos whose content is neither what their name says nor what the gallery knows."""
    problems: list[str] = []
    for path in sorted((store.folder / UPLOADED_PHOTOS).glob("*/*")):
        if (sha256 := uploaded_sha256(path)) is None:
            continue
        try:
            content = content_sha256(path)
            with store.read() as repository:  # `export_xmp` writes names into photos, and notes the new content
                is_known = repository.photos.with_hash(content) is not None
            if content.hex() != sha256 and not is_known:
                problems.append(f"{path}: damaged: the content of this uploaded photo is not what was uploaded")
        except OSError as error:
            problems.append(f"{path}: this uploaded photo cannot be read ({error.strerror})")
    return problems
