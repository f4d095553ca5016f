"""The networks that label photos: heads of cats and dogs, whole pets, people's faces, and a dog's landmarks."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import onnxruntime as ort

from familiar.core import types

SSD_PX, YOLOX_PX, DOG_PX = 300, 416, 224
YOLOX_STRIDES = (8, 16, 32)
COCO_PETS = {"cat": 15, "dog": 16}
SAME_OVERLAP = 0.5
YUNET_MIN_PX = 33  # OpenCV 4.14 reads uninitialized memory below
DOG_LANDMARKS = {"left eye": 3, "right eye": 7, "nose": 4}  # of eight; as in the image once sorted by x
DOG_OUTPUTS = 16  # the last numbers of the network's output: (x, y) of eight landmarks


class Box(NamedTuple):
    """A box in pixels with a score, and landmarks if the teacher gives any."""

    xyxy: tuple[float, float, float, float]
    score: float
    label: str
    points: np.ndarray | None = None


class HeadTeacher:
    """SSD-MobileNetV1 trained on Oxford-IIIT Pet: heads of cats and dogs. It also takes faces of people for heads."""

    def __init__(self, folder: Path) -> None:
        self.session = ort.InferenceSession(folder / "detectors" / "pethead_ssd_300.onnx")

    def __call__(self, rgb_u8: np.ndarray, min_score: float) -> list[Box]:
        """Find heads, those of the highest score first."""
        height, width = rgb_u8.shape[:2]
        resized = cv2.resize(rgb_u8, (SSD_PX, SSD_PX), interpolation=cv2.INTER_AREA)
        boxes, scores = self.session.run(None, {"image": resized.transpose(2, 0, 1)[None].astype(np.float32)})
        sizes = np.array([width, height, width, height])
        candidates = [
            Box(tuple(box * sizes), float(row.max()), ("cat", "dog")[int(row.argmax())])
            for box, row in zip(boxes[0], scores[0], strict=True)
            if row.max() >= min_score
        ]
        return suppress(candidates)


class PetTeacher:
    """YOLOX-nano trained on COCO: whole cats and dogs."""

    def __init__(self, folder: Path) -> None:
        self.session = ort.InferenceSession(folder / "detectors" / "yolox_nano_416.onnx")
        self.input = self.session.get_inputs()[0].name
        cells = [
            np.stack(
                [*np.meshgrid(*[np.arange(YOLOX_PX // stride)] * 2), np.full((YOLOX_PX // stride,) * 2, stride)], -1
            )
            for stride in YOLOX_STRIDES
        ]
        self.cells = np.concatenate([each.reshape(-1, 3) for each in cells])

    def __call__(self, rgb_u8: np.ndarray, min_score: float) -> list[Box]:
        """Find cats and dogs, those of the highest score first."""
        height, width = rgb_u8.shape[:2]
        shrink = YOLOX_PX / max(height, width)
        canvas = np.full((YOLOX_PX, YOLOX_PX, 3), 114, np.uint8)
        resized = cv2.resize(rgb_u8, (round(width * shrink), round(height * shrink)))
        canvas[: resized.shape[0], : resized.shape[1]] = resized[..., ::-1]
        (rows,) = self.session.run(None, {self.input: canvas.transpose(2, 0, 1)[None].astype(np.float32)})
        rows, strides = rows[0], self.cells[:, 2:]
        middles = (rows[:, :2] + self.cells[:, :2]) * strides / shrink
        halves = np.exp(rows[:, 2:4]) * strides / shrink / 2
        candidates = [
            Box(tuple(np.concatenate([middle - half, middle + half])), float(score), label)
            for label, kind in COCO_PETS.items()
            for middle, half, score in zip(middles, halves, rows[:, 4] * rows[:, 5 + kind], strict=True)
            if score >= min_score
        ]
        return suppress(candidates)


class PersonTeacher:
    """YuNet: people's faces with five landmarks."""

    def __init__(self, folder: Path) -> None:
        model = np.frombuffer((folder / "yunet" / "yunet_n_640_640.onnx").read_bytes(), np.uint8)
        self.network = cv2.FaceDetectorYN.create("onnx", model, np.empty(0, np.uint8), (64, 64), 0.3)

    def __call__(self, rgb_u8: np.ndarray, min_score: float) -> list[Box]:
        """Find faces, those of the highest score first."""
        padding = [max(0, YUNET_MIN_PX - side) for side in rgb_u8.shape[:2]]
        bgr_u8 = cv2.copyMakeBorder(rgb_u8[..., ::-1], 0, padding[0], 0, padding[1], cv2.BORDER_CONSTANT)
        self.network.setInputSize(bgr_u8.shape[1::-1])
        _, rows = self.network.detect(bgr_u8)
        return suppress(
            Box((row[0], row[1], row[0] + row[2], row[1] + row[3]), float(row[14]), "person", row[4:14].reshape(5, 2))
            for row in ([] if rows is None else rows)
            if row[14] >= min_score
        )


class DogLandmarkTeacher:
    """Eyes and nose of a dog's head; good on heads seen from the front, which the mirror image tells."""

    def __init__(self, folder: Path) -> None:
        from ai_edge_litert.interpreter import Interpreter  # only this teacher needs it

        self.network = Interpreter(str(folder / "detectors" / "dog_landmarks_224.tflite"))
        self.network.allocate_tensors()

    def __call__(self, rgb_u8: np.ndarray, box_xyxy: Sequence[float]) -> tuple[np.ndarray, float]:
        """Return left eye, right eye and nose, and how far those of the mirror image are off, in sides of the box."""
        left, top, right, bottom = box_xyxy
        half = max(right - left, bottom - top) / 2
        corner = np.array([(left + right) / 2 - half, (top + bottom) / 2 - half])
        scale = DOG_PX / (2 * half)
        matrix = np.hstack([np.eye(2) * scale, -scale * corner[:, None]])
        crop = cv2.warpAffine(rgb_u8, matrix, (DOG_PX, DOG_PX), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        points, mirrored = self._predict(crop), self._predict(crop[:, ::-1])
        mirrored[:, 0] = DOG_PX - mirrored[:, 0]
        mirrored[:2] = mirrored[1::-1]
        off = float(np.linalg.norm(points - mirrored, axis=1).max() / DOG_PX)
        return (points + mirrored) / 2 / scale + corner, off

    def _predict(self, crop_u8: np.ndarray) -> np.ndarray:
        self.network.set_tensor(
            self.network.get_input_details()[0]["index"], crop_u8[None].astype(np.float32) / 127.5 - 1
        )
        self.network.invoke()
        numbers = self.network.get_tensor(self.network.get_output_details()[0]["index"])[0, -DOG_OUTPUTS:]
        points = numbers.reshape(-1, 2)[list(DOG_LANDMARKS.values())]
        points[:2] = points[:2][np.argsort(points[:2, 0])]
        return points


def suppress(boxes: Iterable[Box]) -> list[Box]:
    """Keep the best of boxes that overlap."""
    chosen: list[Box] = []
    for box in sorted(boxes, key=lambda box: -box.score):
        if all(overlap(box.xyxy, other.xyxy) < SAME_OVERLAP for other in chosen):
            chosen.append(box)
    return chosen


def overlap(first: Sequence[float], second: Sequence[float]) -> float:
    """Compute the intersection of two boxes over their union."""
    return types.Box(*first).intersection_over_union(types.Box(*second))


def contains(box: Sequence[float], point: Sequence[float]) -> bool:
    """Return whether the point lies in the box."""
    return box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3]


def middle(box: Sequence[float]) -> tuple[float, float]:
    """Return the middle of a box."""
    return (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
