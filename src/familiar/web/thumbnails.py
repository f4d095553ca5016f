"""Thumbnails of photos and faces: JPEGs without metadata, made once and cached in memory while there is room."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import UInt8

from familiar.core.types import Box
from familiar.photos.thumbnails import MARGIN, QUALITY, crop_face, decode_reduced, encode_jpeg, resize_photo
from familiar.web.errors import unavailable
from familiar.web.settings import MB, Limits

SIDES_PX = (64, 128, 256, 512, 1024, 2048)  # few, so that few thumbnails are made of each photo
MAX_CACHE_BYTES = 64 * MB
ENTRY_BYTES = 300  # of a thumbnail or a size, besides its content
THREADS = 2
T = TypeVar("T")


@dataclass(frozen=True)
class Thumbnail:
    """A JPEG file as it is sent. `etag`, in quotes, changes with the content."""

    content: bytes
    etag: str


class Thumbnails:
    """Makes and caches thumbnails. Use it in the thread of one event loop.

    Sides are rounded up to one of `SIDES_PX`; nothing is enlarged. `sha256` is the photo's when it was enrolled: a file
    with other content is not shown in its place. More than `limits.waiting_requests` thumbnails that wait to be made
    are refused with 503.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pool = ThreadPoolExecutor(THREADS, "pictures")
        self._cache: OrderedDict[Hashable, Any] = OrderedDict()  # least recently used first
        self._cache_bytes = 0
        self._pending: dict[Hashable, asyncio.Future[Any]] = {}

    async def photo(self, path: Path, sha256: str, side_px: int) -> Thumbnail:
        """Return the whole photo, its long side at most `side_px`. UnreadablePhoto, also if it has changed."""
        side_px = _round_up_side(side_px)
        draw = partial(resize_photo, path, sha256, side_px, self._limits.photo_pixels)
        return await self._cached((sha256, side_px), partial(_encode, (sha256, side_px), draw))

    async def face(self, path: Path, sha256: str, box_xyxy_px: Box, side_px: int) -> Thumbnail:
        """Return a square around a box, given in pixels of the whole upright photo. Raises UnreadablePhoto."""
        side_px = _round_up_side(side_px)
        draw = partial(crop_face, path, sha256, box_xyxy_px, side_px, self._limits.photo_pixels)
        key = (sha256, side_px, box_xyxy_px)
        return await self._cached(key, partial(_encode, key, draw))

    async def size_px(self, path: Path, sha256: str) -> tuple[int, int]:
        """Return (width, height) of the whole upright photo. UnreadablePhoto as in `photo`."""

        def measure() -> tuple[int, int]:
            return decode_reduced(path, sha256, lambda *_: 0.0, self._limits.photo_pixels).source_size_px

        return await self._cached((sha256,), measure)

    def close(self) -> None:
        """Wait for the thumbnails that are being made."""
        self._pool.shutdown(cancel_futures=True)

    async def _cached(self, key: Hashable, make: Callable[[], T]) -> T:
        if key in self._cache:
            self._cache.move_to_end(key)
            return self._cache[key]
        if (pending := self._pending.get(key)) is None:
            if len(self._pending) >= self._limits.waiting_requests:
                raise unavailable("too many thumbnails wait to be made; try again in a moment")
            pending = self._pending[key] = asyncio.get_running_loop().run_in_executor(self._pool, make)
            pending.add_done_callback(lambda done: self._store(key, done))
        await asyncio.wait([pending])  # not awaited, which cancels: others may wait for the same thumbnail
        return pending.result()

    def _store(self, key: Hashable, done: asyncio.Future[Any]) -> None:
        del self._pending[key]
        if done.cancelled() or done.exception() is not None:
            return
        self._cache[key] = done.result()
        self._cache_bytes += _size_bytes(done.result())
        while self._cache_bytes > MAX_CACHE_BYTES:
            self._cache_bytes -= _size_bytes(self._cache.popitem(last=False)[1])


def _encode(key: Hashable, draw: Callable[[], UInt8[np.ndarray, "h w 3"]]) -> Thumbnail:
    content = encode_jpeg(draw())
    etag = hashlib.sha256(repr((key, QUALITY, MARGIN)).encode()).hexdigest()[:32]
    return Thumbnail(content, f'"{etag}"')


def _size_bytes(cached: object) -> int:
    return ENTRY_BYTES + (len(cached.content) if isinstance(cached, Thumbnail) else 0)


def _round_up_side(side_px: int) -> int:
    return next((side for side in SIDES_PX if side >= side_px), SIDES_PX[-1])
