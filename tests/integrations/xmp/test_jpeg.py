"""XMP packets in JPEGs are read and replaced; all other bytes stay."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from familiar.core.errors import BadMetadata
from familiar.integrations.xmp.jpeg import (
    MAX_PACKET_BYTES,
    read_packets,
    replace_packet,
)
from support.jpeg_segments import differs_only_in_packet

NUMBER = "0123456789ABCDEF0123456789ABCDEF"


def jpeg(**options: object) -> bytes:
    content = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (16, 24, 3), np.uint8)
    Image.fromarray(pixels).save(content, "JPEG", **options)
    return content.getvalue()


def segment(payload: bytes, marker: int = 0xE1) -> bytes:
    return bytes([0xFF, marker]) + (len(payload) + 2).to_bytes(2, "big") + payload


def extended(content: bytes, *offsets: int) -> bytes:
    """Encode an extended packet in parts that begin at these offsets, the last one first."""
    ends = [*offsets[1:], len(content)]
    parts = [
        segment(
            b"http://ns.adobe.com/xmp/extension/\0"
            + NUMBER.encode()
            + len(content).to_bytes(4, "big")
            + start.to_bytes(4, "big")
            + content[start:end]
        )
        for start, end in zip(offsets, ends, strict=True)
    ]
    data = jpeg()
    return data[:2] + b"".join(reversed(parts)) + data[2:]


@given(st.binary(min_size=1, max_size=99).map(lambda content: b"<a>" + content + b"</a>"), st.booleans(), st.booleans())
def test_replaced_packet_is_read_back_and_nothing_else_changes(packet: bytes, has_exif: bool, had_packet: bool):
    exif = Image.Exif()
    exif[0x0112] = 6
    options = {**({"exif": exif} if has_exif else {}), **({"xmp": b"<old/>"} if had_packet else {})}
    data = jpeg(comment=b"\xff\xda no pixels", **options)
    changed = replace_packet(data, packet)
    assert read_packets(changed) == [packet]
    assert differs_only_in_packet(data, changed)
    assert changed.index(b"ns.adobe.com") > (changed.index(b"Exif\0\0") if has_exif else 0)
    assert np.array_equal(Image.open(io.BytesIO(data)), Image.open(io.BytesIO(changed)))
    without = replace_packet(changed, None)
    assert without == replace_packet(data, None)
    assert read_packets(without) == []
    if not had_packet:
        assert without == data


def test_padding_of_a_packet_is_not_read():
    assert read_packets(jpeg(xmp=b"\n<a/>  \n\0")) == [b"<a/>"]


def test_notices_changed_pixels_and_segments():
    data = jpeg(comment=b"comment")
    assert not differs_only_in_packet(data, data[:-1] + b"\0")
    assert not differs_only_in_packet(data, jpeg())
    assert not differs_only_in_packet(data, data + b"\0")


@pytest.mark.parametrize("notation", [b'<a xmpNote:HasExtendedXMP="%s"/>', b"<xmpNote:HasExtendedXMP>%s</a>"])
def test_extended_packet_is_joined_from_its_parts(notation: bytes):
    content, main = b"<extended/>", notation % NUMBER.encode()
    assert read_packets(replace_packet(extended(content, 0, 4, 8), main)) == [main, content]
    other = notation % NUMBER[::-1].encode()
    assert read_packets(replace_packet(extended(content, 0), other)) == [other]
    assert read_packets(replace_packet(extended(content, 2, 5), main)) == [main]
    assert read_packets(replace_packet(jpeg(), main)) == [main]


@pytest.mark.parametrize(
    ("data", "packet", "cause"),
    [
        (b"no JPEG", b"<a/>", "not a JPEG"),
        (jpeg()[:30], b"<a/>", "broken"),
        (jpeg(), b" " * (MAX_PACKET_BYTES + 1), "do not fit"),
        (jpeg()[:2] + segment(b"MPF\0", 0xE2) + jpeg()[2:], b"<a/>", "several pictures"),
        (jpeg()[:2] + 2 * segment(b"http://ns.adobe.com/xap/1.0/\0<a/>") + jpeg()[2:], b"<a/>", "2 XMP packets"),
    ],
)
def test_refuses_what_would_lose_data(data: bytes, packet: bytes, cause: str):
    with pytest.raises(BadMetadata, match=cause):
        replace_packet(data, packet)


def test_largest_packet_fits():
    packet = b"x" * MAX_PACKET_BYTES
    assert read_packets(replace_packet(jpeg(), packet)) == [packet]
