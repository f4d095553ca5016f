import re
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.loading.augment import operations as on_photo
from familiar.loading.augment.operations import Blur, Jitter, Noise, Shadow, Window
from familiar.loading.augment.pipeline import (
    RANDOM_NUMBERS_PER_CHANGE,
    Change,
    Move,
    apply_change,
    augment,
    draw_change,
    photo_generator,
)
from familiar.loading.augment.settings import (
    CIRCLE_AUGMENTATION,
    MAX_BLUR_KERNEL_PX,
    MAX_HOLES,
    NO_AUGMENTATION,
    PROBABILITIES,
    Augmentation,
)
from support.tiers import small_and_exhaustive

pytestmark = pytest.mark.slow

RANGES = {field.name: field.metadata["range"] for field in fields(Augmentation) if "range" in field.metadata}
ALL = Augmentation(**dict.fromkeys(PROBABILITIES, 1.0))
SIGNS: dict[str, Callable[[Change], bool]] = {  # that an operation was chosen
    "crop_p": lambda change: change.crop is not None,
    "rotate_p": lambda change: change.angle_deg is not None,
    "flip_p": lambda change: change.flip is not None,
    "affine_p": lambda change: change.move is not None,
    "jitter_p": lambda change: change.jitter is not None,
    "gray_p": lambda change: change.gray is not None,
    "blur_p": lambda change: change.blur is not None,
    "sharpness_p": lambda change: change.sharpness is not None,
    "noise_p": lambda change: change.noise is not None,
    "jpeg_p": lambda change: change.jpeg_quality is not None,
    "downscale_p": lambda change: change.downscale is not None,
    "shadow_p": lambda change: change.shadow is not None,
    "dropout_p": lambda change: change.holes is not None,
    "erase_p": lambda change: change.erase is not None,
}
SHADOW = Shadow(0.5, ((1.0, 0.2, -0.15), (-1.0, 0.3, 0.75), (0.1, 1.0, -0.35)))


def noise(side: int = 16, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)


def waves(side: int = 48) -> np.ndarray:
    """Smooth, colored, and without any symmetry."""
    y, x = np.mgrid[:side, :side] / side
    return np.stack([127 + 120 * np.sin(4 * x + y), 40 + 200 * x * y, 230 - 200 * y * y], 2).astype(np.uint8)


@cache
def draws(settings: Augmentation, count: int) -> list[Change]:
    return [draw_change(settings, photo_generator(5, 1, photo)) for photo in range(count)]


# Applying a change


def test_empty_change_returns_the_same_crop() -> None:
    picture = noise()
    assert apply_change(picture, Change()) is picture
    assert augment(picture, NO_AUGMENTATION, photo_generator(0, 0, 0)) is picture


def test_change_to_another_size_resizes_once() -> None:
    picture = waves(48)
    assert apply_change(picture, Change(), 48) is picture
    assert np.array_equal(apply_change(picture, Change(), 42), on_photo.warp(picture, Change().origin(), 42))
    box = Change(crop=Window(0.1, 0, 0.9, 0.9), flip=True)
    assert np.array_equal(apply_change(picture, box, 42), on_photo.warp(picture, box.origin(), 42))
    flipped = apply_change(picture, Change(flip=True), 42)
    mirrored = on_photo.mirror(apply_change(picture, Change(), 42))
    assert np.abs(flipped.astype(int) - mirrored).max() <= 1  # OpenCV 5 rounds otherwise from the right than the left
    settings, key = replace(CIRCLE_AUGMENTATION, erase_p=1.0), (1, 2, 3)
    change = draw_change(settings, photo_generator(*key))
    augmented = augment(picture, settings, photo_generator(*key), 42)
    small = on_photo.warp(picture, change.origin(), 42)
    without_warp = replace(change, crop=None, angle_deg=None, flip=None, move=None)
    assert np.array_equal(augmented, apply_change(small, without_warp))


