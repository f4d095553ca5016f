"""Decode image files of any supported format and mode to upright 8-bit RGB. Independent of faces."""

import io
import logging
import re
import stat
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

import cv2
import numpy as np
from jaxtyping import UInt8
from PIL import ExifTags, Image

from familiar.core.errors import CannotWrite, FamiliarError, UnreadablePhoto
from familiar.core.files import write_atomically
from familiar.core.terminal_text import printable
from familiar.core.types import Photo
from familiar.photos.cut_off_jpeg import END, MAX_MISSING, missing_share, without_padding
from familiar.photos.fast_jpeg import clean_jpeg_size, decode_clean_jpeg, jpeg_scale
from familiar.photos.opening import check_pixels, ignoring_pillow_limit, open_image, pixel_limit
from familiar.photos.photo_source import PhotoSource, photo_name, read_content
from familiar.photos.pixel_modes import describe_storage, to_rgb_u8

log = logging.getLogger(__name__)

Source = TypeVar("Source", contravariant=True)

MAX_FILE_BYTES = 2**30  # 250 megapixels with four channels of 8 bit have 1 GB
_JPEG = b"\xff\xd8\xff"

# EXIF orientation -> (swap rows and columns first?, flip code of cv2.flip after that, if any)
_ORIENTATION_TRANSFORMS = {
    1: (False, None),
    2: (False, 1),
    3: (False, -1),
    4: (False, 0),
    5: (True, None),
    6: (True, 1),
    7: (True, -1),
    8: (True, 0),
}

# What Pillow, libheif and OpenCV say if they had too little memory, or were compiled without a decoder. None of them
# has an exception of its own for it. A broken photo of which they say so too is merely tried again.
_FAILS_ONLY_HERE = re.compile("memory|not available|not installed|unsupported", re.IGNORECASE)
_NEEDS_NO_REMEDY = re.compile(f"photo|the file is empty|copy it anew|{_FAILS_ONLY_HERE.pattern}", re.IGNORECASE)


@dataclass(frozen=True)
class Header:
    """Format and size of an image file, read without decoding its pixels.

    Attributes:
        format: Pillow's name of the format, or "HEIC".
        size_px: (width, height) before the photo is turned upright.
    """

    format: str
    size_px: tuple[int, int]


@dataclass(frozen=True)
class PhotoMetadata:
    """What a photo's file says about it, besides its pixels.

    Attributes:
        stored_size_px: (width, height) before the photo is turned upright.
        orientation: of EXIF, 1 to 8: how `decode_photo` turns it. 1 for HEIC, which is always decoded upright.
        xmp: the XMP packet of a format other than JPEG, if there is one: `integrations.xmp` reads those of JPEGs.
    """

    stored_size_px: tuple[int, int]
    orientation: int
    xmp: bytes | None


@runtime_checkable
class PhotoOpener(Protocol[Source]):
    """Loads a source, such as a path, as a photo. `load_photo` is one."""

    def __call__(self, source: Source, /, *, min_side_px: int | None = None) -> Photo:
        """Load a source; its shorter side may be decoded at a smaller size, but not below `min_side_px`."""
        ...


def load_photo(source: PhotoSource, *, min_side_px: int | None = None, max_pixels: int | None = None) -> Photo:
    """Load a photo: upright, transparency on white, deep gray scaled to 8 bit, first frame only.

    CMYK is converted without its color profile.

    Args:
        source: a path, whose suffix does not matter; the bytes of an image file; a file that is open in binary mode, or
            an upload of FastAPI, Flask or Django, which are read from their beginning; uint8 pixels (h, w, 3), upright
            and in RGB (OpenCV's are in BGR); or a photo that is loaded already.
        min_side_px: a much larger JPEG is decoded at 1/2, 1/4 or 1/8 of its size, the smallest whose short side still
            has this many pixels; other formats are always decoded at full size. None: full size.
        max_pixels: limit for width x height as decoded, checked by the header before any pixel is decoded: a JPEG that
            is decoded at a smaller size may be larger. None: the megapixels of the environment variable
            FAMILIAR_MAX_MEGAPIXELS, or 250.

    Returns:
        The photo; its `source_size_px` is the full upright size.

    Raises:
        UnreadablePhoto: the file is missing, not a photo, truncated, broken or too large; names file and cause.
        TypeError: the source is nothing that a photo can be given as.
        ValueError: `min_side_px` below 1, or an array of another type or shape.
    """
    _check_min_side(min_side_px)
    name = photo_name(source)
    if isinstance(source, Photo):
        return source
    if isinstance(source, np.ndarray):
        return Photo(source, name, source.shape[1::-1])
    if isinstance(source, Path | str):
        data = read_photo_bytes(Path(source))
    else:
        try:
            data = read_content(source, MAX_FILE_BYTES)
            _check_file_bytes(len(data))
        except (OSError, ValueError) as error:
            raise UnreadablePhoto(f"{name}: {_error_cause(error)}") from error
    return decode_photo(data, name, min_side_px=min_side_px, max_pixels=max_pixels)


