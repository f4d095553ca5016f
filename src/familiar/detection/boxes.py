"""Overlaps of boxes."""

from collections.abc import Sequence

SAME_FACE_OVERLAP = 0.5  # share of the smaller box; two boxes that overlap by this or more are one face


def is_same_face(first: Sequence[float], second: Sequence[float]) -> bool:
    """Tell whether two boxes (left, top, right, bottom), neither of them empty, are of one face."""
    smaller_px = min((right - left) * (bottom - top) for left, top, right, bottom in (first, second))
    return box_intersection_px(first, second) >= SAME_FACE_OVERLAP * smaller_px


def box_intersection_px(first: Sequence[float], second: Sequence[float]) -> float:
    """Compute the area of the intersection of two boxes (left, top, right, bottom), in square pixels."""
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    return max(0.0, width) * max(0.0, height)
