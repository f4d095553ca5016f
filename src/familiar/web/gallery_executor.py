"""Threads that work on the gallery for requests: each with its own connection, behind a bounded queue."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Concatenate, ParamSpec, TypeVar

from familiar import VectorIndex
from familiar.gallery import Gallery
from familiar.web.errors import HttpProblem, unavailable

READER_THREADS = 3

P = ParamSpec("P")
T = TypeVar("T")


class GalleryExecutor:
    """Runs functions on the gallery: several readers at once, one writer.

    The connections share what is cached of the gallery, so memory does not grow with their number. Create and use it
    in the thread of one event loop.

    Args:
        folder: of the gallery.
        max_waiting: more waiting requests than this are refused with 503.
        read_only: refuse every write with 403.
    """

    def __init__(self, folder: Path, max_waiting: int, *, read_only: bool = False) -> None:
        first = Gallery.open(folder, open_index=_open_index)  # raises at once if the gallery is damaged
        self._connections = [first, *(first.connect() for _ in range(READER_THREADS))]
        self._free: SimpleQueue[Gallery] = SimpleQueue()
        for gallery in self._connections:
            self._free.put(gallery)
        self._readers = ThreadPoolExecutor(READER_THREADS, "gallery-read")
        self._writer = ThreadPoolExecutor(1, "gallery-write")
        self._waiting, self._max_waiting = 0, max_waiting
        self._read_only = read_only

    def connect(self) -> Gallery:
        """Open one more connection, for a thread of the caller, who closes it."""
        return self._connections[0].connect()

    async def read(self, function: Callable[Concatenate[Gallery, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `function(gallery, ...)` in a reader thread."""
        return await self._run(self._readers, lambda gallery: function(gallery, *args, **kwargs))

    async def write(self, function: Callable[Concatenate[Gallery, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `function(gallery, ...)` in the writer thread, while nobody else writes.

        It completes even if the caller is cancelled.
        """
        self.require_writable()

        def write(gallery: Gallery) -> T:
            with gallery.write():
                return function(gallery, *args, **kwargs)

        return await self._run(self._writer, write)

    async def compute_then_write(
        self, function: Callable[Concatenate[Gallery, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Like `write`, for a change that computes before it writes: others can write during the computation."""
        self.require_writable()
        return await self.read(function, *args, **kwargs)

    def require_writable(self) -> None:
        """Raise an HttpProblem with 403 if the server is read-only."""
        if self._read_only:
            raise HttpProblem(403, "read-only", "this server was started with --read-only")

    def close(self) -> None:
        """Wait for the current writes, then close all connections."""
        self._writer.shutdown()
        self._readers.shutdown(cancel_futures=True)
        for gallery in self._connections:
            gallery.close()

    async def _run(self, pool: ThreadPoolExecutor, function: Callable[[Gallery], T]) -> T:
        if self._waiting >= self._max_waiting:
            raise unavailable("too many requests wait for the gallery; try again in a moment")

        def work() -> T:
            gallery = self._free.get()  # never waits: there is a connection for each thread
            try:
                return function(gallery)
            finally:
                self._free.put(gallery)

        self._waiting += 1
        done = asyncio.get_running_loop().run_in_executor(pool, work)
        done.add_done_callback(self._note_done)
        # Waited for, not awaited: a client that hangs up must not cancel a write that its other requests build on.
        await asyncio.wait([done])
        return done.result()

    def _note_done(self, done: asyncio.Future[Any]) -> None:
        self._waiting -= 1
        if not done.cancelled():  # or asyncio logs an exception that no caller waits for: it may have names of photos
            done.exception()


def _open_index(address: str, collection: str, dim: int) -> VectorIndex:
    """Open the index that a gallery has outside its folder."""
    from familiar.integrations.milvus import open_index

    return open_index(address, collection, dim)
