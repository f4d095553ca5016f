"""Validated value types that are passed through the pipeline: Photo, Detection, Crop."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float32, UInt8

Label = Literal["cat", "dog", "person"]
LABELS: tuple[Label, ...] = get_args(Label)
LANDMARK_SHAPES = ((3, 2), (5, 2))  # eyes and nose, and of people also the corners of the mouth


@dataclass(frozen=True, eq=False)
class Photo:
    """An upright RGB image.

    Attributes:
        rgb_u8: the pixels.
        source: path of the file, or name of a synthetic photo; part of every message about it.
        source_size_px: (width, height) of the file, larger than `rgb_u8` if it was decoded at a reduced scale.
        stored_as: format and channels of the file ("JPEG RGB", "PNG gray 16 bit"); empty if there is no file.
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

    Attributes:
        box_xyxy_px: (left, top, right, bottom).
        landmarks_px: left eye, right eye and nose, and of a person also left and right mouth corner, as they appear in
            the image; or None.
        score: confidence of the detector, in [0, 1].
        label: what it is, if the detector tells; its species.
    """

    box_xyxy_px: tuple[float, float, float, float]
    landmarks_px: Float32[np.ndarray, "p 2"] | None
    score: float
    label: Label | None = None

    def __post_init__(self) -> None:
        left, top, right, bottom = self.box_xyxy_px
        if not (left < right and top < bottom and all(map(math.isfinite, self.box_xyxy_px))):
            raise ValueError(f"a box must be finite with left < right and top < bottom, got {self.box_xyxy_px}")
        if not 0.0 <= self.score <= 1.0:
            raise ValueError(f"score must be in [0, 1], got {self.score}")
        if self.landmarks_px is not None:
            if self.landmarks_px.shape not in LANDMARK_SHAPES:
                raise ValueError(f"there are three landmarks or five, each (x, y), got {self.landmarks_px.shape}")
            if not np.isfinite(self.landmarks_px).all():
                raise ValueError("landmarks must be finite")

    @property
    def area_px(self) -> float:
        """Area of the box in square pixels."""
        left, top, right, bottom = self.box_xyxy_px
        return (right - left) * (bottom - top)


@dataclass(frozen=True, eq=False)
class Crop:
    """A square aligned face, ready for a network.

    Attributes:
        rgb_u8: the pixels.
        source: of the photo, as in `Photo`.
        face: number of the face in its photo, counted from the left and from 1.
        face_count: number of faces that the detector found in the photo.
        label: of the detection.
    """

    rgb_u8: UInt8[np.ndarray, "s s 3"]
    source: Path | str
    face: int = 1
    face_count: int = 1
    label: Label | None = None

    def __post_init__(self) -> None:
        _check_rgb_u8(self.rgb_u8, self.source)
        if self.rgb_u8.shape[0] != self.rgb_u8.shape[1]:
            raise ValueError(f"{self.source}: a crop must be square, got {self.rgb_u8.shape[:2]}")

    @property
    def size_px(self) -> int:
        """Side length in pixels."""
        return self.rgb_u8.shape[0]

    def map_pixels(self, change: Callable[[UInt8[np.ndarray, "s s 3"]], UInt8[np.ndarray, "s s 3"]]) -> "Crop":
        """Return the crop with changed pixels, such as a blurred one.

        Args:
            change: returns pixels of the same size.
        """
        return replace(self, rgb_u8=change(self.rgb_u8))


def _check_rgb_u8(rgb_u8: np.ndarray, source: Path | str) -> None:
    if rgb_u8.dtype != np.uint8 or rgb_u8.ndim != 3 or rgb_u8.shape[2] != 3 or 0 in rgb_u8.shape:
        raise ValueError(f"{source}: expected uint8 (h, w, 3), got {rgb_u8.dtype} {rgb_u8.shape}")
