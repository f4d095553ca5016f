"""Copies of a gallery in its folder, made by repairs, restores and backups: their names, and how they are erased."""

import contextlib
import os
import re
import shutil
from collections.abc import Generator
from pathlib import Path

from familiar.core.errors import GalleryBusy
from familiar.core.files import erase_file, process_lock
from familiar.gallery.database.external_index import FILE as EXTERNAL_INDEX_FILE
from familiar.gallery.database.sqlite_file import ACKNOWLEDGED_FILE, DATABASE

# While they run, so a crash leaves them:
DAMAGED, REPAIRED, RESTORED = f".{DATABASE}.damaged", f".{DATABASE}.repaired", f".{DATABASE}.restored"
RESTORED_INDEX = f".{DATABASE}.index"
_UNFINISHED_FILES = f".{DATABASE}.*"  # these, and a gallery that is being created
BACKUP_DRAFT, RESTORE_DRAFT = ".familiar.backup-", ".familiar.restore-"  # folders, with random digits
DRAFT_LOCK = "draft.lock"  # held in such a folder by the process that writes there
# Kept by them: what they have replaced.
KEPT_DAMAGED, KEPT_REPLACED = "damaged", "replaced"  # folders, with the time of the repair or restore
_DATED = re.compile(rf"({KEPT_DAMAGED}|{KEPT_REPLACED})-\d{{8}}-\d{{6}}(-\d+)?")
# The database last: by it and its log the folder is recognized, if an erasure is interrupted.
_KEPT_FILES = (EXTERNAL_INDEX_FILE, ACKNOWLEDGED_FILE, f"{DATABASE}-shm", f"{DATABASE}-wal", DATABASE)


def kept_copies(folder: Path) -> list[Path]:
    """List the folders in which repairs and restores have kept the files that they replaced."""
    return sorted(
        path
        for name in (KEPT_DAMAGED, KEPT_REPLACED)
        for path in folder.glob(f"{name}-*")
        if _DATED.fullmatch(path.name)  # or it may be a gallery of its own
        and ((path / DATABASE).exists() or (path / f"{DATABASE}-wal").exists())  # the latter after a power cut
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
    """Erase what killed repairs, restores and backups have left.

    For a caller that keeps others from repairing and restoring meanwhile, and has no switch to finish.

    Raises:
        GalleryBusy: a process is restoring a gallery in this folder, or writing a backup there.
        CannotWrite: the system refuses.
    """
    for path in folder.glob(_UNFINISHED_FILES):
        erase_file(path)
    for draft in (*folder.glob(f"{BACKUP_DRAFT}*"), *folder.glob(f"{RESTORE_DRAFT}*")):
        with process_lock(draft / DRAFT_LOCK) as is_free:
            if not is_free:
                raise GalleryBusy(
                    f"{folder}: another process is restoring or backing up a gallery there; try again when it is done"
                )
            for parent, _, names in os.walk(draft):
                for name in names:
                    erase_file(Path(parent, name))
        shutil.rmtree(draft, ignore_errors=True)


@contextlib.contextmanager
def draft(path: Path) -> Generator[None, None, None]:
    """Create a folder for what is being written, and delete it afterwards. `erase_unfinished` waits for that.

    Raises:
        OSError: the system refuses.
        CannotWrite: likewise.
    """
    path.mkdir()
    try:
        with process_lock(path / DRAFT_LOCK):
            yield
    finally:
        shutil.rmtree(path, ignore_errors=True)
