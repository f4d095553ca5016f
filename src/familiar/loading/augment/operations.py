"""Augmentation operations on one crop, as pure functions that do not modify their input.

Implemented with OpenCV, which is two to twenty times faster on one core than torchvision, most for hue. Tests compare
the results with torchvision's. The noise is NumPy's, in twice torch's time, so that this module does not need torch.
OpenCV releases Python's interpreter lock, so that loading threads run in parallel.
"""

from collections.abc import Sequence
from math import log, sqrt
from typing import NamedTuple

import cv2
import numpy as np
from jaxtyping import Float32, Float64, UInt8

Pixels = UInt8[np.ndarray, "s s 3"]
Resized = UInt8[np.ndarray, "r r 3"]

SMOOTHING = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13  # Pillow's ImageFilter.SMOOTH
NARROW_SIGMA_PX = 0.5
SHADOW_BORDER = 0.1  # width of a shadow's soft border, as a share of the side

HalfPlane = tuple[float, float, float]  # (a, b, d): a x + b y + d > 0 inside, x and y as shares of the side


class Window(NamedTuple):
    """A rectangle, as shares of the side."""

    left: float
    top: float
    width: float
    height: float

    def in_px(self, side: int) -> tuple[int, int, int, int]:
        """Convert to whole pixels, clipped to the crop: (left, top, right, bottom), right and bottom exclusive."""
        left, top, width, height = (share * side for share in self)
        edges = (left, top, left + width, top + height)
        left, top, right, bottom = (min(max(round(edge), 0), side) for edge in edges)
        return left, top, right, bottom


class Jitter(NamedTuple):
    """Factors of color jitter (`hue` in turns), and the order in which the four are applied."""

    brightness: float
    contrast: float
    saturation: float
    hue: float
    order: tuple[int, int, int, int]


class Blur(NamedTuple):
    """A Gaussian kernel: width and standard deviation, for crops of `crop_px` a side, or of any size if it is None."""

    kernel_px: int
    sigma_px: float
    crop_px: int | None = None

    def scaled_to(self, side: int) -> "Blur":
        """Scale width and standard deviation in proportion to a crop's side, the width rounded up to an odd number.

        A Gaussian narrower than half a pixel is almost 0 at the next pixel, and would not blur. Three weights that have
        its variance are used instead: those of a slightly wider Gaussian.
        """
        if self.crop_px is None or self.crop_px == side:
            return Blur(self.kernel_px, self.sigma_px)
        reach = -(-(self.kernel_px // 2) * side // self.crop_px)
        sigma_px = self.sigma_px * side / self.crop_px
        if reach and sigma_px < NARROW_SIGMA_PX:
            neighbor = sigma_px**2 / 2  # weights (w, 1 - 2 w, w) have the variance 2 w
            return Blur(3, 1 / sqrt(2 * log((1 - 2 * neighbor) / neighbor)))
        return Blur(2 * reach + 1, sigma_px)


class Noise(NamedTuple):
    """Gaussian noise: standard deviation as a share of full scale, and the seed of one photo's noise."""

    std: float
    seed: int


class Shadow(NamedTuple):
    """A shadow inside the intersection of three half-planes; `loss` is the share of light removed."""

    loss: float
    planes: tuple[HalfPlane, HalfPlane, HalfPlane]


def mirror(rgb_u8: Pixels) -> Pixels:
    """Flip left and right."""
    return cv2.flip(rgb_u8, 1)


def warp(rgb_u8: Pixels, origin: Float64[np.ndarray, "2 3"], size_px: int | None = None) -> Resized:
    """Warp by an affine map, linearly interpolated.

    Beyond the border the picture is mirrored; black corners would reveal the angle to the network.

    Args:
        rgb_u8: a square crop.
        origin: maps (x, y, 1) of the result to (x, y) of the crop, both relative to the center, with side 1.
        size_px: side of the result; None: that of the crop.
    """
    side: int = rgb_u8.shape[0]
    result_px = size_px or side
    turn, shift = origin[:, :2] * (side / result_px), origin[:, 2]
    center, result_center = (np.full(2, (width - 1) / 2) for width in (side, result_px))
    return cv2.warpAffine(
        rgb_u8,
        np.column_stack([turn, center - turn @ result_center + shift * side]),
        (result_px, result_px),
        flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
        borderMode=cv2.BORDER_REFLECT_101,
    )


def jitter(rgb_u8: Pixels, factors: Jitter) -> Pixels:
    """Apply torchvision's color jitter with these factors, in their order."""
    steps = (
        (adjust_brightness, factors.brightness),
        (adjust_contrast, factors.contrast),
        (adjust_saturation, factors.saturation),
        (adjust_hue, factors.hue),
    )
    for step in factors.order:
        adjust, factor = steps[step]
        rgb_u8 = adjust(rgb_u8, factor)
    return rgb_u8


def adjust_brightness(rgb_u8: Pixels, factor: float) -> Pixels:
    """Scale all values."""
    return cv2.addWeighted(rgb_u8, factor, rgb_u8, 0, 0)


def adjust_contrast(rgb_u8: Pixels, factor: float) -> Pixels:
    """Scale the difference from the mean gray."""
    mean = cv2.mean(cv2.cvtColor(rgb_u8, cv2.COLOR_RGB2GRAY))[0]
    return cv2.addWeighted(rgb_u8, factor, rgb_u8, 0, (1 - factor) * mean)


def adjust_saturation(rgb_u8: Pixels, factor: float) -> Pixels:
    """Scale the difference from each pixel's gray."""
    return cv2.addWeighted(rgb_u8, factor, to_gray(rgb_u8), 1 - factor, 0)


def adjust_hue(rgb_u8: Pixels, turns: float) -> Pixels:
    """Rotate the hue in HSV by `turns` around the circle."""
    if turns == 0:
        return rgb_u8
    # In float: an 8-bit hue has only 43 steps between red and yellow, which is visible as bands.
    hsv = cv2.cvtColor(rgb_u8.astype(np.float32), cv2.COLOR_RGB2HSV)
    hsv[..., 0] += 360 * (turns % 1)  # OpenCV accepts angles above 360, but none below 0
    return cv2.convertScaleAbs(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB))


def to_gray(rgb_u8: Pixels) -> Pixels:
    """Convert to luma (ITU-R BT.601) in all three channels."""
    return cv2.cvtColor(cv2.cvtColor(rgb_u8, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)


def blur(rgb_u8: Pixels, kernel: Blur) -> Pixels:
    """Apply a Gaussian blur, mirrored at the border."""
    kernel = kernel.scaled_to(rgb_u8.shape[0])
    return cv2.GaussianBlur(rgb_u8, (kernel.kernel_px, kernel.kernel_px), kernel.sigma_px)


def adjust_sharpness(rgb_u8: Pixels, factor: float) -> Pixels:
    """Scale the difference from a smoothed copy, as torchvision and Pillow do: 0 smooths, above 1 sharpens.

    A smoothed pixel is the mean of 3 x 3 with 5 times the weight in the center. The outermost pixels stay as they are.
    """
    smooth = cv2.filter2D(rgb_u8, -1, SMOOTHING)
    for edge in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]):
        smooth[edge] = rgb_u8[edge]
    return cv2.addWeighted(rgb_u8, factor, smooth, 1 - factor, 0)