def decode_photo(
    data: bytes, source: Path | str, *, min_side_px: int | None = None, max_pixels: int | None = None
) -> Photo:
    """Decode a file's content as `load_photo` does. `source` names it in messages."""
    _check_min_side(min_side_px)
    try:
        return _decode(data, source, min_side_px, max_pixels or pixel_limit())
    except Exception as error:  # a decoder may raise anything on hostile bytes
        raise UnreadablePhoto(f"{source}: {_error_cause(error)}") from error


def read_photo_bytes(path: Path) -> bytes:
    """Read a file's content.

    Args:
        path: of the file.

    Raises:
        UnreadablePhoto: the file is missing, a folder, a special file, not readable, or larger than `MAX_FILE_BYTES`.
    """
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            next(path.iterdir(), None)  # raises the cause if it may not be listed
        if not stat.S_ISREG(status.st_mode):  # reading a named pipe would block forever
            raise ValueError("a folder or a special file, not a photo")
        _check_file_bytes(status.st_size)
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise UnreadablePhoto(f"{path}: {_error_cause(error)}") from error


def is_content_broken(error: FamiliarError) -> bool:
    """Tell whether a photo's content cannot be decoded, by any computer and any version.

    Not if the disk or the memory failed, if a decoder is missing or not trusted, or if familiar itself refuses it.
    """
    cause = error.__cause__
    fails_only_here = (
        isinstance(cause, (FamiliarError, ImportError, MemoryError))
        or (isinstance(cause, OSError) and cause.errno is not None)
        or _FAILS_ONLY_HERE.search(str(cause)) is not None
    )
    return isinstance(error, UnreadablePhoto) and not fails_only_here


def read_header(data: bytes, source: Path | str) -> Header:
    """Read format and size from a file's content.

    Raises:
        UnreadablePhoto: it is not a photo, or its header is broken.
    """
    if (size_px := clean_jpeg_size(data)) is not None:
        return Header("JPEG", size_px)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"PIL\.")  # as in _decode
            image = open_image(data)
            return Header(str(image.format), image.size)
    except Exception as error:  # as in decode_photo
        raise UnreadablePhoto(f"{source}: {_error_cause(error)}") from error


