"""Drawing primitives with soft edges on float32 planes: polygons, lines, noise and fur. Independent of pets.

Positions are in face units: a canvas spans [-1.05, 1.05] in both directions, x to the right, y down.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
from jaxtyping import Float32

SPAN = 1.05
_FINE_BITS = 4  # OpenCV takes polygon corners in sixteenths of a pixel
_FUR_TEXTURES = 10
_FUR_SIZE_PX = 256
_STRAND_STEPS = 14

Plane = Float32[np.ndarray, "h w"]
Planes = Float32[np.ndarray, "3 h w"]
Points = Float32[np.ndarray, "_ 2"]  # any length: several outlines can be passed in one call
Window = tuple[slice, slice]


@dataclass(frozen=True, eq=False)
class Canvas:
    """The coordinates of a square of `size_px`. All arrays are shared and must not be modified."""

    size_px: int
    x: Plane
    y: Plane
    fan_rad: Plane  # angle around the brow, 0 straight up
    fur_textures: tuple[Plane, ...]  # strands that radiate from the nose, mean 0, deviation 1

    @property
    def pixels_per_unit(self) -> float:
        """Pixels of one unit of the drawing's coordinates."""
        return self.size_px / (2 * SPAN)

    def to_px(self, points: Float32[np.ndarray, "... 2"]) -> Float32[np.ndarray, "... 2"]:
        """Convert face units to pixels; pixel centers have integer coordinates."""
        return (points + SPAN) * self.pixels_per_unit - 0.5

    def window(self, x: float, y: float, radius: float) -> Window:
        """Return the rows and columns within `radius` of a point."""
        low = np.floor((np.array([y, x]) - radius + SPAN) * self.pixels_per_unit).astype(int)
        high = np.ceil((np.array([y, x]) + radius + SPAN) * self.pixels_per_unit).astype(int) + 1
        low, high = np.clip(low, 0, self.size_px), np.clip(high, 0, self.size_px)
        return slice(int(low[0]), int(high[0])), slice(int(low[1]), int(high[1]))

    def filled_polygon(self, points: Points, soft: float = 0.006, margin: float = 0.0) -> tuple[Plane, Window]:
        """Draw a filled polygon.

        Args:
            points: the corners, in face units.
            soft: standard deviation of the blur of the edge, in face units.
            margin: additional border of the result, in face units.

        Returns:
            A mask, 1 inside and 0 outside, and the window of the canvas that it covers.
        """
        rows, columns, mask, corners = self._empty_mask(points, margin + 3 * soft)
        cv2.fillPoly(mask, [corners], 255, cv2.LINE_AA, _FINE_BITS)
        return _to_plane(blur(mask, soft * self.pixels_per_unit)), (rows, columns)

    def polylines(self, lines: Sequence[Points], width: float, soft: float = 0.0) -> tuple[Plane, Window]:
        """Draw open polylines `width` face units thick; lines thinner than a pixel become fainter.

        Returns:
            A mask, and the window of the canvas that it covers.
        """
        rows, columns, mask, corners = self._empty_mask(np.concatenate(lines), width + 3 * soft)
        width_px = width * self.pixels_per_unit
        strength = round(255 * min(width_px, 1.0))
        parts = np.split(corners, np.cumsum([len(line) for line in lines])[:-1])
        cv2.polylines(mask, parts, False, strength, max(1, round(width_px)), cv2.LINE_AA, _FINE_BITS)
        return _to_plane(blur(mask, soft * self.pixels_per_unit)), (rows, columns)

    def _empty_mask(self, points: Points, margin: float) -> tuple[slice, slice, np.ndarray, np.ndarray]:
        """Return rows, columns, a zero mask just large enough for the points, and the points in its subpixels."""
        center, half_extent = (points.min(axis=0) + points.max(axis=0)) / 2, np.ptp(points, axis=0) / 2 + margin
        low = np.floor((center - half_extent + SPAN) * self.pixels_per_unit).astype(int) - 1
        high = np.ceil((center + half_extent + SPAN) * self.pixels_per_unit).astype(int) + 1
        (left, top), (right, bottom) = np.clip(low, 0, self.size_px - 1), np.clip(high, 1, self.size_px)
        corners = np.round((self.to_px(points) - (left, top)) * (1 << _FINE_BITS)).astype(np.int32)
        mask = np.zeros((bottom - top, right - left), np.uint8)
        return slice(int(top), int(bottom)), slice(int(left), int(right)), mask, corners


@lru_cache(maxsize=4)
def make_canvas(size_px: int) -> Canvas:
    """Make the canvas of this size (cached)."""
    ticks = ((np.arange(size_px, dtype=np.float32) + 0.5) / size_px * 2 - 1) * np.float32(SPAN)
    x, y = np.meshgrid(ticks, ticks)
    furs = tuple(
        cv2.resize(
            fur,
            (size_px, size_px),
            interpolation=cv2.INTER_AREA if size_px < _FUR_SIZE_PX else cv2.INTER_LINEAR,
        )
        for fur in _fur_textures()
    )
    return Canvas(size_px, x, y, np.arctan2(x, 0.12 - y), furs)


