from collections.abc import Iterator
from math import cos, radians, sin
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision.transforms import functional as v1
from torchvision.transforms.v2 import ColorJitter

from familiar.loading import augment as module
from familiar.loading.augment import Augmentation, augment, jitter, photo_generator, warp

OFF = {"rotate_p": 0.0, "flip_p": 0.0, "affine_p": 0.0, "jitter_p": 0.0}
KEYS = 3000


def noise(side: int = 16, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)


def waves(side: int = 48) -> np.ndarray:
    """Smooth, coloured, and without any symmetry."""
    y, x = np.mgrid[:side, :side] / side
    return np.stack([127 + 120 * np.sin(4 * x + y), 40 + 200 * x * y, 230 - 200 * y * y], 2).astype(np.uint8)


def only(**changes: float) -> Augmentation:
    """Nothing but what is named."""
    return Augmentation(**{**OFF, **changes})


# warp


@pytest.mark.parametrize("side", [1, 16, 17])
def test_a_warp_by_nothing_changes_nothing(side: int) -> None:
    assert np.array_equal(warp(noise(side)), noise(side))


@pytest.mark.parametrize("side", [16, 17])
@pytest.mark.parametrize(("angle_deg", "quarters"), [(90, 1), (-90, -1), (180, 2), (-180, 2), (360, 0)])
def test_quarter_turns_are_counter_clockwise(side: int, angle_deg: float, quarters: int) -> None:
    # np.rot90 turns counter-clockwise where rows are drawn downwards: what was at the right comes to the top.
    assert np.array_equal(warp(noise(side), angle_deg=angle_deg), np.rot90(noise(side), quarters))


def test_shifts_are_shares_of_the_side_right_and_down_and_mirror_at_the_border() -> None:
    picture = noise(16)
    shifted = warp(picture, shift=(3 / 16, 5 / 16))
    assert np.array_equal(shifted[5:, 3:], picture[:-5, :-3])
    assert np.array_equal(shifted, np.pad(picture, ((5, 0), (3, 0), (0, 0)), "reflect")[:16, :16])
    left_up = warp(picture, shift=(-3 / 16, -5 / 16))
    assert np.array_equal(left_up, np.pad(picture, ((0, 5), (0, 3), (0, 0)), "reflect")[5:, 3:])


def test_scales_about_the_centre() -> None:
    picture = noise(17)
    twice = warp(picture, scale=2.0)
    assert np.array_equal(twice[::2, ::2], picture[4:13, 4:13])


def bilinear(rgb_u8: np.ndarray, x: float, y: float) -> np.ndarray:
    """The picture at a point, mirrored (without repeating the edge) beyond its border."""
    side = rgb_u8.shape[0]

    def pixel(column: int, row: int) -> np.ndarray:
        column, row = (min(at % (2 * side - 2), -at % (2 * side - 2)) for at in (column, row))
        return rgb_u8[row, column].astype(float)

    left, top = int(np.floor(x)), int(np.floor(y))
    right_share, low_share = x - left, y - top
    upper = (1 - right_share) * pixel(left, top) + right_share * pixel(left + 1, top)
    lower = (1 - right_share) * pixel(left, top + 1) + right_share * pixel(left + 1, top + 1)
    return (1 - low_share) * upper + low_share * lower


@settings(deadline=None, max_examples=15)
@given(
    st.floats(-180, 180),
    st.floats(-0.3, 0.3),
    st.floats(-0.3, 0.3),
    st.floats(0.7, 1.4),
    st.integers(0, 23),
    st.integers(0, 23),
)
def test_warp_agrees_with_a_slow_reference(
    angle_deg: float, right: float, down: float, scale: float, row: int, column: int
) -> None:
    picture, centre = waves(24), 11.5
    # Backwards from a pixel of the result: undo the shift, the scale, the turn.
    x = (column - centre - right * 24) / scale
    y = (row - centre - down * 24) / scale
    turn = radians(angle_deg)
    wanted = bilinear(picture, centre + cos(turn) * x - sin(turn) * y, centre + sin(turn) * x + cos(turn) * y)
    warped = warp(picture, angle_deg=angle_deg, shift=(right, down), scale=scale)
    # OpenCV places samples to 1/32 pixel, and neighbours differ by up to 25.
    assert warped[row, column] == pytest.approx(wanted, abs=2)


def test_no_black_comes_in() -> None:
    bright = np.full((16, 16, 3), 200, np.uint8)
    assert (warp(bright, angle_deg=33, shift=(0.4, -0.4), scale=0.5) == 200).all()


# jitter


