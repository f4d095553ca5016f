"""Each operation alone: closed form, a slow or foreign reference, extreme pixels and sizes, the crop left as it was."""

from collections.abc import Callable
from io import BytesIO
from math import cos, radians, sin

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance
from torchvision.transforms.v2 import ColorJitter
from torchvision.transforms.v2 import functional as V

from familiar.loading.augment import operations as on_photo
from familiar.loading.augment.operations import Blur, Jitter, Noise, Shadow, Window
from familiar.loading.augment.pipeline import Change, Move

HALF = ((1.0, 0.0, -0.5), (1.0, 0.0, 9.0), (0.0, 1.0, 9.0))  # the right half lies in shadow


def noise(side: int = 16, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)


def waves(side: int = 48) -> np.ndarray:
    """Smooth, colored, and without any symmetry."""
    y, x = np.mgrid[:side, :side] / side
    return np.stack([127 + 120 * np.sin(4 * x + y), 40 + 200 * x * y, 230 - 200 * y * y], 2).astype(np.uint8)


def plain(value: int, side: int = 16) -> np.ndarray:
    return np.full((side, side, 3), value, np.uint8)


def tensor(rgb_u8: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(rgb_u8).permute(2, 0, 1)


def levels_apart(actual: np.ndarray, expected: torch.Tensor) -> int:
    return int(np.abs(actual.astype(int) - expected.permute(1, 2, 0).numpy().astype(int)).max())


def warp(picture: np.ndarray, angle_deg: float = 0, right: float = 0, down: float = 0, scale: float = 1) -> np.ndarray:
    return on_photo.warp(picture, Change(angle_deg=angle_deg, move=Move(right, down, scale)).origin())


OPERATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mirror": on_photo.mirror,
    "warp": lambda picture: warp(picture, 20, 0.1, -0.1, 0.9),
    "jitter": lambda picture: on_photo.jitter(picture, Jitter(1.3, 0.7, 1.3, 0.1, (3, 1, 0, 2))),
    "gray": on_photo.to_gray,
    "blur": lambda picture: on_photo.blur(picture, Blur(9, 1.7)),
    "sharpness": lambda picture: on_photo.adjust_sharpness(picture, 3.0),
    "noise": lambda picture: on_photo.add_noise(picture, Noise(0.05, 3)),
    "jpeg": lambda picture: on_photo.compress(picture, 70),
    "downscale": lambda picture: on_photo.downscale(picture, 0.4),
    "shadow": lambda picture: on_photo.cast_shadow(picture, Shadow(0.5, HALF)),
    "cover": lambda picture: on_photo.black_out(picture, [Window(0.1, 0.2, 0.3, 0.4)]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("side", [16, 17, 1024])
def test_operations_are_deterministic_and_keep_shape_and_input(name: str, side: int) -> None:
    picture = noise(side)
    picture.flags.writeable = False
    changed = OPERATIONS[name](picture)
    assert (changed.shape, changed.dtype) == (picture.shape, picture.dtype)
    assert changed.flags.c_contiguous
    assert not np.array_equal(changed, picture)
    assert np.array_equal(picture, noise(side))
    assert np.array_equal(OPERATIONS[name](picture), changed)


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in ("shadow", "cover", "noise")])
def test_black_and_white_stay_unchanged_without_darkening(name: str) -> None:
    quantized = 1 if name == "jpeg" else 0  # its steps of brightness need not fall on black
    assert OPERATIONS[name](plain(0)).max() <= quantized
    if name != "jitter":  # which may darken
        assert OPERATIONS[name](plain(255)).min() >= 255 - quantized


# warp


@pytest.mark.parametrize("side", [1, 16, 17])
def test_neutral_warp_keeps_pixels(side: int) -> None:
    assert np.array_equal(warp(noise(side)), noise(side))


