"""Detection of all faces of a photo, each with a quality score."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
from jaxtyping import UInt8

from familiar.core.errors import NoFaceFound
from familiar.core.types import Crop, Detection, Photo
from familiar.detection.boxes import box_intersection_px, is_same_face
from familiar.detection.detector import Detector

SHARP_LAPLACIAN_VARIANCE = 100.0  # variance of the Laplacian, 8-bit gray; crops below are usually considered blurred


@dataclass(frozen=True, eq=False)
class Face:
    """A detected face, its crop and its quality.

    Attributes:
        detection: box, landmarks and score, in pixels of the photo.
        crop: the aligned face, as the network takes it.
        quality: how far its embedding can be trusted, in [0, 1].
    """

    detection: Detection
    crop: Crop
    quality: float


def detect_faces(
    photo: Photo, detector: Detector, align: Callable[[Photo, Detection], Crop], min_score: float = 0.0
) -> list[Face]:
    """Detect and crop all faces of a photo, best first.

    Of boxes that overlap by half of the smaller one or more, only that of the highest score is kept: a face detected
    twice would count as two faces in one photo, and so as two individuals. Faces outside the photo are left out.

    Args:
        photo: the photo to search.
        detector: finds the boxes.
        align: crops a face as the model takes it; raises NoFaceFound if it lies outside the photo.
        min_score: lowest score of the detector that is accepted, in [0, 1].
    """
    faces: list[Face] = []
    for detection in _suppress_duplicates(detector.detect(photo)):
        if detection.score < min_score:
            continue
        try:
            crop = align(photo, detection)
        except NoFaceFound:
            continue
        faces.append(Face(detection, crop, face_quality(detection, photo.size_px, crop.rgb_u8)))
    return faces


def face_quality(
    detection: Detection, photo_size_px: tuple[int, int], crop_rgb_u8: UInt8[np.ndarray, "s s 3"]
) -> float:
    """Compute the product of the detector's score, sharpness, size and visible share, each in [0, 1].

    Sharpness is v / (v + 100) with v the variance of the crop's Laplacian (Pech-Pacheco et al. 2000). Size is the side
    of the box in the photo over that of the crop, at most 1, since enlarging adds no detail. Visible share is the
    share of the box that lies on the photo.

    Args:
        detection: the face in pixels of the photo.
        photo_size_px: (width, height) of the photo.
        crop_rgb_u8: the aligned crop.
    """
    gray = cv2.cvtColor(crop_rgb_u8, cv2.COLOR_RGB2GRAY)
    _, deviation = cv2.meanStdDev(cv2.Laplacian(gray, cv2.CV_16S))  # wide enough for all its values
    variance = float(deviation[0, 0]) ** 2
    size = min(1.0, math.sqrt(detection.area_px) / len(crop_rgb_u8))
    visible = box_intersection_px(detection.box_xyxy_px, (0.0, 0.0, *photo_size_px)) / detection.area_px
    return detection.score * variance / (variance + SHARP_LAPLACIAN_VARIANCE) * size * visible


def to_full_resolution(detection: Detection, photo: Photo) -> Detection:
    """Convert a detection to pixels of the file, which may have been decoded at a reduced scale."""
    if photo.source_size_px == photo.size_px:
        return detection
    x, y = (full / decoded for full, decoded in zip(photo.source_size_px, photo.size_px, strict=True))
    left, top, right, bottom = detection.box_xyxy_px
    landmarks = detection.landmarks_px
    scaled = None if landmarks is None else landmarks * np.array([x, y], np.float32)
    return replace(detection, box_xyxy_px=(left * x, top * y, right * x, bottom * y), landmarks_px=scaled)


def _suppress_duplicates(detections: Sequence[Detection]) -> list[Detection]:
    distinct: list[int] = []
    for row in sorted(range(len(detections)), key=lambda row: -detections[row].score):
        box = detections[row].box_xyxy_px
        if not any(is_same_face(box, detections[other].box_xyxy_px) for other in distinct):
            distinct.append(row)
    return [detections[row] for row in sorted(distinct)]