def paint(
    planes: Planes,
    mask: Float32[np.ndarray, "a b"],
    color: Sequence[float | int],
    window: Window | None = None,
) -> None:
    """Blend `color` into the planes, in place, weighted by `mask`; `window` is the area that a smaller mask covers."""
    for plane, channel in zip(planes, color, strict=True):
        target = plane if window is None else plane[window]
        target += mask * (np.float32(channel) - target)


def ramp(values: Plane, edge: float, width: float) -> Plane:
    """Compute a linear ramp from 0 to 1, `width` wide and centered at `edge`."""
    return np.clip((values - np.float32(edge)) * np.float32(1 / width) + np.float32(0.5), 0, 1)


def blur(image: np.ndarray, sigma_px: float) -> np.ndarray:
    """Apply a Gaussian blur; a wide one is computed at a quarter of the resolution, which looks the same."""
    if sigma_px < 0.2:
        return image
    height, width = image.shape[:2]
    if sigma_px < 3 or min(height, width) < 8:
        return cv2.GaussianBlur(image, (0, 0), sigma_px)
    small = cv2.resize(image, (width // 4, height // 4), interpolation=cv2.INTER_AREA)
    return cv2.resize(cv2.GaussianBlur(small, (0, 0), sigma_px / 4), (width, height), interpolation=cv2.INTER_LINEAR)


def _to_plane(mask: np.ndarray) -> Plane:
    return mask.astype(np.float32) * np.float32(1 / 255)


def smooth_field(field: np.ndarray, size_px: int) -> np.ndarray:
    """Interpolate a coarse grid, of one or more channels, smoothly over a square of `size_px`."""
    # Cubic only up to a visible resolution: linear interpolation beyond it is ten times as fast.
    intermediate_px = max(32, size_px // 4)
    small = cv2.resize(field, (intermediate_px, intermediate_px), interpolation=cv2.INTER_CUBIC)
    return cv2.resize(small, (size_px, size_px), interpolation=cv2.INTER_LINEAR)


def magnitude(u: Plane, v: Plane) -> Plane:
    """Compute sqrt(u² + v²), faster than numpy.hypot."""
    return cv2.magnitude(u, v)


def ellipse(x: float, y: float, half_width: float, half_height: float, tilt_rad: float = 0.0) -> Points:
    """Return the outline of an ellipse centered at (x, y)."""
    turns = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    u, v = half_width * np.cos(turns), half_height * np.sin(turns)
    cos, sin = np.cos(tilt_rad), np.sin(tilt_rad)
    return np.stack([x + u * cos - v * sin, y + u * sin + v * cos], axis=1).astype(np.float32)


def smooth_outline(corners: Points, points: int = 72) -> Points:
    """Round the corners of a closed polygon with a uniform cubic B-spline."""
    positions = np.linspace(0, len(corners), points, endpoint=False)
    first, t = np.floor(positions).astype(int), (positions % 1)[:, None]
    weights = ((1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, -3 * t**3 + 3 * t**2 + 3 * t + 1, t**3)
    curve = sum(w * corners[(first + k - 1) % len(corners)] for k, w in enumerate(weights)) / 6
    return np.asarray(curve, np.float32)


@lru_cache(maxsize=1)
def white_noise() -> Float32[np.ndarray, "512 512"]:
    """Return white noise to crop patches from, standard deviation 1 (cached)."""
    return np.random.default_rng(20).standard_normal((512, 512)).astype(np.float32)


@lru_cache(maxsize=1)
def _fur_textures() -> tuple[Plane, ...]:
    """Make fur by smearing noise along the strands (line integral convolution, Cabral & Leedom 1993)."""
    size = _FUR_SIZE_PX
    ticks = ((np.arange(size, dtype=np.float32) + 0.5) / size * 2 - 1) * np.float32(SPAN)
    x, y = np.meshgrid(ticks, ticks)
    rng = np.random.default_rng(21)
    furs = []
    for index in range(_FUR_TEXTURES):
        # Fur parts at the bridge of the nose: up over the brow, out over the cheeks, down over the chin.
        bend = smooth_field(rng.normal(0, 0.35, (6, 6)).astype(np.float32), size)
        angle = np.arctan2(y - 0.22, x * 1.1) + bend
        along_x, along_y = np.cos(angle), np.sin(angle)
        grain = blur(rng.standard_normal((size, size)).astype(np.float32), 0.55)
        columns, rows = np.meshgrid(np.arange(size, dtype=np.float32), np.arange(size, dtype=np.float32))
        total = np.zeros_like(grain)
        for _ in range(_STRAND_STEPS + 4 * (index % 3)):
            total += cv2.remap(grain, columns, rows, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
            columns += along_x
            rows += along_y
        clumps = blur(total, 2.5)
        total = total / total.std() + 0.5 * clumps / clumps.std()
        furs.append(((total - total.mean()) / total.std()).astype(np.float32))
    return tuple(furs)
