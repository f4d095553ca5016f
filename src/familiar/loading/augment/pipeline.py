"""Random changes of crops in training: drawing a change, keyed by (seed, epoch, photo), and applying it to a crop."""

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, exp, log, radians, sin, sqrt
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float64

from familiar.loading.augment import operations
from familiar.loading.augment.operations import Blur, HalfPlane, Jitter, Noise, Pixels, Resized, Shadow, Window
from familiar.loading.augment.settings import BLUR_CROP_PX, MAX_HOLES, Augmentation

Drawn = TypeVar("Drawn")

AUGMENTATION_STREAM = 1  # makes these draws independent of others with the same seed
MIN_SIGMA_PX = 0.01  # no visible blur; OpenCV would derive a sigma of 0 from the kernel
RANDOM_NUMBERS_PER_CHANGE = (
    96  # at least as many as are used; a new operation must draw last, so that the others keep their numbers
)


class Move(NamedTuple):
    """A scaling about the center, then a shift by shares of the side."""

    right: float
    down: float
    scale: float


@dataclass(frozen=True)
class Change:
    """The operations applied to one crop, in this order: None if an operation was not drawn.

    It applies to crops of any size. `angle_deg` is counter-clockwise.
    """

    crop: Window | None = None
    angle_deg: float | None = None
    flip: bool | None = None
    move: Move | None = None
    jitter: Jitter | None = None
    gray: bool | None = None
    blur: Blur | None = None
    sharpness: float | None = None
    noise: Noise | None = None
    jpeg_quality: int | None = None
    downscale: float | None = None
    shadow: Shadow | None = None
    holes: tuple[Window, ...] | None = None
    erase: Window | None = None

    @property
    def warps(self) -> bool:
        """Whether pixels must be interpolated; a flip alone does not need it."""
        return not (self.crop is None and self.angle_deg is None and self.move is None)

    def origin(self) -> Float64[np.ndarray, "2 3"]:
        """Compute the matrix of `operations.warp`.

        It combines crop, rotation, flip and move, so that pixels are interpolated only once.

        Returns:
            The map from (x, y, 1) of the result to (x, y) of the crop, both relative to the center, with side 1.
        """
        matrix = np.eye(3)
        if self.crop is not None:
            left, top, width, height = self.crop
            matrix = np.array([[width, 0, left + width / 2 - 0.5], [0, height, top + height / 2 - 0.5], [0, 0, 1]])
        if self.angle_deg is not None:
            c, s = cos(radians(self.angle_deg)), sin(radians(self.angle_deg))
            matrix = matrix @ np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
        if self.flip:
            matrix = matrix @ np.diag([-1.0, 1, 1])
        if self.move is not None:
            right, down, scale = self.move
            matrix = matrix @ np.array([[1, 0, -right], [0, 1, -down], [0, 0, scale]]) / scale
        return matrix[:2]


# Those that change pixels where they are, in their order, by the field of `Change` with their parameter.
PIXEL_OPERATIONS: dict[str, Callable[[Pixels, Any], Pixels]] = {
    "jitter": operations.jitter,
    "gray": lambda rgb_u8, _: operations.to_gray(rgb_u8),
    "blur": operations.blur,
    "sharpness": operations.adjust_sharpness,
    "noise": operations.add_noise,
    "jpeg_quality": operations.compress,
    "downscale": operations.downscale,
    "shadow": operations.cast_shadow,
    "holes": operations.black_out,
    "erase": lambda rgb_u8, box: operations.black_out(rgb_u8, [box]),
}


def photo_generator(
    seed: int, epoch: int, photo: int, repeat: int = 0, stream: int = AUGMENTATION_STREAM
) -> np.random.Generator:
    """Make the generator of a photo in an epoch, which does not depend on the worker that uses it.

    Args:
        seed: of the augmentation.
        epoch: counted from 0.
        photo: its row.
        repeat: how often the photo occurred in its batch before.
        stream: another number gives independent draws.
    """
    return np.random.default_rng((stream, seed, epoch, photo, *([repeat] if repeat else [])))


