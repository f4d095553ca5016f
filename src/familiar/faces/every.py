"""Every face of a photo, each with how much its embedding can be trusted."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from jaxtyping import UInt8

from familiar.core.errors import NoFaceFound
from familiar.core.types import Crop, Detection, Photo
from familiar.faces.align import align
from familiar.faces.detect import Detector
from familiar.faces.tensor import Preprocessing

SHARP = 100.0  # variance of the Laplacian, 8-bit gray, below which a crop is usually taken for blurred
SAME_FACE = 0.5  # of the smaller of two boxes: so much in common, and they are one face found twice


@dataclass(frozen=True, eq=False)
class Face:
    """`quality`, in [0, 1]: the detector's score x sharpness x size."""

    detection: Detection
    crop: Crop
    quality: float


def every_face(
    photo: Photo, detector: Detector, preprocessing: Preprocessing, min_score: float = 0.0
) -> list[Face]:
    """The faces with a score of `min_score` or more, best first; empty where there is none.

    Of boxes that have half of the smaller one in common the best is kept: a face found twice would be two faces in
    one photo, and so two individuals. A face that lies outside the photo is left out.
    """
    found: list[Face] = []
    for detection in _distinct(detector.detect(photo)):
        if detection.score < min_score:
            continue
        try:
            crop = align(photo, detection, preprocessing)
        except NoFaceFound:
            continue
        found.append(Face(detection, crop, quality(detection, crop.rgb_u8)))
    return found


def quality(detection: Detection, crop_rgb_u8: UInt8[np.ndarray, "s s 3"]) -> float:
    """The detector's score x sharpness x size, each in [0, 1].

    Sharpness is v / (v + 100) with v the variance of the crop's Laplacian (Pech-Pacheco et al. 2000); size, the side
    of the box in the photo over that of the crop, at most 1: what was enlarged holds no more than it did.
    """
    gray = cv2.cvtColor(crop_rgb_u8, cv2.COLOR_RGB2GRAY)
    variance = float(cv2.Laplacian(gray, cv2.CV_64F).var())
    size = min(1.0, math.sqrt(detection.area_px) / len(crop_rgb_u8))
    return detection.score * variance / (variance + SHARP) * size


def _distinct(best_first: Sequence[Detection]) -> list[Detection]:
    kept: list[Detection] = []
    for detection in best_first:
        if all(_in_common(detection, other) < SAME_FACE for other in kept):
            kept.append(detection)
    return kept


def _in_common(one: Detection, other: Detection) -> float:
    """The area of both, as a share of the smaller box."""
    left, top = np.maximum(one.box_xyxy_px[:2], other.box_xyxy_px[:2])
    right, bottom = np.minimum(one.box_xyxy_px[2:], other.box_xyxy_px[2:])
    return float(max(0.0, right - left) * max(0.0, bottom - top) / min(one.area_px, other.area_px))
