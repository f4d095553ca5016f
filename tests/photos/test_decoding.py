import contextlib
import io
import os
import struct
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from familiar.core.errors import CannotWrite, FamiliarError, NoFaceFound, UnreadablePhoto
from familiar.core.types import Photo
from familiar.photos.decoding import MAX_FILE_BYTES, is_content_broken, load_photo, save_photo
from familiar.photos.listing import PHOTO_SUFFIXES, find_photos
from familiar.photos.opening import pixel_limit


def gradient(width: int = 48, height: int = 32) -> np.ndarray:
    """Draw a smooth picture, which lossy formats preserve, without any symmetry."""
    y, x = np.mgrid[:height, :width]
    channels = [255 * x / (width - 1), 255 * y / (height - 1), 255 * (x + 2 * y) / (width + 2 * height - 3)]
    return np.stack(channels, axis=2).round().astype(np.uint8)


RGB = gradient()
GRAY = RGB[..., 2]


def encoded(image: Image.Image, format_name: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format_name, **options)
    return buffer.getvalue()


def cv2_encoded(suffix: str, pixels: np.ndarray) -> bytes:
    return cv2.imencode(suffix, pixels)[1].tobytes()


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., np.ndarray]:
    """Write bytes to a file and load it with `load_photo`."""

    def load_bytes(data: bytes, **options: int) -> np.ndarray:
        path = tmp_path / "photo.jpg"  # the suffix must not matter
        path.write_bytes(data)
        return load_photo(path, **options).rgb_u8

    return load_bytes


def refusal(data: bytes, tmp_path: Path, **options: int) -> str:
    """Return the message with which these bytes are rejected, after the file's name."""
    path = tmp_path / "photo.jpg"
    path.write_bytes(data)
    with pytest.raises(UnreadablePhoto) as caught:
        load_photo(path, **options)
    start, _, message = str(caught.value).partition(": ")
    assert start == str(path)
    return message


# Formats


