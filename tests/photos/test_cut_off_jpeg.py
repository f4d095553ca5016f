"""A JPEG that lacks its end is read as viewers do; one that lacks pixels is refused."""

import io
import logging

import numpy as np
import pytest
from PIL import Image

from familiar.core.errors import UnreadablePhoto
from familiar.datasets.synthetic import SyntheticPhoto
from familiar.photos.cut_off_jpeg import missing_share
from familiar.photos.decoding import decode_photo, is_content_broken

EXIF_TURNED = Image.Exif()
EXIF_TURNED[0x0112] = 6
JPEGS = [
    {},
    {"progressive": True},
    {"mode": "L"},
    {"mode": "CMYK"},
    {"restart_marker_rows": 2},
    {"subsampling": 0, "exif": EXIF_TURNED},
    {"kind": "MPO"},
]


def encoded(mode: str = "RGB", kind: str = "JPEG", size: tuple[int, int] = (1024, 800), **options: object) -> bytes:
    drawn = SyntheticPhoto("cats", 3, 1, 512).draw().rgb_u8
    noise = np.random.default_rng(0).integers(0, 30, (size[1], size[0], 3))  # so that each block has bytes
    image = np.asarray(Image.fromarray(drawn).resize(size)) // 2 + noise
    content = io.BytesIO()
    Image.fromarray(image.astype(np.uint8)).convert(mode).save(content, kind, quality=90, **options)
    return content.getvalue()


@pytest.mark.parametrize("options", JPEGS, ids=lambda options: "-".join(options) or "plain")
@pytest.mark.parametrize("cut", [1, 2])
@pytest.mark.parametrize("min_side_px", [None, 100])
def test_jpeg_without_end_marker_is_complete(options: dict, cut: int, min_side_px: int | None, caplog):
    data = encoded(**options)
    photo = decode_photo(data[:-cut], "a.jpg", min_side_px=min_side_px)
    np.testing.assert_array_equal(photo.rgb_u8, decode_photo(data, "a.jpg", min_side_px=min_side_px).rgb_u8)
    assert missing_share(data[:-cut]) == 0
    assert not caplog.records


@pytest.mark.parametrize("options", JPEGS, ids=lambda options: "-".join(options) or "plain")
def test_jpeg_that_lacks_few_pixels_is_taken_with_a_warning(options: dict, caplog):
    data = encoded(**options)
    cut = data[: -len(data) // 600]
    photo = decode_photo(cut, "a.jpg")
    whole = decode_photo(data, "a.jpg").rgb_u8
    assert 0 < (photo.rgb_u8 != whole).any(-1).mean() < 0.01
    ((_, level, text),) = caplog.record_tuples
    assert (level, text[:45]) == (logging.WARNING, "a.jpg: the end of the file is missing, with 0")


@pytest.mark.parametrize("options", JPEGS, ids=lambda options: "-".join(options) or "plain")
@pytest.mark.parametrize("share", [0.03, 0.3, 0.6, 0.97])
def test_jpeg_that_lacks_pixels_says_what_to_do(options: dict, share: float):
    data = encoded(**options)
    with pytest.raises(UnreadablePhoto, match=r"a\.jpg: (the file is|damaged or) cut off: copy it anew") as caught:
        decode_photo(data[: -int(len(data) * share)], "a.jpg")
    assert is_content_broken(caught.value)


@pytest.mark.parametrize("options", JPEGS, ids=lambda options: "-".join(options) or "plain")
@pytest.mark.parametrize("share", [0.03, 0.5])
def test_zeros_in_place_of_the_end_are_no_pixels(options: dict, share: float):
    data = encoded(**options)
    missing = int(len(data) * share)
    with pytest.raises(UnreadablePhoto, match=r"a\.jpg: (the file is|damaged or) cut off: copy it anew"):
        decode_photo(data[:-missing] + bytes(missing), "a.jpg", min_side_px=100)


@pytest.mark.parametrize("options", JPEGS, ids=lambda options: "-".join(options) or "plain")
def test_jpeg_with_zeros_after_its_end_is_complete(options: dict, caplog):
    data = encoded(**options)
    photo = decode_photo(data + bytes(5000), "a.jpg")
    np.testing.assert_array_equal(photo.rgb_u8, decode_photo(data, "a.jpg").rgb_u8)
    assert not caplog.records


def test_progressive_jpeg_without_its_last_scan_is_cut_off():
    data = encoded(progressive=True)
    last_scan = data.rindex(b"\xff\xda")
    assert missing_share(data[:last_scan]) == 1
    with pytest.raises(UnreadablePhoto, match=r"the file is cut off: copy it anew$"):
        decode_photo(data[:last_scan], "a.jpg")


def test_share_of_missing_pixels_is_that_of_the_file():
    data = encoded(size=(800, 800))
    for share in (0.1, 0.4, 0.8):
        assert missing_share(data[: int(len(data) * (1 - share))]) == pytest.approx(share, abs=0.06)


def test_gray_photo_is_not_taken_for_missing():
    content = io.BytesIO()
    Image.new("RGB", (640, 480), (128, 128, 128)).save(content, "JPEG")
    assert decode_photo(content.getvalue()[:-2], "a.jpg").size_px == (640, 480)


@pytest.mark.parametrize(
    ("format_name", "options"),
    [
        *((name, {}) for name in ("PNG", "GIF", "WEBP", "BMP", "PPM", "TIFF", "AVIF", "JPEG")),
        ("WEBP", {"lossless": True}),
        ("TIFF", {"compression": "tiff_lzw"}),
    ],
)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_other_formats_that_are_cut_off_say_what_to_do(format_name: str, options: dict, share: float):
    content = io.BytesIO()
    Image.open(io.BytesIO(encoded(size=(400, 300)))).save(content, format_name, **options)
    data = content.getvalue()
    with pytest.raises(UnreadablePhoto, match=r"cut off: copy it anew"):
        decode_photo(data[: int(len(data) * share)], "a")
