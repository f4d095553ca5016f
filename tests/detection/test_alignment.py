import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Float

from familiar.core.errors import NoFaceFound
from familiar.core.types import Face, Photo
from familiar.detection.alignment import TEMPLATE_112_PX, align, similarity_transform, template_px
from familiar.detection.detector import looked_for
from familiar.detection.detectors import build_detector
from familiar.photos.preprocessing import Preprocessing

WHOLE = (0.0, 0.0, 1.0, 1.0)  # any box: it is ignored if there are landmarks
REFLECTION = np.array([[-1.0, 0.0], [0.0, 1.0]])


def photo_of(rgb_u8: np.ndarray) -> Photo:
    return Photo(rgb_u8, "drawn", rgb_u8.shape[1::-1])


def transformed(points: np.ndarray, scale: float, angle_rad: float, shift: tuple[float, float]) -> np.ndarray:
    cos, sin = np.cos(angle_rad), np.sin(angle_rad)
    return scale * points @ np.array([[cos, -sin], [sin, cos]]).T + shift


def dotted(points_px: np.ndarray, width: int, height: int, sigma_px: float) -> Photo:
    """Draw a soft white dot on black at each point; the center of the first pixel is (0.5, 0.5)."""
    y, x = np.mgrid[:height, :width] + 0.5
    light = sum(np.exp(-((x - px) ** 2 + (y - py) ** 2) / (2 * sigma_px**2)) for px, py in points_px)
    return photo_of(np.repeat((light * 255).clip(0, 255).round().astype(np.uint8)[..., None], 3, axis=2))


def brightest_near(rgb_u8: np.ndarray, point_px: np.ndarray, radius_px: float) -> np.ndarray:
    """Compute the center of brightness within a radius of a point."""
    y, x = np.mgrid[: rgb_u8.shape[0], : rgb_u8.shape[1]] + 0.5
    weight = rgb_u8[..., 0] * ((x - point_px[0]) ** 2 + (y - point_px[1]) ** 2 < radius_px**2)
    assert weight.sum() > 0
    return np.array([(x * weight).sum(), (y * weight).sum()]) / weight.sum()


# similarity_transform


def umeyama_by_svd(source: Float[np.ndarray, "n 2"], target: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "2 3"]:
    """Compute the transform by Umeyama 1991, Eq. 40 to 42, literally."""
    source_mean, target_mean = source.mean(axis=0), target.mean(axis=0)
    variance = ((source - source_mean) ** 2).sum(axis=1).mean()
    covariance = (target - target_mean).T @ (source - source_mean) / len(source)
    u, singular, vt = np.linalg.svd(covariance)
    signs = np.array([1.0, np.sign(np.linalg.det(u) * np.linalg.det(vt))])
    rotation = u @ np.diag(signs) @ vt
    scale = (singular * signs).sum() / variance
    return np.column_stack([scale * rotation, target_mean - scale * rotation @ source_mean])


def test_quarter_turn_equals_closed_form() -> None:
    source = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    target = np.array([[5.0, 7.0], [5.0, 9.0], [3.0, 7.0]])  # twice as large, x to y, y to -x
    np.testing.assert_allclose(similarity_transform(source, target), [[0, -2, 5], [2, 0, 7]], atol=1e-12)


@given(
    scale=st.floats(0.01, 100),
    angle_rad=st.floats(-np.pi, np.pi),
    x=st.floats(-1000, 1000),
    y=st.floats(-1000, 1000),
)
def test_recovers_known_transform(scale: float, angle_rad: float, x: float, y: float) -> None:
    target = transformed(TEMPLATE_112_PX, scale, angle_rad, (x, y))
    matrix = similarity_transform(TEMPLATE_112_PX, target)
    cos, sin = scale * np.cos(angle_rad), scale * np.sin(angle_rad)
    np.testing.assert_allclose(matrix, [[cos, -sin, x], [sin, cos, y]], rtol=1e-9, atol=1e-9)


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(3, 8))
def test_matches_umeyama_and_never_reflects(seed: int, count: int) -> None:
    random = np.random.default_rng(seed)
    source = random.normal(size=(count, 2))
    for target in (random.normal(size=(count, 2)), source @ REFLECTION + random.normal(0, 0.1, (count, 2))):
        matrix = similarity_transform(source, target)
        np.testing.assert_allclose(matrix, umeyama_by_svd(source, target), rtol=1e-6, atol=1e-9)
        assert np.linalg.det(matrix[:, :2]) > 0


