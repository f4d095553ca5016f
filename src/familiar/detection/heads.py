"""Heads of cats, dogs and people, found by the network that lies beside this file."""

from collections.abc import Collection
from functools import cache
from pathlib import Path

import cv2
import numpy as np
import onnxruntime as ort
from jaxtyping import Bool, Float32, Int64, UInt8

from familiar.core.errors import BadDetector
from familiar.core.onnx_runtime import session_options
from familiar.core.types import Detection, Label, Photo
from familiar.detection.detector import sort_best_first

NETWORK_FILE = Path(__file__).with_name("heads.onnx")
LABELS: tuple[Label, ...] = ("cat", "dog", "person")
PETS: tuple[Label, ...] = ("cat", "dog")
SEARCH_SIDE_PX = 320
MULTIPLE_PX, MIN_SIDE_PX = 32, 64  # of the sides of the network's input
MIN_SCORE = 0.5
SAME_HEAD_IOU = 0.45  # two boxes that overlap by more are one head
PET_LANDMARKS = 3  # the first of a person's five
MIN_EYE_DISTANCE = 0.15  # in widths of the box; in profile one eye is hidden


class HeadDetector:
    """Detector for heads of cats and dogs, ears included, and for faces of people.

    The network is familiar's own (`benchmarks/pet_detector`). Its scores are scaled so that .5 is the threshold that it
    was judged at. A person's face is never returned as a pet's, whether people are asked for or not.

    Landmarks are left eye, right eye and nose of a pet that is seen from the front, and also the corners of the mouth
    of a person.

    Args:
        labels: which heads to return.
        search_side_px: to which the long side of a photo is enlarged or reduced. Heads below a tenth of it are often
            missed; time grows with its square.
        min_score: lowest score of a head, in [0, 1].
        network: its file; the default is the package's.

    Raises:
        BadDetector: the network's file is missing or damaged.
    """

    def __init__(
        self,
        labels: Collection[Label] = PETS,
        search_side_px: int = SEARCH_SIDE_PX,
        min_score: float = MIN_SCORE,
        network: Path = NETWORK_FILE,
    ) -> None:
        self.labels = frozenset(labels)
        self._search_side_px, self._min_score = search_side_px, min_score
        self._session = _open_network(network)

    def detect(self, photo: Photo) -> list[Detection]:
        """Find the heads in a photo.

        Args:
            photo: of any size.

        Returns:
            The heads with their labels, best first; empty if there is none. Boxes lie in the photo.
        """
        pixels, scale = _resize_for_network(photo.rgb_u8, self._search_side_px)
        outputs = self._session.run(None, {"photo": pixels[None]})
        boxes, scores, points = (np.asarray(output, np.float32) for output in outputs)
        boxes = np.clip(boxes / scale, 0, np.tile(np.array(photo.size_px, np.float32), 2))
        best = scores.max(axis=1)
        is_head = (best >= self._min_score) & (boxes[:, 0] < boxes[:, 2]) & (boxes[:, 1] < boxes[:, 3])
        cells = np.flatnonzero(is_head)
        detections: list[Detection] = []
        for cell in cells[distinct_boxes(boxes[cells], best[cells])]:
            label = LABELS[int(scores[cell].argmax())]
            if label in self.labels:
                left, top, right, bottom = boxes[cell].tolist()
                landmarks = _landmarks(points[cell] / scale, boxes[cell], label)
                detections.append(Detection((left, top, right, bottom), landmarks, min(float(best[cell]), 1.0), label))
        return sort_best_first(detections)


def distinct_boxes(
    boxes_xyxy: Float32[np.ndarray, "n 4"], scores: Float32[np.ndarray, " n"]
) -> Int64[np.ndarray, " k"]:
    """Choose the best of boxes that overlap (non-maximum suppression).

    Returns:
        Rows of the boxes of which none overlaps by more than `SAME_HEAD_IOU` with one of a higher score; best first.
    """
    chosen: list[int] = []
    for row in np.argsort(-scores, kind="stable").tolist():
        if not _overlap(boxes_xyxy[chosen], boxes_xyxy[row]).any():
            chosen.append(row)
    return np.array(chosen, np.int64)


def _overlap(boxes: Float32[np.ndarray, "n 4"], box: Float32[np.ndarray, " 4"]) -> Bool[np.ndarray, " n"]:
    sides = np.minimum(boxes[:, 2:], box[2:]) - np.maximum(boxes[:, :2], box[:2])
    both = np.prod(np.maximum(sides, 0), axis=1)
    union = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) + np.prod(box[2:] - box[:2]) - both
    return both > SAME_HEAD_IOU * union


def _landmarks(
    points_px: Float32[np.ndarray, "5 2"], box_xyxy: Float32[np.ndarray, " 4"], label: Label
) -> Float32[np.ndarray, "p 2"] | None:
    """Return the landmarks that can be seen. The network places some everywhere; those of a profile make no face."""
    if label == "person":
        return points_px
    left_eye, right_eye, nose = points = points_px[:PET_LANDMARKS]
    inside = ((points >= box_xyxy[:2]) & (points <= box_xyxy[2:])).all()
    eyes = right_eye - left_eye
    distance = float(np.hypot(*eyes))
    if not inside or distance < MIN_EYE_DISTANCE * (box_xyxy[2] - box_xyxy[0]):
        return None
    along, below = np.array([eyes, [-eyes[1], eyes[0]]]) @ (nose - left_eye) / distance**2
    return points if 0 < along < 1 and below > 0 else None


@cache
def _open_network(path: Path) -> ort.InferenceSession:
    """Open the network once for all threads."""
    try:
        return ort.InferenceSession(
            path, session_options(dequantize_at_opening=True), providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # ONNX Runtime's errors share no public base
        raise BadDetector(
            f"{path}: ONNX Runtime {ort.__version__} cannot open the detector's network; install familiar again "
            f"({str(error).strip()})"
        ) from error


def _resize_for_network(rgb_u8: UInt8[np.ndarray, "h w 3"], side_px: int) -> tuple[UInt8[np.ndarray, "s t 3"], float]:
    """Resize a photo to a long side of `side_px`, fill up with black at the right and below; return also the scale."""
    height, width = rgb_u8.shape[:2]
    scale = side_px / max(height, width)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    resized = cv2.resize(rgb_u8, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
    bottom, right = (max(MIN_SIDE_PX, -(-side // MULTIPLE_PX) * MULTIPLE_PX) - side for side in (size[1], size[0]))
    return cv2.copyMakeBorder(resized, 0, bottom, 0, right, cv2.BORDER_CONSTANT), scale
