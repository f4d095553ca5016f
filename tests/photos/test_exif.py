"""Capture time read from EXIF metadata."""

from pathlib import Path

import pytest
from PIL import ExifTags, Image

from familiar.photos.exif import capture_time

BASE, WITHIN = ExifTags.Base, ExifTags.IFD.Exif


def photo(path: Path, original: object = None, changed: object = None) -> Path:
    exif = Image.Exif()
    if changed is not None:
        exif[BASE.DateTime] = changed
    if original is not None:
        exif.get_ifd(WITHIN)[BASE.DateTimeOriginal] = original
    Image.new("RGB", (8, 8)).save(path, exif=exif)
    return path


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp"])
def test_prefers_original_time_to_change_time(tmp_path: Path, suffix: str):
    path = photo(tmp_path / f"photo.{suffix}", "2024:06:01 12:30:05", "2025:01:01 00:00:00")
    assert capture_time(path) == "2024-06-01T12:30:05"


def test_returns_change_time_without_original_time(tmp_path: Path):
    assert capture_time(photo(tmp_path / "photo.jpg", changed="2025:01:02 03:04:05")) == "2025-01-02T03:04:05"


@pytest.mark.parametrize(
    "timestamp", ["0000:00:00 00:00:00", "    :  :     :  :  ", "2024:13:01 00:00:00", "yesterday", "2024:06:01"]
)
def test_returns_none_for_invalid_time(tmp_path: Path, timestamp: str):
    assert capture_time(photo(tmp_path / "photo.jpg", timestamp)) is None


def test_ignores_text_after_seconds(tmp_path: Path):
    assert capture_time(photo(tmp_path / "photo.jpg", "2024:06:01 12:30:05+02:00")) == "2024-06-01T12:30:05"


@pytest.mark.parametrize("content", [b"", b"\xff\xd8\xff", b"no photo"])
def test_returns_none_for_files_without_time(tmp_path: Path, content: bytes):
    (tmp_path / "broken.jpg").write_bytes(content)
    assert capture_time(photo(tmp_path / "plain.jpg")) is None
    assert capture_time(tmp_path / "broken.jpg") is None
    assert capture_time(tmp_path / "missing.jpg") is None
    assert capture_time(tmp_path) is None