@given(seed=st.integers(0, 2**32 - 1))
def test_transform_is_local_least_squares_minimum(seed: int) -> None:
    random = np.random.default_rng(seed)
    source, target = random.normal(size=(2, 5, 2))

    def error(parameters: np.ndarray) -> float:
        a, b, x, y = parameters
        return float(((source @ np.array([[a, -b], [b, a]]).T + (x, y) - target) ** 2).sum())

    matrix = similarity_transform(source, target)
    best = np.array([matrix[0, 0], matrix[1, 0], matrix[0, 2], matrix[1, 2]])
    for nudge in 1e-3 * random.normal(size=(20, 4)):
        assert error(best) <= error(best + nudge)


def test_rejects_coincident_points() -> None:
    with pytest.raises(ValueError, match="one point"):
        similarity_transform(np.full((5, 2), 0.1), TEMPLATE_112_PX)


def test_rejects_mirrored_square() -> None:
    square = np.array([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])
    with pytest.raises(ValueError, match="no rotation"):
        similarity_transform(square, square @ REFLECTION)


# template_px


def test_template_matches_arcface_at_112_px() -> None:
    np.testing.assert_array_equal(template_px(112, 0.0), TEMPLATE_112_PX)
    np.testing.assert_allclose(template_px(224, 0.0), 2 * TEMPLATE_112_PX)


def test_margin_shrinks_template_about_center() -> None:
    np.testing.assert_allclose(template_px(112, 0.5) - 56, (TEMPLATE_112_PX - 56) / 2)


# align, with landmarks


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize("size_px", [64, 112, 224])
@pytest.mark.parametrize("margin", [0.0, 0.3])
@pytest.mark.parametrize(
    ("scale", "angle_rad", "shift"),
    [
        (1.0, 0.0, (40.0, 30.0)),
        (1.7, 0.5, (150.0, 30.0)),
        (0.8, -0.7, (60.0, 150.0)),
        (4.5, 0.3, (200.0, 50.0)),  # shrinks to a quarter and less
        (2.0, np.pi, (320.0, 330.0)),  # upside down
    ],
)
def test_landmarks_map_to_template(
    size_px: int, margin: float, scale: float, angle_rad: float, shift: tuple[float, float]
) -> None:
    landmarks_px = transformed(TEMPLATE_112_PX, scale, angle_rad, shift)
    photo = dotted(landmarks_px, 900, 800, sigma_px=2.5 * scale)
    preprocessing = Preprocessing(size_px=size_px, margin=margin)
    crop = align(photo, Face(WHOLE, landmarks_px.astype(np.float32), 1.0), preprocessing)
    expected = template_px(size_px, margin)
    radius_px = 10 * size_px / 112 / (1 + 2 * margin)
    for point in expected:
        np.testing.assert_allclose(brightest_near(crop.rgb_u8, point, radius_px), point, atol=0.12)


def test_aligned_face_keeps_its_pixels() -> None:
    rgb_u8 = np.random.default_rng(0).integers(0, 256, (112, 112, 3), dtype=np.uint8)
    detection = Face(WHOLE, TEMPLATE_112_PX.astype(np.float32), 1.0)
    crop = align(photo_of(rgb_u8), detection, Preprocessing(size_px=112))
    # OpenCV samples at 1/32 of a pixel, and the template is rounded to float32: no pixel may change.
    np.testing.assert_array_equal(crop.rgb_u8, rgb_u8)
    assert crop.source == "drawn"


def test_integer_downscale_averages_blocks() -> None:
    rgb_u8 = np.random.default_rng(0).integers(0, 256, (448, 448, 3), dtype=np.uint8)
    detection = Face(WHOLE, (4 * TEMPLATE_112_PX).astype(np.float32), 1.0)
    crop = align(photo_of(rgb_u8), detection, Preprocessing(size_px=112))
    blocks = rgb_u8.reshape(112, 4, 112, 4, 3).mean(axis=(1, 3))
    np.testing.assert_allclose(crop.rgb_u8, blocks, atol=1)


@pytest.mark.parametrize("scale", [2.0, 3.3, 7.9])
@pytest.mark.parametrize("angle_rad", [0.0, 0.4])
def test_strong_downscale_does_not_alias(scale: float, angle_rad: float) -> None:
    y, x = np.mgrid[:1400, :1400]
    checkerboard = np.repeat((255 * ((x + y) % 2)).astype(np.uint8)[..., None], 3, axis=2)
    landmarks_px = transformed(TEMPLATE_112_PX, scale, angle_rad, (400.0, 100.0))
    crop = align(photo_of(checkerboard), Face(WHOLE, landmarks_px.astype(np.float32), 1.0), Preprocessing(size_px=112))
    assert np.abs(crop.rgb_u8.astype(int) - 127.5).max() < 16  # point sampling would give 127