def test_each_field_applies_its_operation() -> None:
    picture, jitter = waves(), Jitter(1.2, 0.8, 1.1, 0.05, (2, 0, 3, 1))
    box, move = Window(0.1, 0.2, 0.3, 0.4), Move(0.05, -0.1, 1.1)
    expected = {
        Change(crop=box): on_photo.warp(picture, Change(crop=box).origin()),
        Change(angle_deg=20.0): on_photo.warp(picture, Change(angle_deg=20.0).origin()),
        Change(flip=True): on_photo.mirror(picture),
        Change(move=move): on_photo.warp(picture, Change(move=move).origin()),
        Change(jitter=jitter): on_photo.jitter(picture, jitter),
        Change(gray=True): on_photo.to_gray(picture),
        Change(blur=Blur(5, 1.1)): on_photo.blur(picture, Blur(5, 1.1)),
        Change(sharpness=10.0): on_photo.adjust_sharpness(picture, 10.0),
        Change(noise=Noise(0.03, 7)): on_photo.add_noise(picture, Noise(0.03, 7)),
        Change(jpeg_quality=75): on_photo.compress(picture, 75),
        Change(downscale=0.5): on_photo.downscale(picture, 0.5),
        Change(shadow=SHADOW): on_photo.cast_shadow(picture, SHADOW),
        Change(holes=(box, box)): on_photo.black_out(picture, [box, box]),
        Change(erase=box): on_photo.black_out(picture, [box]),
    }
    assert len(expected) == len(fields(Change))
    for change, changed in expected.items():
        assert np.array_equal(apply_change(picture, change), changed), change
        assert not np.array_equal(changed, picture), change


def test_operations_apply_in_field_order() -> None:
    for change in draws(ALL, 20):
        step_by_step = apply_change(
            waves(), Change(crop=change.crop, angle_deg=change.angle_deg, flip=change.flip, move=change.move)
        )
        for field in fields(Change)[4:]:
            step_by_step = apply_change(step_by_step, Change(**{field.name: getattr(change, field.name)}))
        assert np.array_equal(apply_change(waves(), change), step_by_step)


def test_geometric_changes_compose_in_order() -> None:
    box, move = Window(0.1, 0.05, 0.8, 0.9), Move(0.05, -0.1, 1.1)
    combined = Change(crop=box, angle_deg=20.0, flip=True, move=move).origin()
    parts = [Change(crop=box), Change(angle_deg=20.0), Change(flip=True), Change(move=move)]
    point = np.array([0.2, -0.3, 1.0])
    expected = point
    for part in reversed(parts):  # from the result back to the crop
        expected = np.append(part.origin() @ expected, 1.0)
    assert combined @ point == pytest.approx(expected[:2])
    assert Change(crop=box).origin() @ [-0.5, -0.5, 1] == pytest.approx([0.1 - 0.5, 0.05 - 0.5])
    assert Change(crop=box).origin() @ [0.5, 0.5, 1] == pytest.approx([0.4, 0.45])


@given(st.integers(0, 2**40), st.integers(0, 10**6), st.integers(0, 10**6))
def test_augment_is_deterministic_and_pure(seed: int, epoch: int, photo: int) -> None:
    picture = waves()
    picture.flags.writeable = False
    first, second = (augment(picture, ALL, photo_generator(seed, epoch, photo)) for _ in range(2))
    assert np.array_equal(first, second)
    assert (first.shape, first.dtype, first.flags.c_contiguous) == (picture.shape, np.uint8, True)
    assert np.array_equal(picture, waves())


def test_different_keys_give_different_images() -> None:
    keys = [(seed, epoch, photo) for seed in range(4) for epoch in range(4) for photo in range(4)]
    assert len({augment(waves(), ALL, photo_generator(*key)).tobytes() for key in keys}) == len(keys)


@pytest.mark.parametrize("side", [64, 224])
def test_blur_of_pets_is_scaled_and_that_of_the_coursework_is_not(side: int) -> None:
    for settings, scaled in ((replace(Augmentation(), blur_p=1.0), True), (CIRCLE_AUGMENTATION, False)):
        change = Change(blur=draws(settings, 8)[3].blur)
        unscaled = Blur(change.blur.kernel_px, change.blur.sigma_px)
        same = np.array_equal(apply_change(noise(side), change), on_photo.blur(noise(side), unscaled))
        assert same == (side == 224 or not scaled)


