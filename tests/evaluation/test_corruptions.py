"""Image corruptions: by closed form, against Pillow, and at the smallest crops."""

import io

import numpy as np
import pytest
from PIL import Image, ImageFilter

from familiar.evaluation import corruptions
from familiar.evaluation.corruptions import CORRUPTIONS

STEPS = [
    pytest.param(corruption.apply, severity, id=f"{name} {severity}")
    for name, corruption in CORRUPTIONS.items()
    for severity in dict.fromkeys([corruption.severity, *corruption.sweep])
]


def picture(side: int = 224, seed: int = 0) -> np.ndarray:
    """Smooth patches with edges between them, as photos have."""
    low = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), np.uint8)
    return np.array(Image.fromarray(low).resize((side, side), Image.Resampling.BICUBIC))


def plain(value: int, side: int = 32) -> np.ndarray:
    return np.full((side, side, 3), value, np.uint8)


def difference(left: np.ndarray, right: np.ndarray) -> float:
    return float(np.abs(left.astype(float) - right.astype(float)).mean())


def test_severities_match_specification_and_belong_to_sweeps():
    expected = {"blur": 3.5, "noise": 0.05, "jpeg": 30, "brightness": 1.5, "occlusion": 0.25}
    assert {name: CORRUPTIONS[name].severity for name in expected} == expected
    for name, corruption in CORRUPTIONS.items():
        if name == "flip":
            assert corruption.sweep == ()
            continue
        assert corruption.severity in corruption.sweep
        assert 4 <= len(set(corruption.sweep)) <= 6
        assert list(corruption.sweep) in (sorted(corruption.sweep), sorted(corruption.sweep, reverse=True))


@pytest.mark.parametrize("side", [16, 112])
@pytest.mark.parametrize(("apply", "severity"), STEPS)
def test_corruptions_are_deterministic_and_pure(apply, severity, side: int):
    crop = picture(side)
    before = crop.copy()
    corrupted = apply(crop, severity)
    assert (corrupted.shape, corrupted.dtype) == (crop.shape, np.uint8)
    if side > 16:  # the slightest blur of so small a crop is less than one 8-bit step
        assert not np.array_equal(corrupted, crop)
    np.testing.assert_array_equal(crop, before)
    np.testing.assert_array_equal(apply(crop.copy(), severity), corrupted)


@pytest.mark.parametrize("name", ["blur", "rotation", "downscale", "flip"])
def test_single_color_is_unchanged(name: str):
    corruption = CORRUPTIONS[name]
    np.testing.assert_array_equal(corruption.apply(plain(100), corruption.severity), plain(100))


def test_blur_matches_pillow_at_224_px_and_scales_with_size():
    crop = picture()
    pillow = np.array(Image.fromarray(crop).filter(ImageFilter.GaussianBlur(3.5)))
    ours = corruptions.blur(crop, 3.5)
    assert difference(ours, pillow) < 0.5
    assert difference(crop, pillow) > 2  # so the comparison means something
    # An edge, half of the crop white: the blur of the half-size crop is the half-size picture of the blur.
    edge = np.zeros((224, 224, 3), np.uint8)
    edge[:, 112:] = 255
    half_size = corruptions.blur(edge[::2, ::2], 3.5)
    # Pixel c of the half-size crop lies between pixels 2c and 2c + 1 of the full-size one.
    full_size = corruptions.blur(edge, 3.5)[:112].astype(float).reshape(112, 112, 2, 3).mean(axis=2)
    assert np.abs(half_size - full_size).max() < 4


def test_noise_has_given_std_and_depends_on_photo():
    crop = plain(128, 224)
    change = corruptions.noise(crop, 0.05).astype(float) - 128
    assert change.std() == pytest.approx(0.05 * 255, rel=0.01)
    assert abs(change.mean()) < 0.2
    assert np.corrcoef(change[..., 0].ravel(), change[..., 1].ravel())[0, 1] == pytest.approx(0, abs=0.02)
    stronger = corruptions.noise(crop, 0.1).astype(float) - 128
    assert np.abs(stronger - 2 * change).max() <= 1.5  # twice the same noise, except for rounding
    crop[0, 0] = 129
    assert difference(corruptions.noise(crop, 0.05), change + 128) > 5


def test_noise_does_not_wrap_around():
    assert corruptions.noise(plain(255), 0.2).min() > 50
    assert corruptions.noise(plain(0), 0.2).max() < 230


def test_jpeg_matches_pillow_at_same_quality():
    crop = picture()
    encoded = io.BytesIO()
    Image.fromarray(crop).save(encoded, "JPEG", quality=30)
    pillow = np.array(Image.open(encoded))
    assert difference(corruptions.jpeg(crop, 30), pillow) < 0.5
    assert difference(crop, pillow) > 1.5
    red = np.broadcast_to(np.array([200, 30, 30], np.uint8), (32, 32, 3)).copy()
    assert difference(corruptions.jpeg(red, 70), red) < 4  # red stays red


def test_brightness_multiplies_and_saturates():
    crop = np.array([[[0, 100, 200]]], np.uint8)
    assert corruptions.brightness(crop, 1.5).tolist() == [[[0, 150, 255]]]
    assert corruptions.brightness(crop, 0.5).tolist() == [[[0, 50, 100]]]


def test_occlusion_covers_centered_area_fraction():
    covered = corruptions.occlusion(plain(255), 0.25)
    assert (covered == 0).mean() == 0.25
    assert (covered[8:24, 8:24] == 0).all()
    assert not corruptions.occlusion(plain(255), 1.0).any()


def test_rotation_turns_counter_clockwise_about_the_middle():
    crop = picture(33)
    np.testing.assert_array_equal(corruptions.rotation(crop, 90), np.rot90(crop))
    np.testing.assert_array_equal(corruptions.rotation(crop, 360), crop)


def test_downscale_averages_pixels():
    stripes = np.zeros((32, 32, 3), np.uint8)
    stripes[:, ::2] = 200
    np.testing.assert_array_equal(corruptions.downscale(stripes, 0.5), plain(100))
    assert len(np.unique(corruptions.downscale(picture(32), 0.01).reshape(-1, 3), axis=0)) == 1


def test_mirror_swaps_left_and_right():
    crop = picture(16)
    np.testing.assert_array_equal(corruptions.mirror(crop), crop[:, ::-1])
