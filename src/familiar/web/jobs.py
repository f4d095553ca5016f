"""Photos that are taken in: job after job in one thread beside the requests, and how far each is."""

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeVar

from familiar.core.errors import FamiliarError, GalleryBusy, NotInGallery, UnreadablePhoto
from familiar.gallery.clustering.cluster import cluster
from familiar.gallery.database.connection import Gallery
from familiar.gallery.enrollment.enroll import EnrollResult, enroll
from familiar.gallery.search.search import build_index, lacks_index
from familiar.photos.decoding import find_photos
from familiar.web.allowed_paths import AllowedPaths
from familiar.web.errors import HttpProblem, unavailable, internal_error
from familiar.web.gallery_executor import GalleryExecutor
from familiar.web.inference import BatchingInference
from familiar.web.settings import Limits
from familiar.web.uploads import SkippedPhoto, is_corrupt, find_unprocessed_uploads, split_error_path, photo_name

MAX_REMEMBERED_JOBS = 50  # jobs
MAX_SHOWN_SKIPPED = 200  # skipped photos of a job
WATCH_INTERVAL_SECONDS = 0.1  # of what a watcher is told
BUSY_RETRY_SECONDS = 1.0  # after each of which the gallery is tried again, beside the ten that a try takes
OUTSIDE_REASON = "a link that leads out of the folders that this server reads"
DELETED_REASON = "was deleted before it was looked at"

T = TypeVar("T")


@dataclass(frozen=True)
class Progress:
    """How far a job is: of `found` photos so many were `looked` at. `photos` are new, with `faces` in them, and
    `without_face` of them show none; `known` were here already.

    `skipped`: the first 200 of `skipped_count`. `error` is None unless it failed.
    """

    number: str
    state: Literal["waiting", "looking", "grouping", "done", "stopped", "failed"] = "waiting"
    total: int = 0
    processed: int = 0
    photos: int = 0
    faces: int = 0
    without_face: int = 0
    known: int = 0
    skipped: tuple[SkippedPhoto, ...] = ()
    skipped_count: int = 0
    new_individuals: int = 0
    error: str | None = None

    @property
    def ended(self) -> bool:
        return self.state in ("done", "stopped", "failed")


COUNTS = tuple(each.name for each in fields(Progress) if each.type is int)


@dataclass(eq=False)
class _Job:
    """`reached` belongs to the thread, all else to the event loop; each event is set once, at the next change.

    `before`: the job that this one goes on with, until it does.
    """

    paths: Sequence[Path]
    progress: Progress
    before: "_Job | None" = None
    reached: Progress | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    told_by_next: bool = False

    @property
    def is_told_elsewhere(self) -> bool:
        """By the job that goes on with it; or by the one it goes on with, before its own turn."""
        before = self.before if self.progress.state == "waiting" else None
        return self.told_by_next or (before is not None and not before.progress.ended)

    def begin(self, *, goes_on: bool) -> None:
        if goes_on and self.before is not None:
            self.before.told_by_next = True
        self.before = None

    def show(self, progress: Progress) -> None:
        self.progress = progress
        self.changed.set()
        self.changed = asyncio.Event()


class _Stopped(Exception):
    """The server stops."""


