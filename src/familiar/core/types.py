"""Validated value types that are passed through the pipeline: Photo, Box, Crop, Face."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import UInt8

from familiar.core.field_types import NOT_IN_API, Landmarks, Text, Vector

Label = Literal["cat", "dog", "person"]
LABELS: tuple[Label, ...] = get_args(Label)
LANDMARK_SHAPES = ((3, 2), (5, 2))  # eyes and nose, and of people also the corners of the mouth
SAME_FACE_OVERLAP = 0.5  # share of the smaller box; two boxes that overlap by this or more are one face


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


class Box(NamedTuple):
    """A rectangle: the tuple (left, top, right, bottom), in the unit that its name says, as in `box_xyxy_px`."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        """Right less left."""
        return self.right - self.left

    @property
    def height(self) -> float:
        """Bottom less top."""
        return self.bottom - self.top

    @property
    def area(self) -> float:
        """Width x height."""
        return self.width * self.height

    @property
    def is_empty(self) -> bool:
        """Whether it has no width or no height."""
        return not (self.left < self.right and self.top < self.bottom)

    def intersection(self, other: "Box") -> float:
        """Compute the area that two boxes share.

        Args:
            other: in the same unit.
        """
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(0.0, width) * max(0.0, height)

    def intersection_over_union(self, other: "Box") -> float:
        """Compute the share of two boxes' union that both cover, in [0, 1]; 0 if they do not overlap.

        Args:
            other: in the same unit.

        >>> Box(0, 0, 2, 1).intersection_over_union(Box(1, 0, 3, 1))
        0.3333333333333333
        """
        shared = self.intersection(other)
        return shared / (self.area + other.area - shared) if shared else 0.0

    def is_same_face(self, other: "Box") -> bool:
        """Tell whether two boxes, neither of them empty, are of one face: they share half of the smaller one.

        Args:
            other: in the same unit.
        """
        return self.intersection(other) >= SAME_FACE_OVERLAP * min(self.area, other.area)


PhotoBox = Box
"""Left, top, right, bottom in pixels of the upright photo."""


@dataclass(frozen=True, eq=False)
class Crop:
    """A square aligned face, ready for a network.

    Attributes:
        rgb_u8: the pixels.
        source: of the photo, as in `Photo`.
    """

    rgb_u8: UInt8[np.ndarray, "s s 3"]
    source: Path | str

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


@dataclass(frozen=True, eq=False)
class Face:
    """A face in a photo, with what is known of it so far.

    Attributes:
        box_xyxy_px: Left, top, right, bottom in pixels of the upright photo.
        landmarks_px: Left eye, right eye, nose, and of people both corners of the mouth, as they appear; None: none
            detected.
        score: The detector's score, in [0, 1].
        quality: How well the face can be recognized, in [0, 1].
        label: What the detector says it is: cat, dog or person; None: it does not tell.
        embedding: A unit vector of the model's space; None: not embedded.
        species: What the user says it is, or else the detector; None: neither does.
        crop: The aligned face, as a network takes it; None: not cropped.
        from_left: Its number in the photo, counted from the left and from 1; 0: not counted.
    """

    # A detector gives box, landmarks, score and label; `find_faces` crop, quality, species and number; `Embedder` the
    # embedding.
    box_xyxy_px: PhotoBox
    landmarks_px: Landmarks | None
    score: float
    quality: float = 0.0
    label: Label | None = None
    embedding: Annotated[Vector | None, NOT_IN_API] = None
    species: Text | None = None
    crop: Annotated[Crop | None, NOT_IN_API] = None
    from_left: Annotated[int, NOT_IN_API] = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "box_xyxy_px", Box(*self.box_xyxy_px))
        left, top, right, bottom = self.box_xyxy_px
        if not (-math.inf < left < right < math.inf and -math.inf < top < bottom < math.inf):
            raise ValueError(f"a box must be finite with left < right and top < bottom, got {tuple(self.box_xyxy_px)}")
        if not 0.0 <= self.score <= 1.0:
            raise ValueError(f"score must be in [0, 1], got {self.score}")
        if self.landmarks_px is not None:
            if self.landmarks_px.shape not in LANDMARK_SHAPES:
                raise ValueError(f"there are three landmarks or five, each (x, y), got {self.landmarks_px.shape}")
            if not np.isfinite(self.landmarks_px).all():
                raise ValueError("landmarks must be finite")


def _check_rgb_u8(rgb_u8: np.ndarray, source: Path | str) -> None:
    if rgb_u8.dtype != np.uint8 or rgb_u8.ndim != 3 or rgb_u8.shape[2] != 3 or 0 in rgb_u8.shape:
        raise ValueError(f"{source}: expected uint8 (h, w, 3), got {rgb_u8.dtype} {rgb_u8.shape}")
