"""Background jobs: progress, stopping, failures, and what they leave behind."""

import asyncio
import contextlib
import hashlib
import logging
import os
import shutil
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from http import HTTPStatus
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from familiar.core.errors import CannotWrite, NotInGallery
from familiar.core.gallery_types import Progress, SkippedPhoto
from familiar.core.types import Face, Photo
from familiar.detection.detectors import WholePhoto
from familiar.embedding.embedder import Embedder
from familiar.gallery import EnrollResult, Gallery
from familiar.gallery.same.decisions import decisions, undo
from familiar.gallery.search import folder_index, listing
from familiar.gallery.store import connection as connection_module
from familiar.gallery.store.connection import DATABASE, connect
from familiar.gallery.store.store import Store
from familiar.web import enrollment_job as job_module
from familiar.web import jobs as jobs_module
from familiar.web.enrollment_job import Work
from familiar.web.errors import HttpProblem
from familiar.web.jobs import JobQueue
from familiar.web.service import Service
from familiar.web.settings import Limits, Settings
from support import color_album

pytestmark = pytest.mark.slow

NO_PHOTO = "not a photo (supported: JPEG, HEIC, AVIF, PNG, WebP, BMP, TIFF, GIF, PPM)"


@pytest.fixture(autouse=True)
def white(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add an individual that is not in the gallery."""
    monkeypatch.setitem(color_album.RGB_U8, "white", (200, 200, 200))


@pytest.fixture(autouse=True)
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the batch size to one photo."""
    monkeypatch.setattr(Embedder, "batch_size", 1)


@pytest.fixture
def more(photos: list[Path]) -> Path:
    """A subfolder of the gallery's photos: two of white, one of red, one file that is no photo."""
    folder = photos[0].parent / "more"
    color_album.draw_album(folder, white=2)
    color_album.draw_photo(folder / "red9.png", "red", shade=9)
    (folder / "torn: a.png").write_bytes(b"no photo")
    return folder


def running(service: Service, work: Callable[[JobQueue], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        await service.start()
        try:
            return await asyncio.wait_for(work(service.jobs), 30)
        finally:
            await service.stop()

    return asyncio.run(run())


async def ended(jobs: JobQueue, number: str) -> Progress:
    return [progress async for progress in jobs.watch(number)][-1]


def taken_in(service: Service, *paths: Path) -> Progress:
    async def work(jobs: JobQueue) -> Progress:
        return await ended(jobs, jobs.submit(Work(paths)).number)

    return running(service, work)


class Gate(WholePhoto):
    """A detector that blocks until it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def detect(self, photo: Photo) -> list[Face]:
        self.reached.set()
        assert self.opened.wait(20)
        return super().detect(photo)


@pytest.fixture
def gate(service: Service) -> Iterator[Gate]:
    service.inference.detector = gate = Gate()
    yield gate
    gate.opened.set()


def test_folder_is_enrolled_and_grouped(service: Service, more: Path, folder: Path):
    async def work(jobs: JobQueue) -> tuple[Progress, list[Progress]]:
        submitted = jobs.submit(Work([more]))
        return submitted, [progress async for progress in jobs.watch(submitted.number)]

    submitted, updates = running(service, work)
    assert submitted == updates[0] == Progress(submitted.number, "waiting")
    assert updates[-1] == Progress(
        submitted.number,
        "done",
        total=4,
        processed=4,
        photos=3,
        faces=3,
        looked_for="face",
        skipped=(SkippedPhoto("more/torn: a.png", NO_PHOTO),),
        skipped_count=1,
        new_individuals=1,
        after_photo=9,
    )
    with Store.open(folder) as gallery:
        assert [(tile.identity, tile.faces) for tile in listing.identity_summaries(gallery)] == [
            (1, 5),
            (2, 3),
            (3, 2),
            (4, 2),
        ]


def test_known_photos_are_not_grouped_again(service: Service, photos: list[Path], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Gallery, "cluster", None)
    done = taken_in(service, photos[0].parent)
    assert (done.state, done.total, done.processed, done.known) == ("done", 9, 9, 9)
    assert (done.photos, done.faces, done.new_individuals) == (0, 0, 0)


def test_edited_photos_count_as_known(service: Service, photos: list[Path]):
    color_album.draw_photo(photos[0], "red", shade=12)
    done = taken_in(service, photos[0], photos[1])
    assert (done.state, done.processed, done.known, done.photos) == ("done", 2, 2, 0)


def test_photos_without_faces_are_counted(service: Service, more: Path):
    class Blind(WholePhoto):
        def detect(self, _: Photo) -> list[Face]:
            return []

    service.inference.detector = Blind()
    done = taken_in(service, more)
    assert (done.state, done.photos, done.faces, done.without_face) == ("done", 3, 0, 3)


def test_skips_links_outside_roots_without_revealing_paths(service: Service, more: Path, tmp_path: Path, folder: Path):
    (secret,) = color_album.draw_album(tmp_path / "elsewhere", white=1)
    (more / "a link.png").symlink_to(secret)
    (more / "another.png").symlink_to(more / "red9.png")
    done = taken_in(service, more, secret)
    assert set(done.skipped) == {
        SkippedPhoto("more/a link.png", job_module.OUTSIDE_REASON),
        SkippedPhoto("white1.png", job_module.OUTSIDE_REASON),
        SkippedPhoto("more/torn: a.png", NO_PHOTO),
    }
    assert (done.total, done.processed, done.photos, done.skipped_count) == (6, 6, 3, 3)
    assert str(tmp_path) not in str(done)
    with Store.open(folder) as gallery:
        assert not any("elsewhere" in photo.path for photo in listing.photos(gallery))


def test_skips_all_photos_outside_roots(service: Service, tmp_path: Path):
    done = taken_in(service, *color_album.draw_album(tmp_path / "elsewhere", white=2))
    assert (done.state, done.total, done.processed, done.skipped_count) == ("done", 2, 2, 2)


def test_lists_only_first_skipped_files(service: Service, more: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(job_module, "MAX_SHOWN_SKIPPED", 3)
    shutil.rmtree(more)
    more.mkdir()
    (more / "link.png").symlink_to("/etc/hosts")
    for number in range(5):
        (more / f"{number}.png").write_bytes(b"no photo")
    done = taken_in(service, more)
    assert done.skipped_count == 6
    assert [skipped.name for skipped in done.skipped] == ["more/link.png", "more/0.png", "more/1.png"]


def test_job_fails_when_folder_has_no_photos(service: Service, more: Path):
    (more / "none").mkdir()
    failed = taken_in(service, more / "none")
    assert (failed.state, failed.error) == ("failed", "more/none: no photo found")
    missing = taken_in(Service(service.settings), more.parent, more / "gone")
    assert (missing.state, missing.error) == ("failed", "more/gone: no photo found")
    empty = Service(service.settings)
    for path in more.parent.rglob("*.png"):
        path.unlink()
    assert taken_in(empty, more.parent).error == "photos: no photo found"


def test_folder_scan_runs_outside_event_loop_thread(service: Service, more: Path, monkeypatch: pytest.MonkeyPatch):
    threads: set[threading.Thread] = set()
    find = job_module.find_photos

    def find_recorded(paths: list[Path]) -> list[Path]:
        threads.add(threading.current_thread())
        return find(paths)

    monkeypatch.setattr(job_module, "find_photos", find_recorded)
    assert taken_in(service, more).state == "done"
    assert threads
    assert threading.main_thread() not in threads


def test_runs_one_job_at_a_time_and_rejects_excess_jobs(settings: Settings, more: Path):
    service = Service(replace(settings, limits=Limits(waiting_jobs=2)))
    service.inference.detector = gate = Gate()

    async def work(jobs: JobQueue) -> list[Progress]:
        numbers = [jobs.submit(Work([more / "red9.png"])).number]
        await asyncio.to_thread(gate.reached.wait, 20)
        numbers += [jobs.submit(Work([more / f"white{number}.png"])).number for number in (1, 2)]
        assert [job.state for job in jobs.all()] == ["waiting", "waiting", "processing"]
        with pytest.raises(HttpProblem, match="too many photos wait") as refused:
            jobs.submit(Work([more]))
        assert refused.value.status == HTTPStatus.SERVICE_UNAVAILABLE
        gate.opened.set()
        await ended(jobs, numbers[-1])
        assert [job.number for job in jobs.all()] == numbers[::-1], "newest first"
        return [jobs.progress(number) for number in numbers]

    done = running(service, work)
    assert [job.state for job in done] == ["done"] * 3
    assert [job.new_individuals for job in done] == [0, 0, 1]


def test_reserved_place_is_not_given_to_another(service: Service) -> None:
    jobs = JobQueue(service.executor, service.inference, service.allowed_paths, Limits(waiting_jobs=1))
    with jobs.reserved():
        for refused in (jobs.require_room, lambda: jobs.submit(Work([]))):
            with pytest.raises(HttpProblem) as error:
                refused()
            assert error.value.status == 503
    jobs.require_room()


def test_continued_jobs_report_combined_progress(service: Service, more: Path):
    async def work(jobs: JobQueue) -> tuple[Progress, ...]:
        first = await ended(jobs, jobs.submit(Work([more / "white1.png"]), [SkippedPhoto("a", "b")]).number)
        parts = ([more / "white2.png", more / "torn: a.png"], [more / "white1.png", more / "red9.png"])
        second = await ended(jobs, jobs.submit(Work(parts[0]), previous_job=first.number).number)
        third = await ended(jobs, jobs.submit(Work(parts[1]), previous_job=second.number).number)
        assert jobs.all() == [third]
        assert jobs.progress(first.number) == first  # who watches it can still ask
        return first, second, third

    first, second, third = running(service, work)
    assert (first.total, first.photos, first.new_individuals) == (2, 1, 0)
    torn = SkippedPhoto("more/torn: a.png", NO_PHOTO)
    assert second == replace(
        first,
        number=second.number,
        total=4,
        processed=4,
        photos=2,
        faces=2,
        skipped=(SkippedPhoto("a", "b"), torn),
        skipped_count=2,
        new_individuals=1,
    )
    assert third == replace(second, number=third.number, total=6, processed=6, photos=3, faces=3, known=1)


def test_job_can_be_continued_only_once(service: Service, more: Path):
    async def work(jobs: JobQueue) -> None:
        first = (await ended(jobs, jobs.submit(Work([more / "white1.png"])).number)).number
        second, third = (
            jobs.submit(Work([more / name]), previous_job=first).number for name in ("white2.png", "red9.png")
        )
        assert [(await ended(jobs, number)).photos for number in (second, third)] == [2, 1]
        assert [job.number for job in jobs.all()] == [third, second]

    running(service, work)


def test_waiting_continuation_is_not_listed_separately(service: Service, more: Path, gate: Gate):
    async def work(jobs: JobQueue) -> None:
        first = jobs.submit(Work([more / "white1.png"])).number
        second = jobs.submit(Work([more / "white2.png"]), previous_job=first).number
        third = jobs.submit(Work([more / "red9.png"]), previous_job=second).number
        other = jobs.submit(Work([more / "red9.png"])).number
        assert await asyncio.to_thread(gate.reached.wait, 20)
        assert [job.number for job in jobs.all()] == [other, first]
        gate.opened.set()
        assert (await ended(jobs, third)).photos == 3
        await ended(jobs, other)
        assert [job.number for job in jobs.all()] == [other, third]

    running(service, work)


@pytest.mark.parametrize("previous_job", ["", "0", "failed"])
def test_continuing_unknown_or_failed_job_starts_new_job(
    service: Service, more: Path, tmp_path: Path, previous_job: str
):
    async def work(jobs: JobQueue) -> None:
        first = await ended(jobs, jobs.submit(Work([tmp_path / "nothing"]), [SkippedPhoto("a", "b")]).number)
        assert first.state == "failed"
        before = first.number if previous_job == "failed" else previous_job
        second = await ended(jobs, jobs.submit(Work([more / "white2.png"]), previous_job=before).number)
        assert (second.state, second.total, second.skipped) == ("done", 1, ())
        assert jobs.all() == [second, first]

    running(service, work)


def test_forgets_oldest_ended_jobs(service: Service, more: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jobs_module, "MAX_REMEMBERED_JOBS", 2)

    async def work(jobs: JobQueue) -> None:
        numbers: list[str] = []
        for _ in range(4):
            numbers.append(jobs.submit(Work([more / "red9.png"])).number)
            await ended(jobs, numbers[-1])
        assert [job.number for job in jobs.all()] == [numbers[3], numbers[2]]
        for missing in (numbers[0], "0", ""):
            with pytest.raises(NotInGallery):
                jobs.progress(missing)
            with pytest.raises(NotInGallery):
                await anext(jobs.watch(missing))

    running(service, work)


def test_keeps_all_unfinished_jobs(service: Service, gate: Gate, more: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jobs_module, "MAX_REMEMBERED_JOBS", 2)

    async def work(jobs: JobQueue) -> None:
        numbers = [jobs.submit(Work([more / "red9.png"])).number for _ in range(4)]
        assert len(jobs.all()) == 4
        gate.opened.set()
        assert (await ended(jobs, numbers[0])).state == "done"

    running(service, work)


def test_stop_completes_current_batch(service: Service, settings: Settings, gate: Gate, more: Path, folder: Path):
    embedder = service.inference.embedder
    embedder.threads = 1

    async def work(jobs: JobQueue) -> list[Progress]:
        first, second = jobs.submit(Work([more])).number, jobs.submit(Work([more])).number
        watchers = [asyncio.create_task(ended(jobs, number)) for number in (first, second)]
        await asyncio.to_thread(gate.reached.wait, 20)
        stopping = asyncio.create_task(jobs.stop())
        await asyncio.sleep(0.05)
        assert jobs.progress(first).state == "processing", "the batch is not cut short"
        with pytest.raises(HttpProblem, match="stopping"):
            jobs.submit(Work([more]))
        gate.opened.set()
        await stopping
        assert [job.state for job in jobs.all()] == ["stopped", "stopped"]
        return await asyncio.gather(*watchers)

    updates = running(service, work)
    assert [(job.state, job.processed) for job in updates] == [("stopped", 1), ("stopped", 0)]
    with Store.open(folder) as gallery:
        assert listing.counts(gallery).photos == 10, "what was looked at is there"
    again = taken_in(Service(settings), more)
    assert (again.state, again.known, again.photos, again.new_individuals) == ("done", 1, 2, 1)


def test_next_job_groups_faces_from_stopped_job(
    service: Service, settings: Settings, more: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    def stopped(_: object) -> None:
        raise job_module.StopRequested

    with monkeypatch.context() as patch:
        patch.setattr(job_module, "_cluster_and_count_new", stopped)
        assert taken_in(service, more).state == "stopped"
    again = taken_in(Service(settings), more)
    assert (again.known, again.new_individuals) == (3, 1)
    with Store.open(folder) as gallery:
        assert undo(gallery).kind == "cluster"
        once_more = taken_in(Service(settings), more)
        assert (once_more.state, once_more.new_individuals) == ("done", 0)
        assert [decision.kind for decision in decisions(gallery)] == ["cluster"], "what was undone stays so"
        another = color_album.draw_photo(more / "white3.png", "white", shade=3)
        assert taken_in(Service(settings), another).new_individuals == 1


def test_known_photos_are_grouped_in_ungrouped_gallery(tmp_path: Path, mean_color_bundle: Path, more: Path):
    paths = [more / "white1.png", more / "white2.png"]
    color_album.create_gallery(tmp_path / "new", mean_color_bundle, paths).close()  # and not grouped
    done = taken_in(Service(Settings(gallery=tmp_path / "new", models=(mean_color_bundle,))), *paths)
    assert (done.state, done.known, done.new_individuals) == ("done", 2, 1)


def test_failed_job_reports_error_and_next_job_runs(
    service: Service, more: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    errors: list[Exception] = [ValueError(f"{more}/red9.png is private"), CannotWrite("the disk is full")]

    def failing(_: Gallery) -> int:
        if errors:
            raise errors.pop()
        return 7

    monkeypatch.setattr(job_module, "_cluster_and_count_new", failing)

    async def work(jobs: JobQueue) -> list[Progress]:
        return [
            await ended(jobs, jobs.submit(Work([more / name])).number)
            for name in ("red9.png", "white1.png", "white2.png")
        ]

    with caplog.at_level(logging.DEBUG):
        expected, internal, fine = running(service, work)
    assert (expected.state, expected.error, expected.photos) == ("failed", "the disk is full", 1)
    assert (internal.state, internal.photos) == ("failed", 1)
    assert internal.error == "something went wrong on the server; its log says where"
    assert (fine.state, fine.error, fine.new_individuals) == ("done", None, 7)
    (record,) = [record for record in caplog.records if record.name == "familiar.serve"]
    assert "ValueError" in record.getMessage()
    assert "in failing" in record.getMessage()
    assert "png" not in caplog.text


def test_watch_limits_update_rate_and_sends_final_state(service: Service, photos: list[Path]):
    folder = photos[0].parent / "many"
    color_album.draw_album(folder, white=40)

    async def work(jobs: JobQueue) -> list[tuple[float, Progress]]:
        number = jobs.submit(Work([folder])).number
        clock = asyncio.get_running_loop().time
        return [(clock(), progress) async for progress in jobs.watch(number)]

    times, updates = zip(*running(service, work), strict=True)
    assert all(later - earlier >= 0.099 for earlier, later in pairwise(times))
    assert len(set(updates)) == len(updates), "only changes"
    assert (updates[-1].state, updates[-1].processed) == ("done", 40)


def test_watching_ended_job_returns_final_state(service: Service, more: Path):
    async def work(jobs: JobQueue) -> list[Progress]:
        done = await ended(jobs, jobs.submit(Work([more])).number)
        assert [progress async for progress in jobs.watch(done.number)] == [done]

    running(service, work)


def test_canceled_watchers_are_removed(service: Service, gate: Gate, more: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jobs_module, "WATCH_INTERVAL_SECONDS", 0)

    async def work(jobs: JobQueue) -> None:
        number = jobs.submit(Work([more])).number
        await asyncio.to_thread(gate.reached.wait, 20)
        job = jobs._jobs[number]
        watchers = [asyncio.create_task(ended(jobs, number)) for _ in range(3)]
        while len(job.changed._waiters) < 3:  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)
        for watcher in watchers[:2]:
            watcher.cancel()
        await asyncio.wait(watchers[:2])
        assert len(job.changed._waiters) == 1  # type: ignore[attr-defined]
        gate.opened.set()
        assert (await watchers[2]).state == "done"

    running(service, work)


def uploaded(service: Service, tmp_path: Path) -> Path:
    """Store an upload without processing it."""
    (sent,) = color_album.draw_album(tmp_path, white=1)
    content = sent.read_bytes()
    name = hashlib.sha256(content).hexdigest()
    upload = service.allowed_paths.uploads / name[:2] / f"{name}-white.png"
    upload.parent.mkdir(parents=True)
    upload.write_bytes(content)
    return upload


def test_restart_enrolls_pending_uploads(service: Service, settings: Settings, folder: Path, tmp_path: Path):
    upload = uploaded(service, tmp_path)

    async def work(jobs: JobQueue) -> list[Progress]:
        return [await ended(jobs, job.number) for job in jobs.all()]

    (done,) = running(service, work)
    assert (done.state, done.total, done.photos) == ("done", 1, 1)
    assert running(Service(settings), work) == [], "all of them are known now"
    with Store.open(folder) as gallery:
        assert listing.photos(gallery, before=2**62, limit=1)[0].path == str(upload)


def test_rejects_jobs_when_read_only_or_without_model(settings: Settings, more: Path):
    for changed, status in ((replace(settings, read_only=True), 403), (replace(settings, models=()), 409)):
        service = Service(changed)
        service.allowed_paths.uploads.mkdir(exist_ok=True)
        shutil.copy(more / "red9.png", service.allowed_paths.uploads)

        async def work(jobs: JobQueue) -> tuple[HttpProblem, list[Progress]]:
            with pytest.raises(HttpProblem) as refused:
                jobs.submit(Work([more]))
            return refused.value, jobs.all()

        refused, begun = running(service, work)
        assert (refused.status, begun) == (status, [])


def test_job_builds_index_for_large_gallery(
    service: Service, more: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("usearch")
    monkeypatch.setattr(folder_index, "INDEX_FROM", 5)
    assert taken_in(service, more).faces
    with Store.open(folder) as gallery:
        assert folder_index.open_index(gallery) is not None


@contextlib.contextmanager
def written_elsewhere(folder: Path) -> Iterator[None]:
    with contextlib.closing(connect(folder / DATABASE)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time that a connection waits for another."""
    monkeypatch.setattr(connection_module, "BUSY_SECONDS", 0.05)
    monkeypatch.setattr(job_module, "BUSY_RETRY_SECONDS", 0.02)


@pytest.mark.usefixtures("hasty")
def test_job_resumes_after_database_lock(settings: Settings, more: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    calls: list[int] = []
    enroll = Gallery.enroll

    def interrupted(
        gallery: Gallery, paths: list[Path], *, on_batch: Callable[[int, EnrollResult], None], **options: Any
    ) -> EnrollResult:
        calls.append(len(paths))

        def then(done: int, so_far: EnrollResult) -> None:
            on_batch(done, so_far)
            if len(calls) == done == 1:
                other.execute("BEGIN IMMEDIATE")
                threading.Timer(0.4, other.execute, ["ROLLBACK"]).start()

        return enroll(gallery, paths, on_batch=then, **options)

    monkeypatch.setattr(Gallery, "enroll", interrupted)
    other = connect(folder / DATABASE)
    with contextlib.closing(other):
        done = taken_in(Service(settings), more)
    assert calls[:2] == [4, 2], "it goes on where it was, behind the one that is no photo"
    assert len(calls) > 2
    assert (done.state, done.total, done.processed, done.photos, done.faces) == ("done", 4, 4, 3, 3)
    assert (done.known, done.skipped_count, done.new_individuals) == (0, 1, 1)


@pytest.mark.usefixtures("hasty")
def test_job_waiting_for_database_lock_can_be_stopped(settings: Settings, more: Path, folder: Path):
    async def work(jobs: JobQueue) -> Progress:
        with written_elsewhere(folder):
            number = jobs.submit(Work([more])).number
            await asyncio.sleep(0.5)
            assert jobs.progress(number).state == "processing"
            await jobs.stop()
        return jobs.progress(number)

    assert running(Service(settings), work).state == "stopped"


@pytest.fixture
def broken(service: Service, more: Path) -> Path:
    """Store an upload that is a photo only by its header."""
    content = (more / "white1.png").read_bytes()
    content = content[: content.index(b"IDAT") + 8]
    name = hashlib.sha256(content).hexdigest()
    path = service.allowed_paths.uploads / name[:2] / f"{name}.png"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def all_taken_in(service: Service, *jobs: list[Path]) -> list[Progress]:
    """Run jobs one after the other, on a server that did not resume unprocessed uploads."""

    async def run() -> list[Progress]:
        try:
            numbers = [service.jobs.submit(Work(paths)).number for paths in jobs]
            return [await ended(service.jobs, number) for number in numbers]
        finally:
            await service.stop()

    return asyncio.run(run())


def test_deletes_unreadable_upload_and_keeps_other_files(service: Service, more: Path, broken: Path):
    foreign, fine = more / "torn: a.png", service.allowed_paths.uploads / "red9.png"
    shutil.copy(more / fine.name, fine)
    (done,) = all_taken_in(service, [broken, fine, foreign])
    assert (done.state, done.photos, done.skipped_count) == ("done", 1, 2)
    assert done.skipped[0].name == broken.name
    assert not broken.exists()
    assert foreign.exists()
    assert fine.exists()


def test_restart_retries_broken_upload_once_and_deletes_it(service: Service, settings: Settings, broken: Path):
    async def work(jobs: JobQueue) -> list[Progress]:
        return [await ended(jobs, job.number) for job in jobs.all()]

    (done,) = running(service, work)
    assert (done.state, done.skipped_count) == ("done", 1)
    assert running(Service(settings), work) == []
    assert not broken.exists()


def test_skips_upload_deleted_by_previous_job(service: Service, more: Path, broken: Path):
    _, done = all_taken_in(service, [broken], [broken, more / "white1.png"])
    assert (done.state, done.photos, done.processed) == ("done", 1, 2)
    assert [skipped.reason for skipped in done.skipped] == [job_module.DELETED_REASON]


def test_keeps_upload_after_disk_read_error(service: Service, broken: Path, monkeypatch: pytest.MonkeyPatch):
    def failing(_: Path) -> bytes:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", failing)
        (done,) = all_taken_in(service, [broken])
    assert (done.state, done.skipped_count) == ("done", 1)
    assert "Input/output error" in done.skipped[0].reason
    assert broken.exists()


def test_keeps_upload_that_this_computer_cannot_decode(service: Service, broken: Path, monkeypatch: pytest.MonkeyPatch):
    def failing(*_: object) -> None:
        raise OSError("out of memory when reading image file")  # as Pillow says it, without a number

    with monkeypatch.context() as patch:
        patch.setattr("PIL.ImageFile.ImageFile.load", failing)
        (done,) = all_taken_in(service, [broken])
    assert (done.state, done.skipped_count) == ("done", 1)
    assert "out of memory" in done.skipped[0].reason
    assert broken.exists()


def test_keeps_upload_that_the_disk_has_damaged(service: Service, broken: Path):
    broken.write_bytes(broken.read_bytes()[:-1])  # not what was accepted; a repair may still get parts of it
    (done,) = all_taken_in(service, [broken])
    assert (done.state, done.skipped_count) == ("done", 1)
    assert broken.exists()


def test_keeps_broken_file_that_the_user_put_into_the_folder_of_uploads(service: Service, broken: Path):
    original = broken.rename(service.allowed_paths.uploads / "mia.png")
    (done,) = all_taken_in(service, [original])
    assert (done.state, done.skipped_count) == ("done", 1)
    assert original.exists()


def test_keeps_unreadable_file_in_submitted_folder(service: Service, broken: Path):
    (done,) = all_taken_in(service, [service.allowed_paths.uploads])
    assert (done.state, done.skipped_count) == ("done", 1)
    assert broken.exists()


def test_startup_deletes_only_old_partial_uploads(service: Service):
    folder = service.allowed_paths.uploads / "ab"
    folder.mkdir(parents=True)
    half, old = folder / ".familiar.half", folder / ".familiar.old"
    for path in (half, old):
        path.write_bytes(b"half")
    os.utime(old, (1e9, 1e9))

    async def work(jobs: JobQueue) -> list[Progress]:
        return jobs.all()

    assert running(service, work) == []
    assert half.exists()
    assert not old.exists()


def test_moved_gallery_updates_upload_paths(service: Service, settings: Settings, folder: Path, tmp_path: Path):
    uploaded(service, tmp_path)

    async def work(jobs: JobQueue) -> list[Progress]:
        return [await ended(jobs, job.number) for job in jobs.all()]

    running(service, work)
    elsewhere = folder.rename(tmp_path / "elsewhere")
    assert running(Service(replace(settings, gallery=elsewhere)), work) == []  # there is nothing to enroll again
    with Store.open(elsewhere) as gallery:
        assert Path(listing.photos(gallery, before=2**62, limit=1)[0].path).is_relative_to(elsewhere)
