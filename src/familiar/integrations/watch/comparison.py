"""Compare the photos on the disk with those of the gallery: which are new, gone or back. Reads and writes nothing."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import inf

from familiar.gallery import PhotoRow
from familiar.integrations.watch.disk import Disk, FileStatus


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
    missing: tuple[PhotoRow, ...]
    returned: tuple[PhotoRow, ...]
    wait_seconds: float


def compare(
    disk: Disk,
    photos: Sequence[PhotoRow],
    noted: Collection[int],
    memory: Memory,
    time_seconds: float,
    settle_seconds: float,
) -> Comparison:
    """Compare the disk with the gallery.

    A file is ready when it has had the same size and modification time for `settle_seconds`. A photo is missing when
    its file has been gone for as long, and no file of its size is settling, which it may have become by a move.

    Args:
        disk: the photos in the watched folders.
        photos: all photos of the gallery that have a file, by rising number.
        noted: numbers of the photos that were noted as missing.
        memory: of the earlier comparisons; it is brought up to date.
        time_seconds: now.
        settle_seconds: how long a file must not change.
    """
    enrolled = {(photo.path, photo.size_bytes, photo.modified_ns): photo.photo for photo in photos}
    originals, present = {photo.sha256 for photo in photos}, set[int]()
    settling: dict[str, tuple[FileStatus, float]] = {}
    copies: dict[bytes, str] = {}  # of each photo that has one: a path with a copy
    for path, status in disk.files.items():
        ignored_status, copied = memory.ignored.get(path, (None, None))
        if (path, *status.content) in enrolled:
            present.add(enrolled[path, *status.content])
        elif ignored_status == status and (copied is None or copied in originals):
            if copied is not None:
                copies[copied] = path
        else:
            before, since = memory.settling.get(path, (status, time_seconds))
            settling[path] = status, since if before.content == status.content else time_seconds
    ready = [path for path, (_, since) in settling.items() if time_seconds - since >= settle_seconds]
    starts = [since for _, since in settling.values()]
    sizes = {status.size_bytes for status, _ in settling.values()}
    missing: list[PhotoRow] = []
    absent: dict[int, float] = {}
    for photo in photos:
        if photo.photo in present or photo.photo in noted or not disk.contains(photo.path):
            continue
        if disk.is_unknown(photo.path) or photo.path in settling:
            continue  # or its file has changed, and is not enrolled yet
        if photo.sha256 in copies:
            ready.append(copies[photo.sha256])  # the photo has moved there
            continue
        since = absent[photo.photo] = memory.absent.get(photo.photo, time_seconds)
        starts.append(since)
        if time_seconds - since >= settle_seconds and photo.size_bytes not in sizes:
            missing.append(photo)
    ignored = {path: known for path, known in memory.ignored.items() if path in disk.files}
    memory.settling, memory.absent, memory.ignored = settling, absent, ignored
    returned = [photo for photo in photos if photo.photo in noted and photo.photo in present]
    waits = [since + settle_seconds - time_seconds for since in starts if time_seconds - since < settle_seconds]
    return Comparison(tuple(sorted(ready)), tuple(missing), tuple(returned), min(waits, default=inf))
