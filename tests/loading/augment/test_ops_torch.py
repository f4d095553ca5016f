"""The batch version held to the one for a single photo: operation by operation, all together, and in distribution."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from torch import Tensor

from familiar.loading.augment import ops_torch as on_batch
from familiar.loading.augment.jpeg_artifacts import COLOR_STEPS, LUMA_STEPS, compress, quantize, scale_steps
from familiar.loading.augment.ops_numpy import Blur, Jitter, Noise, Window
from familiar.loading.augment.ops_torch import augment_batch, change_numbers
from familiar.loading.augment.pipeline import Change, Move, apply_change, draw_change, photo_generator
from familiar.loading.augment.settings import CIRCLE_AUGMENTATION, NO_AUGMENTATION, Augmentation

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
ALL = Augmentation(
    **{field.name: 1.0 for field in fields(Augmentation) if field.name.endswith("_p")}, blur_scaled=False
)
PHOTOS = 16


def waves(side: int, seed: int) -> np.ndarray:
    """Smooth and colored, with a few hard edges, as photos are."""
    y, x = np.mgrid[:side, :side] / side
    a, b, c = np.random.default_rng(seed).uniform(2, 9, 3)
    picture = np.stack([127 + 120 * np.sin(a * x + y), 40 + 200 * x * y, 230 - 200 * np.cos(b * y) ** 2], 2)
    picture[(np.sin(c * x) + np.cos(a * y)) > 1.2] *= 0.4
    return picture.clip(0, 255).astype(np.uint8)


def crops(side: int, count: int = PHOTOS) -> list[np.ndarray]:
    return [waves(side, seed) for seed in range(count)]


def drawn(settings: Augmentation, count: int = PHOTOS) -> list[Change]:
    return [draw_change(settings, photo_generator(3, 1, photo)) for photo in range(count)]


def batch_of(pictures: list[np.ndarray], device: str = "cpu") -> Tensor:
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous().to(device)


def changed(pictures: list[np.ndarray], changes: list[Change], device: str = "cpu") -> np.ndarray:
    return augmented(batch_of(pictures, device), changes).permute(0, 2, 3, 1).cpu().numpy()


def augmented(batch: Tensor, changes: list[Change], size_px: int | None = None) -> Tensor:
    return augment_batch(batch, change_numbers(changes, batch.shape[-1], size_px))


def one_by_one(pictures: list[np.ndarray], changes: list[Change]) -> np.ndarray:
    return np.stack([apply_change(*both) for both in zip(pictures, changes, strict=True)])


def apart(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.abs(left.astype(int) - right)


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("side", [16, 33, 112])
@pytest.mark.parametrize(
    ("name", "mean", "most"),
    [
        ("crop", 0.5, 6),
        ("angle_deg", 0.5, 8),  # OpenCV places samples to 1/32 pixel
        ("flip", 0, 0),
        ("move", 0.5, 6),
        ("jitter", 0.8, 10),  # which OpenCV rounds four times, each stretched by the next
        ("gray", 0.1, 1),
        ("blur", 0.2, 1),
        ("sharpness", 0.05, 1),
        ("jpeg_quality", 1.2, 40),  # a frequency half-way between two steps may go to either
        ("downscale", 0.3, 2),
        ("shadow", 0.1, 1),
        ("holes", 0, 0),
        ("erase", 0, 0),
    ],
)
def test_each_operation_matches_photo_version(name: str, mean: float, most: int, side: int, device: str) -> None:
    changes = [Change(**{name: getattr(change, name)}) for change in drawn(ALL)]
    pictures = crops(side)
    expected = one_by_one(pictures, changes)
    assert apart(expected, np.stack(pictures)).mean() > 1.5 * mean  # otherwise the test would compare nothing
    difference = apart(changed(pictures, changes, device), expected)
    assert difference.mean() <= mean
    assert difference.max() <= most


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("settings", [Augmentation(), CIRCLE_AUGMENTATION, ALL])
def test_all_operations_together_match_photo_version(settings: Augmentation, device: str) -> None:
    changes = [replace(change, noise=None) for change in drawn(settings, 32)]
    pictures = crops(64, 32)
    difference = apart(changed(pictures, changes, device), one_by_one(pictures, changes))
    assert difference.mean() <= 1
    assert difference.mean(axis=(1, 2, 3)).max() <= 4


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_distributions_match_photo_version(device: str) -> None:
    """Compare mean, deviation and share of changed values over many draws, including noise."""
    pictures, changes = [waves(32, 5)] * 250, drawn(replace(ALL, flip_p=0.5, gray_p=0.3, jpeg_p=0.5), 250)
    actual, expected = changed(pictures, changes, device), one_by_one(pictures, changes)
    for measure in (np.mean, np.std, lambda picture: np.mean(picture != pictures[0])):
        actual_values, expected_values = np.sort(
            [[measure(image) for image in images] for images in (actual, expected)]
        )
        assert actual_values == pytest.approx(expected_values, abs=0.01 * 255 if expected_values.max() > 1 else 0.01)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("std", [0.01, 0.05])
def test_noise_follows_its_deviation_and_seed(std: float, device: str) -> None:
    gray = [np.full((64, 64, 3), 128, np.uint8)] * 4
    changes = [Change(noise=Noise(std, 11)), Change(), Change(noise=Noise(2 * std, 12)), Change()]
    change = changed(gray, changes, device).astype(float) - 128
    rounding = 1 / 12
    assert change[0].std() == pytest.approx(np.sqrt((255 * std) ** 2 + rounding), rel=0.04)
    assert change[2].std() == pytest.approx(np.sqrt((510 * std) ** 2 + rounding), rel=0.04)
    assert change[0].mean() == pytest.approx(0, abs=5 * 255 * std / 110)
    assert np.corrcoef(change[0].ravel(), change[2].ravel())[0, 1] == pytest.approx(0, abs=0.05)
    assert not change[[1, 3]].any()
    assert np.array_equal(changed(gray, changes, device), change + 128)
    other = [Change(noise=Noise(std, 10)), *changes[1:]]
    assert not np.array_equal(changed(gray, other, device)[0], change[0] + 128)


@pytest.mark.parametrize("device", DEVICES)
def test_neutral_changes_keep_pixels_and_input_is_not_modified(device: str) -> None:
    pictures = crops(20, 3)
    batch = batch_of(pictures, device)
    same = [
        Change(),
        Change(crop=Window(0, 0, 1, 1), angle_deg=0.0, move=Move(0, 0, 1)),
        Change(jitter=Jitter(1, 1, 1, 0, (3, 1, 0, 2)), blur=Blur(1, 0.5), noise=Noise(0.0, 1), downscale=1.0),
    ]
    assert torch.equal(augmented(batch, same), batch)
    assert torch.equal(augmented(batch, [Change()] * 3), batch)
    changes = drawn(ALL, 3)
    augmented(batch, changes)
    assert torch.equal(batch.cpu(), batch_of(pictures))
    assert not torch.equal(augmented(batch, changes), batch)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("value", [0, 255])
def test_uniform_photos_keep_their_value_in_any_layout(value: int, layout: torch.memory_format) -> None:
    plain = torch.full((4, 3, 32, 32), value, dtype=torch.uint8).to(memory_format=layout)
    changes = [replace(change, noise=None, jitter=None, shadow=None, holes=(), erase=None) for change in drawn(ALL, 4)]
    assert (augmented(plain, changes).int() - value).abs().max() <= 1


def test_result_is_independent_of_other_photos_in_batch() -> None:
    pictures, changes = crops(32), [replace(change, noise=None) for change in drawn(ALL)]
    batch = changed(pictures, changes)
    for photo in range(PHOTOS):
        single = changed(pictures[photo : photo + 1], changes[photo : photo + 1])
        assert apart(single[0], batch[photo]).max() <= 1  # sums are in another order


def test_accepts_empty_batch_and_rejects_missing_changes() -> None:
    assert augmented(torch.empty(0, 3, 16, 16, dtype=torch.uint8), []).shape == (0, 3, 16, 16)
    assert augmented(torch.empty(0, 3, 16, 16, dtype=torch.uint8), [], 12).shape == (0, 3, 12, 12)
    with pytest.raises(ValueError, match="1 changes for 2 photos"):
        augmented(batch_of(crops(16, 2)), [Change()])


@pytest.mark.slow
def test_large_crops_keep_their_shape() -> None:
    assert augmented(batch_of(crops(1024, 1)), drawn(ALL, 1)).shape == (1, 3, 1024, 1024)


# Single operations


def test_hue_third_turn_maps_red_to_green() -> None:
    red = torch.zeros(1, 3, 2, 2)
    red[:, 0] = 200
    turned = on_batch.shift_hue(red, torch.tensor([[1 / 3]]))
    assert turned[0, :, 0, 0].tolist() == pytest.approx([0, 200, 0], abs=1e-3)
    gray = torch.full((1, 3, 2, 2), 90.0)
    assert torch.equal(on_batch.shift_hue(gray, torch.tensor([[0.3]])), gray)


def test_downscale_averages_and_keeps_constants() -> None:
    even = torch.full((2, 3, 20, 20), 77.0)
    assert on_batch.downscale(even, torch.tensor([[7.0], [13.0]])) == pytest.approx(even, abs=1e-3)
    single_pixel = on_batch.downscale(
        torch.arange(400.0).view(1, 1, 20, 20).expand(1, 3, 20, 20), torch.tensor([[1.0]])
    )
    assert single_pixel == pytest.approx(torch.full_like(single_pixel, 199.5), abs=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("side", "size_px"), [(128, 112), (64, 96)])
@pytest.mark.parametrize("settings", [NO_AUGMENTATION, CIRCLE_AUGMENTATION, Augmentation()])
def test_another_size_matches_photo_version(settings: Augmentation, side: int, size_px: int, device: str) -> None:
    changes = [replace(change, noise=None) for change in drawn(settings)]
    pictures = crops(side)
    expected = np.stack([apply_change(*both, size_px) for both in zip(pictures, changes, strict=True)])
    actual = augmented(batch_of(pictures, device), changes, size_px).permute(0, 2, 3, 1).cpu().numpy()
    assert actual.shape == (PHOTOS, size_px, size_px, 3)
    assert apart(actual, expected).mean() <= 1


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("side", [64, 112, 224, 300])
def test_scaled_blur_matches_photo_version(side: int, device: str) -> None:
    changes = [Change(blur=change.blur) for change in drawn(replace(ALL, blur_scaled=True))]
    assert {change.blur.crop_px for change in changes} == {224}
    pictures = crops(side)
    assert apart(changed(pictures, changes, device), one_by_one(pictures, changes)).max() <= 1
    if side == 224:
        unscaled = [Change(blur=change.blur._replace(crop_px=None)) for change in changes]
        assert np.array_equal(changed(pictures, changes, device), changed(pictures, unscaled, device))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("factor", [0.0, 1.0, 10.0, 20.0])
def test_sharpness_matches_photo_version_up_to_largest_factor(factor: float, device: str) -> None:
    pictures, changes = crops(33, 4), [Change(sharpness=factor)] * 4
    assert apart(changed(pictures, changes, device), one_by_one(pictures, changes)).max() <= 1


def test_sharpness_ignores_fractions_that_rounding_removes() -> None:
    images = batch_of(crops(20, 2)).float()
    factor = torch.tensor([[20.0], [10.0]])
    assert torch.equal(on_batch.adjust_sharpness(images + 0.3, factor), on_batch.adjust_sharpness(images, factor))


# JPEG


def slow_block(values: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Quantize an 8 x 8 block by T.81's formulas A.3.3 and A.3.4, sum by sum."""
    frequencies, back, ticks = np.zeros((8, 8)), np.zeros((8, 8)), np.arange(8)
    weight = np.where(ticks == 0, np.sqrt(0.5), 1.0)
    for v, u in np.ndindex(8, 8):
        wave = np.outer(np.cos((2 * ticks + 1) * v * np.pi / 16), np.cos((2 * ticks + 1) * u * np.pi / 16))
        step = steps[v, u]
        frequencies[v, u] = np.rint((values * wave).sum() * weight[v] * weight[u] / 4 / step) * step
        back += frequencies[v, u] * wave * weight[v] * weight[u] / 4
    return np.rint(back)


