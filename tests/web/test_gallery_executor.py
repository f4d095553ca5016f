"""The gallery executor: its queue, its shared cache, and writes that complete after their caller was cancelled."""

import asyncio
import gc
import logging
import threading
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from familiar.gallery import Gallery
from familiar.web.errors import HttpProblem
from familiar.web.gallery_executor import READER_THREADS, GalleryExecutor


def running(folder: Path, work: Any, **changed: Any) -> Any:
    async def run() -> Any:
        threads = GalleryExecutor(folder, **({"max_waiting": 100} | changed))
        try:
            return await work(threads)
        finally:
            threads.close()

    return asyncio.run(run())


def test_readers_share_one_embedding_matrix(folder: Path):
    async def work(threads: GalleryExecutor) -> set[int]:
        barrier = threading.Barrier(READER_THREADS)

        def ask(gallery: Gallery) -> int:
            barrier.wait(10)  # so each is asked in a thread of its own
            return id(gallery.store.faces().embeddings)

        await threads.read(lambda gallery: gallery.store.faces())
        return set(await asyncio.gather(*(threads.read(ask) for _ in range(READER_THREADS))))

    assert len(running(folder, work)) == 1


def test_read_returns_previous_write(folder: Path):
    async def work(threads: GalleryExecutor) -> dict[int, str]:
        await threads.read(Gallery.names)
        await threads.write(Gallery.name, 1, "Red")
        return await threads.read(Gallery.names)

    assert running(folder, work) == {1: "Red"}


@pytest.mark.slow
@pytest.mark.parametrize("locked", [True, False])
def test_write_excludes_concurrent_job_writes(folder: Path, locked: bool):
    async def work(threads: GalleryExecutor) -> tuple[dict[int, str], dict[int, str]]:
        has_read, job = threading.Event(), threads.connect()

        def meddle() -> None:
            assert has_read.wait(10)
            job.name(1, "Meddler")

        def change(gallery: Gallery) -> dict[int, str]:
            has_read.set()
            meddling.join(0.3 if locked else 10)
            gallery.name(2, "Green")
            return gallery.names()

        meddling = threading.Thread(target=meddle)
        meddling.start()
        identity_count = await (threads.write if locked else threads.compute_then_write)(change)
        await asyncio.to_thread(meddling.join, 10)
        job.close()
        return identity_count, await threads.read(Gallery.names)

    identity_count, then = running(folder, work)
    assert identity_count == ({2: "Green"} if locked else {1: "Meddler", 2: "Green"})
    assert then == {1: "Meddler", 2: "Green"}


def test_rejects_requests_above_waiting_limit(folder: Path):
    async def work(threads: GalleryExecutor) -> list[Any]:
        stop = threading.Event()
        calls: list[Coroutine[Any, Any, bool]] = [
            threads.read(lambda _: stop.wait(10)) for _ in range(READER_THREADS + 2)
        ]
        asyncio.get_running_loop().call_later(0.1, stop.set)
        first = await asyncio.gather(*calls, return_exceptions=True)
        return [*first, await threads.read(lambda gallery: gallery.revision > 0)]

    *results, last, after = running(folder, work, max_waiting=READER_THREADS + 1)
    assert results == [True] * (READER_THREADS + 1)
    assert isinstance(last, HttpProblem)
    assert (last.status, last.kind) == (HTTPStatus.SERVICE_UNAVAILABLE, "busy")
    assert after is True  # those who were answered wait no more


def test_rejects_writes_when_read_only(folder: Path):
    async def work(threads: GalleryExecutor) -> None:
        await threads.write(Gallery.name, 1, "Red")

    async def late(threads: GalleryExecutor) -> None:
        await threads.compute_then_write(Gallery.name, 1, "Red")

    for writes in (work, late):
        with pytest.raises(HttpProblem, match="--read-only"):
            running(folder, writes, read_only=True)


def test_late_write_does_not_block_other_writes(folder: Path):
    async def work(threads: GalleryExecutor) -> dict[int, str]:
        go = threading.Event()

        def change(gallery: Gallery) -> None:
            assert go.wait(10)
            gallery.name(1, "Red")

        late = asyncio.ensure_future(threads.compute_then_write(change))
        await threads.write(Gallery.name, 2, "Green")
        go.set()
        await late
        return await threads.read(Gallery.names)

    assert running(folder, work) == {1: "Red", 2: "Green"}


async def given_up(threads: GalleryExecutor, change: Callable[[Gallery], None]) -> None:
    """Start a write and cancel its caller."""
    begun, go = threading.Event(), threading.Event()

    def hold(gallery: Gallery) -> None:
        begun.set()
        go.wait(10)
        change(gallery)

    task = asyncio.ensure_future(threads.write(hold))
    await asyncio.to_thread(begun.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()


def test_write_completes_after_cancellation(folder: Path):
    running(folder, lambda threads: given_up(threads, lambda gallery: gallery.name(1, "Red")))
    with Gallery.open(folder) as gallery:
        assert gallery.names() == {1: "Red"}


def test_exception_propagates_to_caller(folder: Path):
    async def work(threads: GalleryExecutor) -> None:
        await threads.read(lambda _: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        running(folder, work)


@pytest.mark.slow
def test_exception_in_canceled_write_is_not_logged(folder: Path, caplog: pytest.LogCaptureFixture):
    async def work(threads: GalleryExecutor) -> None:
        def change(_: Gallery) -> None:
            raise ValueError("mia.png")

        await given_up(threads, change)
        await threads.write(lambda _: None)
        gc.collect()  # of a future whose error nobody has looked at

    with caplog.at_level(logging.DEBUG):
        running(folder, work)
    assert "mia" not in caplog.text
    assert "never retrieved" not in caplog.text