@pytest.mark.parametrize("side", [16, 17])
@pytest.mark.parametrize(("angle_deg", "quarters"), [(90, 1), (-90, -1), (180, 2), (-180, 2), (360, 0)])
def test_quarter_turns_are_counterclockwise(side: int, angle_deg: float, quarters: int) -> None:
    # np.rot90 turns counter-clockwise where rows are drawn downwards: what was at the right comes to the top.
    assert np.array_equal(warp(noise(side), angle_deg), np.rot90(noise(side), quarters))


def test_shifts_are_relative_and_mirror_at_border() -> None:
    picture = noise(16)
    shifted = warp(picture, right=3 / 16, down=5 / 16)
    assert np.array_equal(shifted[5:, 3:], picture[:-5, :-3])
    assert np.array_equal(shifted, np.pad(picture, ((5, 0), (3, 0), (0, 0)), "reflect")[:16, :16])
    left_up = warp(picture, right=-3 / 16, down=-5 / 16)
    assert np.array_equal(left_up, np.pad(picture, ((0, 5), (0, 3), (0, 0)), "reflect")[5:, 3:])


def test_warp_scales_about_center() -> None:
    assert np.array_equal(warp(noise(17), scale=2.0)[::2, ::2], noise(17)[4:13, 4:13])


def test_flip_warp_equals_mirror() -> None:
    assert np.array_equal(on_photo.warp(noise(17), Change(flip=True).origin()), on_photo.mirror(noise(17)))
    assert np.array_equal(on_photo.mirror(noise()), noise()[:, ::-1])


@pytest.mark.parametrize("box", [(8, 4, 32, 40), (0, 0, 48, 48), (16, 0, 24, 24)])
def test_crop_matches_torchvision_resized_crop(box: tuple[int, int, int, int]) -> None:
    x, y, width, height = box
    actual = on_photo.warp(waves(), Change(crop=Window(*(share / 48 for share in box))).origin())
    expected = V.resized_crop(tensor(waves()), y, x, height, width, [48, 48], antialias=False)
    inner = slice(2, -2)  # torchvision's outermost pixels repeat the crop's edge, ours use the pixels beyond it
    assert levels_apart(actual[inner, inner], expected[:, inner, inner]) <= 2


def bilinear(rgb_u8: np.ndarray, x: float, y: float) -> np.ndarray:
    """Interpolate the picture at a point; beyond its border it is mirrored, without repeating the edge."""
    side = rgb_u8.shape[0]

    def pixel(column: int, row: int) -> np.ndarray:
        column, row = (min(index % (2 * side - 2), -index % (2 * side - 2)) for index in (column, row))
        return rgb_u8[row, column].astype(float)

    column_0, row_0 = int(np.floor(x)), int(np.floor(y))
    right_share, low_share = x - column_0, y - row_0
    upper = (1 - right_share) * pixel(column_0, row_0) + right_share * pixel(column_0 + 1, row_0)
    lower = (1 - right_share) * pixel(column_0, row_0 + 1) + right_share * pixel(column_0 + 1, row_0 + 1)
    return (1 - low_share) * upper + low_share * lower


@given(
    st.floats(-180, 180),
    st.floats(-0.3, 0.3),
    st.floats(-0.3, 0.3),
    st.floats(0.7, 1.4),
    st.booleans(),
    st.integers(0, 23),
    st.integers(0, 23),
)
def test_warp_matches_slow_reference(
    angle_deg: float, right: float, down: float, scale: float, flip: bool, row: int, column: int
) -> None:
    picture, center = waves(24), 11.5
    # Backwards from a pixel of the result: undo shift, scale, flip and rotation.
    x = (column - center - right * 24) / scale * (-1 if flip else 1)
    y = (row - center - down * 24) / scale
    turn = radians(angle_deg)
    expected = bilinear(picture, center + cos(turn) * x - sin(turn) * y, center + sin(turn) * x + cos(turn) * y)
    change = Change(angle_deg=angle_deg, flip=flip, move=Move(right, down, scale))
    # OpenCV places samples to 1/32 pixel, and neighbors differ by up to 25.
    assert on_photo.warp(picture, change.origin())[row, column] == pytest.approx(expected, abs=2)


