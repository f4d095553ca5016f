"""Check the integrity of a gallery."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from familiar.core.errors import CorruptGallery
from familiar.core.files import content_sha256
from familiar.gallery.clustering.calibration import calibration
from familiar.gallery.database.connection import UPLOADED_PHOTOS, GalleryDatabase
from familiar.gallery.search.external_search import check_external_index

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
        missing: paths of photos that are not where they were enrolled. Their faces are still in the gallery; enroll
            the folder that they are in now.
        changed: paths of photos with another size than when they were enrolled; likewise.
    """

    photos: int
    faces: int
    problems: tuple[str, ...]
    missing: tuple[str, ...]
    changed: tuple[str, ...]


def check(gallery: GalleryDatabase) -> CheckResult:
    """Check every page, every reference and every embedding of a gallery, and whether the photos are still there.

    An index outside the gallery's folder is compared with it.
    """
    missing: list[str] = []
    changed: list[str] = []
    with gallery.reading() as repository:
        problems = gallery.integrity_problems()
        if repository.settings.erasure_due():
            problems.append(ERASURE_DUE)
        for path, size_bytes in repository.photos.paths_and_sizes():
            if not size_bytes:  # enrolled as an embedding, without a file
                continue
            try:
                if os.stat(path).st_size != size_bytes:  # noqa: PTH116 - a Path each is slow for a hundred thousand
                    changed.append(path)
            except OSError:
                missing.append(path)
        problems += check_external_index(gallery)
        photos, faces = repository.photos.count(), repository.faces.count()
        problems += damaged_uploads(gallery.folder)
        for read in (GalleryDatabase.faces, calibration):
            try:
                read(gallery)
            except CorruptGallery as error:
                problems.append(str(error))
    return CheckResult(photos, faces, tuple(problems), tuple(missing), tuple(changed))


def damaged_uploads(folder: Path) -> list[str]:
    """Describe the uploaded photos in a gallery's folder whose content is not what their name says."""
    problems: list[str] = []
    for path in sorted((folder / UPLOADED_PHOTOS).glob("*/*")):
        name = re.match("[0-9a-f]{64}", path.name)
        if name is None:
            continue
        try:
            if content_sha256(path).hex() != name.group():
                problems.append(f"{path}: damaged: the content of this uploaded photo is not what was uploaded")
        except OSError as error:
            problems.append(f"{path}: this uploaded photo cannot be read ({error.strerror})")
    return problems
