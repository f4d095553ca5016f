"""People's faces, found by a network that OpenCV runs."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

import cv2
import numpy as np
from jaxtyping import Float32, UInt8

from familiar.core.errors import BadDetector
from familiar.core.types import Box, Face, Label, Photo
from familiar.detection.detector import sort_best_first

MAX_SEARCH_SIDE_PX = 1280  # larger photos are searched at this long side, and detections mapped back
YUNET_MIN_SIDE_PX = 33  # below, OpenCV 4.14 reads uninitialized memory and finds faces that do not exist

Model = TypeVar("Model")


class _ModelPool(Generic[Model]):
    """Models of OpenCV, which keep state during a call: one for each thread that detects at the same time."""

    def __init__(self, create: Callable[[], Model]) -> None:
        self._create = create
        self._idle = deque([create()])

    @contextmanager
    def borrow(self) -> Iterator[Model]:
        """Lend a model that no other thread is using."""
        try:
            model = self._idle.pop()  # atomic, so no two threads get the same
        except IndexError:
            model = self._create()
        try:
            yield model
        finally:
            self._idle.append(model)


class YuNetFaces:
    """Detector for people's faces with five landmarks: YuNet (Wu et al. 2023, Machine Intelligence Research 20).

    A box may extend beyond the photo.

    Args:
        model_path: the ONNX file of the network.
        score_threshold: lowest score of a face, in [0, 1].

    Raises:
        BadDetector: OpenCV cannot load the file. It loads YuNet's exports with fixed input size (which accept photos
            of any size), not the dynamic ones.
    """

    labels: frozenset[Label] = frozenset({"person"})

    def __init__(self, model_path: Path, score_threshold: float = 0.6) -> None:
        try:
            model = np.frombuffer(model_path.read_bytes(), np.uint8)
        except OSError as error:
            raise BadDetector(f"{model_path}: {error.strerror}; the yunet detector needs its ONNX file") from error
        try:
            self._networks = _ModelPool(
                lambda: cv2.FaceDetectorYN.create("onnx", model, np.empty(0, np.uint8), (64, 64), score_threshold)
            )
            with self._networks.borrow() as network:
                network.detect(np.zeros((64, 64, 3), np.uint8))  # a network other than YuNet loads, but fails here
        except cv2.error as error:
            raise BadDetector(
                f"{model_path}: cannot be loaded as a YuNet face detector; use the ONNX export of fixed input size, or "
                "download it again"
            ) from error

    def detect(self, photo: Photo) -> list[Face]:
        """Find the faces in a photo.

        Args:
            photo: searched with a long side of at most 1280 px.

        Returns:
            The faces with landmarks, best first; empty if there is none.
        """
        rgb_u8, factors_xy = _resize_for_search(photo)
        padding = [max(0, YUNET_MIN_SIDE_PX - side) for side in rgb_u8.shape[:2]]
        bgr_u8 = cv2.copyMakeBorder(rgb_u8[..., ::-1], 0, padding[0], 0, padding[1], cv2.BORDER_CONSTANT)
        with self._networks.borrow() as network:
            network.setInputSize(bgr_u8.shape[1::-1])
            _, rows = network.detect(bgr_u8)
        return sort_best_first(_yunet_face(row, factors_xy) for row in ([] if rows is None else rows))


def _resize_for_search(photo: Photo) -> tuple[UInt8[np.ndarray, "h w 3"], tuple[float, float]]:
    """Shrink a large photo; return the pixels to search, and the factors (x, y) from them to the photo."""
    width, height = photo.size_px
    shrink = MAX_SEARCH_SIDE_PX / max(width, height)
    if shrink >= 1:
        return photo.rgb_u8, (1.0, 1.0)
    size = max(1, round(width * shrink)), max(1, round(height * shrink))
    return cv2.resize(photo.rgb_u8, size, interpolation=cv2.INTER_AREA), (width / size[0], height / size[1])


def _box_xyxy_px(box_xywh: np.ndarray, factors_xy: tuple[float, float]) -> Box:
    x_min, y_min, width, height = (float(value) for value in box_xywh)
    x, y = factors_xy
    return Box(x_min * x, y_min * y, (x_min + width) * x, (y_min + height) * y)


def _yunet_face(row: Float32[np.ndarray, " 15"], factors_xy: tuple[float, float]) -> Face:
    # YuNet's first eye and mouth corner are the person's right ones, which are left in the image.
    landmarks_px = row[4:14].reshape(5, 2) * np.array(factors_xy, np.float32)
    return Face(_box_xyxy_px(row[:4], factors_xy), landmarks_px, min(float(row[14]), 1.0), label="person")
