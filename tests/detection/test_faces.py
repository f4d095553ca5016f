"""The faces of a photo: without duplicates, the best or a chosen one, their crops and quality scores."""

from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
import pytest

from familiar.core.errors import NoFaceFound, NothingDetected
from familiar.core.types import Crop, Face, Photo
from familiar.detection.alignment import align
from familiar.detection.detectors import CenterSquare, KnownFaces, WholePhoto
from familiar.detection.faces import crop_photo, face_quality, find_faces
from familiar.photos.preprocessing import Preprocessing

CROPS = Preprocessing(size_px=32, resize_px=32, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
CHECKS = (np.indices((64, 64)).sum(axis=0) % 2 * 255).astype(np.uint8)[..., None].repeat(3, axis=2)
PHOTO = Photo(CHECKS, "checks", (64, 64))


def crop_it(photo: Photo, face: Face) -> tuple[Crop, None]:
    return align(photo, face, CROPS), None


@dataclass(frozen=True)
class FixedDetector:
    """A detector that always returns these detections."""

    detections: tuple[Face, ...]

    def detect(self, photo: Photo) -> list[Face]:
        assert photo is PHOTO
        return list(self.detections)


def box(left: float, top: float, right: float, bottom: float, score: float = 1.0) -> Face:
    return Face((left, top, right, bottom), None, score)


def boxes(*detections: Face, min_score: float = 0.0) -> list[tuple[float, ...]]:
    photo = find_faces(PHOTO, FixedDetector(detections), crop_it, min_score=min_score)
    return [face.box_xyxy_px for face in photo.faces]


def test_returns_crops_of_all_faces_in_detector_order():
    detector = FixedDetector((box(0, 0, 32, 32, 0.9), box(32, 32, 64, 64, 0.7)))
    faces = find_faces(PHOTO, detector, crop_it).faces
    assert [face.score for face in faces] == [0.9, 0.7]
    np.testing.assert_array_equal(faces[1].crop.rgb_u8, CHECKS[32:, 32:])
    assert faces[1].quality == face_quality(faces[1], (64, 64), faces[1].crop.rgb_u8)
    assert boxes() == []


def test_skips_detection_below_min_score():
    assert boxes(box(0, 0, 8, 8, 0.6), box(16, 16, 24, 24, 0.5), box(32, 32, 40, 40, 0.4), min_score=0.5) == [
        (0, 0, 8, 8),
        (16, 16, 24, 24),
    ]


@pytest.mark.parametrize(
    ("second", "is_other_face"),
    [
        ((10, 0, 30, 20), False),  # half of it overlaps
        ((11, 0, 31, 20), True),
        ((5, 5, 10, 10), False),  # within the first
        ((0, 0, 40, 40), False),  # the first within it
        ((20, 0, 40, 20), True),  # side by side
    ],
)
def test_keeps_best_overlapping_detection(second: tuple[int, int, int, int], is_other_face: bool):
    first = (0, 0, 20, 20)
    assert boxes(box(*first), box(*second, score=0.9)) == [first] + [second] * is_other_face


def test_keeps_better_of_two_in_detectors_order():
    doubtful, certain, other = box(0, 0, 60, 60, 0.3), box(0, 0, 20, 20, 0.9), box(40, 0, 50, 10, 0.8)
    assert boxes(doubtful, certain, other) == [(0, 0, 20, 20), (40, 0, 50, 10)]
    assert boxes(other, certain) == [(40, 0, 50, 10), (0, 0, 20, 20)]


def test_suppressed_detection_suppresses_no_other():
    assert len(boxes(box(0, 0, 20, 20), box(8, 0, 28, 20, 0.9), box(17, 0, 37, 20, 0.8))) == 2


def test_skips_face_outside_photo():
    assert boxes(box(-40, 0, -8, 20), box(0, 0, 20, 20)) == [(0, 0, 20, 20)]


def test_quality_equals_closed_form():
    crop = CHECKS[:32, :32]
    variance = cv2.Laplacian(crop[..., 0], cv2.CV_64F).var()
    sharp = variance / (variance + 100)
    assert 0.9 < sharp < 1
    assert face_quality(box(0, 0, 32, 32, 0.8), (64, 64), crop) == pytest.approx(0.8 * sharp)
    assert face_quality(box(0, 0, 64, 64), (64, 64), crop) == pytest.approx(sharp)  # shrinking costs nothing
    assert face_quality(box(0, 0, 8, 32), (64, 64), crop) == pytest.approx(sharp / 2)
    assert face_quality(box(-16, 0, 16, 32), (64, 64), crop) == pytest.approx(sharp / 2)
    assert face_quality(box(0, 0, 32, 32), (64, 64), np.full_like(crop, 7)) == 0  # a single color


def test_center_detector_returns_one_face():
    (face,) = find_faces(PHOTO, CenterSquare(), crop_it).faces
    assert face.box_xyxy_px == (0, 0, 64, 64)


def test_faces_are_in_pixels_of_the_file():
    reduced = Photo(CHECKS, "reduced", (128, 256))
    landmarks = np.array([[1, 1], [3, 1], [2, 3]], np.float32)
    photo = find_faces(reduced, KnownFaces({"reduced": [Face((8, 8, 16, 16), landmarks, 1.0)]}), crop_it)
    (face,) = photo.faces
    assert (photo.size_px, face.box_xyxy_px) == ((128, 256), (16, 32, 32, 64))
    np.testing.assert_array_equal(face.landmarks_px, landmarks * [2, 4])


# --- one face -------------------------------------------------------------------------------------------------------

NUMBERED = np.arange(60 * 60 * 3, dtype=np.int64).astype(np.uint8).reshape(60, 60, 3)
DRAWN = Photo(NUMBERED, "drawn", (60, 60))
RIGHT_AND_LEFT = KnownFaces(
    {"drawn": [Face((10.0, 5.0, 30.0, 25.0), None, 0.9), Face((0.0, 0.0, 20.0, 20.0), None, 0.8)]}
)
NO_FACE = KnownFaces({"drawn": []})


@pytest.mark.parametrize(("choice", "number", "left_px"), [("best", 2, 10), (1, 1, 0), (2, 2, 10)])
def test_faces_are_counted_from_the_left(choice: int | Literal["best"], number: int, left_px: int) -> None:
    whole_box = Preprocessing(size_px=20)
    photo = find_faces(DRAWN, RIGHT_AND_LEFT, lambda *face: (align(*face, whole_box), None), choice)
    (face,) = photo.faces
    top_px = left_px // 2
    np.testing.assert_array_equal(face.crop.rgb_u8, NUMBERED[top_px : top_px + 20, left_px : left_px + 20])
    assert (face.from_left, photo.face_count) == (number, 2)


def test_faces_above_each_other_are_counted_from_the_top() -> None:
    low, high = (Face((0.0, top, 20.0, top + 20), None, 0.9) for top in (30.0, 5.0))
    photo = find_faces(DRAWN, KnownFaces({"drawn": [low, high]}), crop_it)
    assert [face.from_left for face in photo.faces] == [2, 1]


def test_wrong_number_says_how_many_faces_there_are() -> None:
    with pytest.raises(NoFaceFound, match=r"^drawn: has 2 faces, so there is no face 3$"):
        find_faces(DRAWN, RIGHT_AND_LEFT, crop_it, 3)
    with pytest.raises(NoFaceFound, match=r"^drawn: has 1 face, so there is no face 2$"):
        find_faces(DRAWN, WholePhoto(), crop_it, 2)
    with pytest.raises(ValueError, match="counted from 1, got 0"):
        find_faces(DRAWN, RIGHT_AND_LEFT, crop_it, 0)


def test_best_face_is_one_that_can_be_cropped() -> None:
    outside = Face((-40.0, 0.0, -8.0, 20.0), None, 0.9)
    inside = Face((0.0, 0.0, 20.0, 20.0), None, 0.8)
    photo = find_faces(DRAWN, KnownFaces({"drawn": [outside, inside]}), crop_it, "best")
    assert [face.score for face in photo.faces] == [0.8]
    with pytest.raises(NoFaceFound, match="outside the photo"):
        find_faces(DRAWN, KnownFaces({"drawn": [outside]}), crop_it, "best")


def test_photo_without_a_face_is_an_error_only_if_one_is_chosen() -> None:
    assert find_faces(DRAWN, NO_FACE, crop_it).faces == ()
    with pytest.raises(NothingDetected, match=r"^drawn: no face found; try another detector, or crop the photo"):
        find_faces(DRAWN, NO_FACE, crop_it, "best")


def test_photo_without_a_face_says_what_was_looked_for() -> None:
    class FindsNoPets:
        labels = ("cat", "dog")

        def detect(self, photo: Photo) -> list[Face]:  # noqa: ARG002 - there are none
            return []

    with pytest.raises(
        NoFaceFound,
        match=r"no head of a cat or dog found; it was not searched for people: that takes --detector auto and a model "
        r"for them \(--model person-mobile\), or crop",
    ):
        find_faces(DRAWN, FindsNoPets(), crop_it, "best")


def test_crop_keeps_pixels_when_photo_has_its_size() -> None:
    rgb_u8 = np.random.default_rng(0).integers(0, 256, (112, 112, 3), dtype=np.uint8)
    photo = Photo(rgb_u8, "drawn", (112, 112))
    crop = crop_photo(photo, Preprocessing(size_px=112, margin=0.5), open_photo=lambda photo, **_: photo)
    np.testing.assert_array_equal(crop.rgb_u8, rgb_u8)
