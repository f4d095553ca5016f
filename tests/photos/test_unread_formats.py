"""Raw files and other pictures are refused by what they are, whatever their names say."""

import io
import struct

import numpy as np
import pytest
from PIL import Image

from familiar.core.errors import UnreadablePhoto
from familiar.photos.decoding import decode_photo, read_header, read_metadata
from familiar.photos.unread_formats import reason_unread

SENSOR, DNG_VERSION, PREVIEW, MAIN = 32803, 50706, 1, 0


def tiff(*pictures: dict[int, int], byte_order: str = "<", inner: bool = True) -> bytes:
    """Write a TIFF whose first picture is decodable, 16 x 12 and gray, with others in it or after it."""
    pixels = bytes(range(192))
    header = (b"II" if byte_order == "<" else b"MM") + struct.pack(f"{byte_order}HI", 42, 8 + len(pixels))
    written = header + pixels
    first = {256: 16, 257: 12, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: 12, 279: len(pixels)} | pictures[0]
    directories = [first, *pictures[1:]]
    if inner and len(directories) > 1:
        first[330] = 0
    sizes = [2 + 12 * len(each) + 4 for each in directories]
    offsets = [len(written) + sum(sizes[:index]) for index in range(len(sizes))]
    for index, tags in enumerate(directories):
        if 330 in tags:
            tags[330] = offsets[1]
        follows = offsets[index + 1] if index + 1 < len(offsets) and not (inner and index == 0) else 0
        written += struct.pack(f"{byte_order}H", len(tags))
        for tag, value in sorted(tags.items()):
            if tag == DNG_VERSION:
                written += struct.pack(f"{byte_order}HHI4B", tag, 1, 4, 1, 4, 0, 0)
            else:
                written += struct.pack(f"{byte_order}HHII", tag, 4, 1, value)
        written += struct.pack(f"{byte_order}I", follows)
    return written


LARGE = {256: 4000, 257: 3000}


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (tiff({DNG_VERSION: 0, 254: PREVIEW}), "raw file (DNG)"),
        (tiff({DNG_VERSION: 0}, {262: SENSOR, **LARGE}, byte_order=">"), "raw file (DNG)"),
        (tiff({254: PREVIEW}, {262: SENSOR, **LARGE}), "raw file"),  # NEF, SRW and others
        (tiff({}, {262: 34892, **LARGE}, inner=False), "raw file"),
        (tiff({}, {259: 34713, **LARGE}), "raw file"),  # NEF
        (tiff({}, {259: 32767, **LARGE}, byte_order=">"), "raw file"),  # ARW
        (tiff({}, {259: 65535, **LARGE}, inner=False), "raw file"),  # PEF
        (tiff({254: PREVIEW}, {262: 2, **LARGE}), "TIFF that begins with a preview"),
        (b"II*\0\x10\0\0\0CR\x02\0" + bytes(99), "raw file (CR2)"),
        (b"\0\0\0\x18ftypcrx \0\0\0\1crx isom" + bytes(99), "raw file (CR3)"),
        (b"IIRO\x08\0\0\0" + bytes(99), "raw file (ORF)"),
        (b"IIU\0\x18\0\0\0" + bytes(99), "raw file (RW2)"),
        (b"FUJIFILMCCD-RAW 0201" + bytes(99), "raw file (RAF)"),
        (b"\0MRM" + bytes(99), "raw file (MRW)"),
        (b"FOVb" + bytes(99), "raw file (X3F)"),
        (b"II\x1a\0\0\0HEAPCCDR" + bytes(99), "raw file (CRW)"),
        (b"\xff\x0a" + bytes(99), "JPEG XL picture"),
        (b"\0\0\0\x0cJXL \r\n\x87\n" + bytes(99), "JPEG XL picture"),
        (b"\0\0\0\x14ftypqt  " + bytes(99), "video"),
        (b"\0\0\0\x18ftypmp42" + bytes(99), "video"),
        (b"RIFF\0\0\0\0AVI LIST" + bytes(99), "video"),
        (b"\x1aE\xdf\xa3" + bytes(99), "video"),
    ],
)
def test_names_what_is_not_read(data: bytes, name: str):
    for read in (decode_photo, read_header, read_metadata):
        with pytest.raises(UnreadablePhoto, match="not a photo, but a") as caught:
            read(data, "a.tif")
        assert f"a.tif: not a photo, but a {name}: " in str(caught.value)
        assert "JPEG" in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [tiff({}), tiff({254: PREVIEW}), tiff({}, {**LARGE, 262: 2}), tiff({254: PREVIEW}, {256: 8, 257: 6}, inner=False)],
)
def test_reads_tiff_that_is_no_raw_file(data: bytes):
    np.testing.assert_array_equal(decode_photo(data, "a").rgb_u8[..., 0].ravel(), np.arange(192))


def test_pictures_that_refer_to_each_other_end():
    data = bytearray(tiff({}, {256: 8}))
    data[-4:] = struct.pack("<I", 200)  # the second picture is followed by the first
    assert reason_unread(bytes(data)) is None


@pytest.mark.parametrize("format_name", ["JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "PPM", "AVIF"])
def test_photos_are_no_unread_formats(format_name: str):
    content = io.BytesIO()
    Image.new("RGB", (16, 12), "red").save(content, format_name)
    assert reason_unread(content.getvalue()) is None