class JobQueue:
    """One job at a time, the others wait; what each took in is grouped at its end. To be used in one event loop."""

    def __init__(self, threads: GalleryExecutor, vision: BatchingInference, roots: AllowedPaths, limits: Limits) -> None:
        self._threads, self._vision, self._roots, self._limits = threads, vision, roots, limits
        self._pool = ThreadPoolExecutor(1, "job")
        self._stopping = threading.Event()
        self._jobs: dict[str, _Job] = {}
        # Rising from one start to the next, so that a page left open takes no other job for its own.
        self._numbers = itertools.count(int(time.time()))

    async def start(self) -> None:
        """Takes up photos that were uploaded, but not looked at, when the server was last stopped or killed."""
        if self._vision.has_model:
            left = await self._threads.read(find_unprocessed_uploads, self._roots.uploads)
            if left:
                self._begin(left)

    async def stop(self) -> None:
        """After the batch under way. Those that wait are stopped too."""
        self._stopping.set()
        await asyncio.to_thread(self._pool.shutdown)
        await asyncio.sleep(0)  # what the thread told last is shown

    def submit(self, paths: Sequence[Path], skipped: Sequence[SkippedPhoto] = (), continues: str | None = None) -> Progress:
        """Takes in files and the photos of folders, within the roots; `skipped` were sent along, and are no photos.

        `continues`: the job of the part before, where one set comes in parts: what is told of this one then holds for
        both, unless that one failed. Refused as by `require_room`.
        """
        self.require_room()
        return self._begin(paths, skipped, continues)

    def require_room(self) -> None:
        """Refused with 503 where too many jobs wait, with 403 where the server is read-only, and with 409 where it has
        no model."""
        self._threads.require_writable()
        self._vision.embedder  # noqa: B018 - refuses where there is none
        if self._stopping.is_set():
            raise unavailable("the server is stopping")
        if sum(job.progress.state == "waiting" for job in self._jobs.values()) >= self._limits.waiting_jobs:
            raise unavailable("too many photos wait to be taken in; try again when some are done")

    def progress(self, number: str) -> Progress:
        """NotInGallery where there is no such job, or it is long over."""
        return self._job(number).progress

    def all(self) -> list[Progress]:
        """The last 50, newest first; of parts of one set the one that tells of all."""
        return [job.progress for job in reversed(self._jobs.values()) if not job.is_told_elsewhere]

    async def watch(self, number: str) -> AsyncGenerator[Progress, None]:
        """What it is now, then each change, at most ten a second, to the end. NotInGallery as in `progress`."""
        job = self._job(number)
        while True:
            progress, changed = job.progress, job.changed
            yield progress
            if progress.ended:
                return
            await asyncio.sleep(WATCH_INTERVAL_SECONDS)
            await changed.wait()

    def _job(self, number: str) -> _Job:
        if number not in self._jobs:
            raise NotInGallery("there is no such job, or it was over long ago")
        return self._jobs[number]

    def _begin(self, paths: Sequence[Path], skipped: Sequence[SkippedPhoto] = (), continues: str | None = None) -> Progress:
        told = Progress(str(next(self._numbers)), skipped=tuple(skipped[:MAX_SHOWN_SKIPPED]), skipped_count=len(skipped))
        job = _Job(paths, told, self._jobs.get(continues or ""))
        self._jobs[job.progress.number] = job
        over = [number for number, old in self._jobs.items() if old.progress.ended]
        for number in over[: max(0, len(self._jobs) - MAX_REMEMBERED_JOBS)]:
            del self._jobs[number]
        self._pool.submit(self._run, job, asyncio.get_running_loop())
        return job.progress

    # --- in the thread ----------------------------------------------------------------------------------------------

    def _run(self, job: _Job, loop: asyncio.AbstractEventLoop) -> None:
        """Never raises: the next job has its turn."""
        progress = job.progress
        before = None
        if job.before:  # whose figures one job goes on with, if several would
            before, job.before.reached = job.before.reached, None
        if before and before.state != "done":  # what went wrong there is told there
            before = None
        loop.call_soon_threadsafe(partial(job.begin, goes_on=before is not None))

        def show(now: Progress) -> None:
            nonlocal progress
            progress = now
            job.reached = now if before is None else _together(before, now)
            loop.call_soon_threadsafe(job.show, job.reached)

        try:
            self._take_in(job.paths, progress, show)
            show(replace(progress, state="done"))
        except _Stopped:
            show(replace(progress, state="stopped"))
        except FamiliarError as error:
            show(replace(progress, state="failed", error=str(error)))
        except Exception as error:
            show(replace(progress, state="failed", error=str(internal_error(error, "a job"))))

    def _take_in(self, places: Sequence[Path], progress: Progress, show: Callable[[Progress], None]) -> None:
        self._go_on()
        show(progress := replace(progress, state="looking"))
        paths, outside = self._found(places)
        outside = [*progress.skipped, *outside]
        left_out = progress.skipped_count - len(progress.skipped) + len(outside)
        show(progress := replace(progress, found=len(paths) + left_out))
        known = frozenset(map(str, paths))

        def looked(done: int, so_far: EnrollResult) -> None:
            nonlocal progress
            skipped = [*outside, *(self._skipped(error, known) for error in so_far.skipped[:MAX_SHOWN_SKIPPED])]
            progress = replace(
                progress,
                looked=done + left_out,
                photos=so_far.photos,
                faces=so_far.faces,
                without_face=so_far.without_face,
                known=so_far.known + so_far.edited,
                skipped=tuple(skipped[:MAX_SHOWN_SKIPPED]),
                skipped_count=left_out + len(so_far.skipped),
            )
            show(progress)
            self._go_on()

        with self._threads.new_connection() as gallery:
            enrolled = self._enrolled(gallery, paths, looked)
            looked(len(paths), enrolled)  # where no batch was
            self._delete_broken(places, enrolled)
            if enrolled.faces or enrolled.edited or _is_left_ungrouped(gallery):
                show(progress := replace(progress, state="grouping"))
                new = self._patiently(lambda: _grouped(gallery))
                show(replace(progress, new_individuals=new))
            if lacks_index(gallery) and find_spec("usearch"):
                self._patiently(lambda: build_index(gallery))

    def _enrolled(
        self, gallery: Gallery, paths: Sequence[Path], looked: Callable[[int, EnrollResult], None]
    ) -> EnrollResult:
        """As `enroll`; where the gallery was busy it goes on from there."""
        done, enrolled = 0, EnrollResult(0, 0, 0, 0, 0, 0, 0, ())

        def go_on() -> EnrollResult:
            begun, before = done, enrolled

            def on_batch(count: int, of_these: EnrollResult) -> None:
                nonlocal done, enrolled
                done, enrolled = begun + count, _sum(before, of_these)
                looked(done, enrolled)

            embedder, detector = self._vision.embedder, self._vision.detector
            return _sum(before, enroll(gallery, embedder, paths[begun:], detector, on_batch=on_batch))

        return self._patiently(go_on)

    def _patiently(self, work: Callable[[], T]) -> T:
        """Again and again while others write, which has an end: nobody else would take these photos in."""
        while True:
            try:
                return work()
            except GalleryBusy:
                self._stopping.wait(BUSY_RETRY_SECONDS)
                self._go_on()

    def _delete_broken(self, places: Sequence[Path], enrolled: EnrollResult) -> None:
        """Uploads that are no photos after all, as is told: at the next start they would be looked at again."""
        uploads = frozenset(str(place) for place in places if place.is_relative_to(self._roots.uploads))
        for error in filter(is_corrupt, enrolled.skipped):
            path, _ = split_error_path(error, uploads)
            if path is not None:
                with contextlib.suppress(OSError):
                    path.unlink()

    def _go_on(self) -> None:
        if self._stopping.is_set():
            raise _Stopped

    def _found(self, places: Sequence[Path]) -> tuple[list[Path], list[SkippedPhoto]]:
        """Photos, each once, by where they really are; and those that lie elsewhere, or no more."""
        found: dict[Path, None] = {}
        outside: list[SkippedPhoto] = []
        for place in places:
            try:
                paths = find_photos([place])
            except UnreadablePhoto as error:
                if place.is_relative_to(self._roots.uploads):  # forgotten, or broken and sent twice
                    outside.append(SkippedPhoto(self._shown(place), DELETED_REASON))
                    continue
                raise UnreadablePhoto(f"{self._shown(place)}: no photo found") from error
            for path in paths:
                self._go_on()
                try:
                    found[self._roots.resolve(path)] = None
                except HttpProblem:
                    outside.append(SkippedPhoto(self._shown(path), OUTSIDE_REASON))
        return list(found), outside

    def _skipped(self, error: FamiliarError, known: Collection[str]) -> SkippedPhoto:
        path, reason = split_error_path(error, known)
        return SkippedPhoto("a photo" if path is None else self._shown(path), reason)

    def _shown(self, path: Path) -> str:
        """As seen from its root, whose own name is told."""
        if path.is_relative_to(self._roots.uploads):
            return photo_name(path)
        for root in self._roots.folders:
            if path.is_relative_to(root):
                return str(path.relative_to(root)) if path != root else root.name
        return path.name


