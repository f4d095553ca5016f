"""Recover what can be read of a damaged gallery."""

import contextlib
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from familiar.core.errors import BadGallery, CannotWrite, CorruptGallery
from familiar.gallery.clustering.calibration import calibration, reset_calibration
from familiar.gallery.database.connection import GalleryDatabase
from familiar.gallery.database.copies import DAMAGED, KEPT_DAMAGED, REPAIRED
from familiar.gallery.database.external_index import read_external_index
from familiar.gallery.database.index_lock import index_lock
from familiar.gallery.database.row_names import describe_rows
from familiar.gallery.database.salvage import SalvageResult, create_from_damaged
from familiar.gallery.database.schema import VERSION
from familiar.gallery.database.space import Space
from familiar.gallery.database.sqlite_errors import translate_sqlite_errors
from familiar.gallery.database.sqlite_file import (
    DATABASE,
    acknowledged_writes,
    close_descriptor,
    open_descriptor,
    read_open_file,
)
from familiar.gallery.database.switch import SWITCH_FILE, dated_folder, exclusive, switch_database
from familiar.gallery.database.write_ahead_log import apply_damaged_log
from familiar.neighbors.hnsw import erase as erase_index

_BLOCK_BYTES = 1 << 20
_MAX_BYTES = 2**40  # of a gallery; a damaged header may claim more
_MAX_NEWER_VERSIONS = 100  # a damaged header may claim a version beyond that


@dataclass(frozen=True)
class RepairResult:
    """The outcome of a repair.

    Attributes:
        saved: the number of rows recovered from each table that had any.
        kept_in: the folder to which the damaged file was moved. If something had been forgotten while another program
            had the gallery open, it may still be in there; `forget` erases it.
        mended: the rows of which a flipped bit was found and flipped back.
        lost: the rows that are not as they were written. Those that could not be read at all are not among them.
    """

    saved: dict[str, int]
    kept_in: Path
    mended: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


def repair(folder: Path, space: Space | None = None) -> RepairResult:
    """Recover the readable rows of a damaged gallery into a new database, and keep the damaged file in a folder.

    Where only one bit of a row or page was flipped, it is flipped back. Lost are the other rows on damaged pages, those
    that referred to them, and the decisions of which changes are lost, with all earlier ones.

    Other processes may have the gallery open: those that write wait, and all of them go on with the repaired gallery.
    On Windows, which does not let go of an open file, they have to be stopped first. After a crash at any point, the
    gallery is as it was or repaired.

    Args:
        folder: the gallery's folder.
        space: of the gallery's model, for when the row that says so is lost.

    Raises:
        BadGallery: there is no gallery, it was made by a newer version, or the row with the space is lost and `space`
            is None.
        CannotWrite: the folder cannot be written to; the gallery is as it was.
        GalleryBusy: other processes have been writing for a minute.
    """
    if not (folder / DATABASE).is_file() and not (folder / SWITCH_FILE).exists():
        raise BadGallery(f"{folder}: there is no gallery to repair")
    with exclusive(folder), translate_sqlite_errors(folder), contextlib.ExitStack() as open_files:
        path = folder / DATABASE
        repaired, damaged = folder / REPAIRED, folder / DAMAGED
        try:
            _remove_copies(folder)
            file = open_descriptor(folder, check=False)
            open_files.callback(close_descriptor, file)
            _copy_files(path, file, damaged)
            salvaged = _recover_into(repaired, damaged, folder, space)
            kept_in = dated_folder(folder, KEPT_DAMAGED)
            _mark_index_outdated(folder)
            with index_lock(folder):
                erase_index(folder)  # which is of the damaged gallery
            switch_database(folder, repaired, kept_in)
            mended, lost = describe_rows(path, salvaged.mended), describe_rows(path, salvaged.lost)
        except OSError as error:
            raise CannotWrite(f"{folder}: cannot be repaired there ({error.strerror or error})") from error
        finally:
            if not (folder / SWITCH_FILE).exists():
                with contextlib.suppress(OSError):  # the next repair, or `forget`, removes them
                    _remove_copies(folder)
    with GalleryDatabase.open(folder) as gallery:
        try:
            calibration(gallery)
        except CorruptGallery:
            reset_calibration(gallery)
    return RepairResult(salvaged.saved, kept_in, mended, lost)


def _copy_files(path: Path, file: tuple[int, int], to: Path) -> None:
    """Copy a database and its log. Pad a truncated one with zeros: SQLite reads no file that lacks its end.

    The log comes first: another process may write it back into the database meanwhile, but not change it.

    Args:
        path: of the database.
        file: the same, open. It is read by the descriptor that this process has: opening and closing it once more would
            release the locks of SQLite.
        to: of the copy.
    """
    with contextlib.suppress(FileNotFoundError):
        shutil.copyfile(f"{path}-wal", f"{to}-wal")
    header = read_open_file(file)
    version = int.from_bytes(header[60:64], "big")
    if VERSION < version < VERSION + _MAX_NEWER_VERSIONS:
        raise BadGallery(f"{path}: was made by a newer version of familiar, and only that version can repair it")
    with to.open("wb") as copy:
        while block := read_open_file(file, _BLOCK_BYTES, copy.tell()):
            copy.write(block)
        length = int.from_bytes(header[16:18], "big") * int.from_bytes(header[28:32], "big")
        if copy.tell() < length <= _MAX_BYTES:
            copy.truncate(length)
    apply_damaged_log(to, acknowledged_writes(path.parent))


def _recover_into(repaired: Path, damaged: Path, folder: Path, space: Space | None) -> SalvageResult:
    """Create a database with what can be read of a damaged one."""
    try:
        return create_from_damaged(repaired, damaged, space, acknowledged_writes(folder))
    except KeyError as error:
        raise BadGallery(
            f"{folder / DATABASE}: the row that says which model the gallery belongs to is lost, if it is a "
            f"gallery at all; name the model: familiar gallery repair {folder} --model MODEL, or restore a backup"
        ) from error


def _mark_index_outdated(folder: Path) -> None:
    """Let an index outside the folder be compared with the gallery before it is used again."""
    with contextlib.suppress(BadGallery):  # it is damaged, and says so when it is read
        external = read_external_index(folder)
        if external is not None:
            replace(external, faces_revision=None).save(folder)


def _remove_copies(folder: Path) -> None:
    for name in (REPAIRED, DAMAGED):
        for copy in folder.glob(f"{name}*"):
            copy.unlink()
