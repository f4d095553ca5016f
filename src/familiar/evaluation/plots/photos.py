"""Photos as the network saw them: thumbnails as JPEG, and contact sheets as PNG."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from jaxtyping import Int64, UInt8
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from familiar.core.errors import FamiliarError
from familiar.core.types import Crop
from familiar.evaluation.plots.chart import LIGHT, png

TILE_PX = 128
SIGNS = {True: "✓", False: "✗"}  # in addition to the color, for color-blind readers
_JPEG_QUALITY = 84
_GAP_PX, _TEXT_PX, _SHEET_DPI = 6, 24, 100  # of a contact sheet
_PITCH_PX = TILE_PX + 2 * _GAP_PX

Pixels = UInt8[np.ndarray, "h w 3"]


@dataclass(frozen=True, eq=False)
class Tile:
    """A photo of the page and of a contact sheet.

    `pixels`: None if the photo could not be read. `text`: above it in a contact sheet. `correct`: whether it matches;
    None if it is not a match or mismatch. `identity` and `file`: names for display. `alt`: alternative text.
    """

    pixels: Pixels | None
    text: str = ""
    correct: bool | None = None
    identity: str = ""
    file: str = ""
    alt: str = ""


def read_tile(row: int, crop: Callable[[int], Crop]) -> Pixels | None:
    """Read the crop of a photo and shrink it to `TILE_PX`; None if the photo has become unreadable."""
    try:
        return _shrink(crop(row).rgb_u8)
    except FamiliarError:
        return None


def jpeg(pixels: Pixels) -> bytes:
    """Encode pixels as the bytes of a JPEG file."""
    bgr = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
    return cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])[1].tobytes()


def contact_sheet(rows: Sequence[Sequence[Tile]]) -> bytes:
    """Draw rows of photos as a PNG, each with its text above, and a frame and sign for correct or wrong."""
    columns = max(len(row) for row in rows)
    size_px = columns * _PITCH_PX, len(rows) * (_PITCH_PX + _TEXT_PX)
    figure = Figure(figsize=(size_px[0] / _SHEET_DPI, size_px[1] / _SHEET_DPI), facecolor=LIGHT.paper)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, size_px[0]), ylim=(size_px[1], 0))
    axes.set_axis_off()
    for row, tiles in enumerate(rows):
        for column, tile in enumerate(tiles):
            _draw(axes, tile, column * _PITCH_PX + _GAP_PX, row * (_PITCH_PX + _TEXT_PX) + _TEXT_PX)
    axes.set(xlim=(0, size_px[0]), ylim=(size_px[1], 0))  # imshow has changed them
    return png(figure, _SHEET_DPI)


def example_queries(labels: Int64[np.ndarray, " n"], count: int, seed: int) -> Int64[np.ndarray, " q"]:
    """Draw one photo each of up to `count` identities that have two photos or more."""
    generator = np.random.default_rng(seed)
    photos = np.bincount(labels)
    chosen = generator.permutation(np.flatnonzero(photos > 1))[:count]
    return np.array([generator.choice(np.flatnonzero(labels == label)) for label in sorted(chosen)], np.int64)


def _draw(axes: Axes, tile: Tile, left_px: float, top_px: float) -> None:
    color = LIGHT.muted if tile.correct is None else LIGHT.same if tile.correct else LIGHT.different
    sign = "" if tile.correct is None else f" {SIGNS[tile.correct]}"
    axes.text(left_px + TILE_PX / 2, top_px - 5, f"{tile.text}{sign}", color=color, ha="center", fontsize=10)
    if tile.pixels is not None:
        axes.imshow(tile.pixels, extent=(left_px, left_px + TILE_PX, top_px + TILE_PX, top_px), aspect="auto")
    frame = Rectangle((left_px, top_px), TILE_PX, TILE_PX, fill=False, edgecolor=color, linewidth=3)
    axes.add_patch(frame)


def _shrink(rgb_u8: Pixels) -> UInt8[np.ndarray, "smaller_h smaller_w 3"]:
    scale = TILE_PX / max(rgb_u8.shape[:2])
    return rgb_u8 if scale >= 1 else cv2.resize(rgb_u8, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