def _together(before: Progress, now: Progress) -> Progress:
    """What is told of parts of one set."""
    skipped = (*before.skipped, *now.skipped)[:MAX_SHOWN_SKIPPED]
    return replace(now, **_sums(before, now, COUNTS), skipped=skipped)


def _sum(one: EnrollResult, other: EnrollResult) -> EnrollResult:
    return EnrollResult(**_sums(one, other, [each.name for each in fields(EnrollResult)]))


def _sums(one: object, other: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(one, name) + getattr(other, name) for name in names}


def _is_left_ungrouped(gallery: Gallery) -> bool:
    """Whether a job was stopped before its faces were grouped. Not where the user has undone that."""
    with gallery.reading() as connection:
        (left,) = connection.execute(
            "SELECT judged_face < (SELECT coalesce(max(id), 0) FROM faces) AND (judged_face > 0 OR NOT EXISTS "
            "(SELECT 1 FROM sqlite_sequence WHERE name = 'identities')) FROM gallery"
        ).fetchone()
    return bool(left)


def _grouped(gallery: Gallery) -> int:
    """How many identities that made."""
    last = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'identities'"
    with gallery.reading() as connection:
        (before,) = connection.execute(last).fetchone()
    cluster(gallery)
    with gallery.reading() as connection:
        (made,) = connection.execute("SELECT count(*) FROM identities WHERE id > ?", (before,)).fetchone()
    return made
