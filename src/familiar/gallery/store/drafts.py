"""Folders for what a backup, a restore or a repair is writing; others erase what killed processes have left there."""

import contextlib
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

from familiar.core.errors import CannotWrite, GalleryBusy
from familiar.core.files import erase_file, process_lock

_PREFIX = ".familiar-draft-"
_LOCK_FILE = "draft.lock"


@contextlib.contextmanager
def draft_folder(folder: Path) -> Generator[Path, None, None]:
    """Make a folder in another one, and delete it afterwards.

    Raises:
        OSError: the system refuses.
        CannotWrite: likewise.
    """
    with contextlib.suppress(GalleryBusy, CannotWrite):
        erase_drafts(folder)
    with (
        tempfile.TemporaryDirectory(prefix=_PREFIX, dir=folder, ignore_cleanup_errors=True) as draft,
        process_lock(Path(draft, _LOCK_FILE)),
    ):
        yield Path(draft)


def erase_drafts(folder: Path) -> None:
    """Erase what killed processes have left in a folder.

    Raises:
        GalleryBusy: a process is writing there.
        CannotWrite: the system refuses.
    """
    for draft in folder.glob(f"{_PREFIX}*"):
        with process_lock(draft / _LOCK_FILE) as is_free:
            if not is_free:
                raise GalleryBusy(f"{folder}: another process is restoring a gallery there, or backing it up")
            for path in draft.rglob("*"):
                if path.is_file():
                    erase_file(path)
        shutil.rmtree(draft, ignore_errors=True)
