"""Detection of all faces of a photo, each with a quality score."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import cv2
import numpy as np
from jaxtyping import UInt8

from familiar.core.errors import NoFaceFound
from familiar.core.types import Box, Crop, Face, Photo
from familiar.detection.detector import Detector

SHARP_LAPLACIAN_VARIANCE = 100.0  # variance of the Laplacian, 8-bit gray; crops below are usually considered blurred


def detect_faces(
    photo: Photo, detector: Detector, align: Callable[[Photo, Face], Crop], min_score: float = 0.0
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
    for face in _suppress_duplicates(detector.detect(photo)):
        if face.score < min_score:
            continue
        try:
            crop = align(photo, face)
        except NoFaceFound:
            continue
        quality = face_quality(face, photo.size_px, crop.rgb_u8)
        faces.append(replace(face, crop=crop, quality=quality, species=face.label))
    return faces


def face_quality(face: Face, photo_size_px: tuple[int, int], crop_rgb_u8: UInt8[np.ndarray, "s s 3"]) -> float:
    """Compute the product of the detector's score, sharpness, size and visible share, each in [0, 1].

    Sharpness is v / (v + 100) with v the variance of the crop's Laplacian (Pech-Pacheco et al. 2000). Size is the side
    of the box in the photo over that of the crop, at most 1, since enlarging adds no detail. Visible share is the
    share of the box that lies on the photo.

    Args:
        face: in pixels of the photo.
        photo_size_px: (width, height) of the photo.
        crop_rgb_u8: the aligned crop.
    """
    gray = cv2.cvtColor(crop_rgb_u8, cv2.COLOR_RGB2GRAY)
    _, deviation = cv2.meanStdDev(cv2.Laplacian(gray, cv2.CV_16S))  # wide enough for all its values
    variance = float(deviation[0, 0]) ** 2
    box = face.box_xyxy_px
    size = min(1.0, math.sqrt(box.area) / len(crop_rgb_u8))
    visible = box.intersection(Box(0.0, 0.0, *photo_size_px)) / box.area
    return face.score * variance / (variance + SHARP_LAPLACIAN_VARIANCE) * size * visible


def to_full_resolution(face: Face, photo: Photo) -> Face:
    """Convert a face to pixels of the file, which may have been decoded at a reduced scale."""
    if photo.source_size_px == photo.size_px:
        return face
    x, y = (full / decoded for full, decoded in zip(photo.source_size_px, photo.size_px, strict=True))
    left, top, right, bottom = face.box_xyxy_px
    landmarks = face.landmarks_px
    scaled = None if landmarks is None else landmarks * np.array([x, y], np.float32)
    return replace(face, box_xyxy_px=Box(left * x, top * y, right * x, bottom * y), landmarks_px=scaled)


def _suppress_duplicates(faces: Sequence[Face]) -> list[Face]:
    distinct: list[int] = []
    for row in sorted(range(len(faces)), key=lambda row: -faces[row].score):
        box = faces[row].box_xyxy_px
        if not any(box.is_same_face(faces[other].box_xyxy_px) for other in distinct):
            distinct.append(row)
    return [faces[row] for row in sorted(distinct)]
