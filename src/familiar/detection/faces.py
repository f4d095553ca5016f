"""The faces of a photo: detected, chosen, cropped and rated."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

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
class DetectedFaces(DetectedPhoto[Face]):
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
    crop: Callable[[Photo, Face], tuple[Crop, str | None]],
    choice: Choice = "all",
    *,
    min_score: float = MIN_SCORE,
    rate: bool = True,
) -> DetectedFaces:
    """Detect, choose and crop faces of a photo, best first.

    Of boxes that overlap by half of the smaller one or more, only that of the highest score is kept: a face detected
    twice would count as two faces in one photo, and so as two individuals. Faces outside the photo are left out. The
    best face is the first that can be cropped, in the detector's order.

    Args:
        photo: the photo to search.
        detector: finds the boxes.
        crop: returns the crop of a face that a network takes, and the face's species.
        choice: which faces.
        min_score: lowest score of the detector that is accepted, in [0, 1].
        rate: whether the quality of the faces is needed.

    Returns:
        The faces in pixels of the file, with their crops; the number of all; and the errors of those that no network
        takes.

    Raises:
        NothingDetected: one face is chosen, and there is none.
        NoFaceFound: there is none of this number.
        FamiliarError: the chosen face cannot be cropped.
        ValueError: a number below 1.
    """
    faces_of_photo = [face for face in _suppress_duplicates(detector.detect(photo)) if face.score >= min_score]
    if choice != "all":
        _check_choice(photo, len(faces_of_photo), choice, detector)
    faces: list[Face] = []
    errors: list[FamiliarError] = []
    for number, face in zip(_numbers_from_left(faces_of_photo), faces_of_photo, strict=True):
        if isinstance(choice, int) and number != choice:
            continue
        try:
            pixels, species = crop(photo, face)
        except FamiliarError as error:
            errors.append(error)
            continue
        changes: dict[str, Any] = {"crop": pixels, "species": species, "from_left": number}
        if rate:
            changes["quality"] = face_quality(face, photo.size_px, pixels.rgb_u8)
        if photo.source_size_px != photo.size_px:
            changes |= _in_pixels_of_the_file(face, photo)
        faces.append(replace(face, **changes))
        if choice == "best":
            break
    if not faces and choice != "all":
        raise errors[0]
    skipped = tuple(error for error in errors if not isinstance(error, NoFaceFound))
    return DetectedFaces(str(photo.source), photo.source_size_px, tuple(faces), len(faces_of_photo), skipped)


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
    photo = open_photo(source, min_side_px=min_decoded_side_px(detector, [preprocessing]))

    def crop(photo: Photo, face: Face) -> tuple[Crop, str | None]:
        return align(photo, face, preprocessing), face.label

    best = find_faces(photo, detector, crop, "best", rate=False).faces[0].crop
    assert best is not None
    return best


def min_decoded_side_px(detector: Detector, preprocessings: Sequence[Preprocessing]) -> int | None:
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
        remedy = "try another detector"
        if others:
            model = "person-mobile" if others == "people" else "pet-mobile"
            remedy = (
                f"it was not searched for {others}: that takes --detector auto and a model for them (--model {model})"
            )
        raise NothingDetected(
            f"{photo.source}: no {looked_for(detector)} found; {remedy}, or crop the photo to the face and use "
            "--detector none"
        )
    if isinstance(choice, int) and choice > count:
        raise NoFaceFound(f"{photo.source}: has {pluralize(count, 'face')}, so there is no face {choice}")


def _numbers_from_left(faces: Sequence[Face]) -> list[int]:
    """Number faces by the centers of their boxes, from left to right and from 1."""
    if len(faces) == 1:
        return [1]
    centers = [(face.box_xyxy_px.left + face.box_xyxy_px.right, face.box_xyxy_px.top) for face in faces]
    order = sorted(range(len(faces)), key=centers.__getitem__)
    return [order.index(row) + 1 for row in range(len(faces))]


def _suppress_duplicates(faces: list[Face]) -> list[Face]:
    if len(faces) < 2:
        return faces
    distinct: list[int] = []
    for row in sorted(range(len(faces)), key=lambda row: -faces[row].score):
        box = faces[row].box_xyxy_px
        if not any(box.is_same_face(faces[other].box_xyxy_px) for other in distinct):
            distinct.append(row)
    return [faces[row] for row in sorted(distinct)]


def _in_pixels_of_the_file(face: Face, photo: Photo) -> dict[str, Any]:
    """Return the box and the landmarks of a face in a photo that was decoded at a reduced scale."""
    x, y = (full / decoded for full, decoded in zip(photo.source_size_px, photo.size_px, strict=True))
    left, top, right, bottom = face.box_xyxy_px
    landmarks = None if face.landmarks_px is None else face.landmarks_px * np.array([x, y], np.float32)
    return {"box_xyxy_px": Box(left * x, top * y, right * x, bottom * y), "landmarks_px": landmarks}
