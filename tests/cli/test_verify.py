"""`familiar verify` and the gallery's commands on photos with several faces."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from familiar.core.types import Face, Photo
from familiar.detection.detectors import DETECTORS, DetectorSpec
from familiar.embedding import verify
from familiar.gallery import Gallery
from familiar.photos.decoding import save_photo
from support.cli import Familiar

RED, GREEN, BLUE = (220, 20, 20), (20, 220, 20), (20, 20, 220)


class ColoredSquares:
    """A detector that takes each colored square on black for a face, the right one for the best."""

    def detect(self, photo: Photo) -> list[Face]:
        _, _, boxes, _ = cv2.connectedComponentsWithStats((photo.rgb_u8.max(axis=2) > 128).astype(np.uint8))
        corners = [(float(x), float(y), float(x + w), float(y + h)) for x, y, w, h, _ in boxes[1:].tolist()]
        return [Face(box, None, 0.9) for box in sorted(corners, reverse=True)]


@pytest.fixture(autouse=True)
def detector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DETECTORS, "squares", DetectorSpec("colored squares", ColoredSquares))


def photo_of(path: Path, *colors: tuple[int, int, int]) -> Path:
    pixels = np.zeros((40, 200, 3), np.uint8)
    for index, color in enumerate(colors):
        pixels[10:30, 50 * index + 10 : 50 * index + 30] = color
    return save_photo(Photo(pixels, path, (200, 40)), path)


@pytest.fixture
def group(tmp_path: Path) -> Path:
    return photo_of(tmp_path / "group.png", RED, GREEN, BLUE)


@pytest.fixture
def couple(tmp_path: Path) -> Path:
    return photo_of(tmp_path / "couple.png", GREEN, RED)


def test_verify_says_which_face_it_took(familiar: Familiar, group: Path, couple: Path, mean_color_bundle: Path):
    answer = familiar("verify", group, couple, "--model", mean_color_bundle, "--detector", "squares", "--json")
    assert answer.code == 0
    document = json.loads(answer.out)
    assert document["similarity"] < 0.3  # blue and red
    assert (document["faces"], document["face_counts"]) == ([3, 2], [3, 2])
    assert answer.err.splitlines() == [
        f"{group}: face 3 of 3, counted from the left; --face N chooses another",
        f"{couple}: face 2 of 2, counted from the left; --face N chooses another",
    ]


@pytest.mark.parametrize(
    ("chosen", "same"), [((1, 2), True), ((2, 1), True), ((1,), False), ((2,), False), ((3, 1), False)]
)
def test_verify_compares_chosen_faces(
    chosen: tuple[int, ...], same: bool, familiar: Familiar, group: Path, couple: Path, mean_color_bundle: Path
):
    options = [word for number in chosen for word in ("--face", number)]
    answer = familiar("verify", group, couple, "-m", mean_color_bundle, "--detector", "squares", "--json", *options)
    assert json.loads(answer.out)["same"] is same
    faces = (chosen[0], chosen[-1])
    assert [line.split(": ")[1][:11] for line in answer.err.splitlines()] == [
        f"face {faces[0]} of 3",
        f"face {faces[1]} of 2",
    ]
    result = verify(group, couple, mean_color_bundle, detector="squares", faces=faces)
    assert result.similarity == pytest.approx(json.loads(answer.out)["similarity"], abs=1e-5)


def test_verify_is_silent_about_photos_with_one_face(familiar: Familiar, tmp_path: Path, mean_color_bundle: Path):
    photo = photo_of(tmp_path / "one.png", RED)
    assert familiar("verify", photo, photo, "-m", mean_color_bundle, "--detector", "squares").err == ""


def test_verify_rejects_missing_faces(familiar: Familiar, group: Path, couple: Path, mean_color_bundle: Path):
    words = ("verify", group, couple, "--model", mean_color_bundle, "--detector", "squares")
    wrong = familiar(*words, "--face", 3)
    assert (wrong.code, wrong.err) == (1, f"familiar: {couple}: has 2 faces, so there is no face 3\n")
    assert familiar(*words, "--face", 0).code == 2
    many = familiar(*words, *("--face", 1) * 3)
    assert many.code == 2
    assert "at most twice" in many.err
    empty = familiar("verify", photo_of(couple.with_name("empty.png")), couple, *words[3:])
    assert empty.code == 1
    assert "empty.png: no face found; try another detector, or crop the photo" in empty.err


def test_gallery_commands_take_chosen_face(familiar: Familiar, group: Path, tmp_path: Path, mean_color_bundle: Path):
    reds = [photo_of(tmp_path / f"{shade}.png", (shade, 20, 20)) for shade in (200, 220)]
    album, words = tmp_path / "album", ("--model", mean_color_bundle, "--detector", "squares")
    assert familiar("gallery", "enroll", album, *reds, *words).code == 0
    assert familiar("gallery", "split", album, 1, 2, "--name", "Rosa").code == 0
    for face, same in ((1, True), (2, False), (None, False)):
        options = () if face is None else ("--face", face)
        answer = familiar("gallery", "verify", album, group, "Rosa", *words, *options, "--json")
        assert json.loads(answer.out)["same"] is same
        with Gallery.open(album, mean_color_bundle) as gallery:
            assert gallery.verify(group, "Rosa", detector="squares", face=face).same is same
            (match,) = gallery.identify(group, k=1, detector="squares", face=face)
            (hit,) = gallery.search(group, k=1, detector="squares", face=face)
            assert (match.best > 0.9, hit.similarity > 0.9) == (same, same)
        assert answer.err == f"{group}: face {face or 3} of 3, counted from the left; --face N chooses another\n"
        answer = familiar("gallery", "search", album, group, *words, *options, "--json")
        assert (json.loads(answer.out)["photos"][0]["similarity"] > 0.9) is same
        assert f"{group}: face {face or 3} of 3" in answer.err
    assert familiar("gallery", "search", album, group, *words, "--face", 4).code == 1