# Drawing a change


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("published", "count"),
    small_and_exhaustive((Augmentation(), 500), (Augmentation(), 2000), (CIRCLE_AUGMENTATION, 500)),
)
def test_operations_occur_independently_at_their_probability(published: Augmentation, count: int) -> None:
    probabilities = np.array([getattr(published, name) for name in PROBABILITIES])
    occurred = np.array([[SIGNS[name](change) for name in PROBABILITIES] for change in draws(published, count)])
    assert (
        np.abs(occurred.mean(axis=0) - probabilities) <= 5 * np.sqrt(probabilities * (1 - probabilities) / count)
    ).all()
    joint, independent = occurred.T.astype(float) @ occurred / count, np.outer(probabilities, probabilities)
    off_diagonal = ~np.eye(len(probabilities), dtype=bool)
    assert joint[off_diagonal] == pytest.approx(independent[off_diagonal], abs=5 * np.sqrt(0.25 / count))


def test_one_operation_does_not_change_draws_for_another() -> None:
    combined_draws = draws(ALL, 20)
    for name in PROBABILITIES:
        single_draws = draws(replace(NO_AUGMENTATION, **{name: 1.0}), 20)
        field = next(
            field.name
            for field in fields(Change)
            if SIGNS[name](replace(Change(), **{field.name: getattr(combined_draws[0], field.name)}))
        )
        for single, combined in zip(single_draws, combined_draws, strict=True):
            assert single == Change(**{field: getattr(combined, field)})


def test_sharpness_draws_after_the_operations_added_before_it() -> None:
    numbers = photo_generator(5, 1, 3).random(RANDOM_NUMBERS_PER_CHANGE)
    change = draw_change(replace(ALL, sharpness_min=0.0, sharpness_max=1.0), photo_generator(5, 1, 3))
    assert change.sharpness == numbers[81]  # the other operations use 81 numbers
    assert change.angle_deg == pytest.approx(-25 + 50 * numbers[5])


WIDE = replace(
    ALL,
    rotate_deg=40.0, translate=0.25, scale=0.2, brightness=0.1, contrast=0.5, saturation=0.6, hue=0.3,
    crop_scale_min=0.5, crop_ratio_min=0.8, crop_ratio_max=1.5, dropout_holes_max=6, blur_sigma_min=0.1,
    blur_sigma_max=2.0, jpeg_quality_min=20, jpeg_quality_max=90, erase_area_min=0.05, erase_area_max=0.2,
    sharpness_max=10.0,
)  # fmt: skip


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        (lambda c: c.angle_deg, -40.0, 40.0),
        (lambda c: c.move.right, -0.25, 0.25),
        (lambda c: c.move.down, -0.25, 0.25),
        (lambda c: c.move.scale, 0.8, 1.2),
        (lambda c: c.jitter.brightness, 0.9, 1.1),
        (lambda c: c.jitter.contrast, 0.5, 1.5),
        (lambda c: c.jitter.saturation, 0.4, 1.6),
        (lambda c: c.jitter.hue, -0.3, 0.3),
        (lambda c: c.blur.sigma_px, 0.1, 2.0),
        (lambda c: c.sharpness, 0.0, 10.0),
        (lambda c: c.noise.std, 0.01, 0.05),
        (lambda c: c.downscale, 0.4, 0.8),
        (lambda c: c.shadow.loss, 0.3, 0.6),
        (lambda c: c.holes[0].width, 16 / 224, 48 / 224),
        (lambda c: c.holes[0].height, 16 / 224, 48 / 224),
        (lambda c: c.holes[0].left / (1 - c.holes[0].width), 0.0, 1.0),
        (lambda c: c.crop.width * c.crop.height, 0.5, 1.0),
        (lambda c: c.erase.width * c.erase.height, 0.05, 0.2),
        (lambda c: np.log(c.erase.width / c.erase.height), np.log(0.3), np.log(3.3)),
        (lambda c: c.erase.top / (1 - c.erase.height), 0.0, 1.0),
    ],
)
def test_values_fill_their_ranges_evenly(value: Callable[[Change], float], low: float, high: float) -> None:
    values = np.array([value(change) for change in draws(WIDE, 1000)])
    slack = 1e-9
    assert low - slack <= values.min() < low + 0.02 * (high - low)
    assert high - 0.02 * (high - low) < values.max() <= high + slack
    assert values.mean() == pytest.approx((low + high) / 2, abs=5 * (high - low) / np.sqrt(12 * 1000))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (lambda c: c.blur.kernel_px, [3, 5, 7, 9]),
        (lambda c: len(c.holes), [1, 2, 3, 4, 5, 6]),
        (lambda c: c.jpeg_quality, list(range(20, 91))),
    ],
)
def test_integers_take_every_value_about_equally_often(value: Callable[[Change], int], expected: list[int]) -> None:
    values, counts = np.unique([value(change) for change in draws(WIDE, 1000)], return_counts=True)
    assert values.tolist() == expected
    share = 1 / len(expected)
    assert counts / 1000 == pytest.approx(share, abs=5 * np.sqrt(share / 1000))