def test_each_jitter_in_closed_form() -> None:
    picture, alone = (
        noise(),
        {"brightness": 1.0, "contrast": 1.0, "saturation": 1.0, "hue": 0.0, "order": np.arange(4)},
    )
    assert np.array_equal(jitter(picture, **alone), picture)
    assert np.array_equal(jitter(picture, **alone | {"brightness": 0.5}), picture // 2)
    assert (jitter(picture, **alone | {"brightness": 1.9}) >= picture).all()
    assert np.ptp(jitter(picture, **alone | {"contrast": 0.0})) == 0
    assert np.ptp(jitter(picture, **alone | {"saturation": 0.0}), axis=2).max() == 0
    # A third of a turn takes red to green.
    red = np.tile(np.array([200, 0, 0], np.uint8), (4, 4, 1))
    assert jitter(red, **alone | {"hue": 1 / 3})[0, 0] == pytest.approx([0, 200, 0], abs=2)


@pytest.mark.parametrize("seed", range(8))
def test_jitter_is_torchvisions_with_the_same_factors_and_order(seed: int) -> None:
    torch.manual_seed(seed)
    theirs = ColorJitter(0.4, 0.4, 0.4, 0.2)
    factors = theirs.make_params([])
    picture = noise(seed=seed)
    wanted = theirs.transform(torch.from_numpy(picture).permute(2, 0, 1), factors)
    names = ("brightness_factor", "contrast_factor", "saturation_factor", "hue_factor")
    ours = jitter(picture, *(factors[name] for name in names), factors["fn_idx"].numpy())
    assert np.array_equal(ours, wanted.permute(1, 2, 0).numpy())


def test_jitter_agrees_with_torchvisions_older_functions() -> None:
    image = torch.from_numpy(waves()).permute(2, 0, 1)
    wanted = v1.adjust_hue(
        v1.adjust_saturation(v1.adjust_contrast(v1.adjust_brightness(image, 1.2), 0.8), 1.3), 0.1
    )
    ours = jitter(waves(), 1.2, 0.8, 1.3, 0.1, np.arange(4))
    assert ours.astype(int) == pytest.approx(wanted.permute(1, 2, 0).numpy().astype(int), abs=2)


def test_jitter_depends_on_its_order() -> None:
    pictures = [jitter(waves(), 1.3, 0.7, 1.2, 0.05, np.roll(np.arange(4), turn)) for turn in range(4)]
    assert len({picture.tobytes() for picture in pictures}) > 1


# augment


@pytest.mark.parametrize("row", range(5))
def test_probabilities_of_nothing_change_nothing(row: int) -> None:
    assert np.array_equal(augment(noise(), only(), photo_generator(0, 0, row)), noise())


def test_a_flip_alone_is_the_mirror_image() -> None:
    assert np.array_equal(augment(noise(), only(flip_p=1.0), photo_generator(0, 0, 0)), noise()[:, ::-1])


@pytest.mark.parametrize("changes", [{"rotate_p": 1.0}, {"affine_p": 1.0}, {"jitter_p": 1.0}])
def test_an_operation_alone_with_no_width_changes_nothing(changes: dict[str, float]) -> None:
    narrow = dict.fromkeys(
        ("rotate_deg", "translate", "scale", "brightness", "contrast", "saturation", "hue"), 0.0
    )
    assert np.array_equal(augment(noise(), only(**changes, **narrow), photo_generator(1, 2, 3)), noise())


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**40), st.integers(0, 10**6), st.integers(0, 10**6))
def test_the_same_key_gives_the_same_picture_of_the_same_kind(seed: int, epoch: int, row: int) -> None:
    picture = waves()
    first, second = (augment(picture, Augmentation(), photo_generator(seed, epoch, row)) for _ in range(2))
    assert np.array_equal(first, second)
    assert first.shape == picture.shape
    assert first.dtype == np.uint8
    assert first.flags.c_contiguous
    assert np.array_equal(picture, waves())  # the photo itself stays


def test_other_photos_epochs_and_seeds_give_other_pictures() -> None:
    keys = [(seed, epoch, row) for seed in range(4) for epoch in range(4) for row in range(4)]
    certain = Augmentation(rotate_p=1.0, jitter_p=1.0)
    assert len({augment(waves(), certain, photo_generator(*key)).tobytes() for key in keys}) == len(keys)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """What each call of `augment` was about to do to its picture."""
    made: list[dict[str, Any]] = []

    def warp(rgb_u8: np.ndarray, **arguments: Any) -> np.ndarray:
        made[-1].update(arguments)
        return rgb_u8

    def jitter(rgb_u8: np.ndarray, *factors: Any) -> np.ndarray:
        made[-1].update(zip(("brightness", "contrast", "saturation", "hue", "order"), factors, strict=True))
        return rgb_u8

    monkeypatch.setattr(module, "warp", warp)
    monkeypatch.setattr(module, "jitter", jitter)
    return made


