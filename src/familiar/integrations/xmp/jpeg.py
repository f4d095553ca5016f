"""Read and replace the XMP packet in a JPEG; its pixels and all other data stay byte for byte.

XMP specification, part 3, 1.1.3: the packet is in an APP1 segment; what does not fit there is in an extended packet, in
parts of other APP1 segments.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from familiar.core.errors import BadMetadata

MAX_PACKET_BYTES = 65_535 - 2 - 29  # of a segment, less its length and the header
_HEADER = b"http://ns.adobe.com/xap/1.0/\0"
_EXTENSION_HEADER = b"http://ns.adobe.com/xmp/extension/\0"
_EXTENSION_NUMBER = re.compile(rb"HasExtendedXMP\W+([0-9A-F]{32})")  # in the packet that it extends
_APP0, _APP1, _APP2, _START_OF_SCAN = 0xE0, 0xE1, 0xE2, 0xDA


@dataclass(frozen=True)
class _Segment:
    """A segment: its marker, and where it begins and ends in the file."""

    marker: int
    start: int
    payload: bytes
    end: int

    @property
    def is_packet(self) -> bool:
        return self.marker == _APP1 and self.payload.startswith(_HEADER)


def is_jpeg(data: bytes) -> bool:
    """Whether data begin as a JPEG does."""
    return data[:3] == b"\xff\xd8\xff"


def read_packets(data: bytes) -> list[bytes]:
    """Return the XMP packet of a JPEG, if it has one, and the extended packet, if all its parts are there.

    Raises:
        BadMetadata: the JPEG is broken, or has several packets.
    """
    segments = list(_segments(data))
    packets = [segment.payload[len(_HEADER) :].strip(b"\0 \r\n\t") for segment in segments if segment.is_packet]
    if len(packets) > 1:
        raise BadMetadata(f"contains {len(packets)} XMP packets; save it again in the program that wrote them")
    if packets and (number := _EXTENSION_NUMBER.search(packets[0])):
        header = _EXTENSION_HEADER + number[1]  # the size of the whole, the part's offset, and the part follow
        parts = sorted(segment.payload[len(header) :] for segment in segments if segment.payload.startswith(header))
        extended = b"".join(part[8:] for part in parts)
        if parts and int.from_bytes(parts[0][:4], "big") == len(extended):
            packets.append(extended)
    return packets


def replace_packet(data: bytes, packet: bytes | None) -> bytes:
    """Return a JPEG with another XMP packet; None: with none.

    Raises:
        BadMetadata: the JPEG is broken; the packet is too large for a segment; or the file contains further pictures
            or packets, which a change would break. The message says so of the photo.
    """
    segments = list(_segments(data))
    read_packets(data)  # refuses several
    if packet is not None and len(packet) > MAX_PACKET_BYTES:
        raise BadMetadata(f"{len(packet):,} bytes of XMP do not fit into a JPEG ({MAX_PACKET_BYTES:,})")
    if any(segment.marker == _APP2 and segment.payload.startswith(b"MPF\0") for segment in segments):
        raise BadMetadata("contains several pictures, whose table would become wrong")
    segment_bytes = b""
    if packet is not None:
        payload = _HEADER + packet
        segment_bytes = b"\xff\xe1" + (len(payload) + 2).to_bytes(2, "big") + payload
    offset = _insertion_offset(segments)
    start, end = next(((each.start, each.end) for each in segments if each.is_packet), (offset, offset))
    return data[:start] + segment_bytes + data[end:]


def _insertion_offset(segments: list[_Segment]) -> int:
    """Return where a new packet goes: after JFIF's and EXIF's segments, which must come first."""
    offset = 2
    for segment in segments:
        is_exif = segment.marker == _APP1 and segment.payload.startswith(b"Exif\0\0")
        if segment.marker != _APP0 and not is_exif:
            break
        offset = segment.end
    return offset


def _segments(data: bytes) -> Iterator[_Segment]:
    """Iterate over the segments before the pixels.

    Raises:
        BadMetadata: the data are not a JPEG, or broken before the pixels begin.
    """
    offset = 2
    while is_jpeg(data):
        start = offset
        while data[offset : offset + 2] == b"\xff\xff":  # fill bytes
            offset += 1
        if data[offset : offset + 1] != b"\xff" or offset + 4 > len(data):
            break
        marker, length = data[offset + 1], int.from_bytes(data[offset + 2 : offset + 4], "big")
        if marker == _START_OF_SCAN:
            return
        end = offset + 2 + length
        if length < 2 or end > len(data):
            break
        yield _Segment(marker, start, data[offset + 4 : end], end)
        offset = end
    raise BadMetadata("is not a JPEG, or a broken one")