def test_jitter_uses_every_order() -> None:
    orders = {change.jitter.order for change in draws(ALL, 300)}
    assert len(orders) == 24
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)


def test_blur_without_sigma_derives_it_from_kernel() -> None:
    # OpenCV: 0.3 ((k - 1) / 2 - 1) + 0.8
    expected = {3: 0.8, 5: 1.1, 7: 1.4, 9: 1.7}
    for change in draws(ALL, 300):
        assert change.blur.sigma_px == pytest.approx(expected[change.blur.kernel_px])
    assert all(0 < change.blur.sigma_px <= 0.5 for change in draws(replace(ALL, blur_sigma_max=0.5), 50))


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0.1, 10), st.floats(0.1, 10), st.integers(0, 10**6))
def test_boxes_stay_inside_with_area_and_ratio_in_range(
    area: float, other_area: float, ratio: float, other_ratio: float, photo: int
) -> None:
    settings = replace(
        NO_AUGMENTATION,
        erase_p=1.0,
        erase_area_min=min(area, other_area),
        erase_area_max=max(area, other_area),
        erase_ratio_min=min(ratio, other_ratio),
        erase_ratio_max=max(ratio, other_ratio),
    )
    x, y, width, height = draw_change(settings, photo_generator(0, 0, photo)).erase
    assert min(x, y, width, height) >= 0
    assert max(x + width, y + height) <= 1 + 1e-9
    assert min(area, other_area) - 1e-8 <= width * height <= max(area, other_area) + 1e-8
    if max(width, height) < 1 - 1e-9:
        assert min(ratio, other_ratio) * 0.999 <= width / height <= max(ratio, other_ratio) * 1.001


def test_shadows_enter_from_every_edge_and_keep_light() -> None:
    shades = [on_photo.shadow_depth(change.shadow.planes, 32) for change in draws(ALL, 300)]
    edges = [(shade[0].max(), shade[-1].max(), shade[:, 0].max(), shade[:, -1].max()) for shade in shades]
    assert all(max(maxima) > 0.9 for maxima in edges)
    assert all(np.mean([maxima[side] > 0.9 for maxima in edges]) > 0.25 for side in range(4))
    shares = np.array([shade.mean() for shade in shades])
    assert shares.min() > 0.02
    assert shares.max() < 0.95
    assert 0.2 < shares.mean() < 0.6


# Settings


def test_circle_augmentation_matches_coursework() -> None:
    changed = {
        name: value for name, value in asdict(CIRCLE_AUGMENTATION).items() if value != getattr(NO_AUGMENTATION, name)
    }
    assert changed == {
        "crop_p": 1.0, "flip_p": 0.3, "jitter_p": 1.0, "brightness": 0.2, "contrast": 0.2, "saturation": 0.1,
        "hue": 0.05, "gray_p": 0.1, "blur_p": 1.0, "blur_kernel_max": 3, "blur_sigma_min": 0.1,
        "blur_sigma_max": 2.0, "blur_scaled": False, "erase_p": 0.2,
    }  # fmt: skip
    circle = CIRCLE_AUGMENTATION
    assert (circle.crop_scale_min, circle.crop_ratio_min, circle.crop_ratio_max, circle.blur_kernel_min) == (
        0.9,
        0.9,
        1.1,
        3,
    )
    assert (circle.erase_area_min, circle.erase_area_max, circle.erase_ratio_min, circle.erase_ratio_max) == (
        0.02,
        0.1,
        0.3,
        3.3,
    )


