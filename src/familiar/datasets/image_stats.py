"""What an inspection keeps of one photo, having opened it once: its size, its values, how to know it again."""

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import cv2
import numpy as np
from jaxtyping import Int8

from familiar.core.errors import UnreadablePhoto
from familiar.datasets.duplicates import fine_structure, perceptual_hash, thumbnail
from familiar.datasets.folders import PhotoRef, open_photo
from familiar.datasets.synthetic import SyntheticPhoto

READ_PX = 256  # a large JPEG is decoded at the smallest scale whose short side has this
DRAWN_PX = 64  # and a drawn photo is drawn at this: enough for what is asked of it
BLANK_LEVELS = 2.0  # standard deviation, of 255, in a thumbnail that is nearly one color
COLORLESS_LEVELS = 4  # the most that red, green and blue differ where JPEG has touched a gray photo
_AHEAD = 64  # photos under way: enough to keep threads busy, few enough to be held


@dataclass(frozen=True, eq=False)
class PhotoFacts:
    """Values are of all channels, in [0, 255].

    `blank`: nearly one color. `colorless`: gray, however many channels the file has. `digest` is equal
    where size and pixels are; `hash` and `structure` are for `duplicates`.
    """

    size_px: tuple[int, int]
    stored_as: str
    lowest_value: int
    mean_value: int
    highest_value: int
    blank: bool
    colorless: bool
    digest: bytes
    hash: int
    structure: Int8[np.ndarray, " p"]


def facts_of_all(photos: Iterable[PhotoRef], workers: int) -> Iterator[PhotoFacts | UnreadablePhoto]:
    """In the order of the photos; the error in place of the facts where a photo cannot be read."""
    waiting = iter(photos)
    with ThreadPoolExecutor(workers) as pool:
        ahead = deque[Future[PhotoFacts | UnreadablePhoto]](
            pool.submit(_facts_or_error, photo) for photo in islice(waiting, _AHEAD)
        )
        while ahead:
            yield ahead.popleft().result()
            ahead.extend(pool.submit(_facts_or_error, photo) for photo in islice(waiting, 1))


def facts_of(photo: PhotoRef) -> PhotoFacts:
    """UnreadablePhoto where it cannot be opened."""
    drawn = isinstance(photo, SyntheticPhoto)
    opened = open_photo(photo, min_side_px=DRAWN_PX if drawn else READ_PX)
    size_px = (photo.size_px, photo.size_px) if drawn else opened.source_size_px
    pixels = np.ascontiguousarray(opened.rgb_u8)
    digest = hashlib.sha256(f"{size_px} {pixels.shape}".encode())
    digest.update(pixels.data)
    small = thumbnail(opened)
    gray = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)
    return PhotoFacts(
        size_px=size_px,
        stored_as=opened.stored_as or "drawn",
        lowest_value=int(pixels.min()),
        mean_value=round(float(pixels.mean())),
        highest_value=int(pixels.max()),
        blank=float(small.std(axis=(0, 1)).max()) < BLANK_LEVELS,
        colorless=int(np.ptp(small, axis=2).max()) <= COLORLESS_LEVELS,
        digest=digest.digest(),
        hash=perceptual_hash(gray),
        structure=fine_structure(gray),
    )


def _facts_or_error(photo: PhotoRef) -> PhotoFacts | UnreadablePhoto:
    try:
        return facts_of(photo)
    except UnreadablePhoto as error:
        return error
