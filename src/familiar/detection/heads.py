"""Heads of cats, dogs and people, found by the network that lies beside this file."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import cv2
import numpy as np
import onnxruntime as ort
from jaxtyping import Bool, Float32, Int64, UInt8

from familiar.core.errors import BadDetector
from familiar.core.onnx_runtime import session_options
from familiar.core.types import Box, Face, Label, Photo
from familiar.detection.detector import sort_best_first

NETWORK_FILE = Path(__file__).with_name("heads.onnx")
LABELS: tuple[Label, ...] = ("cat", "dog", "person")
PETS: tuple[Label, ...] = ("cat", "dog")
SEARCH_SIDE_PX = 320
MULTIPLE_PX, MIN_SIDE_PX = 32, 64  # of the sides of the network's input
MIN_SCORE = 0.5
# A large photo is looked at a second time, at 2 / 15 of its size: so heads of 200 px are found in it, too. Making it
# smaller takes most of the time, and is done once for both.
CLOSER_SHARE, CLOSER_SIDES_PX = 2 / 15, (480, 1024)
# Longer sides of heads, in long sides of the photo. The first look takes whole pets for smaller heads; the closer one
# takes parts of larger heads for heads.
MIN_FIRST_HEAD, MAX_CLOSER_HEAD = 1 / 8, 1 / 5
# Where nothing is found, a smaller copy shows heads that fill the photo, at sizes that the network knows better.
SMALLER_SIDE_PX, MIN_SMALLER_HEAD, MIN_SMALLER_SCORE = 160, 0.3, 0.65  # share of the photo's area
# Below `SURE_SCORE` a photo may lie on its side, though no EXIF data say so: then its heads have a score that is higher
# by `TURNED_GAIN`, the mean of two looks. On their sides, other animals look like pets more often.
SURE_SCORE, MIN_TURNED_SCORE, TURNED_GAIN = 0.75, 0.75, 0.1
TURNED_SIDES_PX = (SEARCH_SIDE_PX, 416)
# A person's landmarks are those of the face enlarged, the mean with its mirror image.
PERSON_CUT, PERSON_SIDE_PX = 1.5, 160  # in sides of the head
SAME_HEAD_IOU = 0.45  # two boxes that overlap by more are one head
PET_LANDMARKS = 3  # the first of a person's five
MIRRORED = [1, 0, 2, 4, 3]  # a person's landmarks, as they follow in the mirror image
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
            missed, unless the photo is large and looked at a second time; time grows with its square.
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

    def detect(self, photo: Photo) -> list[Face]:
        """Find the heads in a photo.

        Args:
            photo: of any size.

        Returns:
            The heads with their labels, best first; empty if there is none. Boxes lie in the photo.
        """
        rgb_u8, closer_px = photo.rgb_u8, closer_side_px(photo.size_px)
        if closer_px:
            rgb_u8 = _resize(rgb_u8, closer_px)
        heads = self._look(rgb_u8, self._search_side_px, photo.size_px)
        if closer_px:
            heads = _combine(heads, self._look(rgb_u8, closer_px, photo.size_px), max(photo.size_px))
        if not heads:
            least_px = MIN_SMALLER_HEAD * photo.size_px[0] * photo.size_px[1]
            smaller = self._look(rgb_u8, SMALLER_SIDE_PX, photo.size_px)
            sure = [head for head in smaller if head.score >= MIN_SMALLER_SCORE]
            heads = [head for head in sure if head.box_xyxy_px.area >= least_px]
        if _best_score(heads) < SURE_SCORE:
            heads = self._look_at_turned(rgb_u8, photo.size_px, _best_score(heads)) or heads
        heads = [head for head in heads if head.label in self.labels]
        return sort_best_first(self._aligned(head, photo) if head.label == "person" else head for head in heads)

    def _look(self, rgb_u8: UInt8[np.ndarray, "h w 3"], side_px: int, photo_size_px: tuple[int, int]) -> list[Face]:
        """Find the heads of all labels in a photo, which may have been made smaller, at a long side of `side_px`."""
        pixels = _resize_for_network(rgb_u8, side_px)
        scale = side_px / max(photo_size_px)
        outputs = self._session.run(None, {"photo": pixels[None]})
        boxes, scores, points = (np.asarray(output, np.float32) for output in outputs)
        boxes = np.clip(boxes / scale, 0, np.tile(np.array(photo_size_px, np.float32), 2))
        best = scores.max(axis=1)
        is_head = (best >= self._min_score) & (boxes[:, 0] < boxes[:, 2]) & (boxes[:, 1] < boxes[:, 3])
        cells = np.flatnonzero(is_head)
        heads: list[Face] = []
        for cell in cells[distinct_boxes(boxes[cells], best[cells])]:
            label = LABELS[int(scores[cell].argmax())]
            landmarks = _landmarks(points[cell] / scale, boxes[cell], label)
            heads.append(Face(Box(*boxes[cell].tolist()), landmarks, min(float(best[cell]), 1.0), label=label))
        return heads

    def _look_at_turned(
        self, rgb_u8: UInt8[np.ndarray, "h w 3"], photo_size_px: tuple[int, int], upright_score: float
    ) -> list[Face]:
        """Find heads in a photo that lies on its side, in the better direction; empty if upright it is as good."""
        width, height = photo_size_px
        least = max(MIN_TURNED_SCORE, upright_score + TURNED_GAIN)
        directions: list[list[Face]] = []
        for turns in (1, 3):
            first, second = (
                self._look(np.rot90(rgb_u8, turns), side_px, (height, width)) for side_px in TURNED_SIDES_PX
            )
            heads = [replace(head, score=(head.score + _score_on(head, second)) / 2) for head in first]
            directions.append([_turned_back(head, turns, photo_size_px) for head in heads if head.score >= least])
        return max(directions, key=_best_score)

    def _aligned(self, person: Face, photo: Photo) -> Face:
        """Return a person's face with landmarks that are found in an enlarged cut of the photo, where they are."""
        left, top, right, bottom = person.box_xyxy_px
        side_px = max(1, round(PERSON_CUT * _side_px(person)))
        x, y = round((left + right - side_px) / 2), round((top + bottom - side_px) / 2)
        cut = _cut(photo.rgb_u8, x, y, side_px)
        views: list[Float32[np.ndarray, "5 2"]] = []
        for mirrored in (False, True):
            heads = self._look(cut[:, ::-1] if mirrored else cut, PERSON_SIDE_PX, (side_px, side_px))
            middle = Box(side_px / 3, side_px / 3, side_px * 2 / 3, side_px * 2 / 3)
            face = next(
                (head for head in heads if head.label == "person" and head.box_xyxy_px.is_same_face(middle)), None
            )
            if face is None or face.landmarks_px is None:
                return person
            points = face.landmarks_px
            views.append(np.array([side_px, 0], np.float32) + points[MIRRORED] * (-1, 1) if mirrored else points)
        landmarks = np.mean(views, axis=0) + np.array([x, y])
        return replace(person, landmarks_px=landmarks.astype(np.float32))


