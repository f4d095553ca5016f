"""A lock that keeps faces from being written to a gallery's search index while forgotten ones are erased from it."""

import contextlib
from collections.abc import Generator
from pathlib import Path

from familiar.core.files import held_lock

LOCK_FILE = "index.lock"
WAIT_SECONDS = 10.0


@contextlib.contextmanager
def index_lock(folder: Path) -> Generator[None, None, None]:
    """Keep others from writing to the search index, in the folder or outside, and from erasing it.

    Who writes faces to an index first checks, within this lock, that the gallery still has them. Who forgets faces
    commits, and then erases them within this lock. So a face is either not written or erased afterwards, and if either
    process is killed, the gallery's mark that an erasure is due is still there. The gallery itself is not locked.

    Args:
        folder: the gallery's folder, which exists.

    Raises:
        CannotWrite: the folder cannot be written to.
        GalleryBusy: another process has been writing to the index for ten seconds.
    """
    busy = f"{folder}: another process is writing to the search index; try again when it is done"
    with held_lock(folder / LOCK_FILE, WAIT_SECONDS, busy):
        yield