def read_metadata(data: bytes, source: Path | str, max_pixels: int | None = None) -> PhotoMetadata:
    """Read size, orientation and XMP packet from a file's content.

    Args:
        data: the content.
        source: names it in messages.
        max_pixels: limit for width x height; only the pixels of a PNG are decoded, as its EXIF may follow them. None:
            as for `load_photo`.

    Raises:
        UnreadablePhoto: it is not a photo, too large, or broken.
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"PIL\.")  # as in _decode
            image = open_image(data)
            stored_size_px = image.size
            check_pixels(image.size, max_pixels)
            if image.format == "PNG":
                image.load()
            orientation = _read_orientation(image.getexif)
            xmp = image.info.get("xmp") or image.info.get("XML:com.adobe.xmp")
            if image.format == "TIFF":  # Pillow reports the upright size, even before it turns the pixels
                tags = image.tag_v2  # pyright: ignore[reportAttributeAccessIssue]
                stored_size_px = int(tags[256]), int(tags[257])  # ImageWidth, ImageLength
    except Exception as error:  # as in decode_photo
        raise UnreadablePhoto(f"{source}: {_error_cause(error)}") from error
    return PhotoMetadata(stored_size_px, orientation, xmp.encode() if isinstance(xmp, str) else xmp)


def save_photo(photo: Photo, path: Path) -> Path:
    """Write a photo in the format of the path's suffix.

    Args:
        photo: its pixels are written, without metadata.
        path: in an existing folder; an existing file is replaced.

    Returns:
        The path.

    Raises:
        CannotWrite: the suffix is not an image format, or the system refuses.
    """
    Image.init()
    image_format = Image.EXTENSION.get(path.suffix.lower())
    if image_format not in Image.SAVE:
        raise CannotWrite(f"{path}: the suffix is not an image format that can be written; use .png or .jpg")
    content = io.BytesIO()
    try:
        Image.fromarray(photo.rgb_u8).save(content, image_format)
    except OSError as error:  # formats without color, such as .xbm
        raise CannotWrite(f"{path}: cannot be written in this format ({error}); use .png or .jpg") from error
    write_atomically(path, content.getvalue())
    return path


def _check_file_bytes(count: int) -> None:
    if count > MAX_FILE_BYTES:
        raise ValueError(f"{count:,} bytes are more than a photo's ({MAX_FILE_BYTES:,})")


def _check_min_side(min_side_px: int | None) -> None:
    if min_side_px is not None and min_side_px < 1:
        raise ValueError(f"min_side_px must be at least 1, got {min_side_px}")


def _decode(data: bytes, source: Path | str, min_side_px: int | None, max_pixels: int) -> Photo:
    if data.startswith(_JPEG):
        data = without_padding(data)
    try:
        return _decode_complete(data, source, min_side_px, max_pixels)
    except FamiliarError:
        raise
    except Exception as error:
        if not data.startswith(_JPEG):
            raise
        try:
            missing = missing_share(data)
        except ValueError:
            raise error from None
        if missing >= MAX_MISSING:
            share = f" ({missing:.0%} of its pixels are missing)" if missing < 1 else ""
            raise ValueError(f"the file is cut off: copy it anew{share}") from error
    photo = _decode_complete(data + END, source, min_side_px, max_pixels)
    if missing:
        log.warning(
            "%s: the end of the file is missing, with %.2g %% of its pixels", printable(str(source)), 100 * missing
        )
    return photo


def _decode_complete(data: bytes, source: Path | str, min_side_px: int | None, max_pixels: int) -> Photo:
    clean = decode_clean_jpeg(data, min_side_px, max_pixels)
    if clean is not None and not clean.exif:
        return Photo(clean.rgb_u8, source, clean.full_size_px, clean.stored_as)
    with warnings.catch_warnings():
        # Pillow warns about odd metadata, which does not affect the pixels. Only Pillow is silenced, because warning
        # filters are shared by all threads.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        if clean is None:
            return _decode_with_pillow(data, source, min_side_px, max_pixels)
        orientation = _read_orientation(partial(_parse_exif, clean.exif))
        return _turn_upright(clean.rgb_u8, orientation, source, clean.full_size_px, clean.stored_as)


def _parse_exif(data: bytes) -> Image.Exif:
    exif = Image.Exif()
    exif.load(data)
    return exif


def _decode_with_pillow(data: bytes, source: Path | str, min_side_px: int | None, max_pixels: int) -> Photo:
    """Decode with Pillow, which knows every format and tolerates small defects."""
    image = open_image(data)
    width, height = image.size
    # All coefficients of a progressive JPEG are in memory, whatever it is reduced to.
    is_reduced = image.format in ("JPEG", "MPO") and not image.info.get("progressive")
    check_pixels(image.size, max_pixels, jpeg_scale(image.size, min_side_px) if is_reduced else 1)
    stored_as = describe_storage(image)
    if min_side_px is not None and image.format in ("JPEG", "MPO"):
        image.draft(None, (min_side_px, min_side_px))
    reduced = image.size != (width, height)
    if image.format == "TIFF":  # whose size Pillow checks only now
        ignoring_pillow_limit(image.load_prepare)
    image.load()
    if not reduced:
        width, height = image.size
    # EXIF is read only now: a PNG may have it after the pixels, and Pillow turns a TIFF upright by itself.
    # libheif turns a HEIC upright too, and pillow_heif reports it as such.
    return _turn_upright(to_rgb_u8(image), _read_orientation(image.getexif), source, (width, height), stored_as)


def _turn_upright(
    rgb_u8: UInt8[np.ndarray, "h w 3"],
    orientation: int,
    source: Path | str,
    full_size_px: tuple[int, int],
    stored_as: str,
) -> Photo:
    swap, flip_code = _ORIENTATION_TRANSFORMS[orientation]
    if swap:
        full_size_px = full_size_px[1], full_size_px[0]
        rgb_u8 = cv2.transpose(rgb_u8)
    if flip_code is not None:
        rgb_u8 = cv2.flip(rgb_u8, flip_code)
    return Photo(rgb_u8, source, full_size_px, stored_as)


def _read_orientation(read_exif: Callable[[], Image.Exif]) -> int:
    try:
        orientation = read_exif().get(ExifTags.Base.Orientation, 1)
    except Exception:  # a photo with broken metadata is still usable
        return 1
    return orientation if orientation in _ORIENTATION_TRANSFORMS else 1


def _error_cause(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror  # its str() repeats the path
    cause = str(error).strip() or type(error).__name__
    if isinstance(error, (FamiliarError, ImportError, MemoryError)) or _NEEDS_NO_REMEDY.search(cause):
        return cause
    if "unknown pixel mode" in cause:  # Pillow's, such as for TIFFs of colors as floats
        return "a photo of such pixels is not read: convert it to JPEG"
    return f"damaged or cut off: copy it anew ({cause})"
