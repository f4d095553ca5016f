import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.types import Crop
from familiar.photos.preprocessing import (
    IMAGENET_MEAN_RGB,
    IMAGENET_STD_RGB,
    Preprocessing,
    resize_crop,
    stack_crops,
    standardize,
)

PLAIN = Preprocessing(size_px=16, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


# Preprocessing


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"size_px": 15}, "size_px"),
        ({"size_px": 1025}, "size_px"),
        ({"resize": "center_crop", "size_px": 224, "resize_px": 200}, "resize_px"),
        ({"margin": -0.1}, "margin"),
        ({"margin": 2.1}, "margin"),
        ({"margin": float("nan")}, "margin"),
        ({"std": (1.0, 0.0, 1.0)}, "std"),
    ],
)
def test_rejects_settings_out_of_range(changed: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Preprocessing(**changed)


# resize_crop


def test_crop_at_target_size_is_unchanged() -> None:
    pixels = noise(16, 16, 3)
    for resize in ("stretch", "center_crop"):
        rule = Preprocessing(size_px=16, resize=resize, resize_px=16)
        np.testing.assert_array_equal(resize_crop(pixels, rule), pixels)


def test_stretch_resizes_each_axis_independently() -> None:
    pixels = noise(32, 64, 3)
    blocks = pixels.reshape(16, 2, 16, 4, 3).mean(axis=(1, 3))
    np.testing.assert_allclose(resize_crop(pixels, PLAIN), blocks, atol=0.51)


@pytest.mark.parametrize(
    ("height", "width", "rows", "columns"), [(32, 64, (0, 16), (8, 24)), (64, 32, (8, 24), (0, 16))]
)
def test_center_crop_keeps_aspect_ratio(
    height: int, width: int, rows: tuple[int, int], columns: tuple[int, int]
) -> None:
    pixels = noise(height, width, 3)
    halved = pixels.reshape(height // 2, 2, width // 2, 2, 3).mean(axis=(1, 3))
    rule = Preprocessing(size_px=16, resize="center_crop", resize_px=16)
    np.testing.assert_allclose(resize_crop(pixels, rule), halved[slice(*rows), slice(*columns)], atol=0.51)


def test_center_crop_removes_border_after_larger_resize() -> None:
    pixels = noise(20, 20, 3)
    rule = Preprocessing(size_px=16, resize="center_crop", resize_px=20)
    np.testing.assert_array_equal(resize_crop(pixels, rule), pixels[2:18, 2:18])


def test_upscaling_interpolates_linearly() -> None:
    two = np.zeros((2, 2, 3), np.uint8)
    two[:, 1] = 240
    row = resize_crop(two, PLAIN)[0, :, 0].astype(int)
    assert row[0] == 0
    assert row[-1] == 240
    np.testing.assert_allclose(np.diff(row)[4:-4], 240 / 8, atol=1)


@given(
    height=st.integers(1, 70),
    width=st.integers(1, 70),
    size_px=st.integers(16, 40),
    extra_px=st.integers(0, 20),
    resize=st.sampled_from(["stretch", "center_crop"]),
)
def test_any_shape_becomes_the_square(height: int, width: int, size_px: int, extra_px: int, resize: str) -> None:
    rule = Preprocessing(size_px=size_px, resize=resize, resize_px=size_px + extra_px)
    one_color = np.full((height, width, 3), (10, 20, 30), np.uint8)
    np.testing.assert_array_equal(resize_crop(one_color, rule), np.full((size_px, size_px, 3), (10, 20, 30)))


# stack_crops and standardize


def test_standardize_equals_closed_form() -> None:
    pixels = np.full((16, 16, 3), (0, 51, 255), np.uint8)
    tensor = standardize(pixels[None], Preprocessing(size_px=16))
    mean, std = np.array(IMAGENET_MEAN_RGB), np.array(IMAGENET_STD_RGB)
    expected = (np.array([0, 0.2, 1]) - mean) / std
    np.testing.assert_allclose(tensor[0, :, 5, 7], expected, rtol=1e-6)
    assert tensor.shape == (1, 3, 16, 16)
    assert tensor.dtype == np.float32
    assert tensor.flags.c_contiguous


def test_standardize_matches_scalar_formula() -> None:
    pixels = noise(3, 16, 16, 3)
    preprocessing = Preprocessing(size_px=16, mean=(0.5, 0.4, 0.3), std=(0.1, 0.2, 0.3))
    tensor = standardize(pixels, preprocessing)
    for photo, y, x, channel in [(0, 0, 0, 0), (1, 3, 15, 1), (2, 15, 4, 2)]:
        value = (pixels[photo, y, x, channel] / 255 - preprocessing.mean[channel]) / preprocessing.std[channel]
        assert tensor[photo, channel, y, x] == pytest.approx(value, rel=1e-5)


def test_bgr_swaps_colors_but_not_mean_and_std() -> None:
    pixels = np.full((16, 16, 3), (255, 51, 0), np.uint8)
    preprocessing = Preprocessing(size_px=16, color_order="BGR", mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 4.0))
    tensor = standardize(pixels[None], preprocessing)
    np.testing.assert_allclose(tensor[0, :, 0, 0], [(0 - 0.1) / 1, (0.2 - 0.2) / 2, (1 - 0.3) / 4], atol=1e-6)


def test_crops_and_their_pixels_keep_their_order() -> None:
    pixels = noise(4, 16, 16, 3)
    stacked = stack_crops([Crop(crop_pixels, "drawn") for crop_pixels in pixels], 16)
    np.testing.assert_array_equal(stacked, pixels)
    np.testing.assert_allclose(standardize(stacked, PLAIN) * 255, pixels.transpose(0, 3, 1, 2), atol=1e-4)


def test_no_crops_return_empty_batch() -> None:
    stacked = stack_crops([], 16)
    assert stacked.shape == (0, 16, 16, 3)
    assert stacked.dtype == np.uint8


def test_rejects_crop_with_wrong_size_by_name() -> None:
    crops = [Crop(noise(16, 16, 3), "right"), Crop(noise(17, 17, 3), "wrong")]
    with pytest.raises(ValueError, match="wrong: the network takes crops of 16 px, got 17"):
        stack_crops(crops, 16)
