"""Check the integrity of a gallery, and repair a damaged one."""

import contextlib
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from familiar.core.errors import BadGallery, CannotWrite, CorruptGallery
from familiar.gallery.clustering.calibration import calibration, reset_calibration
from familiar.gallery.database.connection import GalleryDatabase
from familiar.gallery.database.salvage import create_from_damaged
from familiar.gallery.database.schema import VERSION
from familiar.gallery.database.space import Space
from familiar.gallery.database.sqlite_errors import translate_sqlite_errors
from familiar.gallery.database.sqlite_file import COMMITTED_REVISION_FILE, DATABASE
from familiar.gallery.search.external_search import check_external_index

_MAX_BYTES = 2**40  # of a gallery; a damaged header may claim more
_MAX_NEWER_VERSIONS = 100  # a damaged header may claim a version beyond that


ERASURE_DUE = (
    "the bytes of forgotten photos or identities are still on the disk, since another process had the gallery open; "
    "close it there, and open it again"
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


@dataclass(frozen=True)
class RepairResult:
    """The outcome of a repair.

    Attributes:
        saved: the number of rows recovered from each table that had any.
        kept_in: the folder to which the damaged file was moved.
    """

    saved: dict[str, int]
    kept_in: Path


def check(gallery: GalleryDatabase) -> CheckResult:
    """Check every page, every reference and every embedding of a gallery, and whether the photos are still there.

    An index outside the gallery's folder is compared with it.
    """
    missing: list[str] = []
    changed: list[str] = []
    with gallery.reading() as repository:
        problems = repository.integrity_problems()
        if repository.settings.is_erasure_due():
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
        for read in (GalleryDatabase.faces, calibration):
            try:
                read(gallery)
            except CorruptGallery as error:
                problems.append(str(error))
    return CheckResult(photos, faces, tuple(problems), tuple(missing), tuple(changed))


def repair(folder: Path, space: Space | None = None) -> RepairResult:
    """Recover the readable rows of a damaged gallery into a new database, and keep the damaged file in a folder.

    Lost are the rows on damaged pages, those that referred to them, the undo log, and the events of `familiar watch`
    that were not delivered yet. No other process may have the gallery open.

    Args:
        folder: the gallery's folder.
        space: of the gallery's model, for when the row that says so is lost.

    Raises:
        BadGallery: there is no gallery, it was made by a newer version, or the row with the space is lost and `space`
            is None.
        CannotWrite: the folder cannot be written to; the gallery is as it was.
    """
    path = folder / DATABASE
    if not path.is_file():
        raise BadGallery(f"{folder}: there is no gallery to repair")
    with path.open("rb") as file:
        version = int.from_bytes(file.read(64)[60:], "big")
    if VERSION < version < VERSION + _MAX_NEWER_VERSIONS:
        raise BadGallery(f"{path}: was made by a newer version of familiar, and only that version can repair it")
    repaired, damaged = folder / f".{DATABASE}.repaired", folder / f".{DATABASE}.damaged"
    try:
        repaired.unlink(missing_ok=True)
        _copy_file(path, damaged)
        saved = _recover_into(repaired, damaged, folder, space)
        kept_in = _create_folder_for_damaged(folder)
        for name in (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", COMMITTED_REVISION_FILE):
            with contextlib.suppress(FileNotFoundError):
                shutil.move(folder / name, kept_in / name)
        repaired.rename(path)
    except OSError as error:
        raise CannotWrite(f"{folder}: cannot be repaired there ({error.strerror or error})") from error
    finally:
        for name in (repaired.name, damaged.name):
            for temporary_file in folder.glob(f"{name}*"):
                temporary_file.unlink()
    with GalleryDatabase.open(folder) as gallery:
        try:
            calibration(gallery)
        except CorruptGallery:
            reset_calibration(gallery)
    return RepairResult(saved, kept_in)


def _copy_file(path: Path, to: Path) -> None:
    """Copy a database and its log. Pad a truncated one with zeros: SQLite reads no file that lacks its end."""
    shutil.copyfile(path, to)
    with contextlib.suppress(FileNotFoundError):
        shutil.copyfile(f"{path}-wal", f"{to}-wal")
    with to.open("r+b") as file:
        header = file.read(32)
        length = int.from_bytes(header[16:18], "big") * int.from_bytes(header[28:32], "big")
        if to.stat().st_size < length <= _MAX_BYTES:
            file.truncate(length)


def _recover_into(repaired: Path, damaged: Path, folder: Path, space: Space | None) -> dict[str, int]:
    """Create a database with what can be read of a damaged one.

    Returns:
        The number of rows recovered from each table that had any.
    """
    with translate_sqlite_errors(folder):
        try:
            return create_from_damaged(repaired, damaged, space)
        except KeyError as error:
            raise BadGallery(
                f"{folder / DATABASE}: the row that says which model the gallery belongs to is lost, if it is a "
                f"gallery at all; name the model: familiar gallery repair {folder} --model MODEL, or restore a backup"
            ) from error


def _create_folder_for_damaged(folder: Path) -> Path:
    """Create a folder for the damaged file, named by the time."""
    now = time.strftime("%Y%m%d-%H%M%S")
    for attempt in range(1000):
        damaged_folder = folder / (f"damaged-{now}-{attempt}" if attempt else f"damaged-{now}")
        with contextlib.suppress(FileExistsError):
            damaged_folder.mkdir()
            return damaged_folder
    raise AssertionError("a thousand repairs in one second")
