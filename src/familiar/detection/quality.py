"""Every face of a photo, each with how much its embedding can be trusted."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from jaxtyping import UInt8

from familiar.core.errors import NoFaceFound
from familiar.core.types import Crop, Detection, Photo
from familiar.detection.alignment import align
from familiar.detection.detectors import Detector
from familiar.photos.preprocessing import Preprocessing

SHARP_LAPLACIAN_VARIANCE = 100.0  # variance of the Laplacian, 8-bit gray, below which a crop is usually taken for blurred
SAME_FACE_OVERLAP = 0.5  # of the smaller of two boxes: so much in common, and they are one face found twice


@dataclass(frozen=True, eq=False)
class Face:
    """`quality`, in [0, 1]: the detector's score x sharpness x size x how much of the box lies on the photo."""

    detection: Detection
    crop: Crop
    quality: float


def detect_faces(photo: Photo, detector: Detector, preprocessing: Preprocessing, min_score: float = 0.0) -> list[Face]:
    """The faces with a score of `min_score` or more, best first; empty where there is none.

    Of boxes that have half of the smaller one in common the best is kept: a face found twice would be two faces in
    one photo, and so two individuals. A face that lies outside the photo is left out.
    """
    found: list[Face] = []
    for detection in _suppress_duplicates(detector.detect(photo)):
        if detection.score < min_score:
            continue
        try:
            crop = align(photo, detection, preprocessing)
        except NoFaceFound:
            continue
        found.append(Face(detection, crop, face_quality(detection, photo.size_px, crop.rgb_u8)))
    return found


def face_quality(
    detection: Detection, photo_size_px: tuple[int, int], crop_rgb_u8: UInt8[np.ndarray, "s s 3"]
) -> float:
    """The detector's score x sharpness x size x how much of the box lies on the photo, each in [0, 1].

    Sharpness is v / (v + 100) with v the variance of the crop's Laplacian (Pech-Pacheco et al. 2000); size, the side
    of the box in the photo over that of the crop, at most 1: what was enlarged holds no more than it did.
    `photo_size_px` is (width, height).
    """
    gray = cv2.cvtColor(crop_rgb_u8, cv2.COLOR_RGB2GRAY)
    _, deviation = cv2.meanStdDev(cv2.Laplacian(gray, cv2.CV_16S))  # which holds all it can be
    variance = float(deviation[0, 0]) ** 2
    size = min(1.0, math.sqrt(detection.area_px) / len(crop_rgb_u8))
    seen = box_intersection_px(detection.box_xyxy_px, (0.0, 0.0, *photo_size_px)) / detection.area_px
    return detection.score * variance / (variance + SHARP_LAPLACIAN_VARIANCE) * size * seen


def to_full_resolution(detection: Detection, photo: Photo) -> Detection:
    """A detection in pixels of the whole file, which may have been read at a smaller scale."""
    if photo.source_size_px == photo.size_px:
        return detection
    x, y = (whole / read for whole, read in zip(photo.source_size_px, photo.size_px, strict=True))
    left, top, right, bottom = detection.box_xyxy_px
    landmarks = detection.landmarks_px
    scaled = None if landmarks is None else landmarks * np.array([x, y], np.float32)
    return Detection((left * x, top * y, right * x, bottom * y), scaled, detection.score)


def _suppress_duplicates(best_first: Sequence[Detection]) -> list[Detection]:
    kept: list[Detection] = []
    for detection in best_first:
        if all(_overlap_of_smaller(detection, other) < SAME_FACE_OVERLAP for other in kept):
            kept.append(detection)
    return kept


def _overlap_of_smaller(one: Detection, other: Detection) -> float:
    """The area of both, as a share of the smaller box."""
    return box_intersection_px(one.box_xyxy_px, other.box_xyxy_px) / min(one.area_px, other.area_px)


def box_intersection_px(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """The area that two boxes share."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, width) * max(0.0, height)