def run(calls: list[dict[str, Any]], settings: Augmentation, keys: int = KEYS) -> list[dict[str, Any]]:
    """`calls` after that many keys."""
    calls.clear()
    picture = noise(2)
    for row in range(keys):
        calls.append({})
        changed = augment(picture, settings, photo_generator(5, 1, row))
        calls[-1]["flipped"] = not np.array_equal(changed, picture)
    return calls


CHANCES = {"rotate_p": 0.7, "flip_p": 0.5, "affine_p": 0.2, "jitter_p": 0.4}
SIGNS = {"rotate_p": "angle_deg", "flip_p": "flipped", "affine_p": "shift", "jitter_p": "hue"}


def test_operations_come_as_often_as_their_probability_and_independently(calls: list[dict[str, Any]]) -> None:
    run(calls, Augmentation(**CHANCES))
    seen = np.array([[bool(call.get(SIGNS[name])) for name in CHANCES] for call in calls])
    # Five standard deviations: sqrt(0.25 / 3000) = 0.009.
    assert seen.mean(axis=0) == pytest.approx(list(CHANCES.values()), abs=0.046)
    together = seen.T.astype(float) @ seen / KEYS
    apart = np.outer(list(CHANCES.values()), list(CHANCES.values()))
    off_diagonal = ~np.eye(4, dtype=bool)
    assert together[off_diagonal] == pytest.approx(apart[off_diagonal], abs=0.046)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("angle_deg", -40.0, 40.0),
        ("scale", 0.8, 1.2),
        ("brightness", 0.9, 1.1),
        ("contrast", 0.5, 1.5),
        ("saturation", 0.4, 1.6),
        ("hue", -0.3, 0.3),
        ("right", -0.25, 0.25),
        ("down", -0.25, 0.25),
    ],
)
def test_ranges_are_kept_and_filled(name: str, low: float, high: float, calls: list[dict[str, Any]]) -> None:
    widths = Augmentation(1.0, 40.0, 0.0, 1.0, 0.25, 0.2, 1.0, 0.1, 0.5, 0.6, 0.3)
    made = [
        call | dict(zip(("right", "down"), call["shift"], strict=True)) for call in run(calls, widths, 1000)
    ]
    values = np.array([call[name] for call in made])
    assert low <= values.min() < low + 0.02 * (high - low)
    assert high - 0.02 * (high - low) < values.max() <= high
    assert values.mean() == pytest.approx((low + high) / 2, abs=5 * (high - low) / np.sqrt(12 * 1000))


def test_jitters_come_in_every_order(calls: list[dict[str, Any]]) -> None:
    orders = {tuple(call["order"]) for call in run(calls, only(jitter_p=1.0), 500)}
    assert len(orders) == 24
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)


def test_one_operation_does_not_shift_the_draws_of_another(calls: list[dict[str, Any]]) -> None:
    alone = [dict(call) for call in run(calls, only(jitter_p=1.0), 50)]
    for call, expected in zip(
        run(calls, Augmentation(1.0, 5.0, 1.0, 1.0, jitter_p=1.0), 50), alone, strict=True
    ):
        assert all(np.array_equal(call[name], expected[name]) for name in expected if name != "flipped")


def test_operations_come_in_the_order_of_the_settings() -> None:
    settings, picture = Augmentation(rotate_p=1.0, flip_p=1.0, affine_p=1.0, jitter_p=0.0), waves()
    turned = augment(picture, only(rotate_p=1.0), photo_generator(0, 0, 9))
    flipped = augment(turned, only(flip_p=1.0), photo_generator(0, 0, 9))
    shifted = augment(flipped, only(affine_p=1.0), photo_generator(0, 0, 9))
    assert np.array_equal(augment(picture, settings, photo_generator(0, 0, 9)), shifted)


# Settings


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *((name, value) for name in ("rotate_p", "flip_p", "affine_p", "jitter_p") for value in (-0.1, 1.1)),
        *(
            (name, value)
            for name in ("translate", "scale", "brightness", "contrast", "saturation")
            for value in (-0.1, 1.0)
        ),
        ("hue", -0.1),
        ("hue", 0.51),
        ("rotate_deg", -1.0),
        ("rotate_deg", 181.0),
        *((name, float("nan")) for name in vars(Augmentation())),
    ],
)
def test_settings_out_of_range_are_refused_by_name(name: str, wrong: float) -> None:
    with pytest.raises(ValueError, match=f"^{name} "):
        Augmentation(**{name: wrong})


@pytest.mark.parametrize(
    "values", [(0.0,) * 11, (1.0, 180.0, 1.0, 1.0, 0.99, 0.99, 1.0, 0.99, 0.99, 0.99, 0.5)]
)
@pytest.mark.parametrize("side", [1, 2, 17])
def test_the_widest_and_the_narrowest_settings_work(values: tuple[float, ...], side: int) -> None:
    for row in range(3):
        assert augment(noise(side), Augmentation(*values), photo_generator(0, 0, row)).shape == (
            side,
            side,
            3,
        )
