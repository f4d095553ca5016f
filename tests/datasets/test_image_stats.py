from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from familiar.core.errors import UnreadablePhoto
from familiar.datasets import image_stats
from familiar.datasets.image_stats import ImageStats, read_all_image_stats, read_image_stats
from familiar.datasets.synthetic import SyntheticPhoto
from familiar.photos.pixel_modes import stored_channels


@pytest.mark.parametrize(
    ("mode", "name", "stored_as", "colorless", "channels"),
    [
        ("RGB", "a.jpg", "JPEG RGB", False, 3),
        ("L", "a.jpg", "JPEG gray", True, 1),
        ("CMYK", "a.jpg", "JPEG CMYK", False, 4),
        ("RGBA", "a.png", "PNG RGBA", False, 4),
        ("LA", "a.png", "PNG gray with alpha", True, 2),
        ("P", "a.png", "PNG palette", False, 3),
        ("P", "a.gif", "GIF palette", False, 3),
        ("1", "a.png", "PNG black and white", True, 1),
        ("I;16", "a.png", "PNG gray 16 bit", True, 1),
        ("I;16", "a.tiff", "TIFF gray 16 bit", True, 1),
        ("F", "a.tiff", "TIFF gray float", True, 1),
        ("RGB", "a.webp", "WEBP RGB", False, 3),
    ],
)
def test_reports_format_mode_channels_and_size(
    tmp_path: Path, mode: str, name: str, stored_as: str, colorless: bool, channels: int
) -> None:
    color = Image.new("RGB", (300, 200), (200, 60, 20))
    Image.new(mode, (300, 200)).save(tmp_path / name) if ";" in mode else color.convert(mode).save(tmp_path / name)
    stats = read_image_stats(tmp_path / name)
    assert (stats.stored_as, stats.grayscale, stats.size_px) == (stored_as, colorless, (300, 200))
    assert stored_channels(stored_as) == channels


@pytest.mark.parametrize(("name", "stored_as"), [("a.png", "PNG RGB 16 bit"), ("a.tiff", "TIFF RGB 16 bit")])
def test_16_bit_color_is_reported(tmp_path: Path, name: str, stored_as: str) -> None:
    cv2.imwrite(str(tmp_path / name), np.full((20, 30, 3), 40_000, np.uint16))
    assert read_image_stats(tmp_path / name).stored_as == stored_as
    assert stored_channels(stored_as) == 3


def test_pixel_values_cover_all_channels(tmp_path: Path) -> None:
    pixels = np.full((40, 50, 3), (100, 130, 160), np.uint8)
    pixels[3, 4] = (7, 130, 250)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    stats = read_image_stats(tmp_path / "a.png")
    assert (stats.lowest_value, stats.mean_value, stats.highest_value) == (7, 130, 250)


@pytest.mark.parametrize(("deviation", "blank"), [(0, True), (8, True), (60, False)])
def test_blank_allows_small_noise(tmp_path: Path, deviation: int, blank: bool) -> None:
    grain = np.random.default_rng(0).normal(0, deviation, (320, 320, 3))
    Image.fromarray((np.array([30, 120, 90]) + grain).clip(0, 255).astype(np.uint8)).save(tmp_path / "a.png")
    assert read_image_stats(tmp_path / "a.png").blank == blank


def test_color_contrast_is_neither_blank_nor_colorless(tmp_path: Path) -> None:
    pixels = np.zeros((64, 64, 3), np.uint8)
    pixels[:, :32], pixels[:, 32:] = (60, 30, 20), (20, 30, 60)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    stats = read_image_stats(tmp_path / "a.png")
    assert not stats.blank
    assert not stats.grayscale


def test_digest_depends_on_pixels_not_file(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (30, 20, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    Image.fromarray(pixels).save(tmp_path / "b.bmp")
    Image.fromarray(pixels.reshape(20, 30, 3)).save(tmp_path / "other shape.png")
    pixels[29, 19, 2] ^= 1
    Image.fromarray(pixels).save(tmp_path / "one bit.png")
    digests = [
        read_image_stats(tmp_path / name).digest for name in ("a.png", "b.bmp", "other shape.png", "one bit.png")
    ]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_large_photo_reports_full_size(tmp_path: Path) -> None:
    Image.new("RGB", (2400, 1800)).save(tmp_path / "a.jpg")
    Image.new("RGB", (2402, 1800)).save(tmp_path / "b.jpg")
    first, second = read_image_stats(tmp_path / "a.jpg"), read_image_stats(tmp_path / "b.jpg")
    assert first.size_px == (2400, 1800)
    assert first.digest != second.digest


def test_synthetic_photo_reports_size_and_hash() -> None:
    stats = read_image_stats(SyntheticPhoto("cats", 0, 0))
    assert (stats.stored_as, stats.size_px) == ("drawn", (224, 224))
    assert stats.hash != read_image_stats(SyntheticPhoto("cats", 1, 0)).hash


def test_facts_keep_order_with_errors_in_sequence(tmp_path: Path) -> None:
    paths = [tmp_path / f"{index}.png" for index in range(150)]
    for index, path in enumerate(paths):
        path.write_text("no photo") if index % 50 == 7 else Image.new("RGB", (index + 1, 5)).save(path)
    for index, result in enumerate(read_all_image_stats(paths, workers=3)):
        if isinstance(result, ImageStats):
            assert result.size_px == (index + 1, 5)
        else:
            assert isinstance(result, UnreadablePhoto)
            assert index % 50 == 7
            assert paths[index].name in str(result)
    assert list(read_all_image_stats([], workers=1)) == []


def test_limits_photos_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    requested = [0]

    def photos() -> Iterator[SyntheticPhoto]:
        while requested[0] < 1000:
            requested[0] += 1
            yield SyntheticPhoto("cats", 0, requested[0])

    monkeypatch.setattr(image_stats, "_MAX_PENDING", 5)
    monkeypatch.setattr(image_stats, "_stats_or_error", lambda photo: UnreadablePhoto(photo.name))
    results = read_all_image_stats(photos(), workers=2)
    assert [str(next(results)).rpartition("/")[2] for _ in range(3)] == ["0001", "0002", "0003"]
    assert requested[0] <= 3 + 5
