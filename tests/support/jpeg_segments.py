"""Compare JPEGs without their XMP packets."""

from familiar.integrations.xmp.jpeg import _segments


def differs_only_in_packet(first: bytes, second: bytes) -> bool:
    """Whether two JPEGs have the same segments, without their XMP packets, and the same bytes from the pixels on."""
    return _rest(first) == _rest(second)


def _rest(data: bytes) -> tuple[list[bytes], bytes]:
    segments = list(_segments(data))
    pixels = segments[-1].end if segments else 2
    return [data[each.start : each.end] for each in segments if not each.is_packet], data[pixels:]
