"""How folders are watched, and the lock that keeps a second watch away."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from familiar.core.files import held_lock

LOCK_FILE = "watch.lock"  # in the gallery's folder


@dataclass(frozen=True)
class WatchSettings:
    """How folders are watched.

    Attributes:
        settle_seconds: a file is enrolled when its size and modification time have not changed for so long.
        poll_seconds: search the folders at this interval, without notices of the system; None: by notices, and without
            the library for them every `watch.POLL_SECONDS`.
        flip: as in `Embedder.embed`.
        species: stored with each new face; None: what the detector says.
        webhooks: URLs that all events are delivered to.
        secret: signs what is delivered.
        exclude: patterns of files and folders to leave out, as for `find_photos`.
    """

    settle_seconds: float = 2.0
    poll_seconds: float | None = None
    flip: bool = False
    species: str | None = None
    webhooks: tuple[str, ...] = ()
    secret: bytes | None = None
    exclude: tuple[str, ...] = ()


def watch_lock(folder: Path) -> AbstractContextManager[None]:
    """Keep other watches away from a gallery.

    Args:
        folder: the gallery's.

    Raises:
        GalleryBusy: there is one.
    """
    busy = (
        f"{folder}: another familiar watch is running for this gallery; stop it first. One watch takes several folders"
    )
    return held_lock(folder / LOCK_FILE, 0, busy)
