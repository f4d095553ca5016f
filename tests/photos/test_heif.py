"""HEIC and AVIF photos. `data/draw_heic.py` draws the HEIC files; Pillow encodes AVIF here."""

import io
import struct
import sys
from pathlib import Path

import numpy as np
import pillow_heif
import pytest
from PIL import ExifTags, Image

from familiar.core.errors import CannotWrite, UnreadablePhoto
from familiar.core.types import Photo
from familiar.photos.decoding import (
    Header,
    decode_photo,
    is_content_broken,
    load_photo,
    read_header,
    save_photo,
)
from familiar.photos.exif import capture_time
from familiar.photos.heif import container_format
from familiar.photos.listing import find_photos
from familiar.photos.opening import detect_format

DATA = Path(__file__).parent / "data"
RED, GREEN, BLUE, WHITE = (224, 32, 32), (32, 200, 32), (32, 32, 224), (240, 240, 240)
UPRIGHT = [RED, GREEN, BLUE, WHITE]
TURNED = [BLUE, RED, WHITE, GREEN]  # by 90 degrees clockwise, as EXIF orientation 6 asks for


def content(name: str) -> bytes:
    return (DATA / f"{name}.heic").read_bytes()


def avif(image: Image.Image | None = None, **options: object) -> bytes:
    buffer = io.BytesIO()
    (image or corners()).save(buffer, "AVIF", quality=90, **options)
    return buffer.getvalue()


def corners() -> Image.Image:
    pixels = np.array([UPRIGHT[:2], UPRIGHT[2:]], np.uint8)
    return Image.fromarray(pixels.repeat(24, axis=0).repeat(32, axis=1))


