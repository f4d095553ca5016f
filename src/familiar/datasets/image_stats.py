"""Statistics of one photo for an inspection: size, pixel values, and hashes for finding duplicates."""

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
from familiar.datasets.photo_references import PhotoRef, open_photo
from familiar.datasets.synthetic import SyntheticPhoto

READ_PX = 256  # a large JPEG is decoded at the smallest scale whose short side has at least this
DRAWN_PX = 64  # size at which a synthetic photo is drawn, enough for these statistics
BLANK_LEVELS = 2.0  # highest standard deviation, of 255, in a thumbnail that is nearly one color
GRAYSCALE_LEVELS = 4  # highest difference of red, green and blue in a gray photo after JPEG compression
_MAX_PENDING = 64  # enough photos to keep threads busy, few enough for memory


@dataclass(frozen=True, eq=False)
class ImageStats:
    """Statistics of one photo. Values are over all channels, in [0, 255].

    Attributes:
        size_px: width and height.
        stored_as: format and mode of the file.
        lowest_value: of all pixels.
        mean_value: of all pixels, rounded.
        highest_value: of all pixels.
        blank: nearly one color.
        grayscale: gray, regardless of the number of channels in the file.
        digest: equal for equal sizes and pixels.
        hash: `duplicates.perceptual_hash`.
        structure: `duplicates.fine_structure`.
    """

    size_px: tuple[int, int]
    stored_as: str
    lowest_value: int
    mean_value: int
    highest_value: int
    blank: bool
    grayscale: bool
    digest: bytes
    hash: int
    structure: Int8[np.ndarray, " p"]


def read_all_image_stats(photos: Iterable[PhotoRef], workers: int) -> Iterator[ImageStats | UnreadablePhoto]:
    """Read the statistics of photos, in order, with `workers` threads; an unreadable photo gives its error instead."""
    remaining = iter(photos)
    with ThreadPoolExecutor(workers) as pool:
        pending = deque[Future[ImageStats | UnreadablePhoto]](
            pool.submit(_stats_or_error, photo) for photo in islice(remaining, _MAX_PENDING)
        )
        while pending:
            yield pending.popleft().result()
            pending.extend(pool.submit(_stats_or_error, photo) for photo in islice(remaining, 1))


def read_image_stats(photo: PhotoRef) -> ImageStats:
    """Open a photo and compute its statistics.

    Raises:
        UnreadablePhoto: the photo cannot be opened.
    """
    synthetic = isinstance(photo, SyntheticPhoto)
    photo_u8 = open_photo(photo, min_side_px=DRAWN_PX if synthetic else READ_PX)
    size_px = (photo.size_px, photo.size_px) if synthetic else photo_u8.source_size_px
    pixels = np.ascontiguousarray(photo_u8.rgb_u8)
    digest = hashlib.sha256(f"{size_px} {pixels.shape}".encode())
    digest.update(pixels.data)
    thumbnail_u8 = thumbnail(photo_u8)
    gray = cv2.cvtColor(thumbnail_u8, cv2.COLOR_RGB2GRAY)
    return ImageStats(
        size_px=size_px,
        stored_as=photo_u8.stored_as or "drawn",
        lowest_value=int(pixels.min()),
        mean_value=round(float(pixels.mean())),
        highest_value=int(pixels.max()),
        blank=float(thumbnail_u8.std(axis=(0, 1)).max()) < BLANK_LEVELS,
        grayscale=int(np.ptp(thumbnail_u8, axis=2).max()) <= GRAYSCALE_LEVELS,
        digest=digest.digest(),
        hash=perceptual_hash(gray),
        structure=fine_structure(gray),
    )


def _stats_or_error(photo: PhotoRef) -> ImageStats | UnreadablePhoto:
    try:
        return read_image_stats(photo)
    except UnreadablePhoto as error:
        return error
