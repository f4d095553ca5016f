"""The faces of a photo: found, chosen, cropped and rated. This is the one way from a photo to crops for a network."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import cv2
import numpy as np
from jaxtyping import UInt8

from familiar.core.errors import FamiliarError, NoFaceFound, NothingDetected
from familiar.core.plural import pluralize
from familiar.core.recognition_types import DetectedPhoto
from familiar.core.types import Box, Crop, Face, Photo
from familiar.detection.alignment import align
from familiar.detection.detector import Detector, looked_for, not_looked_for
from familiar.detection.detectors import WholePhoto
from familiar.photos.decoding import PhotoOpener, Source, load_photo
from familiar.photos.preprocessing import Preprocessing

MIN_SCORE = 0.5  # of the detector: a detection below it is often not a face
SHARP_LAPLACIAN_VARIANCE = 100.0  # variance of the Laplacian, 8-bit gray; crops below are usually considered blurred

Choice: TypeAlias = int | Literal["best", "all"]
"""Which faces of a photo: all, the best one, or the one of a number, counted from the left and from 1."""


@dataclass(frozen=True)
class FoundFaces(DetectedPhoto[Face]):
    """Faces of a photo, best first: those that were chosen and can be embedded.

    Attributes:
        face_count: number of faces that the detector found.
        skipped: errors of the faces that no bundle embeds.
    """

    face_count: int
    skipped: tuple[FamiliarError, ...]


def find_faces(
    photo: Photo,
    detector: Detector,
    crop: Callable[[Photo, Face], Face],
    choice: Choice = "all",
    *,
    min_score: float = MIN_SCORE,
) -> FoundFaces:
    """Detect, choose and crop faces of a photo, best first.

    Of boxes that overlap by half of the smaller one or more, only that of the highest score is kept: a face detected
    twice would count as two faces in one photo, and so as two individuals. Faces outside the photo are left out. The
    best face is the first that can be cropped, in the detector's order.

    Args:
        photo: the photo to search.
        detector: finds the boxes.
        crop: adds the crop that a network takes to a face, as `with_crop` does.
        choice: which faces.
        min_score: lowest score of the detector that is accepted, in [0, 1].

    Returns:
        The faces in pixels of the file, with their crops; the number of all; and the errors of those that no network
        takes.

    Raises:
        NothingDetected: one face is chosen, and there is none.
        NoFaceFound: there is none of this number.
        FamiliarError: the chosen face cannot be cropped.
        ValueError: a number below 1.
    """
    faces_of_photo = _number([face for face in _suppress_duplicates(detector.detect(photo)) if face.score >= min_score])
    if choice != "all":
        _check_choice(photo, len(faces_of_photo), choice, detector)
    faces: list[Face] = []
    errors: list[FamiliarError] = []
    for face in faces_of_photo:
        if isinstance(choice, int) and face.from_left != choice:
            continue
        try:
            cropped = crop(photo, face)
        except FamiliarError as error:
            errors.append(error)
            continue
        faces.append(_to_full_resolution(cropped, photo))
        if choice == "best":
            break
    if not faces and choice != "all":
        raise errors[0]
    skipped = tuple(error for error in errors if not isinstance(error, NoFaceFound))
    return FoundFaces(str(photo.source), photo.source_size_px, tuple(faces), len(faces_of_photo), skipped)


def crop_photo(
    source: Source,
    preprocessing: Preprocessing,
    detector: Detector | None = None,
    *,
    open_photo: PhotoOpener[Source] = load_photo,
) -> Crop:
    """Load a source and crop its best face for a network.

    Args:
        source: what `open_photo` loads.
        preprocessing: of the network.
        detector: finds the face; None: the photo is a crop already.
        open_photo: loads the source.

    Raises:
        NoFaceFound: no face is found, or it cannot be aligned.
        FamiliarError: whatever `open_photo` raises.
    """
    detector = detector or WholePhoto()
    photo = open_photo(source, min_side_px=min_decoded_side_px(detector, preprocessing))

    def crop(photo: Photo, face: Face) -> Face:
        return replace(face, crop=align(photo, face, preprocessing))

    best = find_faces(photo, detector, crop, "best").faces[0].crop
    assert best is not None
    return best


def with_crop(photo: Photo, face: Face, preprocessing: Preprocessing) -> Face:
    """Return a face with its crop for a network, and its quality.

    Args:
        photo: that shows it.
        face: in pixels of the photo.
        preprocessing: of the network.

    Raises:
        NoFaceFound: it cannot be aligned (see `align`).
    """
    crop = align(photo, face, preprocessing)
    return replace(face, crop=crop, quality=face_quality(face, photo.size_px, crop.rgb_u8))


def min_decoded_side_px(detector: Detector, *preprocessings: Preprocessing) -> int | None:
    """Return the `min_side_px` to load a photo with: a crop is needed at the networks' size, others in full (None).

    Args:
        detector: that will search the photo.
        preprocessings: of the networks.
    """
    is_crop = isinstance(detector, WholePhoto)
    return max(max(each.size_px, each.resize_px) for each in preprocessings) if is_crop else None


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


def _check_choice(photo: Photo, count: int, choice: int | str, detector: Detector) -> None:
    if isinstance(choice, int) and choice < 1:
        raise ValueError(f"faces are counted from 1, got {choice}")
    if not count:
        others = not_looked_for(detector)
        remedy = f"for {others} use --detector auto" if others else "try another detector"
        raise NothingDetected(
            f"{photo.source}: no {looked_for(detector)} found; {remedy}, or crop the photo to the face and use "
            "--detector none"
        )
    if isinstance(choice, int) and choice > count:
        raise NoFaceFound(f"{photo.source}: has {pluralize(count, 'face')}, so there is no face {choice}")


def _number(faces: Sequence[Face]) -> list[Face]:
    """Number faces by the centers of their boxes, from left to right; they stay in their order."""
    centers = [(face.box_xyxy_px.left + face.box_xyxy_px.right, face.box_xyxy_px.top) for face in faces]
    rank = {row: number for number, row in enumerate(sorted(range(len(faces)), key=centers.__getitem__), start=1)}
    return [replace(face, from_left=rank[row]) for row, face in enumerate(faces)]


def _suppress_duplicates(faces: Sequence[Face]) -> list[Face]:
    distinct: list[int] = []
    for row in sorted(range(len(faces)), key=lambda row: -faces[row].score):
        box = faces[row].box_xyxy_px
        if not any(box.is_same_face(faces[other].box_xyxy_px) for other in distinct):
            distinct.append(row)
    return [faces[row] for row in sorted(distinct)]


def _to_full_resolution(face: Face, photo: Photo) -> Face:
    """Convert a face to pixels of the file, which may have been decoded at a reduced scale."""
    if photo.source_size_px == photo.size_px:
        return face
    x, y = (full / decoded for full, decoded in zip(photo.source_size_px, photo.size_px, strict=True))
    left, top, right, bottom = face.box_xyxy_px
    landmarks = face.landmarks_px
    scaled = None if landmarks is None else landmarks * np.array([x, y], np.float32)
    return replace(face, box_xyxy_px=Box(left * x, top * y, right * x, bottom * y), landmarks_px=scaled)