def augment(
    rgb_u8: Pixels, settings: Augmentation, generator: np.random.Generator, size_px: int | None = None
) -> Resized:
    """Augment a square crop at random, as `apply_change` does."""
    return apply_change(rgb_u8, draw_change(settings, generator), size_px)


def apply_change(rgb_u8: Pixels, change: Change, size_px: int | None = None) -> Resized:
    """Apply a change to a crop without modifying it.

    Args:
        rgb_u8: a square crop.
        change: the operations.
        size_px: side of the result, to which a random box or the whole crop is resized; None: that of the crop.

    Returns:
        The changed crop; the crop itself if no operation was drawn and the sizes are equal.
    """
    if change.warps or size_px not in (None, rgb_u8.shape[0]):
        rgb_u8 = operations.warp(rgb_u8, change.origin(), size_px)
    elif change.flip:
        rgb_u8 = operations.mirror(rgb_u8)
    for name, operation in PIXEL_OPERATIONS.items():
        if (parameter := getattr(change, name)) is not None:
            rgb_u8 = operation(rgb_u8, parameter)
    return rgb_u8


def draw_change(settings: Augmentation, generator: np.random.Generator) -> Change:
    """Draw a random change."""
    return change_from(RandomNumbers(generator), settings)


def change_from(draw: "RandomNumbers", settings: Augmentation) -> Change:
    """Make a change of random numbers.

    All numbers are drawn whether or not they are used, so that one setting does not affect the others' draws. The order
    of the draws is that in which the operations were added to the code, not that in which they are applied.
    """
    s = settings
    return Change(
        crop=draw.maybe(s.crop_p, _random_box(draw, (s.crop_scale_min, 1), (s.crop_ratio_min, s.crop_ratio_max))),
        angle_deg=draw.maybe(s.rotate_p, draw.uniform_in(-s.rotate_deg, s.rotate_deg)),
        flip=draw.maybe(s.flip_p, True),
        move=draw.maybe(s.affine_p, _random_move(draw, s)),
        jitter=draw.maybe(s.jitter_p, _random_jitter(draw, s)),
        gray=draw.maybe(s.gray_p, True),
        blur=draw.maybe(s.blur_p, _random_blur(draw, s)),
        noise=draw.maybe(s.noise_p, Noise(draw.uniform_in(s.noise_std_min, s.noise_std_max), draw.seed())),
        jpeg_quality=draw.maybe(s.jpeg_p, draw.integer(s.jpeg_quality_min, s.jpeg_quality_max)),
        downscale=draw.maybe(s.downscale_p, draw.uniform_in(s.downscale_min, s.downscale_max)),
        shadow=draw.maybe(s.shadow_p, _random_shadow(draw, s)),
        holes=draw.maybe(s.dropout_p, _random_holes(draw, s)),
        erase=draw.maybe(
            s.erase_p,
            _random_box(draw, (s.erase_area_min, s.erase_area_max), (s.erase_ratio_min, s.erase_ratio_max)),
        ),
        sharpness=draw.maybe(s.sharpness_p, draw.uniform_in(s.sharpness_min, s.sharpness_max)),
    )


