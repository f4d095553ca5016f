"""The copies of a gallery in its folder, which repairs and restores make: their names, and how they are erased."""

import contextlib
import os
import shutil
from pathlib import Path

from familiar.core.errors import GalleryBusy
from familiar.core.files import erase_file, process_lock
from familiar.gallery.database.external_index import FILE as EXTERNAL_INDEX_FILE
from familiar.gallery.database.sqlite_file import ACKNOWLEDGED_FILE, DATABASE

# While they run, so a crash leaves them:
DAMAGED, REPAIRED, RESTORED = f".{DATABASE}.damaged", f".{DATABASE}.repaired", f".{DATABASE}.restored"
RESTORE_FOLDER = ".familiar.restore-"  # and random digits
RESTORE_LOCK = "restore.lock"  # held in that folder by the process that restores
# Kept by them: what they have replaced.
KEPT_DAMAGED, KEPT_REPLACED = "damaged", "replaced"  # folders, with the time of the repair or restore
# The database last: by it and its log the folder is recognized, if an erasure is interrupted.
_KEPT_FILES = (EXTERNAL_INDEX_FILE, ACKNOWLEDGED_FILE, f"{DATABASE}-shm", f"{DATABASE}-wal", DATABASE)


def kept_copies(folder: Path) -> list[Path]:
    """List the folders in which repairs and restores have kept the files that they replaced."""
    return sorted(
        path
        for name in (KEPT_DAMAGED, KEPT_REPLACED)
        for path in folder.glob(f"{name}-*")
        if (path / DATABASE).exists() or (path / f"{DATABASE}-wal").exists()  # after a power cut
    )


def erase_kept(folder: Path) -> None:
    """Erase the files that repairs and restores have kept.

    Raises:
        CannotWrite: the system refuses.
    """
    for copies in kept_copies(folder):
        for name in _KEPT_FILES:
            erase_file(copies / name)
        with contextlib.suppress(OSError):  # something of the user's is in it, too
            copies.rmdir()


def erase_unfinished(folder: Path) -> None:
    """Erase what killed repairs and restores have left. For a caller that keeps others from repairing meanwhile.

    Raises:
        GalleryBusy: a process is restoring a gallery in this folder.
        CannotWrite: the system refuses.
    """
    for name in (DAMAGED, REPAIRED, RESTORED):
        for path in folder.glob(f"{name}*"):
            erase_file(path)
    for draft in folder.glob(f"{RESTORE_FOLDER}*"):
        with process_lock(draft / RESTORE_LOCK) as is_free:
            if not is_free:
                raise GalleryBusy(f"{folder}: another process is restoring a gallery there; try again when it is done")
            for parent, _, names in os.walk(draft):
                for name in names:
                    erase_file(Path(parent, name))
        shutil.rmtree(draft, ignore_errors=True)
