"""A picture of the detector at work on drawn pets: the page of results shows no photo of a real one."""

from pathlib import Path

import cv2
import numpy as np

from familiar.core.types import Face, Photo
from familiar.datasets.synthetic import SyntheticPhoto
from familiar.detection.heads import HeadDetector
from familiar.photos.decoding import save_photo

SCENE_PX = (420, 300)
COLORS = {"cat": (30, 160, 60), "dog": (20, 100, 220), "person": (220, 160, 0)}
# Pets of each scene: species, identity, side in px, left, top, turn in degrees.
SCENES = (
    (("cats", 11, 224, 100, 40, 0),),
    (("dogs", 5, 210, 20, 60, 8), ("cats", 23, 150, 260, 40, -10)),
    (("cats", 31, 60, 60, 120, 0), ("dogs", 17, 52, 300, 80, 0)),
    (("dogs", 8, 290, 60, 5, 20),),
    (("cats", 2, 150, 40, 20, 0), ("cats", 3, 150, 210, 130, -15)),
    (("dogs", 14, 220, -60, 40, 0), ("dogs", 21, 200, 250, 60, 0)),
)


def draw_heads(path: Path, network: Path, columns: int = 3) -> None:
    """Draw all scenes with what a network finds in them."""
    detector = HeadDetector(network=network)
    tiles: list[np.ndarray] = []
    for number, pets in enumerate(SCENES):
        pixels = scene(number, pets)
        detections = detector.detect(Photo(pixels, f"scene {number}", SCENE_PX))
        tiles.append(annotated(pixels, detections))
    rows = [np.hstack(tiles[start : start + columns]) for start in range(0, len(tiles), columns)]
    picture = np.vstack(rows)
    save_photo(Photo(picture, path.name, picture.shape[1::-1]), path)


def scene(number: int, pets: tuple[tuple[str, int, int, int, int, int], ...]) -> np.ndarray:
    """Draw pets, each in an oval of its own photo, before a blurred background."""
    rng = np.random.default_rng(number)
    small = rng.uniform(110, 170, (3, 4, 3)).astype(np.float32)
    pixels = cv2.resize(small, SCENE_PX, interpolation=cv2.INTER_CUBIC)
    for species, identity, side, x, y, turn in pets:
        photo = SyntheticPhoto(species, identity, 0, difficulty=0.3, size_px=256).draw().rgb_u8  # pyright: ignore[reportArgumentType]
        matrix = cv2.getRotationMatrix2D((128, 128), turn, side / 256)
        matrix[:, 2] += np.array([x, y]) + side / 2 - 128
        oval = np.zeros((256, 256), np.float32)
        cv2.ellipse(oval, (128, 128), (112, 120), 0, 0, 360, 1.0, -1)
        oval = cv2.GaussianBlur(oval, (0, 0), 8)
        share = cv2.warpAffine(oval, matrix, SCENE_PX)[..., None]
        pixels = pixels * (1 - share) + cv2.warpAffine(photo, matrix, SCENE_PX).astype(np.float32) * share
    return np.clip(pixels, 0, 255).astype(np.uint8)


def annotated(pixels: np.ndarray, detections: list[Face]) -> np.ndarray:
    """Draw boxes, labels, scores and landmarks."""
    pixels = pixels.copy()
    for detection in detections:
        left, top, right, bottom = map(round, detection.box_xyxy_px)
        color = COLORS[detection.label or "person"]
        cv2.rectangle(pixels, (left, top), (right, bottom), color, 2)
        for x, y in [] if detection.landmarks_px is None else detection.landmarks_px:
            cv2.circle(pixels, (round(float(x)), round(float(y))), 3, (255, 60, 200), -1, cv2.LINE_AA)
        text = f"{detection.label} {detection.score:.2f}"
        cv2.rectangle(pixels, (left, max(top - 18, 0)), (left + 8 * len(text) + 4, max(top, 18)), color, -1)
        cv2.putText(pixels, text, (left + 3, max(top, 18) - 5), 0, 0.45, (255, 255, 255), 1, cv2.LINE_AA)
    return pixels