def add_noise(rgb_u8: Pixels, noise: Noise) -> Pixels:
    """Add Gaussian noise, independent in every pixel and channel."""
    generator = np.random.Generator(np.random.SFC64(noise.seed))
    change = generator.standard_normal(rgb_u8.shape, np.float32)
    change *= np.float32(255 * noise.std)
    return cv2.add(rgb_u8, change, dtype=cv2.CV_8U)


def compress(rgb_u8: Pixels, jpeg_quality: int) -> Pixels:
    """Compress as JPEG of a quality (1 to 100, as in libjpeg), color at half resolution, and decode."""
    bgr_u8 = cv2.cvtColor(rgb_u8, cv2.COLOR_RGB2BGR)
    _, file = cv2.imencode(".jpg", bgr_u8, [cv2.IMWRITE_JPEG_QUALITY, jpeg_quality])
    # imdecode may return None according to its stubs, but this image was just encoded.
    return np.asarray(cv2.imdecode(file, cv2.IMREAD_COLOR_RGB))


def downscale(rgb_u8: Pixels, share: float) -> Pixels:
    """Reduce to `share` of the side by area averaging and enlarge again linearly.

    In inference, `resize_crop` enlarges a small photo to the network's size in the same way.
    """
    side = rgb_u8.shape[0]
    small = max(1, round(side * share))
    low = cv2.resize(rgb_u8, (small, small), interpolation=cv2.INTER_AREA)
    return cv2.resize(low, (side, side), interpolation=cv2.INTER_LINEAR)


def cast_shadow(rgb_u8: Pixels, shadow: Shadow) -> Pixels:
    """Darken the area of the shadow, with a soft border."""
    light = 1 - np.float32(shadow.loss) * shadow_depth(shadow.planes, rgb_u8.shape[0])
    return cv2.multiply(rgb_u8, cv2.merge([light, light, light]), dtype=cv2.CV_8U)


def shadow_depth(planes: Sequence[HalfPlane], side: int) -> Float32[np.ndarray, "s s"]:
    """Compute how far each pixel is inside the shadow: 0 outside, 1 inside, linear across the soft border."""
    ticks = ((np.arange(side) + 0.5) / side).astype(np.float32)
    depth = np.min([a * ticks + (b * ticks[:, None] + d) for a, b, d in planes], axis=0)
    return np.clip(depth / np.float32(SHADOW_BORDER) + np.float32(0.5), 0, 1)


def black_out(rgb_u8: Pixels, boxes: Sequence[Window]) -> Pixels:
    """Fill boxes with black."""
    covered = rgb_u8.copy()
    for box in boxes:
        left, top, right, bottom = box.in_px(rgb_u8.shape[0])
        covered[top:bottom, left:right] = 0
    return covered
