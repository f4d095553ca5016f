"""Tell how much is missing of a JPEG that was cut off. Every viewer shows one that lacks only its end marker."""

import numpy as np
import simplejpeg
from jaxtyping import UInt8

END = b"\xff\xd9"
MAX_MISSING = 0.01  # of the pixels of a photo that is taken with a warning
_START_OF_SCAN, _PROGRESSIVE = b"\xff\xda", 0xC2
_START_OF_FRAME = frozenset({0xC0, 0xC1, _PROGRESSIVE})
_MISSING_VALUES = (127, 128)  # libjpeg's fill, also inverted
_BLOCK_PX, _MAX_ROWS = 8, 4  # of pixels in a block, of blocks in the tallest unit of a JPEG
_MIN_PADDING = 64  # zeros: fewer may be pixels of one color
_COEFFICIENTS = frozenset(range(64))


def missing_share(data: bytes) -> float:
    """Return the share of pixels that a cut-off JPEG lacks; 0: only its end marker.

    Args:
        data: a JPEG without its end.

    Returns:
        0 to 1. Of a progressive one, whose pixels get clearer with each scan: those that lack something, and 1 if a
        scan is missing.

    Raises:
        ValueError: its header is broken.
    """
    frame, scans = _headers(data)
    is_progressive = frame[1] == _PROGRESSIVE
    if is_progressive and not _has_all_scans(frame, scans):
        return 1.0
    try:
        _decode(data + END, strict=True, reduce=not is_progressive)
    except ValueError:
        pass  # libjpeg had to fill pixels
    else:
        return 0.0
    return _progressive_share(data) if is_progressive else _filled_share(data)


def without_padding(data: bytes) -> bytes:
    """Return a JPEG without the zeros that a download or a disk left in place of its end: they may decode as pixels.

    Args:
        data: a JPEG. One with its end marker, which some cameras fill up with zeros, stays as it is.
    """
    if not data.endswith(bytes(_MIN_PADDING)):
        return data
    try:
        _, scans = _headers(data)
    except ValueError:
        return data
    return data if any(END in scan for scan in scans) else data.rstrip(b"\0")


def _filled_share(data: bytes) -> float:
    """Return the share of blocks at the end that libjpeg filled with gray."""
    is_filled = np.isin(_decode(data + END, strict=False, reduce=True)[..., 0], _MISSING_VALUES)
    rows, width = is_filled.shape
    runs = np.where(is_filled.all(1), width, np.argmin(is_filled[:, ::-1], axis=1))  # at the end of each row
    empty = int(np.argmax(runs[::-1] < width)) if (runs < width).any() else rows
    return (empty * width + int(runs[max(0, rows - empty - _MAX_ROWS) : rows - empty].sum())) / is_filled.size


def _progressive_share(data: bytes) -> float:
    """Return the share of pixels that depend on what would come next."""
    filler = np.random.default_rng(0).integers(0, 0xFF, len(data) // 20 + 64, np.uint8).tobytes()  # has no marker
    filled, other = (_decode(each + END, strict=False, reduce=False) for each in (data, data + filler))
    return float((filled != other).any(-1).mean())


def _decode(data: bytes, *, strict: bool, reduce: bool) -> UInt8[np.ndarray, "h w c"]:
    """Decode the channel of brightness, or ink; to a pixel for each block if `reduce`."""
    height, width, colors, _ = simplejpeg.decode_jpeg_header(data, strict=False)
    scale = _BLOCK_PX if reduce else 1
    channels = "CMYK" if colors in ("CMYK", "YCCK") else "Gray"
    size = {"min_height": -(-int(height) // scale), "min_width": -(-int(width) // scale)}
    return simplejpeg.decode_jpeg(data, channels, strict=strict, **size)


def _headers(data: bytes) -> tuple[bytes, list[bytes]]:
    """Return the frame's segment with its marker, and the beginning of each scan.

    Raises:
        ValueError: there is none.
    """
    frame, offset = b"", 2
    while data[offset : offset + 2] != _START_OF_SCAN:
        if data[offset : offset + 1] != b"\xff" or offset + 4 > len(data):
            raise ValueError("no pixels")
        end = offset + 2 + int.from_bytes(data[offset + 2 : offset + 4], "big")
        if data[offset + 1] in _START_OF_FRAME:
            frame = data[offset:end]
        offset = end
    if not frame:
        raise ValueError("no size")
    return frame, data[offset:].split(_START_OF_SCAN)[1:]  # which pixels never contain


def _has_all_scans(frame: bytes, scans: list[bytes]) -> bool:
    """Tell whether the scans up to the last one give all bits of all coefficients."""
    exact: dict[int, set[int]] = {frame[10 + 3 * index]: set() for index in range(frame[9])}  # by component
    for scan in scans:
        count = scan[2] if len(scan) > 2 else 0
        if len(scan) < 6 + 2 * count:
            continue
        first, last, bits = scan[3 + 2 * count : 6 + 2 * count]
        if bits & 0x0F == 0:
            for component in scan[3 : 3 + 2 * count : 2]:
                exact.setdefault(component, set()).update(range(first, last + 1))
    return all(coefficients >= _COEFFICIENTS for coefficients in exact.values())
