"""Open an image file with Pillow's plugin for its format. Its pixels are not decoded yet, and limited in number."""

import io
import os
import threading
from collections.abc import Callable
from typing import TypeVar

from PIL import Image, ImageFile

from familiar.core.errors import FamiliarError
from familiar.photos.heif import check_complete, container_format, open_heic
from familiar.photos.unread_formats import reason_unread

T = TypeVar("T")

MAX_PIXELS = 250_000_000  # today's phones have 200 megapixels
MAX_MEGAPIXELS = "FAMILIAR_MAX_MEGAPIXELS"  # environment variable: also processes that load photos get it

_pillow_limit = threading.Lock()

# Pillow's names; "JPEG" includes MPO. HEIC and AVIF are told apart by `container_format`.
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "PPM")


def pixel_limit() -> int:
    """Return the limit for width x height of photos: of the environment variable, or `MAX_PIXELS`.

    Raises:
        FamiliarError: the variable is not a number above 0.
    """
    megapixels = os.environ.get(MAX_MEGAPIXELS)
    if megapixels is None:
        return MAX_PIXELS
    try:
        pixels = int(float(megapixels) * 1e6)
    except (ValueError, OverflowError):
        pixels = 0
    if pixels < 1:
        raise FamiliarError(f"{MAX_MEGAPIXELS}={megapixels}: give a number of megapixels above 0, such as 250")
    return pixels


def check_pixels(size_px: tuple[int, int], max_pixels: int | None, scale: int = 1) -> None:
    """Refuse a photo with too many pixels.

    Args:
        size_px: width and height, by the header.
        max_pixels: limit for width x height as decoded; None: `pixel_limit`.
        scale: by which both sides are divided in decoding.

    Raises:
        FamiliarError: there are more.
    """
    width, height = size_px
    max_pixels = max_pixels or pixel_limit()
    if width * height > max_pixels * scale**2:
        raise FamiliarError(
            f"{width} x {height} px is more than {max_pixels:,} pixels: scale it down, or allow more megapixels "
            "(--max-megapixels, in Python max_pixels)"
        )


def detect_format(head: bytes) -> str | None:
    """Detect the format: "HEIC", else Pillow's name ("JPEG" includes MPO), or None if it is not a photo.

    Args:
        head: the file's first 16 bytes or more; some AVIF files are told from HEIC only by the first 256.
    """
    if (name := container_format(head)) is not None:
        return name
    Image.init()
    head = head[:16].ljust(16, b"\0")  # some plugins read past the end without checking
    return next((name for name in _FORMATS if (accepts := Image.OPEN[name][1]) is None or accepts(head)), None)


def open_image(data: bytes) -> ImageFile.ImageFile:
    """Read the header with Pillow's plugin for the format; the pixels are not decoded yet.

    `Image.open` is not used, because it has a global pixel limit of its own and tries every plugin.
    """
    if not data:
        raise ValueError("the file is empty")
    if (reason := reason_unread(data)) is not None:
        raise ValueError(reason)
    if (format_name := detect_format(data)) is None:
        raise ValueError("not a photo (supported: JPEG, HEIC, AVIF, PNG, WebP, BMP, TIFF, GIF, PPM)")
    if format_name in ("HEIC", "AVIF"):
        check_complete(data)
    if format_name == "HEIC":
        return open_heic(io.BytesIO(data))
    Image.init()
    image = ignoring_pillow_limit(lambda: Image.OPEN[format_name][0](io.BytesIO(data), ""))
    if format_name == "AVIF":
        image.info.pop("xmp", None)  # only the container's rotation counts, which Pillow reports as EXIF
    _reject_planar_16_bit_tiff(image)
    return image


def ignoring_pillow_limit(work: Callable[[], T]) -> T:
    """Call Pillow without its limit of pixels, which is one for all of its users, and restored at once."""
    try:
        return work()
    except Image.DecompressionBombError:
        with _pillow_limit:
            limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
            try:
                return work()
            finally:
                Image.MAX_IMAGE_PIXELS = limit


def _reject_planar_16_bit_tiff(image: ImageFile.ImageFile) -> None:
    """Refuse a TIFF of separate 16-bit planes: Pillow and OpenCV read it as noise, without an error."""
    if image.format != "TIFF":
        return
    tags = image.tag_v2  # pyright: ignore[reportAttributeAccessIssue]
    planar = tags.get(284, 1) == 2 and tags.get(277, 1) > 1  # PlanarConfiguration, SamplesPerPixel
    if planar and max(tags.get(258, (1,))) > 8:  # BitsPerSample
        raise FamiliarError("a TIFF of separate 16-bit planes is not read: convert to JPEG")
