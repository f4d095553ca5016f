"""When a photo was taken, as far as its file says so."""

from pathlib import Path

import pytest
from PIL import ExifTags, Image

from familiar.faces.taken import taken_at

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
def test_the_time_it_was_taken_goes_before_that_of_a_change(tmp_path: Path, suffix: str):
    path = photo(tmp_path / f"photo.{suffix}", "2024:06:01 12:30:05", "2025:01:01 00:00:00")
    assert taken_at(path) == "2024-06-01T12:30:05"


def test_the_time_of_a_change_is_better_than_none(tmp_path: Path):
    assert taken_at(photo(tmp_path / "photo.jpg", changed="2025:01:02 03:04:05")) == "2025-01-02T03:04:05"


@pytest.mark.parametrize(
    "said", ["0000:00:00 00:00:00", "    :  :     :  :  ", "2024:13:01 00:00:00", "yesterday", "2024:06:01"]
)
def test_what_is_no_time_is_none(tmp_path: Path, said: str):
    assert taken_at(photo(tmp_path / "photo.jpg", said)) is None


def test_what_stands_behind_the_seconds_does_not_matter(tmp_path: Path):
    assert taken_at(photo(tmp_path / "photo.jpg", "2024:06:01 12:30:05+02:00")) == "2024-06-01T12:30:05"


@pytest.mark.parametrize("content", [b"", b"\xff\xd8\xff", b"no photo"])
def test_files_that_say_nothing(tmp_path: Path, content: bytes):
    (tmp_path / "broken.jpg").write_bytes(content)
    assert taken_at(photo(tmp_path / "plain.jpg")) is None
    assert taken_at(tmp_path / "broken.jpg") is None
    assert taken_at(tmp_path / "missing.jpg") is None
    assert taken_at(tmp_path) is None
