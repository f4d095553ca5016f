"""The fast JPEG decoder gives Pillow's pixels, or returns None so that Pillow decodes the file."""

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from familiar.datasets.synthetic import SyntheticPhoto
from familiar.photos import decoding as module
from familiar.photos.decoding import load_photo
from familiar.photos.fast_jpeg import decode_clean_jpeg


def picture(width: int, height: int) -> Image.Image:
    drawn = SyntheticPhoto("cats", 3, 1).draw().rgb_u8
    return Image.fromarray(drawn).resize((width, height))


def encoded(image: Image.Image, **options: object) -> bytes:
    content = io.BytesIO()
    image.save(content, "JPEG", **options)
    return content.getvalue()


XMP_TURNED = (
    b"http://ns.adobe.com/xap/1.0/\0<x:xmpmeta xmlns:x='adobe:ns:meta/'><rdf:RDF>"
    b"<rdf:Description tiff:Orientation='6'/></rdf:RDF></x:xmpmeta>"
)
EXIF_TURNED = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"


def segment(marker: int, *payloads: bytes) -> bytes:
    """Return a valid photo with more segments at its start."""
    data = encoded(picture(64, 96))
    more = [bytes([0xFF, marker]) + (len(payload) + 2).to_bytes(2, "big") + payload for payload in payloads]
    return data[:2] + b"".join(more) + data[2:]


def decode_with_pillow(data: bytes, min_side_px: int | None) -> np.ndarray:
    image = Image.open(io.BytesIO(data))
    if min_side_px is not None:
        image.draft(None, (min_side_px, min_side_px))
    return np.asarray(image.convert("RGB"))


@pytest.mark.slow
@given(
    size=st.tuples(st.integers(1, 300), st.integers(1, 300)),
    min_side_px=st.none() | st.integers(1, 320),
    quality=st.integers(1, 100),
    subsampling=st.sampled_from([0, 1, 2]),
    progressive=st.booleans(),
)
def test_pixels_match_pillow(
    size: tuple[int, int], min_side_px: int | None, quality: int, subsampling: int, progressive: bool
) -> None:
    data = encoded(picture(*size), quality=quality, subsampling=subsampling, progressive=progressive)
    decoded = decode_clean_jpeg(data, min_side_px, 10**8)
    assert decoded is not None
    expected = decode_with_pillow(data, min_side_px)
    assert decoded.rgb_u8.shape == expected.shape
    # Two builds of one decoder: the last bit may differ if colors are upsampled at a reduced scale.
    assert np.abs(decoded.rgb_u8.astype(int) - expected.astype(int)).max() <= 1
    assert decoded.full_size_px == size
    assert decoded.stored_as == "JPEG RGB"


def test_gray_jpeg_matches_pillow_rgb() -> None:
    data = encoded(picture(60, 40).convert("L"))
    decoded = decode_clean_jpeg(data, None, 10**8)
    assert decoded is not None
    assert (decoded.rgb_u8 == decode_with_pillow(data, None)).all()
    assert decoded.stored_as == "JPEG gray"


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_matches_pillow(orientation: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "turned.jpg"
    path.write_bytes(encoded(picture(90, 50), exif=exif))
    fast = load_photo(path)
    monkeypatch.setattr(module, "decode_clean_jpeg", lambda *_: None)
    slow = load_photo(path)
    assert (fast.rgb_u8 == slow.rgb_u8).all()
    assert fast.source_size_px == slow.source_size_px == ((90, 50) if orientation < 5 else (50, 90))
    assert fast.stored_as == slow.stored_as


@pytest.mark.parametrize(
    "data",
    [
        segment(0xE1, XMP_TURNED),
        segment(0xFE, b"a comment: " + EXIF_TURNED),
        encoded(picture(64, 96), icc_profile=bytes(180_000), exif=EXIF_TURNED),
    ],
    ids=["in XMP", "in a comment", "after a long profile"],
)
def test_unusual_orientation_metadata_matches_pillow(
    data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "turned.jpg"
    path.write_bytes(data)
    fast = load_photo(path).rgb_u8
    monkeypatch.setattr(module, "decode_clean_jpeg", lambda *_: None)
    slow = load_photo(path).rgb_u8
    assert fast.shape == slow.shape
    assert (fast == slow).all()


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def without_end(data: bytes) -> bytes:
    return data[:-2]


def scrambled(data: bytes) -> bytes:
    """Put an invalid Huffman code among the pixels; the end marker stays."""
    middle = len(data) * 3 // 4
    return data[:middle] + b"\xff\xd3" + data[middle + 2 :]


@pytest.mark.parametrize("damage", [cut, without_end, scrambled])
def test_returns_none_for_damaged_jpeg(damage) -> None:
    assert decode_clean_jpeg(damage(encoded(picture(200, 150))), None, 10**8) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xd8\xff",
        b"no photo",
        encoded(picture(40, 40).convert("CMYK")),
        segment(0xE2, b"MPF\0" + bytes(20)),
        segment(0xE1, XMP_TURNED),
        segment(0xE1, EXIF_TURNED, EXIF_TURNED),
    ],
    ids=["empty", "header", "text", "CMYK", "several pictures", "orientation in XMP", "two EXIF"],
)
def test_returns_none_for_unusual_file(data: bytes) -> None:
    assert decode_clean_jpeg(data, None, 10**8) is None


def test_checks_pixel_limit_before_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simplejpeg.decode_jpeg", lambda *_, **__: pytest.fail("decoded"))
    assert decode_clean_jpeg(encoded(picture(40, 30)), None, 40 * 30 - 1) is None
