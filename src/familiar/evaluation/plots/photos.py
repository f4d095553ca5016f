"""Photos as the network saw them: small JPEGs for a page, and sheets of them as PNG."""

from collections.abc import Callable, Iterable, Sequence
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
SIGNS = {True: "✓", False: "✗"}  # beside the color, which not everybody can tell
_JPEG_QUALITY = 84
_GAP_PX, _TEXT_PX, _SHEET_DPI = 6, 24, 100  # of a sheet
_PITCH_PX = TILE_PX + 2 * _GAP_PX

Pixels = UInt8[np.ndarray, "h w 3"]


@dataclass(frozen=True, eq=False)
class Tile:
    """One photo of a sheet, None where it could not be read; `right` None where there is nothing to judge."""

    pixels: Pixels | None
    text: str = ""
    right: bool | None = None


def read_tiles(rows: Iterable[int], crop: Callable[[int], Crop]) -> dict[int, Pixels | None]:
    """Photos no larger than `TILE_PX`, each read once; None for one that has become unreadable."""
    tiles: dict[int, Pixels | None] = {}
    for row in rows:
        if row not in tiles:
            try:
                tiles[row] = _small(crop(row).rgb_u8)
            except FamiliarError:
                tiles[row] = None
    return tiles


def jpeg(pixels: Pixels) -> bytes:
    """A JPEG file's bytes."""
    bgr = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
    return cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])[1].tobytes()


def sheet(rows: Sequence[Sequence[Tile]]) -> bytes:
    """Rows of photos as a PNG, each under its text, framed and signed by whether it is right."""
    columns = max(len(row) for row in rows)
    size_px = columns * _PITCH_PX, len(rows) * (_PITCH_PX + _TEXT_PX)
    figure = Figure(figsize=(size_px[0] / _SHEET_DPI, size_px[1] / _SHEET_DPI), facecolor=LIGHT.paper)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, size_px[0]), ylim=(size_px[1], 0))
    axes.set_axis_off()
    for row, tiles in enumerate(rows):
        for column, tile in enumerate(tiles):
            _draw(axes, tile, column * _PITCH_PX + _GAP_PX, row * (_PITCH_PX + _TEXT_PX) + _TEXT_PX)
    axes.set(xlim=(0, size_px[0]), ylim=(size_px[1], 0))  # imshow changed them
    return png(figure, _SHEET_DPI)


def example_queries(labels: Int64[np.ndarray, " n"], count: int, seed: int) -> Int64[np.ndarray, " q"]:
    """One photo each of up to `count` identities that have another, drawn by `seed`."""
    generator = np.random.default_rng(seed)
    mates = np.bincount(labels)
    chosen = generator.permutation(np.flatnonzero(mates > 1))[:count]
    return np.array([generator.choice(np.flatnonzero(labels == label)) for label in sorted(chosen)], np.int64)


def _draw(axes: Axes, tile: Tile, left_px: float, top_px: float) -> None:
    color = LIGHT.muted if tile.right is None else LIGHT.same if tile.right else LIGHT.different
    sign = "" if tile.right is None else f" {SIGNS[tile.right]}"
    axes.text(left_px + TILE_PX / 2, top_px - 5, f"{tile.text}{sign}", color=color, ha="center", fontsize=10)
    if tile.pixels is not None:
        axes.imshow(tile.pixels, extent=(left_px, left_px + TILE_PX, top_px + TILE_PX, top_px), aspect="auto")
    frame = Rectangle((left_px, top_px), TILE_PX, TILE_PX, fill=False, edgecolor=color, linewidth=3)
    axes.add_patch(frame)


def _small(rgb_u8: Pixels) -> UInt8[np.ndarray, "smaller_h smaller_w 3"]:
    scale = TILE_PX / max(rgb_u8.shape[:2])
    return rgb_u8 if scale >= 1 else cv2.resize(rgb_u8, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