@pytest.mark.parametrize(("side", "size_px"), [(128, 112), (17, 16), (16, 33)])
def test_neutral_warp_to_another_size_resizes(side: int, size_px: int) -> None:
    resized_by_opencv = cv2.resize(waves(side), (size_px, size_px), interpolation=cv2.INTER_LINEAR)
    warped = on_photo.warp(waves(side), Change().origin(), size_px)
    inner = slice(1, -1)  # beyond the border a warp mirrors the crop, resizing repeats the edge
    assert np.abs(warped[inner, inner].astype(int) - resized_by_opencv[inner, inner]).max() <= 2
    assert warped.shape == (size_px, size_px, 3)


@pytest.mark.parametrize(("row", "column"), [(0, 0), (5, 40), (20, 20), (41, 41)])
def test_warp_to_another_size_matches_slow_reference(row: int, column: int) -> None:
    box = Window(0.05, 0.02, 0.9, 0.95)
    x, y = (box.left + (column + 0.5) / 42 * box.width) * 48, (box.top + (row + 0.5) / 42 * box.height) * 48
    warped = on_photo.warp(waves(48), Change(crop=box).origin(), 42)
    assert warped[row, column] == pytest.approx(bilinear(waves(48), x - 0.5, y - 0.5), abs=2)


def test_warp_adds_no_black_border() -> None:
    assert (warp(plain(200), 33, 0.4, -0.4, 0.5) == 200).all()


# Color: torchvision truncates fractions, OpenCV rounds


@pytest.mark.parametrize("picture", [noise(32), waves(), plain(0), plain(255), plain(77)])
@pytest.mark.parametrize(
    ("adjust", "torchvision_adjust", "factors"),
    [
        (on_photo.adjust_brightness, V.adjust_brightness, (0.0, 0.3, 1.0, 1.7)),
        (on_photo.adjust_contrast, V.adjust_contrast, (0.0, 0.3, 1.0, 1.7)),
        (on_photo.adjust_saturation, V.adjust_saturation, (0.0, 0.3, 1.0, 1.7)),
        (on_photo.adjust_hue, V.adjust_hue, (-0.5, -0.3, -0.05, 0.0, 0.2, 0.5)),
    ],
)
def test_color_adjustments_match_torchvision(
    picture: np.ndarray, adjust: Callable, torchvision_adjust: Callable, factors: tuple[float, ...]
) -> None:
    for factor in factors:
        # For saturation torchvision truncates the gray's fraction too.
        most = 2 if torchvision_adjust is V.adjust_saturation else 1
        assert levels_apart(adjust(picture, factor), torchvision_adjust(tensor(picture), factor)) <= most


