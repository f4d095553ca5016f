"""Background enrollment jobs: the queue with its worker thread, and progress reporting."""

import asyncio
import contextlib
import itertools
import secrets
import threading
from collections.abc import AsyncGenerator, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from familiar.core.errors import FamiliarError, NotInGallery
from familiar.core.gallery_types import Progress, SkippedPhoto
from familiar.detection.detectors import available_detector
from familiar.web.allowed_paths import AllowedPaths
from familiar.web.enrollment_job import MAX_SHOWN_SKIPPED, EnrollmentJob, StopRequested, Work, merge_progress
from familiar.web.errors import internal_error, unavailable
from familiar.web.gallery_executor import GalleryExecutor
from familiar.web.inference import Inference
from familiar.web.settings import Limits
from familiar.web.uploads import find_unprocessed_uploads

MAX_REMEMBERED_JOBS = 50
WATCH_INTERVAL_SECONDS = 0.1  # between two reports to a watcher


@dataclass(eq=False)
class _QueuedJob:
    """A job as the event loop knows it.

    Attributes:
        previous: the job that this one continues, until it begins.
        reached: the last progress, from which a continuing job starts; used by the worker thread only.
        changed: set once, at the next change of `progress`, then replaced.
        superseded: a job that continues this one reports the progress of both.
    """

    work: Work
    progress: Progress
    previous: "_QueuedJob | None" = None
    reached: Progress | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    superseded: bool = False

    @property
    def is_reported_by_another(self) -> bool:
        """Whether the job that continues this one reports it; or, while this one waits, the job that it continues."""
        previous = self.previous if self.progress.state == "waiting" else None
        return self.superseded or (previous is not None and not previous.progress.ended)

    def show(self, progress: Progress) -> None:
        self.progress = progress
        self.changed.set()
        self.changed = asyncio.Event()