def corner_colors(photo: Photo) -> np.ndarray:
    height, width = photo.rgb_u8.shape[:2]
    return photo.rgb_u8[np.ix_([height // 4, 3 * height // 4], [width // 4, 3 * width // 4])].reshape(4, 3)


def assert_colors(photo: Photo, expected: list[tuple[int, int, int]]) -> None:
    np.testing.assert_allclose(corner_colors(photo).astype(int), expected, atol=5)


def declaring(data: bytes, width: int, height: int) -> bytes:
    """Change every size that the container declares."""
    pieces = data.split(b"ispe")
    size = struct.pack(">II", width, height)
    return b"ispe".join([pieces[0], *(piece[:4] + size + piece[12:] for piece in pieces[1:])])


@pytest.mark.parametrize(
    ("name", "size_px", "stored_as"),
    [
        ("rgb", (64, 48), "HEIC RGB"),
        ("ten-bit", (64, 48), "HEIC RGB 10 bit"),
        ("tiles", (160, 128), "HEIC RGB"),
        ("two", (64, 48), "HEIC RGB"),  # the second picture is the primary one
    ],
)
def test_heic_keeps_colors_and_size(name: str, size_px: tuple[int, int], stored_as: str):
    photo = load_photo(DATA / f"{name}.heic")
    assert_colors(photo, UPRIGHT)
    assert (photo.size_px, photo.source_size_px, photo.stored_as) == (size_px, size_px, stored_as)
    assert photo.rgb_u8.flags.c_contiguous
    assert photo.rgb_u8.flags.writeable


def test_avif_keeps_colors_and_size():
    photo = decode_photo(avif(), "a.avif")
    assert_colors(photo, UPRIGHT)
    assert (photo.size_px, photo.source_size_px, photo.stored_as) == ((64, 48), (64, 48), "AVIF RGB")


def test_gray_heic_and_avif_become_rgb():
    for data in (content("gray"), avif(corners().convert("L"))):
        pixels = decode_photo(data, "gray").rgb_u8
        assert pixels.shape == (48, 64, 3)
        assert (pixels == pixels[..., :1]).all()


def test_transparent_heic_and_avif_become_white():
    with_alpha = corners().convert("RGBA")
    with_alpha.paste((0, 0, 0, 0), (0, 0, 32, 24))
    for data in (content("alpha"), avif(with_alpha)):
        assert_colors(decode_photo(data, "alpha"), [(255, 255, 255), GREEN, BLUE, WHITE])


# Orientation


def test_heic_is_turned_once():
    photo = load_photo(DATA / "turned.heic")  # says so twice: in the container and in EXIF
    assert_colors(photo, TURNED)
    assert photo.source_size_px == (48, 64)
    assert read_header(content("turned"), "turned") == Header("HEIC", (48, 64))


def test_exif_orientation_of_heic_is_ignored():
    orientation = struct.pack("<HHI", ExifTags.Base.Orientation, 3, 1)
    data = content("rgb")
    assert data.count(orientation) == 1 or data.count(struct.pack(">HHI", ExifTags.Base.Orientation, 3, 1)) == 1
    for order in "<>":
        entry = struct.pack(f"{order}HHIH", ExifTags.Base.Orientation, 3, 1, 1)
        data = data.replace(entry, entry[:8] + struct.pack(f"{order}H", 6))
    assert data != content("rgb")
    assert_colors(decode_photo(data, "rgb"), UPRIGHT)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_avif_is_turned_as_other_formats_are(orientation: int):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    png = io.BytesIO()
    corners().save(png, "PNG", exif=exif)
    expected = decode_photo(png.getvalue(), "png")
    photo = decode_photo(avif(exif=exif), "avif")
    assert photo.size_px == photo.source_size_px == expected.size_px
    np.testing.assert_allclose(corner_colors(photo).astype(int), corner_colors(expected), atol=5)


def test_avif_is_not_turned_by_xmp():
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    assert_colors(decode_photo(avif(xmp=xmp), "avif"), UPRIGHT)


# Metadata


@pytest.mark.parametrize("name", ["rgb", "turned"])
def test_reads_capture_time_of_heic(name: str):
    assert capture_time(DATA / f"{name}.heic") == "2024-06-01T12:30:05"


def test_reads_capture_time_of_avif(tmp_path: Path):
    exif = Image.Exif()
    exif[ExifTags.Base.DateTime] = "2025:01:01 00:00:00"
    exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.DateTimeOriginal] = "2024:06:01 12:30:05"
    (tmp_path / "a.avif").write_bytes(avif(exif=exif))
    assert capture_time(tmp_path / "a.avif") == "2024-06-01T12:30:05"


def test_heic_without_metadata_has_no_capture_time():
    assert capture_time(DATA / "gray.heic") is None


# Formats and folders


@pytest.mark.parametrize("brand", ["heic", "heix", "mif1", "msf1"])
def test_detects_heic_by_its_brand(brand: str):
    data = b"\0\0\0\x1cftyp" + brand.encode() + bytes(4) + b"mif1heicmiaf"
    assert container_format(data) == container_format(data[:16]) == detect_format(data) == "HEIC"


@pytest.mark.parametrize("brands", ["avif    mif1", "avis    msf1", "mif1    mif1avif", "msf1    avismsf1"])
def test_detects_avif_by_any_of_its_brands(brands: str):
    data = struct.pack(">I", 8 + len(brands)) + b"ftyp" + brands.encode() + b"\0\0\0\x0emeta"
    assert detect_format(data) == "AVIF"


def test_brands_end_with_their_box():
    assert container_format(struct.pack(">I", 16) + b"ftypmif1" + bytes(4) + b"avif" + bytes(99)) == "HEIC"


def test_decodes_avif_whose_first_brand_is_of_the_container():
    data = avif()
    assert data[8:12] == b"avif"
    assert_colors(decode_photo(data[:8] + b"mif1" + data[12:], "a"), UPRIGHT)


def test_loads_first_frame_of_animated_avif():
    frames = [Image.new("RGB", (40, 30), color) for color in ("red", "lime", "blue")]
    data = avif(frames[0], save_all=True, append_images=frames[1:])
    assert data[8:12] == b"avis"
    np.testing.assert_allclose(decode_photo(data, "a").rgb_u8.astype(int), np.full((30, 40, 3), (255, 0, 0)), atol=5)


def test_finds_heic_and_avif_in_folders(tmp_path: Path):
    names = ["a.HEIC", "b.heif", "c.hif", "d.avif"]
    for name in [*names, "e.mov"]:
        (tmp_path / name).touch()
    assert [path.name for path in find_photos(tmp_path)] == names


@pytest.mark.parametrize("min_side_px", [8, 24, 500])
def test_small_sizes_are_decoded_in_full(min_side_px: int):
    for data in (content("turned"), avif()):
        photo = decode_photo(data, "a", min_side_px=min_side_px)
        assert photo.size_px == photo.source_size_px == decode_photo(data, "a").size_px


def test_other_programs_open_what_they_opened_before(tmp_path: Path):
    load_photo(DATA / "rgb.heic")
    Image.init()
    assert not {"HEIF", "HEIC"} & Image.OPEN.keys()
    with pytest.raises(CannotWrite, match=r"use \.png or \.jpg"):
        save_photo(load_photo(DATA / "rgb.heic"), tmp_path / "a.heic")


# Broken and hostile files


@pytest.mark.parametrize("share", [0.05, 0.5, 0.7, 0.9, 0.999])
def test_rejects_heic_and_avif_that_are_cut_off(share: float, tmp_path: Path):
    # Of the tiles, 58 % of the file is metadata; without the check, libheif would load what is left of the others.
    for name, data in {"a.heic": content("rgb"), "b.heic": content("tiles"), "c.avif": avif()}.items():
        (tmp_path / name).write_bytes(data[: int(len(data) * share)])
        with pytest.raises(UnreadablePhoto) as caught:
            load_photo(tmp_path / name)
        assert str(caught.value).startswith(f"{tmp_path / name}: the file is cut off: copy it anew (")


def test_says_how_much_of_a_photo_is_missing():
    with pytest.raises(UnreadablePhoto, match=r"^a\.heic: .*\(123 bytes missing\)$"):
        decode_photo(content("tiles")[:-123], "a.heic")


def test_rejects_broken_heic_by_name():
    with pytest.raises(UnreadablePhoto, match=r"^a\.heic: the HEIC file is broken: copy it anew \("):
        decode_photo(content("rgb").replace(b"meta", b"mata"), "a.heic")


@pytest.mark.parametrize(
    "appended", [b"1234567", bytes(20), b"\xff\xff\xff\xff\x0e\0\0\0Image_UTC_Data", b"\0\0\0\4free"]
)
def test_loads_heic_with_appended_data(appended: bytes):
    assert_colors(decode_photo(content("rgb") + appended, "a.heic"), UPRIGHT)


def test_reads_sizes_of_boxes_of_any_kind():
    data = content("rgb")
    start = data.index(b"mdat") - 4
    to_the_end = data[:start] + bytes(4) + data[start + 4 :]
    assert_colors(decode_photo(to_the_end, "a.heic"), UPRIGHT)
    large = data + struct.pack(">I4sQ", 1, b"free", 1000) + bytes(984)
    assert_colors(decode_photo(large, "a.heic"), UPRIGHT)
    with pytest.raises(UnreadablePhoto, match=r"\(1 byte missing\)"):
        decode_photo(large[:-1], "a.heic")


def test_rejects_too_many_pixels_by_header():
    for data, side in ((content("tiles"), 15_812), (content("tiles"), 60_000), (avif(), 15_812)):
        with pytest.raises(UnreadablePhoto, match=f"{side} x {side} px is more than 250,000,000 pixels: scale it down"):
            decode_photo(declaring(data, side, side), "a")
    for data in (content("rgb"), avif()):  # limits of the decoders themselves
        with pytest.raises(UnreadablePhoto):
            decode_photo(declaring(data, 60_000, 60_000), "a")


def test_max_pixels_is_checked_before_decoding(monkeypatch: pytest.MonkeyPatch):
    def decode(_: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr("pillow_heif.as_plugin.HeifImageFile.load", decode)
    monkeypatch.setattr("PIL.AvifImagePlugin.AvifImageFile.load", decode)
    for data in (content("rgb"), avif()):
        with pytest.raises(UnreadablePhoto, match="64 x 48 px is more than 3,071 pixels"):
            decode_photo(data, "a", max_pixels=64 * 48 - 1)


def test_refuses_libheif_with_security_holes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pillow_heif, "libheif_version", lambda: "1.23.0")
    with pytest.raises(UnreadablePhoto, match=r"^a\.heic: .*1\.23\.0, which is not safe: pip install") as caught:
        decode_photo(content("rgb"), "a.heic")
    assert not is_content_broken(caught.value)


def test_says_how_to_install_missing_libheif(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(
        UnreadablePhoto, match=r"^a\.heic: HEIC photos need pillow-heif .*pip install .familiar-faces.heic"
    ) as caught:
        decode_photo(content("rgb"), "a.heic")
    assert not is_content_broken(caught.value)
    assert_colors(decode_photo(avif(), "a.avif"), UPRIGHT)
