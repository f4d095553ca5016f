"""Alignment of a detected face to a square crop, by its landmarks or by its box."""

import cv2
import numpy as np
from jaxtyping import Float, UInt8

from familiar.core.errors import NoFaceFound
from familiar.core.types import Box, Crop, Face, Photo
from familiar.photos.preprocessing import Preprocessing, resize_crop

# Positions of the five landmarks in a crop of 112 px, in the order of `Face.landmarks_px`, as ArcFace
# (arXiv 1801.07698) and most later face networks use them.
TEMPLATE_112_PX = np.array(
    [[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366], [41.5493, 92.3655], [70.7299, 92.2041]]
)


def align(photo: Photo, face: Face, preprocessing: Preprocessing) -> Crop:
    """Crop a face as the network was trained on it.

    With landmarks, the photo is rotated and scaled so that they fit the template (`template_px`) as well as a
    similarity transform can; pixels from outside the photo are black. Without, the crop is the box with `margin` of
    its width and height added on each side, clipped to the photo and resized by the rule of `preprocessing.resize`.

    Args:
        photo: the image to crop from.
        face: in pixels of the photo.
        preprocessing: of the network; sets the size, the margin and how boxes are resized.

    Returns:
        The face, `preprocessing.size_px` wide and high.

    Raises:
        NoFaceFound: the box or the landmarks lie outside the photo, or all landmarks are one point.
    """
    if face.landmarks_px is None or len(face.landmarks_px) < 5 or preprocessing.template == "box":
        pixels = resize_crop(_crop_box(photo, face.box_xyxy_px, preprocessing.margin), preprocessing)
        return Crop(pixels, photo.source)
    template = template_px(preprocessing.size_px, preprocessing.margin)
    try:
        matrix = similarity_transform(face.landmarks_px, template)
        return Crop(_warp(photo.rgb_u8, matrix, preprocessing.size_px), photo.source)
    except ValueError as error:
        raise NoFaceFound(f"{photo.source}: {error}") from error


def template_px(size_px: int, margin: float) -> Float[np.ndarray, "5 2"]:
    """Scale the template to a crop of `size_px`, and shrink it by 1 + 2 `margin` about the center."""
    center = size_px / 2
    return center + (TEMPLATE_112_PX * (size_px / 112) - center) / (1 + 2 * margin)


def similarity_transform(
    source: Float[np.ndarray, "n 2"], target: Float[np.ndarray, "n 2"]
) -> Float[np.ndarray, "2 3"]:
    """Fit the similarity transform that brings `source` closest to `target`.

    Least squares, never a reflection: Umeyama 1991 in two dimensions. With points as complex numbers, z -> c z + d
    with c = sum(conj(z') w') / sum(|z'|^2), where z' and w' are centered.

    Returns:
        Rotation, uniform scale and shift as the matrix [a -b x; b a y].

    Raises:
        ValueError: the points are all the same, or their best scale is zero.
    """
    z = source[:, 0].astype(np.float64) + 1j * source[:, 1]
    w = target[:, 0].astype(np.float64) + 1j * target[:, 1]
    z_mean, w_mean = z.mean(), w.mean()
    if (z == z[0]).all():
        raise ValueError("the landmarks all fall on one point")
    rotation = np.vdot(z - z_mean, w - w_mean) / np.vdot(z - z_mean, z - z_mean)
    if rotation == 0:
        raise ValueError("no rotation brings the landmarks closer to the template")
    shift = w_mean - rotation * z_mean
    return np.array([[rotation.real, -rotation.imag, shift.real], [rotation.imag, rotation.real, shift.imag]])


def _warp(
    rgb_u8: UInt8[np.ndarray, "h w 3"], matrix: Float[np.ndarray, "2 3"], size_px: int
) -> UInt8[np.ndarray, "s s 3"]:
    """Transform the photo by `matrix` and crop it.

    In the coordinates of `matrix`, boxes and landmarks, the first pixel extends from 0 to 1.

    Raises:
        ValueError: no part of the crop lies on the photo.
    """
    # Bilinear sampling skips pixels below half scale, so whole blocks are averaged first. (1.01: so that a scale of
    # 1/4, as computed from float32 landmarks, averages blocks of four.)
    step = int(np.clip(1.01 / np.hypot(matrix[0, 0], matrix[1, 0]), 1, max(rgb_u8.shape)))
    corners = np.array([[0, 0], [size_px, 0], [0, size_px], [size_px, size_px]]) - matrix[:, 2]
    corners = np.linalg.solve(matrix[:, :2], corners.T).T
    bounds = rgb_u8.shape[1::-1]
    left, top = np.clip(np.floor(corners.min(axis=0)) - step, 0, bounds).astype(int)
    right, bottom = np.clip(np.ceil(corners.max(axis=0)) + step, 0, bounds).astype(int)
    if left >= right or top >= bottom:
        raise ValueError("the landmarks lie outside the photo")
    width, height = -(-(right - left) // step), -(-(bottom - top) // step)
    reduced = cv2.resize(rgb_u8[top:bottom, left:right], (width, height), interpolation=cv2.INTER_AREA)

    reduced_to_photo = np.diag([(right - left) / width, (bottom - top) / height, 1.0])
    reduced_to_photo[:2, 2] = left, top
    reduced_to_crop = matrix @ reduced_to_photo
    # In OpenCV's coordinates the center of the first pixel is 0.
    reduced_to_crop[:, 2] += reduced_to_crop[:, :2].sum(axis=1) / 2 - 0.5
    return cv2.warpAffine(reduced, reduced_to_crop, (size_px, size_px), flags=cv2.INTER_LINEAR)


def _crop_box(photo: Photo, box: Box, margin: float) -> UInt8[np.ndarray, "h w 3"]:
    width, height = photo.size_px
    margin_x, margin_y = margin * box.width, margin * box.height
    columns = slice(*(round(min(max(x, 0), width)) for x in (box.left - margin_x, box.right + margin_x)))
    rows = slice(*(round(min(max(y, 0), height)) for y in (box.top - margin_y, box.bottom + margin_y)))
    pixels = photo.rgb_u8[rows, columns]
    if pixels.size == 0:
        raise NoFaceFound(f"{photo.source}: the face box {tuple(box)} lies outside the photo")
    return pixels
