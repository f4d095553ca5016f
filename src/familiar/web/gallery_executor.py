"""Requests at the gallery: few threads, each with its own connection, and a bounded queue before them."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Concatenate, ParamSpec, TypeVar

from familiar.gallery.database.connection import Gallery
from familiar.web.errors import HttpProblem, unavailable

READER_THREADS = 3

P = ParamSpec("P")
T = TypeVar("T")


class GalleryExecutor:
    """Several read at once, one writes. What they make of the gallery they share, so memory does not grow with them.

    More than `waiting` requests are refused with 503; `read_only` refuses every write with 403. To be made and used in
    one event loop's thread.
    """

    def __init__(self, folder: Path, waiting: int, *, read_only: bool = False) -> None:
        first = Gallery.open(folder)  # says at once what is wrong with it
        self._connections = [first, *(first.new_connection() for _ in range(READER_THREADS))]
        self._free: SimpleQueue[Gallery] = SimpleQueue()
        for gallery in self._connections:
            self._free.put(gallery)
        self._readers = ThreadPoolExecutor(READER_THREADS, "gallery-read")
        self._writer = ThreadPoolExecutor(1, "gallery-write")
        self._waiting, self._most = 0, waiting
        self._read_only = read_only

    def new_connection(self) -> Gallery:
        """One more connection, for a thread of the caller's, who closes it."""
        return self._connections[0].new_connection()

    async def read(self, ask: Callable[Concatenate[Gallery, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`ask(gallery, ...)` in a thread that reads."""
        return await self._run(self._readers, ask, *args, **kwargs)

    async def write(self, change: Callable[Concatenate[Gallery, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`change(gallery, ...)` in the thread that writes. It ends even where nobody waits for it any more."""
        self.require_writable()
        return await self._run(self._writer, change, *args, **kwargs)

    async def write_locked(self, change: Callable[Concatenate[Gallery, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `write`, for a change that looks before it writes: meanwhile no job and no other request does."""

        def decided(gallery: Gallery) -> T:
            with gallery.write_lock():
                return change(gallery, *args, **kwargs)

        return await self.write(decided)

    async def compute_then_write(self, change: Callable[Concatenate[Gallery, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `write`, for a change that computes before it writes: meanwhile others write."""
        self.require_writable()
        return await self._run(self._readers, change, *args, **kwargs)

    def require_writable(self) -> None:
        """Refused with 403 on a server that is read-only."""
        if self._read_only:
            raise HttpProblem(HTTPStatus.FORBIDDEN, "read-only", "this server was started with --read-only")

    def close(self) -> None:
        """Waits for the writes under way."""
        self._writer.shutdown()
        self._readers.shutdown(cancel_futures=True)
        for gallery in self._connections:
            gallery.close()

    async def _run(
        self,
        pool: ThreadPoolExecutor,
        call: Callable[Concatenate[Gallery, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        if self._waiting >= self._most:
            raise unavailable("too many requests wait for the gallery; try again in a moment")

        def work() -> T:
            gallery = self._free.get()  # there are as many as threads
            try:
                return call(gallery, *args, **kwargs)
            finally:
                self._free.put(gallery)

        self._waiting += 1
        loop = asyncio.get_running_loop()
        future: Future[T] = pool.submit(work)
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._decrement_waiting))
        done = asyncio.wrap_future(future)
        done.add_done_callback(_consume_exception)
        # Waited for, not awaited: a client that hangs up must not cancel a write that its other requests build on.
        await asyncio.wait([done])
        return done.result()

    def _decrement_waiting(self) -> None:
        self._waiting -= 1


def _consume_exception(done: asyncio.Future[Any]) -> None:
    """An error that nobody waits for any more is not logged: its message may hold names of photos."""
    if not done.cancelled():
        done.exception()