def closer_side_px(photo_size_px: tuple[int, int]) -> int | None:
    """Return the long side at which a photo of this size is looked at a second time; None: it is not."""
    least, most = CLOSER_SIDES_PX
    side_px = round(max(photo_size_px) * CLOSER_SHARE)
    return min(side_px, most) if side_px >= least else None


def _combine(first: Iterable[Face], closer: Iterable[Face], photo_side_px: int) -> list[Face]:
    """Choose the large heads of the first look, and the small ones of the closer look that are not on these."""
    large = [head for head in first if _side_px(head) >= MIN_FIRST_HEAD * photo_side_px]
    small = [head for head in closer if _side_px(head) <= MAX_CLOSER_HEAD * photo_side_px]
    boxes = [head.box_xyxy_px for head in large]
    return large + [head for head in small if not any(head.box_xyxy_px.is_same_face(box) for box in boxes)]


def _side_px(head: Face) -> float:
    return max(head.box_xyxy_px.width, head.box_xyxy_px.height)


def _best_score(heads: Iterable[Face]) -> float:
    return max((head.score for head in heads), default=0.0)


def _score_on(head: Face, others: Iterable[Face]) -> float:
    """Return the best score of other heads in the same place; 0: there is none."""
    return _best_score(other for other in others if other.box_xyxy_px.is_same_face(head.box_xyxy_px))


def _cut(rgb_u8: UInt8[np.ndarray, "h w 3"], x: int, y: int, side_px: int) -> UInt8[np.ndarray, "s s 3"]:
    """Cut a square out of a photo, black where it lies outside."""
    inside = rgb_u8[max(y, 0) : y + side_px, max(x, 0) : x + side_px]
    top, left = max(-y, 0), max(-x, 0)
    bottom, right = side_px - top - inside.shape[0], side_px - left - inside.shape[1]
    return cv2.copyMakeBorder(inside, top, bottom, left, right, cv2.BORDER_CONSTANT)


def _turned_back(head: Face, turns: int, photo_size_px: tuple[int, int]) -> Face:
    """Return where a head lies in a photo; it was found in one turned counterclockwise by one or three right angles."""
    width, height = photo_size_px
    left, top, right, bottom = head.box_xyxy_px
    landmarks = head.landmarks_px
    if turns == 1:
        box = Box(width - bottom, left, width - top, right)
        points = None if landmarks is None else np.stack([width - landmarks[:, 1], landmarks[:, 0]], axis=1)
    else:
        box = Box(top, height - right, bottom, height - left)
        points = None if landmarks is None else np.stack([landmarks[:, 1], height - landmarks[:, 0]], axis=1)
    return replace(head, box_xyxy_px=box, landmarks_px=points)


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


def _resize_for_network(rgb_u8: UInt8[np.ndarray, "h w 3"], side_px: int) -> UInt8[np.ndarray, "s t 3"]:
    """Resize a photo to a long side of `side_px`, fill up with black at the right and below."""
    resized = _resize(rgb_u8, side_px)
    bottom, right = (max(MIN_SIDE_PX, -(-side // MULTIPLE_PX) * MULTIPLE_PX) - side for side in resized.shape[:2])
    return cv2.copyMakeBorder(resized, 0, bottom, 0, right, cv2.BORDER_CONSTANT)


def _resize(rgb_u8: UInt8[np.ndarray, "h w 3"], side_px: int) -> UInt8[np.ndarray, "s t 3"]:
    """Resize a photo to a long side of `side_px`."""
    height, width = rgb_u8.shape[:2]
    scale = side_px / max(height, width)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return cv2.resize(rgb_u8, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
