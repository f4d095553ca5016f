"""Tell files that are pictures, but not read here, by their content: raw files, JPEG XL, videos and others.

A raw file in the layout of TIFF begins with a small preview, which a reader of TIFF takes for the photo.
"""

import io
from collections.abc import Iterator
from typing import Any

from PIL import TiffImagePlugin

_RAW_REMEDY = "convert it to JPEG, or use the JPEG that the camera wrote beside it"
_MAGIC = (  # offset, bytes, name
    (0, b"FUJIFILMCCD-RAW", "raw file (RAF)"),
    (0, b"IIRO", "raw file (ORF)"),
    (0, b"IIRS", "raw file (ORF)"),
    (0, b"MMOR", "raw file (ORF)"),
    (0, b"IIU\0", "raw file (RW2)"),
    (0, b"\0MRM", "raw file (MRW)"),
    (0, b"FOVb", "raw file (X3F)"),
    (4, b"ftypcrx ", "raw file (CR3)"),
    (6, b"HEAPCCDR", "raw file (CRW)"),
    (8, b"CR\x02", "raw file (CR2)"),  # in the layout of TIFF, as is the next
    (8, b"IIII", "raw file (IIQ)"),
    (8, b"MMMM", "raw file (IIQ)"),
    (0, b"\xff\x0a", "JPEG XL picture"),
    (0, b"\0\0\0\x0cJXL ", "JPEG XL picture"),
    (0, b"\0\0\0\x0cjP  ", "JPEG 2000 picture"),
    (0, b"8BPS", "Photoshop document"),
    (0, b"\x1aE\xdf\xa3", "video"),
    (8, b"AVI ", "video"),
    (0, b"\0\0\1\xba", "video"),
    *((4, b"ftyp" + brand, "video") for brand in (b"qt  ", b"iso", b"mp4", b"avc1", b"M4V", b"3gp", b"3g2", b"MSNV")),
    (4, b"moov", "video"),
    (4, b"mdat", "video"),
)
_TIFF_STARTS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_MAX_PICTURES = 32  # of a TIFF, that are looked at
_SUBFILE, _WIDTH, _HEIGHT, _COMPRESSION, _COLORS, _PICTURES, _DNG_VERSION = 254, 256, 257, 259, 262, 330, 50706
_TAGS = (_SUBFILE, _WIDTH, _HEIGHT, _COMPRESSION, _COLORS, _PICTURES, _DNG_VERSION)
_SENSOR_COLORS = frozenset({32803, 34892})  # color filter array, linear raw
_SENSOR_CODES = frozenset({32767, 32769, 32770, 34713, 65000, 65535})  # compression by cameras
_PREVIEW = 1  # bit of NewSubfileType


def reason_unread(data: bytes) -> str | None:
    """Return what a file is and what to do, if it is a picture or a video that is not read; None: it may be a photo.

    Args:
        data: the file's content.
    """
    name = next((name for start, magic, name in _MAGIC if data[start : start + len(magic)] == magic), None)
    if name is None and data[:4] in _TIFF_STARTS:
        name = _raw_tiff(data)
    if name is None:
        return None
    return f"not a photo, but a {name}: {_RAW_REMEDY if name.startswith('raw') else 'convert it to JPEG'}"


def _raw_tiff(data: bytes) -> str | None:
    """Return as what a file in the layout of TIFF is not read."""
    pictures = list(_pictures(data))
    if any(_DNG_VERSION in tags for tags in pictures):
        return "raw file (DNG)"
    if any(tags.get(_COLORS) in _SENSOR_COLORS or tags.get(_COMPRESSION) in _SENSOR_CODES for tags in pictures):
        return "raw file"
    if pictures and pictures[0].get(_SUBFILE) == _PREVIEW and max(map(_pixels, pictures)) >= 2 * _pixels(pictures[0]):
        return "TIFF that begins with a preview"
    return None


def _pictures(data: bytes) -> Iterator[dict[int, Any]]:
    """Yield the tags of each picture of a TIFF, and of the pictures in it; none if they are broken."""
    file = io.BytesIO(data)
    header = data[:16] if data[2:3] == b"+" or data[3:4] == b"+" else data[:8]
    offsets, seen = [TiffImagePlugin.ImageFileDirectory_v2(header).next], set[int]()
    for offset in offsets:  # which grows
        if not offset or offset in seen or len(seen) == _MAX_PICTURES:
            continue
        seen.add(offset)
        directory = TiffImagePlugin.ImageFileDirectory_v2(header)
        try:
            file.seek(offset)
            directory.load(file)
            tags = {tag: directory.get(tag) for tag in _TAGS if tag in directory}
        except Exception:  # Pillow reports what is broken, when it opens the file
            continue
        yield tags
        inner = tags.get(_PICTURES, ())
        offsets += [*(inner if isinstance(inner, tuple) else (inner,)), directory.next]


def _pixels(tags: dict[int, Any]) -> int:
    width, height = tags.get(_WIDTH), tags.get(_HEIGHT)
    return width * height if isinstance(width, int) and isinstance(height, int) else 0