def test_pixels_outside_photo_are_black() -> None:
    white = photo_of(np.full((112, 56, 3), 255, np.uint8))
    detection = Face(WHOLE, TEMPLATE_112_PX.astype(np.float32), 1.0)
    crop = align(white, detection, Preprocessing(size_px=112)).rgb_u8
    assert (crop[:, :56] == 255).all()
    assert (crop[:, 57:] == 0).all()


def test_rejects_landmarks_outside_photo() -> None:
    landmarks_px = (TEMPLATE_112_PX + 500).astype(np.float32)
    with pytest.raises(NoFaceFound, match="drawn: the landmarks lie outside the photo"):
        align(photo_of(np.zeros((100, 100, 3), np.uint8)), Face(WHOLE, landmarks_px, 1.0), Preprocessing())


def test_rejects_coincident_landmarks() -> None:
    landmarks_px = np.full((5, 2), 50.1, np.float32)
    with pytest.raises(NoFaceFound, match=r"drawn: .*one point"):
        align(photo_of(np.zeros((100, 100, 3), np.uint8)), Face(WHOLE, landmarks_px, 1.0), Preprocessing())


@pytest.mark.parametrize("spread_px", [1e-4, 1e6, 1e30])
def test_extreme_landmark_spread_returns_crop(spread_px: float) -> None:
    landmarks_px = ((TEMPLATE_112_PX - 56) * spread_px + 50).astype(np.float32)
    photo = photo_of(np.full((100, 100, 3), 200, np.uint8))
    assert align(photo, Face(WHOLE, landmarks_px, 1.0), Preprocessing(size_px=32)).size_px == 32


# align, without landmarks

NUMBERED = np.arange(40 * 60 * 3, dtype=np.uint32).astype(np.uint8).reshape(40, 60, 3)


def crop_by_box(box_xyxy_px: tuple[float, float, float, float], margin: float, size_px: int) -> np.ndarray:
    preprocessing = Preprocessing(size_px=size_px, margin=margin)
    return align(photo_of(NUMBERED), Face(box_xyxy_px, None, 1.0), preprocessing).rgb_u8


def test_box_at_crop_size_keeps_its_pixels() -> None:
    np.testing.assert_array_equal(crop_by_box((10.0, 5.0, 30.0, 25.0), 0.0, 20), NUMBERED[5:25, 10:30])


def test_margin_is_box_fraction_on_each_side() -> None:
    np.testing.assert_array_equal(crop_by_box((20.0, 10.0, 40.0, 30.0), 0.25, 30), NUMBERED[5:35, 15:45])


def test_margin_is_clipped_at_photo_edge() -> None:
    np.testing.assert_array_equal(crop_by_box((-4.0, 2.0, 16.0, 22.0), 0.5, 32), cv2_area(NUMBERED[0:32, 0:26], 32))


def cv2_area(pixels: np.ndarray, size_px: int) -> np.ndarray:
    enlarging = size_px**2 >= pixels.shape[0] * pixels.shape[1]
    return cv2.resize(pixels, (size_px, size_px), interpolation=cv2.INTER_LINEAR if enlarging else cv2.INTER_AREA)


@pytest.mark.parametrize("margin", [0.0, 0.4, 2.0])
def test_whole_photo_box_ignores_margin(margin: float) -> None:
    crop = crop_by_box((0.0, 0.0, 60.0, 40.0), margin, 20)
    np.testing.assert_array_equal(crop, cv2_area(NUMBERED, 20))


@pytest.mark.parametrize(
    "box_xyxy_px",
    [
        (70.0, 5.0, 80.0, 15.0),
        (5.0, -20.0, 15.0, -10.0),
        (60.0, 0.0, 61.0, 1.0),
        (5.0, 5.0, 5.1, 5.1),
        (1e300, 1.0, 1.1e300, 2.0),
    ],
)
def test_rejects_box_without_photo_pixels(box_xyxy_px: tuple) -> None:
    with pytest.raises(NoFaceFound, match="drawn: the face box"):
        crop_by_box(box_xyxy_px, 0.0, 20)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pets", "head of a cat or dog"),
        ("people", "face of a person"),
        ("auto", "head of a cat or dog and no face of a person"),
        ("none", "face"),
    ],
)
def test_detector_says_what_it_looks_for(name: str, text: str) -> None:
    assert looked_for(build_detector(name)) == text