class JobQueue:
    """Runs one enrollment job at a time, in a thread; the others wait. Use it in one event loop."""

    def __init__(
        self, executor: GalleryExecutor, inference: Inference, allowed_paths: AllowedPaths, limits: Limits
    ) -> None:
        self._executor, self._inference = executor, inference
        self._allowed_paths, self._limits = allowed_paths, limits
        self._pool = ThreadPoolExecutor(1, "job")
        self._stopping = threading.Event()
        self._jobs: dict[str, _QueuedJob] = {}
        self._reserved = 0  # places of requests that are storing their photos
        # Random, so that a page left open during a restart does not take a new job for its own.
        self._numbers = itertools.count(1 + secrets.randbelow(2**50))

    async def start(self) -> None:
        """Enroll photos that were uploaded, but not processed, when the server was last stopped or killed."""
        if self._inference.has_model:
            unprocessed = await self._executor.read(find_unprocessed_uploads, self._allowed_paths.uploads)
            if unprocessed:
                self.begin(Work(unprocessed))

    async def stop(self) -> None:
        """Stop after the current batch. Waiting jobs are stopped too."""
        self._stopping.set()
        await asyncio.to_thread(self._pool.shutdown)
        await asyncio.sleep(0)  # shows the thread's last progress

    def submit(self, work: Work, skipped: Sequence[SkippedPhoto] = (), previous_job: str | None = None) -> Progress:
        """Start a job.

        Args:
            work: its paths are within the allowed folders.
            skipped: files that were sent along and are no photos; they are reported with the job.
            previous_job: the number of the job of the previous part, if one set is sent in parts: the new job then
                reports both, unless the previous one failed.

        Raises:
            HttpProblem: as `require_room`.
        """
        with self.reserved():
            return self.begin(work, skipped, previous_job)

    def submit_redetection(self, detector: str | None) -> Progress:
        """Look for faces again in photos of the gallery: in those without a face, or with another detector in all.

        Args:
            detector: its name; None: the gallery's.

        Raises:
            HttpProblem: as `require_room`.
        """
        named = self._inference.embedder.detector_name
        name = detector or self._inference.reference.detector or available_detector(named)
        return self.submit(Work(redetect=name))

    @contextlib.contextmanager
    def reserved(self) -> Generator[None, None, None]:
        """Reserve a place in the queue, for a job that is begun with `begin` before this ends.

        Otherwise others could take it while photos are stored, and photos of a refused request would stay.

        Raises:
            HttpProblem: as `require_room`.
        """
        self.require_room()
        self._reserved += 1
        try:
            yield
        finally:
            self._reserved -= 1

    def require_room(self) -> None:
        """Check that a job can be submitted.

        Raises:
            HttpProblem: 403, the server is read-only; 409, it has no model; 503, too many jobs wait.
        """
        self._executor.require_writable()
        self._inference.embedder  # noqa: B018 - raises if there is none
        if self._stopping.is_set():
            raise unavailable("the server is stopping")
        waiting = sum(job.progress.state == "waiting" for job in self._jobs.values()) + self._reserved
        if waiting >= self._limits.waiting_jobs:
            raise unavailable("too many photos wait to be enrolled; try again when some are done")

    def progress(self, number: str) -> Progress:
        """Return the progress of a job. NotInGallery if there is no such job, or it ended long ago."""
        return self._job(number).progress

    def all(self) -> list[Progress]:
        """List the last 50 jobs, newest first; of the parts of one set, the one that reports all of it."""
        return [job.progress for job in reversed(self._jobs.values()) if not job.is_reported_by_another]

    async def watch(self, number: str) -> AsyncGenerator[Progress, None]:
        """Yield a job's progress now and at each change until it ends, at most ten times a second.

        Raises:
            NotInGallery: as `progress`.
        """
        job = self._job(number)
        while True:
            progress, changed = job.progress, job.changed
            yield progress
            if progress.ended:
                return
            await asyncio.sleep(WATCH_INTERVAL_SECONDS)
            await changed.wait()

    def _job(self, number: str) -> _QueuedJob:
        if number not in self._jobs:
            raise NotInGallery("there is no such job, or it ended long ago")
        return self._jobs[number]

    def begin(self, work: Work, skipped: Sequence[SkippedPhoto] = (), previous_job: str | None = None) -> Progress:
        """Like `submit`, in a place that is `reserved`."""
        progress = Progress(
            str(next(self._numbers)), skipped=tuple(skipped[:MAX_SHOWN_SKIPPED]), skipped_count=len(skipped)
        )
        job = _QueuedJob(work, progress, self._jobs.get(previous_job or ""))
        self._jobs[job.progress.number] = job
        self._forget_old_jobs()
        self._pool.submit(self._run, job, asyncio.get_running_loop())
        return job.progress

    def _forget_old_jobs(self) -> None:
        ended = [number for number, job in self._jobs.items() if job.progress.ended]
        for number in ended[: max(0, len(self._jobs) - MAX_REMEMBERED_JOBS)]:
            del self._jobs[number]

    # --- in the worker thread ---------------------------------------------------------------------------------------

    def _run(self, job: _QueuedJob, loop: asyncio.AbstractEventLoop) -> None:
        """Run one job. Never raises, so that the next job has its turn."""
        previous, job.previous, base = job.previous, None, None
        # If several jobs continue one, the first does. One that did not end well reports its failure itself.
        if previous is not None and not previous.superseded and previous.reached and previous.reached.state == "done":
            base, previous.superseded = previous.reached, True

        def report(progress: Progress) -> None:
            job.reached = progress if base is None else merge_progress(base, progress)
            loop.call_soon_threadsafe(job.show, job.reached)

        tools = (self._executor, self._inference, self._allowed_paths, self._stopping, report)
        work = EnrollmentJob(job.work, job.progress, *tools)
        try:
            work.run()
            report(replace(work.progress, state="done"))
        except StopRequested:
            report(replace(work.progress, state="stopped"))
        except FamiliarError as error:
            report(replace(work.progress, state="failed", error=str(error)))
        except Exception as error:
            report(replace(work.progress, state="failed", error=str(internal_error(error, "a job"))))
