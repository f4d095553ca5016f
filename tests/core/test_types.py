from pathlib import Path

import numpy as np
import pytest

from familiar.core.types import Box, Crop, Face, Photo


def pixels(height: int, width: int) -> np.ndarray:
    return np.zeros((height, width, 3), np.uint8)


def test_photo_size_is_width_then_height() -> None:
    photo = Photo(pixels(4, 6), Path("cat.jpg"), (60, 40))
    assert photo.size_px == (6, 4)
    assert Crop(pixels(5, 5), "drawn").size_px == 5


@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros((4, 6, 3), np.float32),
        np.zeros((4, 6), np.uint8),
        np.zeros((4, 6, 4), np.uint8),
        np.zeros((3, 4, 6), np.uint8),
        np.zeros((1, 4, 6, 3), np.uint8),
        np.zeros((0, 6, 3), np.uint8),
        np.zeros((4, 0, 3), np.uint8),
    ],
    ids=lambda wrong: f"{wrong.dtype}{wrong.shape}",
)
def test_rejects_non_rgb_uint8_pixels_with_photo_name(wrong: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"^cat\.jpg: expected uint8"):
        Photo(wrong, "cat.jpg", (6, 4))
    with pytest.raises(ValueError, match=r"^cat\.jpg: expected uint8"):
        Crop(wrong, "cat.jpg")


@pytest.mark.usefixtures("unchecked_signatures")
def test_rejects_non_square_crop() -> None:
    with pytest.raises(ValueError, match=r"^cat\.jpg: a crop must be square"):
        Crop(pixels(4, 6), "cat.jpg")


def test_box_area_equals_width_times_height() -> None:
    assert Face((1.0, 2.0, 4.0, 8.0), None, 0.5).box_xyxy_px.area == 3 * 6


def test_overlaps_of_boxes() -> None:
    box = Box(0.0, 0.0, 2.0, 2.0)
    assert box.intersection(Box(1, 1, 3, 4)) == 1
    assert box.intersection_over_union(box) == 1
    assert box.intersection_over_union(Box(1, 1, 3, 3)) == 1 / 7
    assert box.intersection_over_union(Box(2, 0, 3, 2)) == 0
    assert box.is_same_face(Box(1, 0, 9, 9))  # half of the smaller box
    assert not box.is_same_face(Box(1.01, 0, 9, 9))


@pytest.mark.parametrize("score", [0.0, 1.0])
def test_accepts_box_outside_photo_and_scores_zero_and_one(score: float) -> None:
    Face((-5.0, -1.0, 4.0, 8.0), np.zeros((5, 2), np.float32), score)


@pytest.mark.parametrize(
    "box",
    [
        (1.0, 0.0, 1.0, 2.0),
        (0.0, 2.0, 1.0, 2.0),
        (2.0, 0.0, 1.0, 2.0),
        (0.0, 3.0, 1.0, 2.0),
        (float("nan"), 0.0, 1.0, 2.0),
        (0.0, 0.0, float("inf"), 2.0),
        (0.0, float("-inf"), 1.0, 2.0),
    ],
)
def test_rejects_empty_or_non_finite_box(box: tuple[float, float, float, float]) -> None:
    with pytest.raises(ValueError, match="box"):
        Face(box, None, 0.5)


@pytest.mark.parametrize("score", [-0.01, 1.01, float("nan")])
def test_rejects_score_outside_zero_to_one(score: float) -> None:
    with pytest.raises(ValueError, match="score"):
        Face((0.0, 0.0, 1.0, 1.0), None, score)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_rejects_non_finite_landmarks(value: float) -> None:
    landmarks_px = np.zeros((5, 2), np.float32)
    landmarks_px[3, 1] = value
    with pytest.raises(ValueError, match="landmarks"):
        Face((0.0, 0.0, 1.0, 1.0), landmarks_px, 0.5)
