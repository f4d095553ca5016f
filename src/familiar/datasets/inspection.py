"""Labelled photos at a glance."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from jaxtyping import UInt8

from familiar.core.errors import UnreadablePhoto
from familiar.core.types import Photo
from familiar.datasets.folders import IdentityTable, PhotoRef, open_photo
from familiar.datasets.synthetic import SyntheticPhoto

_PADDING = 255  # white, as the page a sheet is shown on


def contact_sheet(photos: Sequence[Photo], columns: int, tile_px: int = 96) -> UInt8[np.ndarray, "h w 3"]:
    """Photos row by row in a grid `columns` wide, each fitted whole into a square tile and centred.

    What photos leave free is white. ValueError without photos, and where `columns` or `tile_px` is below 1.
    """
    if not photos:
        raise ValueError("a contact sheet needs photos")
    if columns < 1 or tile_px < 1:
        raise ValueError(f"columns and tile_px are at least 1, not {columns} and {tile_px}")
    rows = -(-len(photos) // columns)
    sheet = np.full((rows * tile_px, columns * tile_px, 3), _PADDING, np.uint8)
    for position, photo in enumerate(photos):
        width, height = photo.size_px
        scale = tile_px / max(width, height)
        fitted = (max(1, round(width * scale)), max(1, round(height * scale)))
        rgb_u8 = cv2.resize(
            photo.rgb_u8, fitted, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
        )
        top = position // columns * tile_px + (tile_px - fitted[1]) // 2
        left = position % columns * tile_px + (tile_px - fitted[0]) // 2
        sheet[top : top + fitted[1], left : left + fitted[0]] = rgb_u8
    return sheet


Spread = tuple[int, float, int]  # smallest, median, largest


@dataclass(frozen=True)
class Inspection:
    """Counts and sizes of labelled photos; `single` identities have one photo only. Sizes are of readable photos."""

    photos: int
    identities: int
    single: int
    photos_per_identity: Spread
    width_px: Spread
    height_px: Spread
    unreadable: tuple[UnreadablePhoto, ...]
    ignored: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {**vars(self), "unreadable": [str(error) for error in self.unreadable]}


def inspect_table(table: IdentityTable) -> Inspection:
    """Opens every photo file once. UnreadablePhoto where not one of them can be opened."""
    sizes: list[tuple[int, int]] = []
    unreadable: list[UnreadablePhoto] = []
    for photo in table.photos:
        try:
            sizes.append(_size_px(photo))
        except UnreadablePhoto as error:
            unreadable.append(error)
    if not sizes:
        raise UnreadablePhoto(f"not one of the {len(table)} photos can be read; the first: {unreadable[0]}")
    widths, heights = zip(*sizes, strict=True)
    return Inspection(
        photos=len(table),
        identities=len(table.names),
        single=int((table.photos_per_identity == 1).sum()),
        photos_per_identity=_spread(table.photos_per_identity),
        width_px=_spread(widths),
        height_px=_spread(heights),
        unreadable=tuple(unreadable),
        ignored=table.ignored,
    )


def _size_px(photo: PhotoRef) -> tuple[int, int]:
    if isinstance(photo, SyntheticPhoto):
        return photo.size_px, photo.size_px
    # Small, since only the size and whether it decodes are asked for.
    return open_photo(photo, min_side_px=32).source_size_px


def _spread(values: Sequence[int] | np.ndarray) -> Spread:
    return int(np.min(values)), float(np.median(values)), int(np.max(values))
