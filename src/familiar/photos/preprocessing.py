"""Preprocessing of crops: settings as data, and the one implementation for training and inference."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
from jaxtyping import Float32, UInt8

from familiar.core.types import Crop

IMAGENET_MEAN_RGB = (0.485, 0.456, 0.406)  # torchvision, RGB in [0, 1]
IMAGENET_STD_RGB = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Preprocessing:
    """Everything between a detected face and a network's input. Stored in recipe, checkpoint and bundle.

    Attributes:
        size_px: side of the square crop.
        resize: "stretch" resizes the whole box to the square, whatever its shape; "center_crop" resizes its short
            side to `resize_px` and crops the center.
        resize_px: see `resize`.
        margin: share of the face box's width and height added on each side before cropping.
        template: how a face with landmarks is cropped: "arcface" puts them where ArcFace's crops have them, "box" crops
            the box as if there were none.
        color_order: order of the channels.
        mean: subtracted from values in [0, 1], in the order of `color_order`.
        std: divides the difference.
    """

    size_px: int = 224
    resize: Literal["stretch", "center_crop"] = "stretch"
    resize_px: int = 224
    margin: float = 0.0
    template: Literal["arcface", "box"] = "arcface"
    color_order: Literal["RGB", "BGR"] = "RGB"
    mean: tuple[float, float, float] = IMAGENET_MEAN_RGB
    std: tuple[float, float, float] = IMAGENET_STD_RGB

    def __post_init__(self) -> None:
        if not 16 <= self.size_px <= 1024:
            raise ValueError(f"size_px lies in [16, 1024], not {self.size_px}")
        if self.resize == "center_crop" and self.resize_px < self.size_px:
            raise ValueError(f"resize_px {self.resize_px} is smaller than the crop of {self.size_px}")
        if self.resize not in ("stretch", "center_crop"):
            raise ValueError(f"resize is 'stretch' or 'center_crop', not {self.resize!r}")
        if self.color_order not in ("RGB", "BGR"):
            raise ValueError(f"color_order is 'RGB' or 'BGR', not {self.color_order!r}")
        if self.template not in ("arcface", "box"):
            raise ValueError(f"template is 'arcface' or 'box', not {self.template!r}")
        if not 0.0 <= self.margin <= 2.0:
            raise ValueError(f"margin lies in [0, 2], not {self.margin}")
        if len(self.mean) != 3 or len(self.std) != 3 or min(self.std) <= 0:
            raise ValueError("mean and std are three numbers each, std above zero")


def resize_crop(rgb_u8: UInt8[np.ndarray, "h w 3"], preprocessing: Preprocessing) -> UInt8[np.ndarray, "s s 3"]:
    """Resize the pixels of a face box to the square crop the network was trained on."""
    size_px = preprocessing.size_px
    if preprocessing.resize == "stretch":
        return _resize(rgb_u8, size_px, size_px)
    height, width = rgb_u8.shape[:2]
    scale = preprocessing.resize_px / min(height, width)
    resized = _resize(rgb_u8, max(size_px, round(width * scale)), max(size_px, round(height * scale)))
    y, x = (resized.shape[0] - size_px) // 2, (resized.shape[1] - size_px) // 2
    return resized[y : y + size_px, x : x + size_px]


def stack_crops(crops: Sequence[Crop], size_px: int) -> UInt8[np.ndarray, "n s s 3"]:
    """Stack crops as the input of a bundle's network.

    Raises:
        ValueError: a crop is not `size_px` wide.
    """
    for crop in crops:
        if crop.size_px != size_px:
            raise ValueError(f"{crop.source}: the network takes crops of {size_px} px, got {crop.size_px}")
    if not crops:
        return np.empty((0, size_px, size_px, 3), np.uint8)
    return np.stack([crop.rgb_u8 for crop in crops])


def standardize(rgb_u8: UInt8[np.ndarray, "n s s 3"], preprocessing: Preprocessing) -> Float32[np.ndarray, "n 3 s s"]:
    """Standardize uint8 pixels: (x / 255 - mean) / std, channels first."""
    mean = np.asarray(preprocessing.mean, np.float32) * 255
    std = np.asarray(preprocessing.std, np.float32) * 255
    pixels = rgb_u8 if preprocessing.color_order == "RGB" else rgb_u8[..., ::-1]
    # Channels first before the arithmetic, so that each plane is scaled by one number in one pass.
    planes = pixels.transpose(0, 3, 1, 2).astype(np.float32, order="C")
    planes -= mean[:, None, None]
    planes /= std[:, None, None]
    return planes


def _resize(rgb_u8: UInt8[np.ndarray, "h w 3"], width: int, height: int) -> UInt8[np.ndarray, "h2 w2 3"]:
    if rgb_u8.shape[:2] == (height, width):
        return rgb_u8
    # Area averaging avoids aliasing when shrinking; when enlarging, it would only repeat pixels.
    shrinking = width * height < rgb_u8.shape[0] * rgb_u8.shape[1]
    return cv2.resize(rgb_u8, (width, height), interpolation=cv2.INTER_AREA if shrinking else cv2.INTER_LINEAR)