def test_color_adjustments_equal_closed_form() -> None:
    picture = noise()
    assert np.array_equal(on_photo.adjust_brightness(picture & 254, 0.5), picture // 2)
    assert np.ptp(on_photo.adjust_contrast(picture, 0.0)) == 0
    assert np.array_equal(on_photo.adjust_saturation(picture, 0.0), on_photo.to_gray(picture))
    assert np.ptp(on_photo.to_gray(picture), axis=2).max() == 0
    red = np.tile(np.array([200, 0, 0], np.uint8), (4, 4, 1))
    assert on_photo.adjust_hue(red, 1 / 3)[0, 0].tolist() == [0, 200, 0]
    assert on_photo.adjust_hue(red, -1 / 3)[0, 0].tolist() == [0, 0, 200]
    assert on_photo.to_gray(red)[0, 0].tolist() == [60, 60, 60]  # 0.299 x 200


@pytest.mark.parametrize("seed", range(8))
def test_jitter_matches_torchvision(seed: int) -> None:
    torch.manual_seed(seed)
    torchvision_jitter = ColorJitter(0.4, 0.4, 0.4, 0.2)
    factors = torchvision_jitter.make_params([])
    names = ("brightness_factor", "contrast_factor", "saturation_factor", "hue_factor")
    jitter = Jitter(*(factors[name] for name in names), tuple(factors["fn_idx"].tolist()))
    expected = torchvision_jitter.transform(tensor(waves()), factors)
    difference = on_photo.jitter(waves(), jitter).astype(float) - expected.permute(1, 2, 0).numpy()
    # Fractions are truncated four times, and later steps may amplify the difference.
    assert np.abs(difference).max() <= 10
    assert np.abs(difference).mean() <= 2.5


def test_jitter_depends_on_order_and_neutral_keeps_pixels() -> None:
    orders = [tuple(np.roll(np.arange(4), turn).tolist()) for turn in range(4)]
    pictures = [on_photo.jitter(waves(), Jitter(1.3, 0.7, 1.2, 0.05, order)) for order in orders]
    assert len({picture.tobytes() for picture in pictures}) > 1
    assert np.array_equal(on_photo.jitter(noise(), Jitter(1, 1, 1, 0, (2, 0, 3, 1))), noise())


# Sharpness


@pytest.mark.parametrize(("kernel_px", "sigma_px"), [(3, 0.1), (3, 2.0), (9, 1.7), (31, 8.0)])
def test_blur_matches_torchvision(kernel_px: int, sigma_px: float) -> None:
    ours = on_photo.blur(noise(32), Blur(kernel_px, sigma_px))
    assert levels_apart(ours, V.gaussian_blur(tensor(noise(32)), [kernel_px] * 2, [sigma_px] * 2)) <= 1


def test_blurred_point_equals_kernel() -> None:
    point = plain(0, 17)
    point[8, 8] = 255
    taps = np.exp(-(np.arange(-1, 2) ** 2) / 2)
    taps /= taps.sum()
    blurred = on_photo.blur(point, Blur(3, 1.0))
    assert blurred[7:10, 7:10, 0] == pytest.approx(255 * np.outer(taps, taps), abs=1)
    assert int(blurred.sum()) == pytest.approx(3 * 255, abs=27)


def photo_like(side: int = 224, seed: int = 0) -> np.ndarray:
    """Draw noise with the spectrum of photos: amplitudes fall with the frequency."""
    frequencies = np.fft.fftfreq(side)
    amplitudes = 1 / (np.hypot(frequencies[:, None], frequencies) + 1 / side)
    white = np.fft.fft2(np.random.default_rng(seed).normal(size=(3, side, side)))
    drawn = np.fft.ifft2(white * amplitudes).real.transpose(1, 2, 0)
    return (128 + 50 * drawn / drawn.std()).clip(0, 255).astype(np.uint8)


def resized(rgb_u8: np.ndarray, side: int) -> np.ndarray:
    return cv2.resize(rgb_u8, (side, side), interpolation=cv2.INTER_AREA if side < 224 else cv2.INTER_LINEAR)


def difference(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.sqrt(((first.astype(float) - second) ** 2).mean()))


@pytest.mark.parametrize("side", [64, 112, 160, 448])
@pytest.mark.parametrize(("kernel_px", "sigma_px"), [(3, 0.8), (5, 1.1), (7, 1.4), (9, 1.7)])
def test_scaled_blur_equals_blur_at_224_px_and_resizing(side: int, kernel_px: int, sigma_px: float) -> None:
    photo = photo_like()
    expected = resized(on_photo.blur(photo, Blur(kernel_px, sigma_px)), side)
    effect = difference(expected, resized(photo, side))
    scaled = on_photo.blur(resized(photo, side), Blur(kernel_px, sigma_px, crop_px=224))
    unscaled = on_photo.blur(resized(photo, side), Blur(kernel_px, sigma_px))
    assert difference(scaled, expected) < 0.62 * effect  # a narrow Gaussian cannot be sampled exactly
    assert difference(scaled, expected) < 0.5 * difference(unscaled, expected)


@pytest.mark.parametrize(("kernel_px", "sigma_px"), [(1, 0.8), (3, 0.01), (3, 0.8), (9, 1.7), (31, 20.0)])
def test_scaled_blur_is_unchanged_at_224_px(kernel_px: int, sigma_px: float) -> None:
    assert Blur(kernel_px, sigma_px, crop_px=224).scaled_to(224) == Blur(kernel_px, sigma_px)
    expected = cv2.GaussianBlur(photo_like(), (kernel_px, kernel_px), sigma_px)
    assert np.array_equal(on_photo.blur(photo_like(), Blur(kernel_px, sigma_px, crop_px=224)), expected)


def test_scaled_kernel_grows_in_proportion() -> None:
    assert Blur(9, 1.7, crop_px=224).scaled_to(448) == Blur(17, 3.4)
    assert Blur(9, 1.7, crop_px=224).scaled_to(112) == Blur(5, 0.85)
    assert Blur(9, 1.7, crop_px=224).scaled_to(113) == Blur(7, pytest.approx(1.7 * 113 / 224))
    assert Blur(1, 1.7, crop_px=224).scaled_to(1024).kernel_px == 1
    assert Blur(9, 1.7).scaled_to(64) == Blur(9, 1.7)


@pytest.mark.parametrize(("side", "sigma_px"), [(16, 0.8), (64, 0.8), (64, 1.7), (112, 0.9), (64, 0.01)])
def test_narrow_scaled_kernel_has_the_variance_in_proportion(side: int, sigma_px: float) -> None:
    kernel = Blur(9, sigma_px, crop_px=224).scaled_to(side)
    taps = cv2.getGaussianKernel(kernel.kernel_px, kernel.sigma_px)[:, 0]
    assert taps @ np.array([1, 0, 1]) == pytest.approx((sigma_px * side / 224) ** 2)


def slow_sharpness(rgb_u8: np.ndarray, factor: float) -> np.ndarray:
    """Adjust pixel by pixel: the smoothed value is rounded, as Pillow and torchvision do, the result as OpenCV does."""
    result, side = rgb_u8.astype(float), rgb_u8.shape[0]
    for row, column, channel in np.ndindex(side, side, 3):
        if 0 < row < side - 1 and 0 < column < side - 1:
            center = int(rgb_u8[row, column, channel])
            neighbors = rgb_u8[row - 1 : row + 2, column - 1 : column + 2, channel].astype(int).sum()
            smooth = round((neighbors + 4 * center) / 13)
            result[row, column, channel] = smooth + factor * (center - smooth)
    return result.clip(0, 255)


@pytest.mark.parametrize("factor", [0.0, 0.4, 1.0, 2.0, 10.0, 20.0])
@pytest.mark.parametrize("side", [1, 2, 3, 16, 17])
def test_sharpness_matches_slow_reference(side: int, factor: float) -> None:
    for picture in (noise(side), waves(side)):
        actual = on_photo.adjust_sharpness(picture, factor)
        assert np.abs(actual - slow_sharpness(picture, factor)).max() <= 0.51


@pytest.mark.parametrize("picture", [noise(32), waves(), plain(0), plain(255)])
@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0, 2.0, 10.0])
def test_sharpness_matches_torchvision_and_pillow(picture: np.ndarray, factor: float) -> None:
    ours = on_photo.adjust_sharpness(picture, factor)
    assert levels_apart(ours, V.adjust_sharpness(tensor(picture), factor)) <= 1  # they truncate fractions
    enhanced = np.asarray(ImageEnhance.Sharpness(Image.fromarray(picture)).enhance(factor))
    assert np.abs(ours.astype(int) - enhanced).max() <= 1


