"""Overlaps of boxes."""

from familiar.core.types import Detection

SAME_FACE_OVERLAP = 0.5  # share of the smaller box; two boxes that overlap by this or more are one face


def overlap_of_smaller(first: Detection, second: Detection) -> float:
    """Compute the intersection of two boxes as a share of the smaller one."""
    return box_intersection_px(first.box_xyxy_px, second.box_xyxy_px) / min(first.area_px, second.area_px)


def box_intersection_px(first: tuple[float, ...], second: tuple[float, ...]) -> float:
    """Compute the area of the intersection of two boxes (left, top, right, bottom), in square pixels."""
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    return max(0.0, width) * max(0.0, height)
