"""Detection of all faces of a photo without duplicates, and their quality scores."""

from dataclasses import dataclass
from functools import partial

import cv2
import numpy as np
import pytest

from familiar.core.types import Face, Photo
from familiar.detection.alignment import align
from familiar.detection.detectors import CenterSquare
from familiar.detection.quality import detect_faces, face_quality
from familiar.photos.preprocessing import Preprocessing

CROPS = Preprocessing(size_px=32, resize_px=32, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
CHECKS = (np.indices((64, 64)).sum(axis=0) % 2 * 255).astype(np.uint8)[..., None].repeat(3, axis=2)
align_crops = partial(align, preprocessing=CROPS)
PHOTO = Photo(CHECKS, "checks", (64, 64))


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
    return [face.box_xyxy_px for face in detect_faces(PHOTO, FixedDetector(detections), align_crops, min_score)]


def test_returns_crops_of_all_faces_in_detector_order():
    faces = detect_faces(PHOTO, FixedDetector((box(0, 0, 32, 32, 0.9), box(32, 32, 64, 64, 0.7))), align_crops)
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
    (face,) = detect_faces(PHOTO, CenterSquare(), align_crops)
    assert face.box_xyxy_px == (0, 0, 64, 64)