@pytest.mark.parametrize(
    ("format_name", "options"),
    [
        ("PNG", {}),
        ("WEBP", {"lossless": True}),
        ("BMP", {}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("PPM", {}),
    ],
)
def test_lossless_formats_keep_every_pixel(format_name: str, options: dict, load: Callable) -> None:
    np.testing.assert_array_equal(load(encoded(Image.fromarray(RGB), format_name, **options)), RGB)


@pytest.mark.parametrize(
    ("format_name", "options"),
    [
        ("JPEG", {"quality": 95}),
        ("JPEG", {"quality": 95, "progressive": True}),
        ("MPO", {"quality": 95, "save_all": True, "append_images": [Image.new("RGB", (48, 32), "red")]}),
        ("WEBP", {"quality": 95}),
    ],
)
def test_lossy_formats_keep_colors(format_name: str, options: dict, load: Callable) -> None:
    loaded = load(encoded(Image.fromarray(RGB), format_name, **options)).astype(int)
    assert np.abs(loaded - RGB).mean() < 4


@pytest.mark.parametrize("format_name", ["GIF", "WEBP", "TIFF", "PNG"])
def test_loads_first_frame(format_name: str, load: Callable) -> None:
    frames = [Image.new("RGB", (40, 30), color) for color in ("red", "lime", "blue")]
    options = {"lossless": True} if format_name == "WEBP" else {}
    loaded = load(encoded(frames[0], format_name, save_all=True, append_images=frames[1:], **options))
    np.testing.assert_array_equal(loaded, np.full((30, 40, 3), (255, 0, 0)))


def test_loaded_array_is_contiguous_and_writable(tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    Image.fromarray(RGB).save(path)
    photo = load_photo(str(path))
    assert photo.rgb_u8.flags.c_contiguous
    assert photo.rgb_u8.flags.writeable
    assert photo.source == path
    assert photo.source_size_px == photo.size_px == (48, 32)


def test_photo_suffixes_are_lower_case_with_dot() -> None:
    assert {
        ".jpg",
        ".jpeg",
        ".png",
        ".webp",
        ".bmp",
        ".tif",
        ".tiff",
        ".gif",
        ".ppm",
        ".pgm",
        ".heic",
        ".avif",
    } <= PHOTO_SUFFIXES
    assert all(suffix == suffix.lower() and suffix.startswith(".") for suffix in PHOTO_SUFFIXES)


# Modes


def as_rgb(gray: np.ndarray) -> np.ndarray:
    return np.repeat(gray[..., None], 3, axis=2)


@pytest.mark.parametrize("format_name", ["PNG", "TIFF", "BMP", "PPM", "GIF"])
def test_gray_becomes_rgb(format_name: str, load: Callable) -> None:
    np.testing.assert_array_equal(load(encoded(Image.fromarray(GRAY), format_name)), as_rgb(GRAY))


@pytest.mark.parametrize("format_name", ["PNG", "TIFF", "PPM"])
def test_one_bit_becomes_black_and_white(format_name: str, load: Callable) -> None:
    bits = GRAY > 100
    loaded = load(encoded(Image.fromarray(bits), format_name))
    np.testing.assert_array_equal(loaded, as_rgb(np.where(bits, 255, 0)))


def palette_image() -> Image.Image:
    image = Image.new("P", (3, 1))
    image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    image.putdata([0, 1, 2])
    return image


@pytest.mark.parametrize("format_name", ["PNG", "GIF", "BMP", "TIFF"])
def test_palette_becomes_rgb(format_name: str, load: Callable) -> None:
    loaded = load(encoded(palette_image(), format_name))
    np.testing.assert_array_equal(loaded, [[[255, 0, 0], [0, 255, 0], [0, 0, 255]]])


@pytest.mark.parametrize("format_name", ["PNG", "GIF"])
def test_transparent_palette_color_becomes_white(format_name: str, load: Callable) -> None:
    loaded = load(encoded(palette_image(), format_name, transparency=1))
    np.testing.assert_array_equal(loaded, [[[255, 0, 0], [255, 255, 255], [0, 0, 255]]])


def test_palette_alpha_is_blended_on_white(load: Callable) -> None:
    loaded = load(encoded(palette_image(), "PNG", transparency=bytes([255, 0, 51])))
    np.testing.assert_array_equal(loaded, [[[255, 0, 0], [255, 255, 255], [204, 204, 255]]])


@pytest.mark.parametrize("format_name", ["PNG", "WEBP", "TIFF"])
def test_alpha_is_blended_on_white(format_name: str, load: Callable) -> None:
    alpha = np.broadcast_to(np.linspace(0, 255, 48).round().astype(np.uint8), (32, 48))
    options = {"lossless": True, "exact": True} if format_name == "WEBP" else {}
    loaded = load(encoded(Image.fromarray(np.dstack([RGB, alpha])), format_name, **options))
    weight = alpha[..., None] / 255
    np.testing.assert_allclose(loaded, RGB * weight + 255 * (1 - weight), atol=1)


def test_gray_alpha_is_blended_on_white(load: Callable) -> None:
    pixels = np.array([[[100, 255], [100, 0], [0, 51]]], np.uint8)
    loaded = load(encoded(Image.fromarray(pixels, "LA"), "PNG"))
    np.testing.assert_array_equal(loaded, as_rgb(np.array([[100, 255, 204]])))


def test_transparent_rgb_color_becomes_white(load: Callable) -> None:
    image = Image.fromarray(np.array([[[1, 2, 3], [4, 5, 6]]], np.uint8))
    loaded = load(encoded(image, "PNG", transparency=(1, 2, 3)))
    np.testing.assert_array_equal(loaded, [[[255, 255, 255], [4, 5, 6]]])


# 16 bit. 257 v is the 16-bit value of v, so that v is restored exactly.


@pytest.mark.parametrize("suffix", [".png", ".tiff", ".pgm"])
def test_16_bit_gray_is_scaled_not_clipped(suffix: str, load: Callable) -> None:
    loaded = load(cv2_encoded(suffix, GRAY.astype(np.uint16) * 257))
    np.testing.assert_array_equal(loaded, as_rgb(GRAY))


@pytest.mark.parametrize("suffix", [".png", ".tiff", ".ppm"])
def test_16_bit_color_is_scaled_to_8_bit(suffix: str, load: Callable) -> None:
    loaded = load(cv2_encoded(suffix, RGB[..., ::-1].astype(np.uint16) * 257))
    np.testing.assert_array_equal(loaded, RGB)


def test_16_bit_alpha_is_blended_on_white(load: Callable) -> None:
    bgra = np.dstack([RGB[..., ::-1], np.full_like(GRAY, 255)]).astype(np.uint16) * 257
    bgra[0, 0, 3] = 0
    loaded = load(cv2_encoded(".png", bgra))
    np.testing.assert_array_equal(loaded[1:], RGB[1:])
    np.testing.assert_array_equal(loaded[0, 0], (255, 255, 255))


def test_a_dark_16_bit_photo_stays_dark(load: Callable) -> None:
    assert load(cv2_encoded(".png", np.full((4, 4), 200, np.uint16))).max() == 1


@pytest.mark.parametrize("white", [1.0, 255.0, 65535.0, 1e9])
def test_float_gray_scale_follows_value_range(white: float, load: Callable) -> None:
    image = Image.fromarray((GRAY / 255 * white).astype(np.float32))
    np.testing.assert_array_equal(load(encoded(image, "TIFF")), as_rgb(GRAY))


def test_nonfinite_or_negative_float_becomes_black(load: Callable) -> None:
    image = Image.fromarray(np.array([[np.nan, -3.0, np.inf, 0.5, 1.0]], np.float32))
    np.testing.assert_array_equal(load(encoded(image, "TIFF")), as_rgb(np.array([[0, 0, 0, 128, 255]])))


def test_32_bit_gray_is_clipped_and_scaled(load: Callable) -> None:
    image = Image.fromarray(np.array([[-7, 0, 100_000, 200_000]], np.int32))
    np.testing.assert_array_equal(load(encoded(image, "TIFF")), as_rgb(np.array([[0, 0, 128, 255]])))


def test_rejects_tiff_with_separate_16_bit_planes(tmp_path: Path) -> None:
    planes = [np.full((4, 5), value, "<u2").tobytes() for value in (1000, 30000, 60000)]
    tags = {256: 5, 257: 4, 259: 1, 262: 2, 277: 3, 278: 4, 284: 2}
    rows_of_three = {258: (3, (16, 16, 16)), 273: (4, ()), 279: (4, (40, 40, 40))}
    start = 8 + 2 + 12 * (len(tags) + len(rows_of_three)) + 4
    offsets = {258: start, 273: start + 6, 279: start + 18}
    pixels = start + 30
    rows_of_three[273] = (4, (pixels, pixels + 40, pixels + 80))
    entries, tail = b"", b""
    for tag in sorted(tags | rows_of_three):
        if tag in tags:
            entries += struct.pack("<HHII", tag, 4, 1, tags[tag])
        else:
            kind, values = rows_of_three[tag]
            entries += struct.pack("<HHII", tag, kind, 3, offsets[tag])
            tail += struct.pack("<3H" if kind == 3 else "<3I", *values)
    header = b"II*\0" + struct.pack("<IH", 8, len(tags) + 3)
    data = header + entries + bytes(4) + tail + b"".join(planes)
    assert Image.open(io.BytesIO(data)).size == (5, 4)  # a valid file, for Pillow
    assert refusal(data, tmp_path) == "a TIFF of separate 16-bit planes is not read: convert to JPEG"


# CMYK. Pillow saves CMYK as Adobe does: inverted, with Adobe's marker.

INKS = np.zeros((16, 16, 4), np.uint8)  # cyan, magenta, yellow, black
INKS[..., :] = (0, 200, 255, 20)
ORANGE = np.array([235, 235 * 55 / 255, 0])  # (255 - ink) (255 - black) / 255


def test_cmyk_jpeg_becomes_rgb(load: Callable) -> None:
    loaded = load(encoded(Image.fromarray(INKS, "CMYK"), "JPEG", quality=95))
    np.testing.assert_allclose(loaded.reshape(-1, 3), np.tile(ORANGE, (256, 1)), atol=4)


def test_cmyk_tiff_becomes_rgb(load: Callable) -> None:
    loaded = load(encoded(Image.fromarray(INKS, "CMYK"), "TIFF"))
    np.testing.assert_allclose(loaded.reshape(-1, 3), np.tile(ORANGE, (256, 1)), atol=1)


def test_ycck_jpeg_becomes_rgb(load: Callable) -> None:
    # The decoder takes C, M, Y for 255 - the RGB of Y, Cb, Cr; what Adobe stores is 255 - ink.
    ycc = np.asarray(Image.fromarray(INKS[..., :3], "RGB").convert("YCbCr"))
    stored = np.dstack([ycc, 255 - INKS[..., 3]])
    data = encoded(Image.fromarray(255 - stored, "CMYK"), "JPEG", quality=95, subsampling=0)
    adobe = data.index(b"Adobe")
    data = data[: adobe + 11] + b"\2" + data[adobe + 12 :]  # the marker's last byte: 2 is YCCK
    assert Image.open(io.BytesIO(data)).info["adobe_transform"] == 2
    np.testing.assert_allclose(load(data).reshape(-1, 3), np.tile(ORANGE, (256, 1)), atol=5)


# Orientation


def rotated_for(orientation: int, upright: np.ndarray) -> np.ndarray:
    """Rotate an upright photo to what a camera stores, by the EXIF standard's definition of the tag.

    Row 0 and column 0 of the file are, seen upright: 1 top and left, 2 top and right, 3 bottom and right,
    4 bottom and left, 5 left and top, 6 right and top, 7 right and bottom, 8 left and bottom.
    """
    first = {
        1: ("top", "left"),
        2: ("top", "right"),
        3: ("bottom", "right"),
        4: ("bottom", "left"),
        5: ("left", "top"),
        6: ("right", "top"),
        7: ("right", "bottom"),
        8: ("left", "bottom"),
    }[orientation]
    height, width = upright.shape[:2]
    indices = {
        "top": range(height),
        "bottom": range(height)[::-1],
        "left": range(width),
        "right": range(width)[::-1],
    }
    if first[0] in ("top", "bottom"):
        return np.array([[upright[y, x] for x in indices[first[1]]] for y in indices[first[0]]])
    return np.array([[upright[y, x] for y in indices[first[1]]] for x in indices[first[0]]])


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format_name", ["PNG", "TIFF", "WEBP"])
def test_every_orientation_loads_upright(orientation: int, format_name: str, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "photo"
    options = {"lossless": True} if format_name == "WEBP" else {}
    Image.fromarray(rotated_for(orientation, RGB)).save(path, format_name, exif=exif, **options)
    photo = load_photo(path)
    np.testing.assert_array_equal(photo.rgb_u8, RGB)
    assert photo.rgb_u8.flags.c_contiguous
    assert photo.source_size_px == (48, 32)


@pytest.mark.slow
@pytest.mark.parametrize("orientation", range(1, 9))
def test_reduced_jpeg_loads_upright(orientation: int, tmp_path: Path) -> None:
    upright = gradient(481, 320)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "photo.jpg"
    Image.fromarray(rotated_for(orientation, upright)).save(path, exif=exif, quality=95)
    photo = load_photo(path, min_side_px=80)
    assert photo.size_px == (121, 80)
    assert photo.source_size_px == (481, 320)
    small = cv2.resize(upright, (121, 80), interpolation=cv2.INTER_AREA)
    assert np.abs(photo.rgb_u8.astype(int) - small).mean() < 3


@pytest.mark.parametrize("format_name", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("exif", [b"Exif\0\0nonsense", b"Exif\0\0MM\0*\0\0\0\x08\xff\xff", b"Exif\0\0", b"E"])
def test_loads_photo_with_corrupt_exif(exif: bytes, format_name: str, load: Callable) -> None:
    assert load(encoded(Image.fromarray(RGB), format_name, exif=exif)).shape == RGB.shape


def test_unknown_orientation_is_ignored(load: Callable) -> None:
    exif = Image.Exif()
    exif[0x0112] = 9
    np.testing.assert_array_equal(load(encoded(Image.fromarray(RGB), "PNG", exif=exif)), RGB)


# Reduced scale


@pytest.mark.parametrize(
    ("min_side_px", "divisor"), [(1, 8), (60, 8), (61, 4), (120, 4), (121, 2), (240, 2), (241, 1), (9999, 1)]
)
@pytest.mark.parametrize("format_name", ["JPEG", "MPO"])
def test_jpeg_is_decoded_at_smallest_sufficient_scale(
    min_side_px: int, divisor: int, format_name: str, tmp_path: Path
) -> None:
    path = tmp_path / "photo.jpg"
    image = Image.fromarray(gradient(640, 480))
    image.save(path, format_name, **({"save_all": True, "append_images": [image]} if format_name == "MPO" else {}))
    photo = load_photo(path, min_side_px=min_side_px)
    assert photo.size_px == (640 // divisor, 480 // divisor)
    assert photo.source_size_px == (640, 480)


def test_png_ignores_min_side(load: Callable) -> None:
    assert load(encoded(Image.fromarray(gradient(640, 480)), "PNG"), min_side_px=60).shape == (480, 640, 3)


def test_rejects_min_side_below_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="min_side_px"):
        load_photo(tmp_path / "photo.jpg", min_side_px=0)


# Rejected files


def png_bomb(width: int, height: int) -> bytes:
    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000)))


def bmp_bomb(width: int, height: int) -> bytes:
    return b"BM" + struct.pack("<IIIIiiHHIIiiII", 54, 0, 54, 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("bomb", [png_bomb, bmp_bomb])
@pytest.mark.parametrize("side", [15_812, 60_000])  # below and above the limits of Pillow's own
def test_rejects_too_many_pixels_by_header(bomb: Callable, side: int, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        message = refusal(bomb(side, side), tmp_path)
    assert message.startswith(f"{side} x {side} px is more than 250,000,000 pixels: scale it down")


def test_max_pixels_limit_is_inclusive(load: Callable, tmp_path: Path) -> None:
    data = encoded(Image.fromarray(RGB), "PNG")
    assert load(data, max_pixels=48 * 32).shape == RGB.shape
    assert "more than 1,535 pixels" in refusal(data, tmp_path, max_pixels=48 * 32 - 1)


@pytest.mark.parametrize("format_name", ["JPEG", "MPO", "PNG", "BMP", "GIF", "PPM", "AVIF", "TIFF", "WEBP"])
def test_ignores_pillow_pixel_limit(format_name: str, load: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    assert load(encoded(Image.fromarray(RGB), format_name)).shape == RGB.shape
    assert Image.MAX_IMAGE_PIXELS == 100


@pytest.mark.parametrize("format_name", ["JPEG", "MPO"])
@pytest.mark.parametrize("mode", ["RGB", "CMYK"])
def test_jpeg_may_be_larger_than_the_limit_if_it_is_decoded_smaller(
    format_name: str, mode: str, tmp_path: Path
) -> None:
    data = encoded(Image.new(mode, (800, 640)), format_name)
    (tmp_path / "a.jpg").write_bytes(data)
    photo = load_photo(tmp_path / "a.jpg", min_side_px=80, max_pixels=8000)
    assert (photo.size_px, photo.source_size_px) == ((100, 80), (800, 640))
    assert "is more than 7,999 pixels" in refusal(data, tmp_path, min_side_px=80, max_pixels=7999)
    assert "is more than 8,000 pixels" in refusal(data, tmp_path, max_pixels=8000)


def test_progressive_jpeg_is_limited_at_full_size(tmp_path: Path) -> None:
    data = encoded(Image.new("CMYK", (800, 640)), "JPEG", progressive=True)
    assert "is more than 8,000 pixels" in refusal(data, tmp_path, min_side_px=80, max_pixels=8000)


def test_limit_of_megapixels_is_that_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded(Image.fromarray(RGB), "PNG")
    monkeypatch.setenv("FAMILIAR_MAX_MEGAPIXELS", "0.0015")
    assert "more than 1,500 pixels: scale it down, or allow more megapixels (--max-meg" in refusal(data, tmp_path)
    for value in ("", "many", "0", "-3", "nan", "inf"):
        monkeypatch.setenv("FAMILIAR_MAX_MEGAPIXELS", value)
        assert f"FAMILIAR_MAX_MEGAPIXELS={value}: give a number of megapixels" in refusal(data, tmp_path)


def test_tiff_of_colors_as_floats_says_what_to_do(tmp_path: Path) -> None:
    data = cv2.imencode(".tif", RGB.astype(np.float32) / 255)[1].tobytes()
    assert refusal(data, tmp_path) == "a photo of such pixels is not read: convert it to JPEG"


@pytest.mark.slow
def test_photo_of_a_phone_with_200_megapixels_is_read(tmp_path: Path) -> None:
    """Samsung's. At full size it takes 600 MB, so that here it is decoded at an eighth."""
    (tmp_path / "a.jpg").write_bytes(encoded(Image.new("L", (16_320, 12_240), 120), "JPEG"))
    photo = load_photo(tmp_path / "a.jpg", min_side_px=1_500)
    assert (photo.size_px, photo.source_size_px) == ((2_040, 1_530), (16_320, 12_240))
    assert pixel_limit() > 16_320 * 12_240


NOISE = np.random.default_rng(0).integers(0, 256, (120, 160, 3), dtype=np.uint8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format_name", "options"),
    [
        ("JPEG", {}),
        ("JPEG", {"progressive": True}),
        ("PNG", {}),
        ("WEBP", {}),
        ("BMP", {}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("GIF", {}),
        ("PPM", {}),
        ("AVIF", {}),
    ],
)
@pytest.mark.parametrize("share", [0.01, 0.5, 0.98])
def test_rejects_truncated_photo(format_name: str, options: dict, share: float, tmp_path: Path) -> None:
    data = encoded(Image.fromarray(NOISE), format_name, **options)
    assert refusal(data[: int(len(data) * share)], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("format_name", ["JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "PPM", "AVIF"])
@given(changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=20))
def test_mutated_bytes_load_or_raise_unreadable_photo(format_name: str, changes: list, tmp_path_factory) -> None:
    data = bytearray(encoded(Image.fromarray(RGB), format_name))
    for position, value in changes:
        data[int(position * (len(data) - 1))] = value
    path = tmp_path_factory.getbasetemp() / f"hostile-{format_name}"
    path.write_bytes(bytes(data))
    with contextlib.suppress(UnreadablePhoto):
        load_photo(path, max_pixels=1_000_000)


@pytest.mark.parametrize("name", ["JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "PPM", "AVIF"])
def test_rejects_bare_signature(name: str, tmp_path: Path) -> None:
    assert refusal(encoded(Image.fromarray(RGB), name)[:12], tmp_path)


def test_rejects_empty_file(tmp_path: Path) -> None:
    assert refusal(b"", tmp_path) == "the file is empty"


@pytest.mark.parametrize("data", [b"Dear diary, today", b"%PDF-1.7", b"P9 nonsense", bytes(100), b"\xff"])
def test_rejects_other_file_types(data: bytes, tmp_path: Path) -> None:
    assert refusal(data, tmp_path) == "not a photo (supported: JPEG, HEIC, AVIF, PNG, WebP, BMP, TIFF, GIF, PPM)"


def test_rejects_video(tmp_path: Path) -> None:
    assert refusal(struct.pack(">I", 24) + b"ftypisom" + bytes(12), tmp_path).startswith("not a photo")


def test_rejects_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UnreadablePhoto, match=r"gone\.jpg: No such file or directory$"):
        load_photo(tmp_path / "gone.jpg")


def test_rejects_null_byte_in_path() -> None:
    with pytest.raises(UnreadablePhoto, match="null"):
        load_photo("a\0b.jpg")


def test_rejects_folder(tmp_path: Path) -> None:
    with pytest.raises(UnreadablePhoto, match="a folder"):
        load_photo(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_rejects_named_pipe_without_blocking(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(UnreadablePhoto, match="special file"):
        load_photo(tmp_path / "pipe.jpg")


def test_rejects_file_without_read_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "photo.png"
    Image.fromarray(RGB).save(path)

    def denied(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", denied)  # chmod does not restrict a superuser
    with pytest.raises(UnreadablePhoto, match=r"photo\.png: Permission denied$"):
        load_photo(path)


def test_decoder_error_becomes_unreadable_photo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(_: Image.Image) -> None:
        raise MemoryError

    monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile.load", out_of_memory)
    assert refusal(encoded(Image.fromarray(RGB), "PNG"), tmp_path) == "MemoryError"


# find_photos


def test_find_photos_searches_folders_and_accepts_any_named_file(tmp_path: Path) -> None:
    for name in (
        "b.JPG",
        "a/2.png",
        "a/deep/er/1.webp",
        "a/notes.txt",
        ".hidden.jpg",
        ".cache/1.jpg",
        "a/.b/1.jpg",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    named = tmp_path / "a" / "notes.txt"
    photos = find_photos([named, tmp_path])
    assert photos == [named, *(tmp_path / name for name in ("a/2.png", "a/deep/er/1.webp", "b.JPG"))]


def test_find_photos_returns_broken_link(tmp_path: Path) -> None:
    (tmp_path / "gone.jpg").symlink_to(tmp_path / "nowhere")
    (tmp_path / "circle").symlink_to(tmp_path)
    (link,) = find_photos([tmp_path])
    with pytest.raises(UnreadablePhoto, match=r"gone\.jpg: No such file or directory$"):
        load_photo(link)


def test_find_photos_returns_unreadable_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a/1.jpg", "b/1.jpg"):
        (tmp_path / name).parent.mkdir()
        Image.fromarray(RGB).save(tmp_path / name)
    listed = os.scandir

    def scandir(folder: os.PathLike) -> contextlib.AbstractContextManager:
        if Path(folder).name == "a":
            raise PermissionError(13, "Permission denied", os.fspath(folder))
        return listed(folder)

    monkeypatch.setattr(os, "scandir", scandir)  # chmod does not restrict a superuser
    monkeypatch.setattr(os, "listdir", scandir)
    closed, photo = find_photos([tmp_path])
    assert (closed, photo) == (tmp_path / "a", tmp_path / "b" / "1.jpg")
    with pytest.raises(UnreadablePhoto, match=r"/a: Permission denied$"):
        load_photo(closed)


def test_find_photos_rejects_paths_without_photos(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    with pytest.raises(UnreadablePhoto, match=r"^no photo found in .*/first, .*/second$"):
        find_photos([tmp_path / "first", tmp_path / "second"])
    with pytest.raises(UnreadablePhoto, match=r"/third: no such file or folder$"):
        find_photos([tmp_path / "third"])


def test_find_photos_lists_broken_links_and_missing_files_among_others(tmp_path: Path) -> None:
    photo, link, missing, long = (tmp_path / name for name in ("a.jpg", "link.jpg", "missing.jpg", "b" * 300))
    photo.touch()
    link.symlink_to(missing)
    paths = [photo, link, missing, long]
    assert find_photos(paths) == paths
    with pytest.raises(UnreadablePhoto, match=r"missing\.jpg: No such file or directory"):
        load_photo(missing)


@pytest.mark.parametrize("suffix", [".psd", ".xbm", ".txt"])
def test_rejects_formats_that_cannot_be_written(suffix: str, tmp_path: Path):
    photo = Photo(np.zeros((4, 4, 3), np.uint8), "drawn", (4, 4))
    with pytest.raises(CannotWrite, match=r"(cannot|can) be written"):
        save_photo(photo, tmp_path / f"a{suffix}")
    assert not list(tmp_path.iterdir())


def test_rejects_file_larger_than_any_photo(tmp_path: Path) -> None:
    path = tmp_path / "large.jpg"
    with path.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)  # sparse: takes no space
    with pytest.raises(UnreadablePhoto, match=r"large\.jpg: 1,073,741,825 bytes are more than a photo's"):
        load_photo(path)


def failure(data: bytes, tmp_path: Path, **options: int) -> UnreadablePhoto:
    path = tmp_path / "photo"
    path.write_bytes(data)
    with pytest.raises(UnreadablePhoto) as caught:
        load_photo(path, **options)
    return caught.value


def test_content_is_broken_if_bytes_are_missing_or_of_no_photo(tmp_path: Path):
    png, jpeg = encoded(Image.fromarray(RGB), "PNG"), encoded(Image.fromarray(RGB), "JPEG")
    for data in (b"", b"no photo", png[:20], png[:-40] + bytes(40), png[:200], jpeg[:300]):
        assert is_content_broken(failure(data, tmp_path))


def allocate_too_much() -> None:
    cv2.copyMakeBorder(np.zeros((1, 1), np.uint8), 0, 2**31 - 2, 0, 2**24, cv2.BORDER_CONSTANT)


def report(error: Exception) -> Callable[[], None]:
    def raise_error() -> None:
        raise error

    return raise_error


@pytest.mark.parametrize(
    "decode",
    [
        report(OSError("out of memory when reading image file")),  # Pillow, which gives it no number
        report(OSError("decoder zip not available")),  # Pillow, compiled without it
        report(SyntaxError("image file could not be opened because AVIF support not installed")),  # Pillow
        report(RuntimeError("Memory allocation error: Unspecified")),  # libheif
        report(RuntimeError("Unsupported feature: Unsupported codec")),  # libheif, compiled without it
        report(OSError(5, "Input/output error")),
        report(MemoryError()),
        report(ImportError("No module named 'PIL._avif'")),
        report(FamiliarError("HEIC photos need pillow-heif")),
        allocate_too_much,
    ],
)
def test_content_is_not_broken_if_this_computer_cannot_decode_it(
    decode: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda _: decode())
    assert not is_content_broken(failure(encoded(Image.fromarray(RGB), "PNG"), tmp_path))


def test_content_is_not_broken_if_familiar_does_not_take_it(tmp_path: Path):
    # An earlier version may have accepted it.
    assert not is_content_broken(failure(encoded(Image.fromarray(RGB), "PNG"), tmp_path, max_pixels=9))
    assert not is_content_broken(NoFaceFound("a.jpg: no face found"))