def test_quantization_matches_jpeg_standard_formula() -> None:
    from familiar.loading.augment.jpeg_artifacts import _constants_on

    values = np.random.default_rng(1).integers(-128, 128, (16, 8)).astype(np.float32)
    steps = np.array(LUMA_STEPS, np.float32)
    cosines = _constants_on(torch.device("cpu"))[0]
    actual = quantize(torch.from_numpy(values)[None, None], torch.from_numpy(steps)[None], cosines)[0, 0]
    expected = np.concatenate([slow_block(values[:8], steps), slow_block(values[8:], steps)])
    assert actual.numpy() == pytest.approx(expected, abs=1)


def test_quantization_steps_scale_as_in_libjpeg() -> None:
    luma = torch.tensor(LUMA_STEPS, dtype=torch.float32)
    scaled = scale_steps(luma, torch.tensor([[50.0], [100.0], [75.0], [25.0], [1.0]]))
    assert torch.equal(scaled[0], luma)
    assert (scaled[1] == 1).all()
    assert scaled[2, 0, :3].tolist() == [8, 6, 5]  # (16 x 50 + 50) / 100, truncated
    assert scaled[3, 0, :3].tolist() == [32, 22, 20]
    assert (scaled[4] == 255).all()
    assert np.array(LUMA_STEPS).shape == np.array(COLOR_STEPS).shape == (8, 8)


def test_lower_quality_loses_more_and_keeps_plain_gray() -> None:
    images = batch_of([waves(64, 2)] * 4).float()
    qualities = torch.tensor([[10.0], [40.0], [75.0], [100.0]])
    losses = (compress(images, qualities) - images).abs().mean((1, 2, 3))
    assert (losses.diff() < 0).all()
    gray = torch.full((1, 3, 24, 24), 128.0)
    assert torch.equal(compress(gray, torch.tensor([[5.0]])).round(), gray)