def test_sharpness_of_factor_1_keeps_pixels() -> None:
    assert np.array_equal(on_photo.adjust_sharpness(noise(), 1.0), noise())


@pytest.mark.parametrize("std", [0.01, 0.05, 0.1])
def test_noise_has_requested_deviation_and_independent_channels(std: float) -> None:
    change = on_photo.add_noise(plain(128, 256), Noise(std, 9)).astype(float) - 128
    assert change.std() == pytest.approx(np.hypot(255 * std, 1 / np.sqrt(12)), rel=0.02)  # rounding adds its own
    assert change.mean() == pytest.approx(0, abs=5 * 255 * std / 256)
    assert np.corrcoef(change.reshape(-1, 3).T) == pytest.approx(np.eye(3), abs=0.03)
    assert not np.array_equal(
        on_photo.add_noise(plain(128), Noise(std, 9)), on_photo.add_noise(plain(128), Noise(std, 8))
    )
    assert np.array_equal(on_photo.add_noise(noise(), Noise(0.0, 9)), noise())


@pytest.mark.parametrize("quality", [1, 30, 70, 100])
def test_compression_matches_pillow(quality: int) -> None:
    file = BytesIO()
    Image.fromarray(waves()).save(file, "JPEG", quality=quality, subsampling="4:2:0")
    expected = np.asarray(Image.open(file))
    assert np.abs(on_photo.compress(waves(), quality).astype(int) - expected).max() <= 3  # libjpeg builds differ


