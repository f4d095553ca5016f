"""Watch folders of photos, and keep a gallery equal to them.

The truth is the disk against the database: each step compares both and does what is missing. Notices of changed files
only tell when, and where to look first. Everything is on the disk before the next thing begins, so a watch that is
killed at any moment goes on where it was.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import inf
from pathlib import Path

from familiar import Detector, Gallery, UnreadablePhoto
from familiar.core.errors import GalleryBusy, IndexUnavailable
from familiar.core.files import absolute_path, held_lock, real_path
from familiar.core.plural import pluralize
from familiar.gallery import EnrolledBatch, PhotoRow
from familiar.integrations.watch import outbox
from familiar.integrations.watch.comparison import Comparison, Memory, compare
from familiar.integrations.watch.delivery import Delivery
from familiar.integrations.watch.disk import Disk
from familiar.integrations.watch.mqtt import Broker, MqttDelivery
from familiar.integrations.watch.notices import ChangeNotices
from familiar.integrations.watch.outbox import Event
from familiar.integrations.watch.webhooks import Webhook
from familiar.photos import describe_counts

POLL_SECONDS = 10.0  # between two searches of the folders where the system gives no notices
FULL_SCAN_SECONDS = 300.0  # where it does
_BUSY_RETRY_SECONDS = 1.0  # in addition to the ten seconds of each try
_MIN_PART = 200  # photos that are enrolled before their faces are clustered
_PART_SHARE = 5  # a fifth of the gallery's photos: clustering a large gallery takes longer
_INDEX_IDLE_SECONDS = 10.0  # without a new photo, before the index of a large gallery is built again
_STOP_SECONDS = 5.0  # for receivers, at the end
STDOUT = "stdout"  # the caller, as a destination of events
LOCK_FILE = "watch.lock"  # in the gallery's folder


@dataclass(frozen=True)
class WatchSettings:
    """How folders are watched.

    Attributes:
        settle_seconds: a file is enrolled when its size and modification time have not changed for so long.
        poll_seconds: search the folders at this interval, without notices of the system; None: by notices, and where
            there are none every `POLL_SECONDS`.
        flip: as in `Embedder.embed`.
        species: stored with each new face; None: what the detector says.
        webhooks: URLs that all events are delivered to.
        secret: signs what is posted there.
        exclude: patterns of files and folders to leave out, as for `find_photos`.
        broker: of MQTT, that all events and last sightings are published at; None: at none.
        snapshots: folder for the snapshots that Frigate publishes there, watched too; None: they are not taken.
    """

    settle_seconds: float = 2.0
    poll_seconds: float | None = None
    flip: bool = False
    species: str | None = None
    webhooks: tuple[str, ...] = ()
    secret: bytes | None = None
    exclude: tuple[str, ...] = ()
    broker: Broker | None = None
    snapshots: Path | None = None


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


class _StopRequested(Exception):
    """Ends an enrollment because the watch is to stop."""


class FolderWatch:
    """Keeps a gallery equal to the photos in some folders.

    Hold `watch_lock` while using it. `run` watches until it is stopped; `step` does what is to be done now.

    Args:
        gallery: to write to.
        detector: finds the faces; None: the gallery's.
        folders: whose photos are enrolled; missing ones are waited for.
        settings: how.
        on_event: called with each event at least once, in their order; after a kill also with those that the killed
            watch did not report.
        on_note: called with messages for the user, also by other threads.
        clock: seconds that only go forward.
    """

    def __init__(
        self,
        gallery: Gallery,
        detector: Detector | str | None,
        folders: Sequence[Path],
        settings: WatchSettings,
        *,
        on_event: Callable[[Event], None],
        on_note: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gallery, self._detector, self._settings = gallery, detector, settings
        self._on_event, self._on_note, self._clock = on_event, on_note, clock
        self._stopping = threading.Event()
        snapshots = None if settings.snapshots is None else absolute_path(settings.snapshots)
        watched = dict.fromkeys(map(absolute_path, folders))
        if snapshots is not None and not any(snapshots.is_relative_to(folder) for folder in watched):
            watched[snapshots] = None
        self._disk = Disk(
            tuple(watched),
            (absolute_path(gallery.folder), real_path(gallery.folder)),
            settings.exclude,
        )
        self._passed_over = ""
        self._unreadable = dict[str, str]()  # that was reported
        self._memory = Memory()
        self._needs_clustering = True  # a watch that was killed may have left unclustered faces
        self._index_due = inf
        self._next_scan = clock()
        self._notices: ChangeNotices | None = None
        self._is_started = self._is_busy = False
        urls = dict.fromkeys(settings.webhooks)
        self._deliveries: list[Delivery] = [Webhook(gallery, url, settings.secret, on_note) for url in urls]
        if settings.broker is not None:
            self._deliveries.append(MqttDelivery(gallery, settings.broker, self._disk.folders, snapshots, on_note))

    def stop(self) -> None:
        """Let `run` return after the current batch. May be called in a signal handler, and by other threads."""
        self._stopping.set()

    def run(self) -> None:
        """Watch until `stop` is called.

        Raises:
            BadGallery: the gallery's file was moved away.
            CannotWrite: the disk of the gallery is full.
            SpaceMismatch: the gallery was moved to another model.
        """
        if self._settings.poll_seconds is None:
            self._notices = ChangeNotices(self._disk.folders, self._stopping)
        for delivery in self._deliveries:
            delivery.start()
        while not self._stopping.is_set():
            self._wait(self.step())
        self.finish()

    def _wait(self, seconds: float) -> None:
        """Wait for notices, for some time, or to be stopped."""
        try:
            if self._notices is None:
                self._stopping.wait(seconds)
            elif self._notices.wait(seconds):
                self._next_scan = self._clock()
        except Exception as error:  # whatever the reason, such as too many folders or a name that is not UTF-8
            self._notices, self._next_scan = None, self._clock()
            self._on_note(
                f"there are no notices of changed files ({error}), so the folders are searched every {POLL_SECONDS:g} "
                "seconds; install the extra familiar-faces[watch], or on Linux raise fs.inotify.max_user_watches"
            )

    def finish(self) -> None:
        """Report that the watch ends, and give the receivers a few seconds."""
        try:
            outbox.add_event(self._gallery, "stopped")
            self._report()
        except GalleryBusy:
            self._on_note(f"{self._gallery.folder}: another process writes to it; the end of the watch is not noted")
        finally:
            deadline = time.monotonic() + _STOP_SECONDS
            for delivery in self._deliveries:
                delivery.stop(max(0.0, deadline - time.monotonic()))

    def step(self) -> float:
        """Do what is to be done now: enroll what is ready, note what is missing or returned, cluster, report.

        If another process writes, the rest is left to the next step.

        Returns:
            Seconds after which there may be more to do; a notice may come earlier.
        """
        try:
            wait_seconds = self._update()
        except GalleryBusy:
            if not self._is_busy:
                self._on_note(f"{self._gallery.folder}: another process writes to it; waiting")
            self._is_busy = True
            return _BUSY_RETRY_SECONDS
        self._is_busy = False
        return wait_seconds

    def _update(self) -> float:
        if not self._is_started:  # the report tells, too, what an earlier watch has not reported
            destinations = [STDOUT, *(delivery.destination for delivery in self._deliveries)]
            outbox.start_delivery(self._gallery, destinations, self._disk.folders)
            self._is_started = True
        self._update_disk()
        comparison = self._compare()
        while comparison.ready and not self._stopping.is_set():
            self._enroll(comparison.ready[: max(_MIN_PART, len(self._load_photos()) // _PART_SHARE)])
            self._cluster_and_report()
            comparison = self._compare()
        self._note_changes(comparison)
        self._cluster_and_report()
        self._update_index()
        return max(0.01, min(comparison.wait_seconds, min(self._next_scan, self._index_due) - self._clock()))

    # --- the disk -----------------------------------------------------------------------------------------------------

    def _update_disk(self) -> None:
        was_replaced = self._disk.is_outdated()
        if was_replaced or self._clock() >= self._next_scan:
            self._disk.scan()
            self._note_passed_over()
            seconds = self._settings.poll_seconds or (FULL_SCAN_SECONDS if self._notices else POLL_SECONDS)
            self._next_scan = self._clock() + seconds
            if was_replaced and self._notices is not None:
                self._notices.restart()
        else:
            self._disk.refresh(self._memory.settling)

    def _note_passed_over(self) -> None:
        if (counts := describe_counts(self._disk.passed_over)) and counts != self._passed_over:
            self._on_note(f"passed over {counts}")
        self._passed_over = counts

    def _compare(self) -> Comparison:
        noted, settle_seconds = outbox.missing_photos(self._gallery), self._settings.settle_seconds
        return compare(self._disk, self._load_photos(), noted, self._memory, self._clock(), settle_seconds)

    def _load_photos(self) -> list[PhotoRow]:
        """Return the photos of the gallery that have a file."""
        return self._gallery.cached("watched photos", lambda: self._gallery.photos_to_search(without_face=False))

    # --- enrollment ---------------------------------------------------------------------------------------------------

    def _enroll(self, paths: Sequence[str]) -> None:
        statuses = {path: self._disk.files[path] for path in paths}

        def record(batch: EnrolledBatch) -> None:
            outbox.record_batch(self._gallery, batch)
            ignored = {str(path): None for path, _ in batch.skipped}
            ignored |= {str(photo.file.path): photo.file.sha256 for photo in batch.written if photo.change == "copy"}
            self._memory.ignored |= {path: (statuses[path], sha256) for path, sha256 in ignored.items()}

        def require_not_stopping(*_: object) -> None:
            if self._stopping.is_set():
                raise _StopRequested

        self._needs_clustering = True
        self._index_due = self._clock() + _INDEX_IDLE_SECONDS
        # What was enrolled is clustered and reported before the end; and all files may be gone by now.
        with contextlib.suppress(_StopRequested, UnreadablePhoto):
            options = {"flip": self._settings.flip, "species": self._settings.species}
            result = self._gallery.enroll(
                paths, self._detector, **options, on_batch=require_not_stopping, record=record
            )
            for error in result.skipped_faces:
                self._on_note(str(error))
        self._disk.refresh(paths)
        for path in paths:  # one that was not enrolled, whatever the reason, settles again before the next try
            self._memory.settling.pop(path, None)

    def _note_changes(self, comparison: Comparison) -> None:
        """Note the photos that are missing or returned, and the files and folders that cannot be read."""
        missing = [photo for photo in comparison.missing if self._is_gone(photo)]
        unreadable = self._disk.unreadable | self._unavailable_with_photos()
        unreported = {path: reason for path, reason in unreadable.items() if path not in self._unreadable}
        if missing or comparison.returned or unreported:
            with self._gallery.write():
                noted, photos = outbox.missing_photos(self._gallery), set(self._load_photos())
                for photo in missing:
                    if photo in photos:  # another program may have forgotten it, or found its file
                        self._gallery.add_note(outbox.MISSING, {}, photo=photo.photo)
                        outbox.add_event(self._gallery, "missing", photo.photo, path=photo.original_path)
                for photo in comparison.returned:
                    if photo.photo in noted:
                        self._gallery.delete_notes([noted[photo.photo]])
                        fields = {"path": photo.path, "previous_path": photo.path}
                        outbox.add_event(self._gallery, "returned", photo.photo, **fields)
                for path, reason in unreported.items():
                    outbox.add_event(self._gallery, "skipped", path=path, reason=reason)
        self._unreadable = unreadable

    def _is_gone(self, photo: PhotoRow) -> bool:
        """Look once more: a share that was unmounted for a moment must not look like deleted photos."""
        if photo.path in self._disk.files:
            return True  # another photo has its path
        try:
            os.stat(photo.path)  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError):
            return not self._disk.is_outdated()
        except OSError:
            pass
        return False

    def _unavailable_with_photos(self) -> dict[str, str]:
        """Return the watched folders that are missing or empty though the gallery has photos in them."""
        return {
            folder: f"{reason}; if it is not mounted, mount it. Until then its photos do not count as missing"
            for folder, reason in self._disk.unavailable.items()
            if any(photo.path.startswith(folder + os.sep) for photo in self._load_photos()) or not os.path.isdir(folder)  # noqa: PTH112
        }

    # --- clustering and reports ---------------------------------------------------------------------------------------

    def _cluster_and_report(self) -> None:
        if self._needs_clustering:
            if self._gallery.needs_clustering():
                self._gallery.cluster()
            self._needs_clustering = False
        self._report()

    def _report(self) -> None:
        """Complete the events that wait for clustering, and hand all on."""
        outbox.complete_events(self._gallery)
        for delivery in self._deliveries:  # first: who reads stdout may be slow, or gone
            delivery.wake()
        outbox.deliver(self._gallery, STDOUT, self._on_event)
        if count := outbox.delete_oldest(self._gallery):
            self._on_note(f"{pluralize(count, 'event')} dropped: a receiver has not answered for too long")

    def _update_index(self) -> None:
        """Build or write the search index when no photo has come for a while: it may take minutes."""
        if self._clock() >= self._index_due:
            try:
                self._gallery.update_index()
            except IndexUnavailable as error:
                self._on_note(f"{error}; the index is behind, and is written after the next new photo")
            self._index_due = inf
