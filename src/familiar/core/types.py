"""The values that are handed down the walk, each checked when it is made."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32, UInt8


@dataclass(frozen=True, eq=False)
class Photo:
    """An upright RGB image.

    `source` is the file's path, or the name of a drawn photo; it stands in every message about it.
    `source_size_px` is (width, height) of the file, larger than `rgb_u8` where it was decoded at a
    reduced scale. `stored_as` tells how the file holds it ("JPEG RGB", "PNG gray 16 bit"); empty where
    there is no file.
    """

    rgb_u8: UInt8[np.ndarray, "h w 3"]
    source: Path | str
    source_size_px: tuple[int, int]
    stored_as: str = ""

    def __post_init__(self) -> None:
        _check_rgb_u8(self.rgb_u8, self.source)

    @property
    def size_px(self) -> tuple[int, int]:
        """(width, height) of `rgb_u8`."""
        return self.rgb_u8.shape[1], self.rgb_u8.shape[0]


@dataclass(frozen=True, eq=False)
class Detection:
    """One face in a photo, in pixels of that photo's `rgb_u8`.

    `box_xyxy_px` is (left, top, right, bottom); `landmarks_px` are five points (left eye, right eye,
    nose, left and right mouth corner, as they appear in the image) or None; `score` lies in [0, 1].
    """

    box_xyxy_px: tuple[float, float, float, float]
    landmarks_px: Float32[np.ndarray, "5 2"] | None
    score: float

    def __post_init__(self) -> None:
        left, top, right, bottom = self.box_xyxy_px
        if not (left < right and top < bottom and all(map(math.isfinite, self.box_xyxy_px))):
            raise ValueError(f"an empty or endless box: {self.box_xyxy_px}")
        if not 0.0 <= self.score <= 1.0:
            raise ValueError(f"a score outside [0, 1]: {self.score}")
        if self.landmarks_px is not None and not np.isfinite(self.landmarks_px).all():
            raise ValueError("landmarks that are not finite")

    @property
    def area_px(self) -> float:
        left, top, right, bottom = self.box_xyxy_px
        return (right - left) * (bottom - top)


@dataclass(frozen=True, eq=False)
class Crop:
    """A square aligned face, ready for a network. `source` as in `Photo`."""

    rgb_u8: UInt8[np.ndarray, "s s 3"]
    source: Path | str

    def __post_init__(self) -> None:
        _check_rgb_u8(self.rgb_u8, self.source)
        if self.rgb_u8.shape[0] != self.rgb_u8.shape[1]:
            raise ValueError(f"{self.source}: a crop is square, not {self.rgb_u8.shape[:2]}")

    @property
    def size_px(self) -> int:
        return self.rgb_u8.shape[0]


def _check_rgb_u8(rgb_u8: np.ndarray, source: Path | str) -> None:
    if rgb_u8.dtype != np.uint8 or rgb_u8.ndim != 3 or rgb_u8.shape[2] != 3 or 0 in rgb_u8.shape:
        raise ValueError(f"{source}: wanted uint8 (h, w, 3), got {rgb_u8.dtype} {rgb_u8.shape}")
