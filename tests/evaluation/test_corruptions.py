"""What befalls photos: by closed form, against Pillow, and at the smallest crops."""

import io

import numpy as np
import pytest
from PIL import Image, ImageFilter

from familiar.evaluation import corruptions
from familiar.evaluation.corruptions import CORRUPTIONS

STEPS = [
    pytest.param(degradation.apply, severity, id=f"{name} {severity}")
    for name, degradation in CORRUPTIONS.items()
    for severity in dict.fromkeys([degradation.severity, *degradation.sweep])
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
    stated = {"blur": 3.5, "noise": 0.05, "jpeg": 30, "brightness": 1.5, "occlusion": 0.25}
    assert {name: CORRUPTIONS[name].severity for name in stated} == stated
    for name, degradation in CORRUPTIONS.items():
        if name == "flip":
            assert degradation.sweep == ()
            continue
        assert degradation.severity in degradation.sweep
        assert 4 <= len(set(degradation.sweep)) <= 6
        assert list(degradation.sweep) in (sorted(degradation.sweep), sorted(degradation.sweep, reverse=True))


@pytest.mark.parametrize("side", [16, 112])
@pytest.mark.parametrize(("apply", "severity"), STEPS)
def test_degradations_are_deterministic_and_pure(apply, severity, side: int):
    crop = picture(side)
    before = crop.copy()
    found = apply(crop, severity)
    assert (found.shape, found.dtype) == (crop.shape, np.uint8)
    if side > 16:  # there the slightest blur is less than a step of 8 bits
        assert not np.array_equal(found, crop)
    np.testing.assert_array_equal(crop, before)
    np.testing.assert_array_equal(apply(crop.copy(), severity), found)


@pytest.mark.parametrize("name", ["blur", "rotation", "downscale", "flip"])
def test_single_color_is_unchanged(name: str):
    degradation = CORRUPTIONS[name]
    np.testing.assert_array_equal(degradation.apply(plain(100), degradation.severity), plain(100))


def test_blur_matches_pillow_at_224_px_and_scales_with_size():
    crop = picture()
    pillow = np.array(Image.fromarray(crop).filter(ImageFilter.GaussianBlur(3.5)))
    ours = corruptions.blur(crop, 3.5)
    assert difference(ours, pillow) < 0.5
    assert difference(crop, pillow) > 2  # so that says something
    # An edge, half the crop white: at half the size the same picture, at half the size.
    edge = np.zeros((224, 224, 3), np.uint8)
    edge[:, 112:] = 255
    halved = corruptions.blur(edge[::2, ::2], 3.5)
    # Pixel c of the half lies between 2c and 2c + 1 of the whole.
    whole = corruptions.blur(edge, 3.5)[:112].astype(float).reshape(112, 112, 2, 3).mean(axis=2)
    assert np.abs(halved - whole).max() < 4


def test_noise_has_given_std_and_depends_on_photo():
    crop = plain(128, 224)
    change = corruptions.noise(crop, 0.05).astype(float) - 128
    assert change.std() == pytest.approx(0.05 * 255, rel=0.01)
    assert abs(change.mean()) < 0.2
    assert np.corrcoef(change[..., 0].ravel(), change[..., 1].ravel())[0, 1] == pytest.approx(0, abs=0.02)
    stronger = corruptions.noise(crop, 0.1).astype(float) - 128
    assert np.abs(stronger - 2 * change).max() <= 1.5  # twice the same, but for rounding
    crop[0, 0] = 129
    assert difference(corruptions.noise(crop, 0.05), change + 128) > 5


def test_noise_does_not_wrap_around():
    assert corruptions.noise(plain(255), 0.2).min() > 50
    assert corruptions.noise(plain(0), 0.2).max() < 230


def test_jpeg_matches_pillow_at_same_quality():
    crop = picture()
    file = io.BytesIO()
    Image.fromarray(crop).save(file, "JPEG", quality=30)
    pillow = np.array(Image.open(file))
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
