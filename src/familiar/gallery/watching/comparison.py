"""Compare the photos on the disk with those of the gallery: which are new, gone or back. Reads and writes nothing."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from familiar.gallery.watching.disk import Disk, FileStatus


@dataclass(frozen=True)
class WatchedPhoto:
    """A photo of the gallery.

    Attributes:
        number: in the gallery.
        path: from which it was enrolled last.
        status: of its file then; the time of the last change is not known.
        sha256: of its content.
        is_missing: it was noted that the file is gone.
    """

    number: int
    path: str
    status: FileStatus
    sha256: bytes
    is_missing: bool


@dataclass
class Memory:
    """What a watch remembers between two comparisons. Times are in seconds of a clock that only goes forward.

    Attributes:
        settling: of each file that is not enrolled: its status, and since when it has been so.
        absent: since when a photo's file has been gone, by the photo's number.
        ignored: the status of each file that need not be enrolled, and the SHA-256 of the photo that it is a copy of;
            None: it could not be read.
    """

    settling: dict[str, tuple[FileStatus, float]] = field(default_factory=dict[str, tuple[FileStatus, float]])
    absent: dict[int, float] = field(default_factory=dict[int, float])
    ignored: dict[str, tuple[FileStatus, bytes | None]] = field(
        default_factory=dict[str, tuple[FileStatus, bytes | None]]
    )


@dataclass(frozen=True)
class Comparison:
    """What has to be done.

    Attributes:
        ready: paths to enroll, sorted.
        missing: photos whose files are gone.
        returned: photos that were noted as missing, and whose files are there.
        wait_seconds: until the next comparison may give more; infinite: nothing is settling.
    """

    ready: tuple[str, ...]
    missing: tuple[WatchedPhoto, ...]
    returned: tuple[WatchedPhoto, ...]
    wait_seconds: float


def compare(
    disk: Disk, photos: Sequence[WatchedPhoto], memory: Memory, time_seconds: float, settle_seconds: float
) -> Comparison:
    """Compare the disk with the gallery.

    A file is ready when it has had the same size and modification time for `settle_seconds`. A photo is missing when
    its file has been gone for as long, and no file of its size is settling, which it may have become by a move.

    Args:
        disk: the photos in the watched folders.
        photos: all photos of the gallery, by rising number.
        memory: of the earlier comparisons; it is brought up to date.
        time_seconds: now.
        settle_seconds: how long a file must not change.
    """
    by_path: defaultdict[str, list[WatchedPhoto]] = defaultdict(list)
    for photo in photos:
        by_path[photo.path].append(photo)
    present, originals = set[int](), {photo.sha256 for photo in photos}
    new: list[str] = []
    occupied = set[str]()  # paths whose file is a photo of the gallery, a copy of one, or cannot be read
    copies: dict[bytes, str] = {}  # of each photo that has one: a path with a copy
    for path, status in disk.files.items():
        current = next((each for each in reversed(by_path.get(path, ())) if each.status.has_content_of(status)), None)
        ignored_status, copied = memory.ignored.get(path, (None, None))
        if current is not None:
            present.add(current.number)
            occupied.add(path)
        elif ignored_status == status and (copied is None or copied in originals):
            occupied.add(path)
            if copied is not None:
                copies[copied] = path
        else:
            new.append(path)
    ready, waits = _settle(disk, memory, new, time_seconds, settle_seconds)
    sizes = {disk.files[path].size_bytes for path in new}
    missing: list[WatchedPhoto] = []
    absent: dict[int, float] = {}
    for photo in photos:
        if photo.number in present or photo.is_missing or not disk.contains(photo.path):
            continue
        if disk.is_unknown(photo.path) or (photo.path in disk.files and photo.path not in occupied):
            continue  # or its file has changed, and is not enrolled yet
        if photo.sha256 in copies:
            ready.append(copies[photo.sha256])  # the photo has moved there
            continue
        since = absent[photo.number] = memory.absent.get(photo.number, time_seconds)
        if time_seconds - since < settle_seconds:
            waits.append(since + settle_seconds - time_seconds)
        elif photo.status.size_bytes not in sizes:
            missing.append(photo)
    memory.absent = absent
    memory.ignored = {path: known for path, known in memory.ignored.items() if path in disk.files}
    returned = [photo for photo in photos if photo.is_missing and photo.number in present]
    return Comparison(tuple(sorted(ready)), tuple(missing), tuple(returned), min(waits, default=inf))


def _settle(
    disk: Disk, memory: Memory, new: Sequence[str], time_seconds: float, settle_seconds: float
) -> tuple[list[str], list[float]]:
    """Return which of the new files have not changed for long enough, and how long the others have to wait."""
    ready: list[str] = []
    waits: list[float] = []
    settling: dict[str, tuple[FileStatus, float]] = {}
    for path in new:
        status = disk.files[path]
        before, since = memory.settling.get(path, (status, time_seconds))
        since = since if before.has_content_of(status) else time_seconds
        settling[path] = status, since
        if time_seconds - since >= settle_seconds:
            ready.append(path)
        else:
            waits.append(since + settle_seconds - time_seconds)
    memory.settling = settling
    return ready, waits
