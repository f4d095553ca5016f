"""What augmentation does to one crop: each operation a pure function that leaves its crop as it was.

OpenCV throughout: two to twenty times faster on one core than torchvision, to whose results the tests hold it
(hue gains most; the noise is NumPy's, at twice torch's time, so that nothing here needs torch), and it lets go of
Python's lock, so that loading threads run at once.
"""

from collections.abc import Sequence
from typing import NamedTuple

import cv2
import numpy as np
from jaxtyping import Float32, Float64, UInt8

Pixels = UInt8[np.ndarray, "s s 3"]

SHADOW_BORDER = 0.1  # how wide a shadow's soft border is, in shares of the side

HalfPlane = tuple[float, float, float]  # (a, b, d): a x + b y + d is above 0 inside, x and y in shares of the side


class Box(NamedTuple):
    """A rectangle in shares of the side."""

    left: float
    top: float
    width: float
    height: float

    def in_px(self, side: int) -> tuple[int, int, int, int]:
        """(left, top, right, bottom) to whole pixels within the crop; right and bottom are the first ones outside."""
        left, top, width, height = (share * side for share in self)
        edges = (left, top, left + width, top + height)
        left, top, right, bottom = (min(max(round(edge), 0), side) for edge in edges)
        return left, top, right, bottom


class Jitter(NamedTuple):
    """Factors (`hue`: turns), and in which order the four are applied."""

    brightness: float
    contrast: float
    saturation: float
    hue: float
    order: tuple[int, int, int, int]


class Blur(NamedTuple):
    kernel_px: int
    sigma_px: float


class Noise(NamedTuple):
    """`std` is a share of full scale; the same `seed` gives the same noise on one photo."""

    std: float
    seed: int


class Shadow(NamedTuple):
    """`loss` is the share of light taken where all `planes` are above 0."""

    loss: float
    planes: tuple[HalfPlane, HalfPlane, HalfPlane]


def mirror(rgb_u8: Pixels) -> Pixels:
    return cv2.flip(rgb_u8, 1)


def warp(rgb_u8: Pixels, origin: Float64[np.ndarray, "2 3"]) -> Pixels:
    """Pixels from where `origin` says: (x, y, 1) of the result to (x, y) here, both from the center, side 1.

    What lies over the border is the picture mirrored: black corners would teach the angle.
    """
    side = rgb_u8.shape[0]
    return cv2.warpAffine(
        rgb_u8,
        matrix_px(origin, side),
        (side, side),
        flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
        borderMode=cv2.BORDER_REFLECT_101,
    )


def matrix_px(origin: Float64[np.ndarray, "2 3"], side: int) -> Float64[np.ndarray, "2 3"]:
    """The same mapping between pixels' (column, row)."""
    turn, shift = origin[:, :2], origin[:, 2]
    center = np.full(2, (side - 1) / 2)
    return np.column_stack([turn, center - turn @ center + shift * side])


def jitter(rgb_u8: Pixels, factors: Jitter) -> Pixels:
    """torchvision's color jitter with these factors, in their order."""
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
    return cv2.addWeighted(rgb_u8, factor, rgb_u8, 0, 0)


def adjust_contrast(rgb_u8: Pixels, factor: float) -> Pixels:
    """Away from the mean gray, or towards it."""
    mean = cv2.mean(cv2.cvtColor(rgb_u8, cv2.COLOR_RGB2GRAY))[0]
    return cv2.addWeighted(rgb_u8, factor, rgb_u8, 0, (1 - factor) * mean)


def adjust_saturation(rgb_u8: Pixels, factor: float) -> Pixels:
    """Away from each pixel's gray, or towards it."""
    return cv2.addWeighted(rgb_u8, factor, to_gray(rgb_u8), 1 - factor, 0)


def adjust_hue(rgb_u8: Pixels, turns: float) -> Pixels:
    """Hue in HSV moved by `turns` around the circle."""
    if turns == 0:
        return rgb_u8
    # In float: an 8-bit hue has but 43 steps between red and yellow, which shows as bands.
    hsv = cv2.cvtColor(rgb_u8.astype(np.float32), cv2.COLOR_RGB2HSV)
    hsv[..., 0] += 360 * (turns % 1)  # OpenCV takes angles above the circle, but none below 0
    return cv2.convertScaleAbs(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB))


def to_gray(rgb_u8: Pixels) -> Pixels:
    """Luma (ITU-R BT.601) in all three channels."""
    return cv2.cvtColor(cv2.cvtColor(rgb_u8, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)


def blur(rgb_u8: Pixels, kernel: Blur) -> Pixels:
    """Gaussian, mirrored at the border."""
    return cv2.GaussianBlur(rgb_u8, (kernel.kernel_px, kernel.kernel_px), kernel.sigma_px)


def add_noise(rgb_u8: Pixels, noise: Noise) -> Pixels:
    """Gaussian, apart in every pixel and channel."""
    generator = np.random.Generator(np.random.SFC64(noise.seed))
    change = generator.standard_normal(rgb_u8.shape, np.float32)
    change *= np.float32(255 * noise.std)
    return cv2.add(rgb_u8, change, dtype=cv2.CV_8U)


def compress(rgb_u8: Pixels, jpeg_quality: int) -> Pixels:
    """Through a JPEG file of that quality (1 to 100, libjpeg's), its color at half resolution."""
    bgr_u8 = cv2.cvtColor(rgb_u8, cv2.COLOR_RGB2BGR)
    _, file = cv2.imencode(".jpg", bgr_u8, [cv2.IMWRITE_JPEG_QUALITY, jpeg_quality])
    # With OpenCV's stubs an image read may be None; this one was just written.
    return np.asarray(cv2.imdecode(file, cv2.IMREAD_COLOR_RGB))


def downscale(rgb_u8: Pixels, share: float) -> Pixels:
    """To `share` of the side and back.

    Areas averaged, then enlarged linearly: as `resize_crop` brings a small photo to the network's size in use.
    """
    side = rgb_u8.shape[0]
    small = low_side(side, share)
    low = cv2.resize(rgb_u8, (small, small), interpolation=cv2.INTER_AREA)
    return cv2.resize(low, (side, side), interpolation=cv2.INTER_LINEAR)


def low_side(side: int, share: float) -> int:
    return max(1, round(side * share))


def cast_shadow(rgb_u8: Pixels, shadow: Shadow) -> Pixels:
    """Darkened where the shadow lies, with a soft border."""
    light = 1 - np.float32(shadow.loss) * shadow_depth(shadow.planes, rgb_u8.shape[0])
    return cv2.multiply(rgb_u8, cv2.merge([light, light, light]), dtype=cv2.CV_8U)


def shadow_depth(planes: Sequence[HalfPlane], side: int) -> Float32[np.ndarray, "s s"]:
    """0 outside of all planes' common inside, 1 deep in it."""
    at = ((np.arange(side) + 0.5) / side).astype(np.float32)
    depth = np.min([a * at + (b * at[:, None] + d) for a, b, d in planes], axis=0)
    return np.clip(depth / np.float32(SHADOW_BORDER) + np.float32(0.5), 0, 1)


def black_out(rgb_u8: Pixels, boxes: Sequence[Box]) -> Pixels:
    """Black in the boxes."""
    covered = rgb_u8.copy()
    for box in boxes:
        left, top, right, bottom = box.in_px(rgb_u8.shape[0])
        covered[top:bottom, left:right] = 0
    return covered