def test_downscaling_averages_areas_and_enlarges_linearly() -> None:
    squares = noise(8).repeat(2, 0).repeat(2, 1)
    low = cv2.resize(noise(8), (16, 16), interpolation=cv2.INTER_LINEAR)
    assert np.array_equal(on_photo.downscale(squares, 0.5), low)
    board = 255 * (np.indices((16, 16)).sum(0) % 2).astype(np.uint8)
    gray = on_photo.downscale(np.stack([board] * 3, 2), 0.5)
    assert np.isin(gray, (127, 128)).all()
    assert np.array_equal(on_photo.downscale(noise(), 1.0), noise())
    assert np.ptp(on_photo.downscale(noise(), 0.01), axis=(0, 1)).max() == 0  # one pixel


# Occlusion


def test_shadow_equals_closed_form() -> None:
    dark = on_photo.cast_shadow(plain(200, 100), Shadow(0.25, HALF))
    assert (dark[:, :44] == 200).all()
    assert (dark[:, 56:] == 150).all()
    assert (np.diff(dark[0, 44:57, 0].astype(int)) <= 0).all()
    assert dark[0, 49:51, 0].mean() == pytest.approx(175, abs=1)
    assert np.array_equal(on_photo.cast_shadow(noise(), Shadow(0.0, HALF)), noise())


def test_shade_matches_pointwise_minimum_depth() -> None:
    planes = ((1.0, 0.3, -0.2), (-1.0, 0.2, 0.7), (0.1, -1.0, 0.6))
    for row, column in np.ndindex(9, 9):
        x, y = (column + 0.5) / 9, (row + 0.5) / 9
        depth = min(a * x + b * y + d for a, b, d in planes)
        expected = min(max(depth / on_photo.SHADOW_BORDER + 0.5, 0), 1)
        assert on_photo.shadow_depth(planes, 9)[row, column] == pytest.approx(expected, abs=1e-5)


def test_cover_blackens_only_its_boxes() -> None:
    covered = on_photo.black_out(plain(9), [Window(0.25, 0.5, 0.25, 0.125), Window(0, 0, 1 / 16, 1 / 16)])
    expected = plain(9)
    expected[8:10, 4:8] = 0
    expected[0, 0] = 0
    assert np.array_equal(covered, expected)
    assert not on_photo.black_out(plain(9), [Window(0, 0, 1, 1)]).any()
    assert np.array_equal(on_photo.black_out(plain(9), []), plain(9))
