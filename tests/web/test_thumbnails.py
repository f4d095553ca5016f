"""Thumbnails: content, size, no metadata, and caching."""

import asyncio
import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import ExifTags, Image

from familiar.core.errors import UnreadablePhoto
from familiar.core.files import content_sha256
from familiar.photos.decoding import decode_photo
from familiar.web import thumbnails as module
from familiar.web.errors import HttpProblem
from familiar.web.settings import Limits
from familiar.web.thumbnails import Thumbnail, Thumbnails

SECONDS = 10
RED, GREEN, BLUE, WHITE = (220, 20, 20), (20, 220, 20), (20, 20, 220), (255, 255, 255)


def quarters(path: Path, size_px: tuple[int, int] = (800, 600), orientation: int = 1) -> Path:
    """Write a photo of red, green / blue, white, with a location and a maker in its EXIF."""
    image = Image.new("RGB", size_px)
    width, height = size_px[0] // 2, size_px[1] // 2
    for index, color in enumerate((RED, GREEN, BLUE, WHITE)):
        image.paste(color, (index % 2 * width, index // 2 * height, size_px[0], size_px[1]))
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    exif[ExifTags.Base.Make] = "a maker"
    exif.get_ifd(ExifTags.IFD.GPSInfo)[ExifTags.GPS.GPSLatitude] = (52.0, 5.0, 7.0)
    image.save(path, quality=95, exif=exif)
    return path


FIRST, SECOND, THIRD = ((0.0, 0.0, 90.0, 90.0), (9.0, 9.0, 90.0, 90.0), (0.0, 0.0, 80.0, 80.0))


def sha256_of(path: Path) -> str:
    return content_sha256(path).hex()


def drawing(work: Callable[[Thumbnails], Any], limits: Limits | None = None) -> Any:
    async def run() -> Any:
        pictures = Thumbnails(limits or Limits())
        try:
            return await asyncio.wait_for(work(pictures), SECONDS)
        finally:
            pictures.close()

    return asyncio.run(run())


def pixels(picture: Thumbnail) -> np.ndarray:
    with Image.open(io.BytesIO(picture.content)) as image:
        assert image.format == "JPEG"
        return np.asarray(image)


def is_nearly(pixel: np.ndarray, color: tuple[int, int, int]) -> bool:
    return bool(np.abs(pixel.astype(int) - color).max() < 30)


@pytest.mark.parametrize(
    ("requested", "size_px", "suffix", "made"),
    [
        (256, (800, 600), ".jpg", (256, 192)),
        (200, (800, 600), ".png", (256, 192)),  # rounded up
        (1, (800, 600), ".jpg", (64, 48)),
        (300, (300, 1200), ".jpg", (128, 512)),
        (1600, (800, 600), ".jpg", (800, 600)),  # not enlarged
        (9999, (3000, 30), ".png", (2048, 20)),
        (64, (4000, 1), ".png", (64, 1)),
    ],
)
def test_photo_is_scaled_to_standard_size_without_enlarging(
    requested: int, size_px: tuple[int, int], suffix: str, made: tuple[int, int], tmp_path: Path
):
    path = quarters(tmp_path / f"photo{suffix}", size_px)
    picture = pixels(drawing(lambda pictures: pictures.photo(path, sha256_of(path), requested)))
    assert picture.shape[1::-1] == made
    if made[1] > 1:
        colors = (RED, GREEN, BLUE, WHITE)
        corners = (picture[0, 0], picture[0, -1], picture[-1, 0], picture[-1, -1])
        assert all(map(is_nearly, corners, colors))


def test_photo_is_upright_without_metadata(tmp_path: Path):
    path = quarters(tmp_path / "photo.jpg", orientation=6)  # to be turned clockwise
    picture = drawing(lambda pictures: pictures.photo(path, sha256_of(path), 256))
    shown = pixels(picture)
    assert shown.shape[:2] == (256, 192)
    assert is_nearly(shown[0, 0], BLUE)
    assert is_nearly(shown[0, -1], RED)
    with Image.open(io.BytesIO(picture.content)) as image:
        assert not image.getexif()
    assert b"a maker" not in picture.content
    assert b"Exif" not in picture.content


@pytest.mark.parametrize("size_px", [(800, 600), (4000, 3000)])  # the latter is decoded at a smaller scale
def test_face_picture_is_centered_square(size_px: tuple[int, int], tmp_path: Path):
    path = quarters(tmp_path / "photo.jpg", size_px)
    middle_x, middle_y = size_px[0] / 2, size_px[1] / 2
    half = size_px[0] / 10
    box = (middle_x - half, middle_y - half / 2, middle_x + half, middle_y + half / 2)
    face = pixels(drawing(lambda pictures: pictures.face(path, sha256_of(path), box, 128)))
    assert face.shape == (128, 128, 3)
    for row, column, color in ((20, 20, RED), (20, 108, GREEN), (108, 20, BLUE), (108, 108, WHITE)):
        assert is_nearly(face[row, column], color)
    edges = np.abs(np.diff(face[20].astype(int), axis=0)).sum(axis=1)
    assert abs(int(edges.argmax()) - 63) <= 1  # the box is in the middle


def test_face_picture_has_quarter_margin(tmp_path: Path):
    image = Image.new("RGB", (400, 400), WHITE)
    image.paste(RED, (160, 160, 240, 240))
    image.save(tmp_path / "photo.png")
    face = pixels(
        drawing(
            lambda pictures: pictures.face(
                tmp_path / "photo.png", sha256_of(tmp_path / "photo.png"), (160.0, 160.0, 240.0, 240.0), 512
            )
        )
    )
    assert face.shape == (120, 120, 3)  # a quarter of 80 on either side, not enlarged
    assert is_nearly(face[60, 16], WHITE)
    assert is_nearly(face[60, 24], RED)
    assert is_nearly(face[60, 95], RED)
    assert is_nearly(face[60, 104], WHITE)


@pytest.mark.parametrize("box", [(-30.0, -30.0, 30.0, 30.0), (0.0, 0.0, 60.0, 60.0), (0.0, 0.0, 0.0, 0.0)])
def test_face_picture_stays_inside_photo(box: tuple[float, float, float, float], tmp_path: Path):
    path = quarters(tmp_path / "photo.png")
    face = pixels(drawing(lambda pictures: pictures.face(path, sha256_of(path), box, 64)))
    assert face.shape[0] == face.shape[1] <= 64
    assert is_nearly(face[0, 0], RED)
    assert is_nearly(face[-1, -1], RED)


@pytest.mark.parametrize("far", [1e9, 0.0])
def test_box_covering_photo_shows_central_square(far: float, tmp_path: Path):
    path = quarters(tmp_path / "photo.png")
    with Image.open(path) as image:
        seen = np.asarray(image.convert("RGB"))
    height, width = seen.shape[:2]
    box = (-far, -far, width + far, height + far)
    face = pixels(drawing(lambda pictures: pictures.face(path, sha256_of(path), box, 64)))
    short = min(width, height)
    left_px, top_px = (width - short) // 2, (height - short) // 2
    for index, offset in ((0, 2), (-1, -3)):  # away from where two colors meet
        expected = seen[top_px : top_px + short, left_px : left_px + short][offset, offset]
        assert is_nearly(face[index, index], tuple(expected.tolist()))


def test_large_photo_is_decoded_at_smallest_sufficient_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sizes: list[tuple[int, int]] = []

    def decode(*args: Any, **kwargs: Any) -> Any:
        photo = decode_photo(*args, **kwargs)
        sizes.append(photo.size_px)
        return photo

    monkeypatch.setattr("familiar.photos.thumbnails.decode_photo", decode)
    path = quarters(tmp_path / "photo.jpg", (4000, 2400))

    async def work(pictures: Thumbnails) -> None:
        await pictures.photo(path, sha256_of(path), 512)
        await pictures.face(path, sha256_of(path), (1000.0, 500.0, 3000.0, 2000.0), 256)  # most of it
        await pictures.face(path, sha256_of(path), (1000.0, 500.0, 1100.0, 600.0), 256)  # all its pixels are wanted

    drawing(work)
    assert sizes == [(1000, 600), (500, 300), (4000, 2400)]


def test_concurrent_requests_share_one_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, made = quarters(tmp_path / "photo.jpg"), 0
    go = threading.Event()

    def decode(*args: Any, **kwargs: Any) -> Any:
        nonlocal made
        made += 1
        assert go.wait(SECONDS)
        return decode_photo(*args, **kwargs)

    monkeypatch.setattr("familiar.photos.thumbnails.decode_photo", decode)

    async def work(pictures: Thumbnails) -> list[Thumbnail]:
        requested = [asyncio.create_task(pictures.photo(path, sha256_of(path), side)) for side in (200, 256, 130, 200)]
        await asyncio.sleep(0)
        requested[0].cancel()  # the others wait for the same picture
        await asyncio.sleep(0)
        go.set()
        return [*await asyncio.gather(*requested[1:]), await pictures.photo(path, sha256_of(path), 256)]

    first, *others = drawing(work)
    assert all(other is first for other in others)
    assert made == 1


def test_etag_depends_on_photo_box_and_size(tmp_path: Path):
    path, other = quarters(tmp_path / "photo.jpg"), quarters(tmp_path / "other.jpg", (600, 800))

    async def work(pictures: Thumbnails) -> list[Thumbnail]:
        return [
            await pictures.photo(path, sha256_of(path), 256),
            await pictures.photo(other, sha256_of(other), 256),
            await pictures.photo(path, sha256_of(path), 512),
            await pictures.face(path, sha256_of(path), (0.0, 0.0, 90.0, 90.0), 256),
            await pictures.face(path, sha256_of(path), (0.0, 0.0, 90.0, 91.0), 256),
            await pictures.face(path, sha256_of(path), (0.0, 0.0, 90.0, 90.0), 64),
            await pictures.face(other, sha256_of(other), (0.0, 0.0, 90.0, 90.0), 64),
        ]

    made = drawing(work)
    assert len({picture.etag for picture in made}) == len(made)
    assert [picture.etag for picture in drawing(work)] == [picture.etag for picture in made]
    assert all(picture.etag.startswith('"') and picture.etag.endswith('"') for picture in made)


def test_cache_evicts_least_recently_used_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = quarters(tmp_path / "photo.jpg")
    sha256 = sha256_of(path)

    async def work(pictures: Thumbnails) -> list[bool]:
        first = await pictures.face(path, sha256, FIRST, 256)
        monkeypatch.setattr(module, "MAX_CACHE_BYTES", 2 * (len(first.content) + module.ENTRY_BYTES) + 100)
        second = await pictures.face(path, sha256, SECOND, 256)
        assert await pictures.face(path, sha256, FIRST, 256) is first
        await pictures.face(path, sha256, THIRD, 256)
        return [
            await pictures.face(path, sha256, FIRST, 256) is first,
            await pictures.face(path, sha256, SECOND, 256) is second,
        ]

    assert drawing(work) == [True, False]


def test_rejects_requests_above_waiting_limit(tmp_path: Path):
    path = quarters(tmp_path / "photo.jpg")
    sha256 = sha256_of(path)

    async def work(pictures: Thumbnails) -> list[Any]:
        requested = (pictures.face(path, sha256, box, 64) for box in (FIRST, SECOND, FIRST, THIRD))
        answers = await asyncio.gather(*requested, return_exceptions=True)
        return [*answers, await pictures.face(path, sha256, THIRD, 64)]

    a, b, again, refused, c = drawing(work, Limits(waiting_requests=2))
    assert a is again
    assert isinstance(refused, HttpProblem)
    assert refused.kind == "busy"
    assert isinstance(b, Thumbnail)
    assert isinstance(c, Thumbnail)


def test_rejects_photo_with_changed_content(tmp_path: Path):
    path = quarters(tmp_path / "photo.jpg")
    enrolled = sha256_of(path)
    quarters(path, (600, 800))
    for request in (
        lambda pictures: pictures.photo(path, enrolled, 64),
        lambda pictures: pictures.face(path, enrolled, FIRST, 64),
        lambda pictures: pictures.size_px(path, enrolled),
    ):
        with pytest.raises(UnreadablePhoto, match="has changed"):
            drawing(request)


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
def test_size_is_upright_and_cached(tmp_path: Path, suffix: str):
    path = quarters(tmp_path / f"photo{suffix}", (800, 600), orientation=6)

    async def work(pictures: Thumbnails) -> list[tuple[int, int]]:
        first = await pictures.size_px(path, sha256_of(path))
        path_again = path.with_name("gone")  # it is remembered
        return [first, await pictures.size_px(path_again, sha256_of(path))]

    assert drawing(work) == [(600, 800)] * 2


def test_read_errors_are_not_cached(tmp_path: Path):
    path = tmp_path / "photo.jpg"

    async def work(pictures: Thumbnails) -> Thumbnail:
        for request in (pictures.photo, lambda *args: pictures.face(*args[:2], (0.0, 0.0, 9.0, 9.0), args[2])):
            with pytest.raises(UnreadablePhoto, match="No such file"):
                await request(path, "a", 64)
        quarters(path)
        return await pictures.photo(path, sha256_of(path), 64)

    assert pixels(drawing(work)).shape == (48, 64, 3)
    with pytest.raises(UnreadablePhoto, match="more than 1,000 pixels"):
        drawing(lambda pictures: pictures.photo(path, sha256_of(path), 64), Limits(photo_pixels=1_000))