def test_pet_augmentation_matches_published_settings() -> None:
    pet = Augmentation()
    assert [(name, getattr(pet, name)) for name in PROBABILITIES] == [
        ("crop_p", 0), ("rotate_p", 0.5), ("flip_p", 0.5), ("affine_p", 0.3), ("jitter_p", 0.5), ("gray_p", 0.05),
        ("blur_p", 0.2), ("sharpness_p", 0), ("noise_p", 0.2), ("jpeg_p", 0.2), ("downscale_p", 0.15),
        ("shadow_p", 0.1), ("dropout_p", 0.3), ("erase_p", 0),
    ]  # fmt: skip
    assert (pet.blur_kernel_min, pet.blur_kernel_max, pet.noise_std_min, pet.noise_std_max) == (3, 9, 0.01, 0.05)
    assert (pet.jpeg_quality_min, pet.jpeg_quality_max, pet.downscale_min, pet.downscale_max) == (
        70,
        100,
        0.4,
        0.8,
    )
    assert (pet.dropout_holes_min, pet.dropout_holes_max) == (1, 4)
    assert (224 * pet.dropout_side_min, 112 * pet.dropout_side_max) == (16, 24)


def test_every_number_has_a_range_that_its_description_names() -> None:
    assert {*RANGES, "blur_scaled", "custom"} == {field.name for field in fields(Augmentation)}
    described = re.findall(r"^ +(\w+): .*in \[([\d.]+), ([\d.]+)\]", Augmentation.__doc__, re.MULTILINE)
    assert {name: (float(low), float(high)) for name, low, high in described} == {
        name: bounds for name, bounds in RANGES.items() if name not in PROBABILITIES
    }


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *((name, value) for name in PROBABILITIES for value in (-0.1, 1.1)),
        *((name, low - 1) for name, (low, _) in RANGES.items()),
        *((name, high + 1) for name, (_, high) in RANGES.items()),
        *((name, float("nan")) for name in RANGES if isinstance(getattr(NO_AUGMENTATION, name), float)),
        ("translate", 1.0),
        ("hue", 0.51),
        ("blur_kernel_min", 4),
        ("blur_kernel_max", 8),
        ("crop_ratio_min", 1.2),
        ("blur_kernel_min", 11),
        ("noise_std_min", 0.06),
        ("jpeg_quality_max", 60),
        ("downscale_min", 0.9),
        ("shadow_max", 0.2),
        ("dropout_holes_min", 5),
        ("dropout_side_max", 0.05),
        ("erase_area_min", 0.2),
        ("erase_ratio_max", 0.2),
        ("blur_sigma_min", 1.0),
    ],
)
def test_rejects_settings_out_of_range_by_name(name: str, wrong: float) -> None:
    pair = name.removesuffix("_max") + "_min" if name.endswith("_max") else name
    with pytest.raises(ValueError, match=f"^({name}|{pair}) "):
        Augmentation(**{name: wrong})


def extreme(side: int) -> Augmentation:
    """Everything at once, at the lower (0) or the upper (1) end of every range."""
    ends = {name: ends[side] for name, ends in RANGES.items() if name not in PROBABILITIES}
    whole = {
        name: int(value) if isinstance(getattr(NO_AUGMENTATION, name), int) else float(value)
        for name, value in ends.items()
    }
    return replace(ALL, **whole)


@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("side", [16, 17])
def test_range_ends_keep_crop_shape(end: int, side: int) -> None:
    for change in draws(extreme(end), 5):
        assert apply_change(noise(side), change).shape == (side, side, 3)
    assert (extreme(1).dropout_holes_max, extreme(1).blur_kernel_max) == (MAX_HOLES, MAX_BLUR_KERNEL_PX)
