"""Random changes to a crop, as real photos differ: each a small function, all keyed by (seed, epoch, photo)."""

from dataclasses import dataclass
from math import cos, radians, sin

import cv2
import numpy as np
import torch
from jaxtyping import UInt8
from torchvision.transforms.v2 import functional as F

Pixels = UInt8[np.ndarray, "s s 3"]
AUGMENTATION_STREAM = 1  # keeps these draws apart from others that use the same seed


@dataclass(frozen=True)
class Augmentation:
    """Probabilities and ranges, applied in this order; a probability of 0 leaves an operation out.

    Shares are of the crop's side; the jitters are half-widths around 1 (hue: around 0, in turns).
    """

    rotate_p: float = 0.5
    rotate_deg: float = 25.0
    flip_p: float = 0.5
    affine_p: float = 0.3
    translate: float = 0.1
    scale: float = 0.15
    jitter_p: float = 0.5
    brightness: float = 0.3
    contrast: float = 0.3
    saturation: float = 0.3
    hue: float = 0.1

    def __post_init__(self) -> None:
        for name in ("rotate_p", "flip_p", "affine_p", "jitter_p"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a probability, not {getattr(self, name)}")
        for name in ("translate", "scale", "brightness", "contrast", "saturation"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} lies in [0, 1), not {getattr(self, name)}")
        if not 0 <= self.hue <= 0.5:
            raise ValueError(f"hue lies in [0, 0.5], not {self.hue}")
        if not 0 <= self.rotate_deg <= 180:
            raise ValueError(f"rotate_deg lies in [0, 180], not {self.rotate_deg}")


def photo_generator(seed: int, epoch: int, photo: int) -> np.random.Generator:
    """The same stream for the same photo in the same epoch, whichever worker draws it."""
    return np.random.default_rng((AUGMENTATION_STREAM, seed, epoch, photo))


def augment(rgb_u8: Pixels, settings: Augmentation, generator: np.random.Generator) -> Pixels:
    """One random variant of a square crop."""
    # Every draw is made whether or not it is used, so that one probability does not shift the others.
    chance = generator.random(4)
    angle_deg = generator.uniform(-settings.rotate_deg, settings.rotate_deg)
    shift = generator.uniform(-settings.translate, settings.translate, size=2)
    scale = generator.uniform(1 - settings.scale, 1 + settings.scale)
    brightness, contrast, saturation = (
        generator.uniform(1 - width, 1 + width)
        for width in (settings.brightness, settings.contrast, settings.saturation)
    )
    hue = generator.uniform(-settings.hue, settings.hue)
    order = generator.permutation(4)
    if chance[0] < settings.rotate_p:
        rgb_u8 = warp(rgb_u8, angle_deg=angle_deg)
    if chance[1] < settings.flip_p:
        rgb_u8 = np.ascontiguousarray(rgb_u8[:, ::-1])
    if chance[2] < settings.affine_p:
        rgb_u8 = warp(rgb_u8, shift=(float(shift[0]), float(shift[1])), scale=scale)
    if chance[3] < settings.jitter_p:
        rgb_u8 = jitter(rgb_u8, brightness, contrast, saturation, hue, order)
    return rgb_u8


def warp(
    rgb_u8: Pixels, angle_deg: float = 0.0, shift: tuple[float, float] = (0.0, 0.0), scale: float = 1.0
) -> Pixels:
    """Turn counter-clockwise and scale about the centre, then shift by shares of the side.

    What comes in over the border is the picture mirrored: black corners would teach the angle.
    """
    side = rgb_u8.shape[0]
    centre = (side - 1) / 2
    along, across = scale * cos(radians(angle_deg)), scale * sin(radians(angle_deg))
    matrix = np.array(
        [
            [along, across, centre - along * centre - across * centre + shift[0] * side],
            [-across, along, centre + across * centre - along * centre + shift[1] * side],
        ]
    )
    return cv2.warpAffine(
        rgb_u8, matrix, (side, side), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101
    )


def jitter(
    rgb_u8: Pixels,
    brightness: float,
    contrast: float,
    saturation: float,
    hue: float,
    order: np.ndarray,
) -> Pixels:
    """torchvision's colour jitter with these factors (hue in turns), in this order of the four."""
    image = torch.from_numpy(rgb_u8).permute(2, 0, 1)
    for step in order:
        match step:
            case 0:
                image = F.adjust_brightness(image, brightness)
            case 1:
                image = F.adjust_contrast(image, contrast)
            case 2:
                image = F.adjust_saturation(image, saturation)
            case _:
                image = F.adjust_hue(image, hue) if hue else image
    return image.permute(1, 2, 0).contiguous().numpy()