class RandomNumbers:
    """Uniform random numbers, drawn from the generator at once, since single draws take longer than some operations.

    `uniform_in` and `integer` are for how strong an operation is, `uniform` is for where, and in which order.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self.uniform = iter(generator.random(RANDOM_NUMBERS_PER_CHANGE).tolist()).__next__

    def uniform_in(self, low: float, high: float) -> float:
        """Draw a number in [low, high]."""
        return low + (high - low) * self.uniform()

    def integer(self, low: int, high: int) -> int:
        """Draw an integer; `high` is included."""
        return low + int((high - low + 1) * self.uniform())

    def seed(self) -> int:
        """Draw the seed of another generator."""
        return int(2**53 * self.uniform())

    def maybe(self, probability: float, value: Drawn) -> Drawn | None:
        """Return `value` with this probability, else None."""
        return value if self.uniform() < probability else None


def _random_box(draw: RandomNumbers, area: tuple[float, float], ratio: tuple[float, float]) -> Window:
    """Draw a box inside the crop: area uniform, and the logarithm of width / height uniform among those that fit."""
    share = max(draw.uniform_in(*area), 1e-9)  # an empty box would have no ratio
    lowest, highest = (log(min(max(value, share), 1 / share)) for value in ratio)
    width_to_height = exp(draw.uniform_in(lowest, highest))
    width, height = min(1.0, sqrt(share * width_to_height)), min(1.0, sqrt(share / width_to_height))
    return Window((1 - width) * draw.uniform(), (1 - height) * draw.uniform(), width, height)


def _random_move(draw: RandomNumbers, settings: Augmentation) -> Move:
    shift, scale = settings.translate, settings.scale
    return Move(draw.uniform_in(-shift, shift), draw.uniform_in(-shift, shift), draw.uniform_in(1 - scale, 1 + scale))


def _random_jitter(draw: RandomNumbers, settings: Augmentation) -> Jitter:
    brightness, contrast, saturation = (
        draw.uniform_in(1 - width, 1 + width) for width in (settings.brightness, settings.contrast, settings.saturation)
    )
    hue = draw.uniform_in(-settings.hue, settings.hue)
    ranks = [draw.uniform() for _ in range(4)]
    first, second, third, fourth = sorted(range(4), key=ranks.__getitem__)
    return Jitter(brightness, contrast, saturation, hue, (first, second, third, fourth))


def _random_blur(draw: RandomNumbers, settings: Augmentation) -> Blur:
    narrowest, widest = settings.blur_kernel_min // 2, settings.blur_kernel_max // 2
    kernel_px = 2 * draw.integer(narrowest, widest) + 1
    sigma_px = max(draw.uniform_in(settings.blur_sigma_min, settings.blur_sigma_max), MIN_SIGMA_PX)
    if settings.blur_sigma_max == 0:
        sigma_px = 0.3 * ((kernel_px - 1) * 0.5 - 1) + 0.8  # as OpenCV's `getGaussianKernel` derives it
    return Blur(kernel_px, sigma_px, BLUR_CROP_PX if settings.blur_scaled else None)


def _random_shadow(draw: RandomNumbers, settings: Augmentation) -> Shadow:
    """Draw a shadow that enters over one edge, between two slanted sides, up to a tilted third line."""
    loss = draw.uniform_in(settings.shadow_min, settings.shadow_max)
    middle, half_width, depth = (
        low + (high - low) * draw.uniform() for low, high in ((0.1, 0.9), (0.15, 0.45), (0.4, 1.1))
    )
    left, right, tilt = (-0.4 + 0.8 * draw.uniform() for _ in range(3))
    opposite_edge, sideways = draw.uniform() < 0.5, draw.uniform() < 0.5

    def plane(a: float, b: float, d: float) -> HalfPlane:
        if opposite_edge:
            b, d = -b, d + b
        return (b, a, d) if sideways else (a, b, d)

    return Shadow(
        loss,
        (
            plane(1, -left, half_width - middle),
            plane(-1, right, half_width + middle),
            plane(tilt, -1, depth - tilt * middle),
        ),
    )


def _random_holes(draw: RandomNumbers, settings: Augmentation) -> tuple[Window, ...]:
    count = draw.integer(settings.dropout_holes_min, settings.dropout_holes_max)
    sides = settings.dropout_side_min, settings.dropout_side_max
    boxes: list[Window] = []
    for _ in range(MAX_HOLES):
        width, height = draw.uniform_in(*sides), draw.uniform_in(*sides)
        boxes.append(Window((1 - width) * draw.uniform(), (1 - height) * draw.uniform(), width, height))
    return tuple(boxes[:count])
