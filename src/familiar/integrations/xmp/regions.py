"""Regions of faces in a photo's metadata, and how they turn with the photo.

The guidelines of the Metadata Working Group (version 2.0, "Image Region Metadata") place a region in the photo as it is
stored; a viewer that turns the photo by its EXIF orientation turns the regions too. Microsoft's regions, and those of
Picasa for JPEGs, have the same frame (ExifTool copies them into each other unchanged). Boxes in a gallery are in pixels
of the upright photo.
"""

from dataclasses import dataclass

from familiar.core.types import Box

SAME_FACE = 0.5  # least intersection over union of two regions that mark one face


@dataclass(frozen=True)
class Region:
    """A marked part of a photo.

    Attributes:
        box: left, top, right and bottom as shares of the stored photo's width and height.
        name: who it shows; empty if the file does not say.
        kind: "Face", "Pet" or another type of the guidelines.
    """

    box: Box
    name: str
    kind: str = "Face"


def upright_box_px(box: Box, stored_size_px: tuple[int, int], orientation: int) -> Box:
    """Convert a region's box to pixels of the upright photo.

    Args:
        box: left, top, right and bottom as shares of the stored photo.
        stored_size_px: width and height before the photo is turned.
        orientation: EXIF orientation, 1 to 8.

    >>> tuple(upright_box_px(Box(0.0, 0.25, 0.5, 0.5), (200, 100), 6))
    (50.0, 0.0, 75.0, 100.0)
    """
    swap, mirror_x, mirror_y = _turns(orientation)
    width, height = stored_size_px
    if swap:
        box, width, height = _swap_axes(box), height, width
    left, top, right, bottom = _mirror(box, mirror_x, mirror_y)
    return Box(left * width, top * height, right * width, bottom * height)


def stored_box(box_px: Box, stored_size_px: tuple[int, int], orientation: int) -> Box | None:
    """Convert a box in pixels of the upright photo to shares of the stored photo; `upright_box_px` inverts it.

    Returns:
        The part of the box inside the photo, or None if there is none.
    """
    swap, mirror_x, mirror_y = _turns(orientation)
    width, height = stored_size_px[::-1] if swap else stored_size_px
    left, right = (min(max(side / width, 0.0), 1.0) for side in box_px[::2])
    top, bottom = (min(max(side / height, 0.0), 1.0) for side in box_px[1::2])
    if not (left < right and top < bottom):
        return None
    box = _mirror(Box(left, top, right, bottom), mirror_x, mirror_y)
    return _swap_axes(box) if swap else box


def _turns(orientation: int) -> tuple[bool, bool, bool]:
    """Whether x and y of the stored photo are swapped, then x mirrored, then y, to have it upright."""
    return orientation >= 5, orientation in (2, 3, 6, 7), orientation in (3, 4, 7, 8)


def _swap_axes(box: Box) -> Box:
    return Box(box.top, box.left, box.bottom, box.right)


def _mirror(box: Box, mirror_x: bool, mirror_y: bool) -> Box:
    left, right = (1 - box.right, 1 - box.left) if mirror_x else (box.left, box.right)
    top, bottom = (1 - box.bottom, 1 - box.top) if mirror_y else (box.top, box.bottom)
    return Box(left, top, right, bottom)
