"""Small JPEGs of photos and of the faces in them, decoded no larger than needed."""

import hashlib
import math
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import simplejpeg
from jaxtyping import UInt8

from familiar.core.errors import UnreadablePhoto
from familiar.core.types import Box, Photo
from familiar.photos.decoding import decode_photo, read_header, read_photo_bytes

MARGIN = 0.25  # around a face, on each side, as a share of its box
QUALITY = 85


def resize_photo(path: Path, sha256: str, side_px: int, max_pixels: int | None = None) -> UInt8[np.ndarray, "h w 3"]:
    """Resize a photo to a long side of at most `side_px`. A JPEG is decoded no larger than needed.

    Args:
        path: of the file.
        sha256: of its content when it was enrolled, as hex.
        side_px: of the long side.
        max_pixels: limit for width x height, as for `load_photo`.

    Raises:
        UnreadablePhoto: the file cannot be decoded, or is not the one with `sha256`.
    """
    photo = decode_reduced(path, sha256, lambda width, height: side_px / max(width, height), max_pixels)
    return shrink(photo.rgb_u8, side_px)


def crop_face(
    path: Path, sha256: str, box_xyxy_px: Box, side_px: int, max_pixels: int | None = None
) -> UInt8[np.ndarray, "s s 3"]:
    """Crop a square around a box with `MARGIN`, at most `side_px` wide, shifted and shrunk to lie on the photo.

    Args:
        path: of the file.
        sha256: of its content when it was enrolled, as hex.
        box_xyxy_px: in pixels of the whole upright photo.
        side_px: of the square.
        max_pixels: limit for width x height, as for `load_photo`.

    Raises:
        UnreadablePhoto: as `resize_photo`.
    """
    left, top, right, bottom = box_xyxy_px
    target_px = max(right - left, bottom - top, 1.0) * (1 + 2 * MARGIN)
    photo = decode_reduced(path, sha256, lambda *_: side_px / target_px, max_pixels)
    width, height = photo.size_px
    x, y = (read / whole_px for read, whole_px in zip(photo.size_px, photo.source_size_px, strict=True))
    side = max(1, min(round(target_px * max(x, y)), width, height))
    columns = _slice_around((left + right) / 2 * x, side, width)
    rows = _slice_around((top + bottom) / 2 * y, side, height)
    return _resize(photo.rgb_u8[rows, columns], min(side, side_px), min(side, side_px))


def decode_reduced(path: Path, sha256: str, scale: Callable[[int, int], float], max_pixels: int | None = None) -> Photo:
    """Decode a photo as small as is possible if it is to be reduced.

    Args:
        path: of the file.
        sha256: of its content when it was enrolled, as hex.
        scale: by which it is to be reduced, given its width and height in pixels.
        max_pixels: limit for width x height, as for `load_photo`.

    Raises:
        UnreadablePhoto: as `resize_photo`.
    """
    data = read_photo_bytes(path)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise UnreadablePhoto(f"{path}: the file has changed since it was enrolled; enroll it again")
    size_px = read_header(data, path).size_px
    min_side_px = math.ceil(min(size_px) * min(1.0, scale(*size_px)))
    return decode_photo(data, path, min_side_px=max(1, min_side_px), max_pixels=max_pixels)


def encode_jpeg(rgb_u8: UInt8[np.ndarray, "h w 3"], quality: int = QUALITY) -> bytes:
    """Encode pixels as a JPEG without metadata.

    Args:
        rgb_u8: the pixels.
        quality: of the JPEG, 1 to 100.
    """
    return simplejpeg.encode_jpeg(np.ascontiguousarray(rgb_u8), quality, colorsubsampling="420")


def shrink(rgb_u8: UInt8[np.ndarray, "h w 3"], side_px: int) -> UInt8[np.ndarray, "h2 w2 3"]:
    """Reduce pixels to a long side of at most `side_px`; nothing is enlarged.

    Args:
        rgb_u8: the pixels.
        side_px: of the long side.
    """
    height, width = rgb_u8.shape[:2]
    scale = min(1.0, side_px / max(height, width))
    return _resize(rgb_u8, max(1, round(width * scale)), max(1, round(height * scale)))


def _slice_around(middle: float, side: int, length: int) -> slice:
    """Return the rows or columns of a square centered on `middle`, shifted to lie on the photo."""
    first = min(max(0, math.floor(middle - side / 2 + 0.5)), length - side)
    return slice(first, first + side)


def _resize(rgb_u8: UInt8[np.ndarray, "h w 3"], width: int, height: int) -> UInt8[np.ndarray, "h2 w2 3"]:
    if rgb_u8.shape[:2] == (height, width):
        return rgb_u8
    return cv2.resize(rgb_u8, (width, height), interpolation=cv2.INTER_AREA)
