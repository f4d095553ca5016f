"""Scenes to learn from: photos zoomed, turned and joined, with what the network should say of each of their cells."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import cv2
import numpy as np
import torch
from torch.utils.data import Dataset

from familiar.detection.heads import LABELS
from familiar.photos.decoding import load_photo
from pet_detector.labels import Head, LabeledPhoto
from pet_detector.network import POINTS, STRIDE_PX

SCENE_PX = 320
JOINED, ZOOMED = 0.35, 0.6  # share of scenes made of four photos, and of photos that are zoomed to a head
JOINED_AT_LAST, ZOOMED_AT_LAST = 0.2, 0.35  # in the last part of training: most photos as they are
SMALLEST_PX, MAX_ENLARGED = 16, 3.0
FILLED = 0.3  # of the photos that are zoomed: the head fills the tile, and may be cut off by its edges
FILLED_SHARES = (0.85, 1.35)  # the head's longer side, in the tile's shorter sides
TURNED = 0.12  # share of photos that lie on their side or, seldom, upside down
QUARTER_TURNS = (1, 1, 3, 3, 2)
TURN_DEG, MAX_TURN_DEG = 8.0, 25.0  # standard deviation, and the limit
VISIBLE, BARELY_VISIBLE = 0.5, 0.1  # share of a box that lies in the scene: a head; something that is not counted
SPREAD = 0.54  # of the cells that tell a head's box, in halves of its sides (TTFNet's alpha)
# How often photos of a source are drawn.
DRAWN = {
    "oxford": 3.0,
    "dogsvscats": 2.0,
    "pet_photos": 1.0,
    "other_animals": 7.0,
    "lfw": 0.2,
    "orl": 0.3,
    "dogfacenet": 0.3,
    "cats64": 0.1,
    "drawn": 0.4,
}
DOGS_DRAWN = 1.5  # there are fewer dogs than cats
TAKEN_FOR_PETS = {"rabbit": 2.5, "guinea_pig": 2.5, "hamster": 1.5}  # are drawn so much more often than other animals


@dataclass
class Scene:
    """Pixels, heads whose boxes and landmarks (NaN: not known) are in them, and boxes of what is not counted."""

    rgb_u8: np.ndarray
    heads: list[Head] = field(default_factory=list)
    ignored: list[list[float]] = field(default_factory=list)


class Scenes(Dataset[tuple[torch.Tensor, ...]]):
    """Endlessly many scenes, each drawn by its index and the seed alone."""

    def __init__(
        self, photos_folder: Path, photos: Sequence[LabeledPhoto], count: int, seed: int = 0, *, at_last: bool = False
    ) -> None:
        self.joined, self.zoomed = (JOINED_AT_LAST, ZOOMED_AT_LAST) if at_last else (JOINED, ZOOMED)
        self.photos = [photo for photo in photos if not photo.held_back]
        self.pixels = [load_photo(photos_folder / photo.file).rgb_u8 for photo in self.photos]
        drawn = np.array([how_often(photo) for photo in self.photos])
        self.shares, self.count, self.seed = drawn / drawn.sum(), count, seed

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
        scene = self.scene(index)
        return torch.from_numpy(scene.rgb_u8), *map(torch.from_numpy, targets(scene))

    def scene(self, index: int) -> Scene:
        """Draw one scene."""
        rng = np.random.default_rng((self.seed, index))
        side = SCENE_PX
        scene = Scene(np.zeros((side, side, 3), np.uint8))
        if rng.random() < self.joined:
            x, y = (int(side * rng.uniform(0.3, 0.7)) for _ in range(2))
            tiles = [(0, 0, x, y), (x, 0, side, y), (0, y, x, side), (x, y, side, side)]
        else:
            tiles = [(0, 0, side, side)]
        for left, top, right, bottom in tiles:
            number = rng.choice(len(self.photos), p=self.shares)
            photo, pixels = self.photos[number], self.pixels[number]
            if rng.random() < TURNED:
                photo, pixels = quarter_turned(photo, pixels, int(rng.choice(QUARTER_TURNS)))
            tile = view(photo, pixels, (right - left, bottom - top), rng, zoomed=self.zoomed)
            scene.rgb_u8[top:bottom, left:right] = tile.rgb_u8
            shift = np.array([left, top])
            scene.heads += [
                Head(
                    head.label,
                    moved_box(head.box, shift),
                    None if head.points is None else (np.array(head.points) + shift).tolist(),
                    counts_as_head=head.counts_as_head,
                )
                for head in tile.heads
            ]
            scene.ignored += [moved_box(box, shift) for box in tile.ignored]
        scene.rgb_u8 = recolored(scene.rgb_u8, rng)
        return scene


def how_often(photo: LabeledPhoto) -> float:
    """Return how often a photo is drawn, compared with one of `pet_photos`."""
    is_dog = any(head.label == "dog" for head in photo.heads)
    animal = TAKEN_FOR_PETS.get(Path(photo.file).parent.name, 1.0)
    return DRAWN[photo.source] * (DOGS_DRAWN if is_dog else animal)


def quarter_turned(photo: LabeledPhoto, rgb_u8: np.ndarray, turns: int) -> tuple[LabeledPhoto, np.ndarray]:
    """Turn a photo with its labels counterclockwise by so many right angles."""
    for _ in range(turns):
        width = rgb_u8.shape[1]
        photo = replace(
            photo,
            heads=[
                replace(
                    head,
                    box=turned_left(head.box, width),
                    points=None if head.points is None else [[y, width - x] for x, y in head.points],
                )
                for head in photo.heads
            ],
            ignored=[turned_left(box, width) for box in photo.ignored],
        )
        rgb_u8 = np.rot90(rgb_u8)
    return photo, np.ascontiguousarray(rgb_u8)


def turned_left(box: Sequence[float], width: float) -> list[float]:
    """Return where a box lies after a photo of this width is turned counterclockwise by a right angle."""
    left, top, right, bottom = box
    return [top, width - right, bottom, width - left]


def view(
    photo: LabeledPhoto,
    rgb_u8: np.ndarray,
    size: tuple[int, int],
    rng: np.random.Generator,
    *,
    zoomed: float = ZOOMED,
) -> Scene:
    """Zoom, turn and mirror a photo, and cut a tile of `size` (width, height) from it.

    `zoomed` is the share of photos of which a head gets a random size; others are about as large as the tile.
    """
    height, width = rgb_u8.shape[:2]
    fit = min(size[0] / width, size[1] / height)
    scale = fit * np.exp(rng.uniform(np.log(0.7), np.log(1.5)))
    anchor, target_px = np.array([width, height]) / 2, np.array(size) * rng.uniform(0.35, 0.65, 2)
    if photo.heads and rng.random() < zoomed:
        head = photo.heads[rng.integers(len(photo.heads))]
        left, top, right, bottom = head.box
        side = max(right - left, bottom - top, 1.0)
        if rng.random() < FILLED:
            target = min(size) * rng.uniform(*FILLED_SHARES)
        else:
            target = np.exp(rng.uniform(np.log(SMALLEST_PX), np.log(min(size) * 1.05)))
        scale = min(target / side, MAX_ENLARGED)
        anchor = np.array([(left + right) / 2, (top + bottom) / 2])
        room = np.clip(side * scale / 2 / np.array(size), 0, 0.45)
        target_px = np.array(size) * rng.uniform(room, 1 - room)
    turn = np.deg2rad(np.clip(rng.normal(0, TURN_DEG), -MAX_TURN_DEG, MAX_TURN_DEG))
    stretch = np.exp(rng.normal(0, 0.06))
    mirrored = rng.random() < 0.5
    turned = scale * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    linear = turned @ np.diag([(-1 if mirrored else 1) * stretch, 1 / stretch])
    matrix = np.hstack([linear, (target_px - linear @ anchor)[:, None]])
    border = (
        cv2.BORDER_REPLICATE
        if photo.source in ("lfw", "orl", "cats64", "dogfacenet") and rng.random() < 0.5
        else cv2.BORDER_CONSTANT
    )
    fill = tuple(int(value) for value in (rng.integers(0, 256, 3) if rng.random() < 0.7 else (0, 0, 0)))
    if scale < 0.5:
        rgb_u8 = cv2.GaussianBlur(rgb_u8, (0, 0), 0.35 / scale)
    # In OpenCV's coordinates the center of the first pixel is 0.
    by_centers = np.hstack([linear, (matrix[:, 2] + linear @ [0.5, 0.5] - 0.5)[:, None]])
    pixels = cv2.warpAffine(rgb_u8, by_centers, size, flags=cv2.INTER_LINEAR, borderMode=border, borderValue=fill)
    scene = Scene(pixels)
    factors = scale * np.array([stretch, 1 / stretch])
    for head in photo.heads:
        box, visible = clipped(turned_box(head.box, matrix, factors), size)
        if visible < BARELY_VISIBLE:
            continue
        if visible < VISIBLE:
            scene.ignored.append(box)
            continue
        points = None if head.points is None else turned_points(head.points, matrix, size, mirrored=mirrored)
        scene.heads.append(Head(head.label, box, points, counts_as_head=head.counts_as_head))
    for ignored in photo.ignored:
        box, visible = clipped(turned_box(ignored, matrix, factors), size)
        if visible > 0:
            scene.ignored.append(box)
    return scene


def turned_box(box: Sequence[float], matrix: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Move the middle of a box, and scale its sides: a head that is turned a little has about the same box."""
    corners = np.array(box, float).reshape(2, 2)
    middle = matrix[:, :2] @ corners.mean(0) + matrix[:, 2]
    half = (corners[1] - corners[0]) / 2 * factors
    return np.concatenate([middle - half, middle + half])


def turned_points(
    points: Sequence[Sequence[float]], matrix: np.ndarray, size: tuple[int, int], *, mirrored: bool
) -> list[list[float]]:
    """Move landmarks; in a mirror image left and right change places. Those outside are NaN."""
    moved = np.array(points, float) @ matrix[:, :2].T + matrix[:, 2]
    if mirrored:
        moved = moved[[1, 0, 2, 4, 3][: len(moved)]]
    moved[((moved < 0) | (moved >= np.array(size))).any(1)] = np.nan
    return moved.tolist()


def clipped(box: np.ndarray, size: tuple[int, int]) -> tuple[list[float], float]:
    """Clip a box to a tile; return it with the share of its area that is left."""
    inside = np.clip(box, 0, np.array([*size, *size]))
    area = (inside[2] - inside[0]) * (inside[3] - inside[1])
    return inside.tolist(), float(area / max((box[2] - box[0]) * (box[3] - box[1]), 1e-6))


def moved_box(box: Sequence[float], shift: np.ndarray) -> list[float]:
    """Shift a box."""
    return (np.array(box) + np.tile(shift, 2)).tolist()


def recolored(rgb_u8: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Change light, color, sharpness and compression."""
    if rng.random() < 0.15:
        rgb_u8 = np.repeat(cv2.cvtColor(rgb_u8, cv2.COLOR_RGB2GRAY)[..., None], 3, 2)
    if rng.random() < 0.2:
        factor = rng.uniform(0.35, 0.9)
        small = cv2.resize(rgb_u8, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA)
        rgb_u8 = cv2.resize(small, rgb_u8.shape[1::-1], interpolation=cv2.INTER_LINEAR)
    if rng.random() < 0.2:
        quality = [cv2.IMWRITE_JPEG_QUALITY, int(rng.integers(20, 80))]
        rgb_u8 = cv2.imdecode(cv2.imencode(".jpg", rgb_u8, quality)[1], cv2.IMREAD_COLOR)
    steps = np.arange(256) / 255
    gamma, contrast, brightness = np.exp(rng.normal(0, 0.25)), np.exp(rng.normal(0, 0.2)), rng.normal(0, 0.07)
    curves = [(steps**gamma - 0.5) * contrast + 0.5 + brightness + tint for tint in rng.normal(0, 0.04, 3)]
    table = (np.clip(np.stack(curves, -1), 0, 1) * 255).astype(np.uint8)
    return np.ascontiguousarray(cv2.LUT(rgb_u8, table[None]))


def targets(scene: Scene) -> tuple[np.ndarray, ...]:
    """Compute what each cell should say.

    Returns:
        heat: "l h w", 1 where the middle of a head is, falling off around it;
        counted: "h w", 0 where nothing is learned;
        boxes: "4 h w", and box_weights "h w", which sum to 1 for each head;
        points: "2p h w", and their weights, of the same shape.
    """
    height, width = (side // STRIDE_PX for side in scene.rgb_u8.shape[:2])
    heat = np.zeros((len(LABELS), height, width), np.float32)
    counted = np.ones((height, width), np.float32)
    boxes, box_weights = np.zeros((4, height, width), np.float32), np.zeros((height, width), np.float32)
    points, point_weights = (np.zeros((2 * POINTS, height, width), np.float32) for _ in range(2))
    for box in [*scene.ignored, *(head.box for head in scene.heads if not head.counts_as_head)]:
        left, top, right, bottom = (np.array(box) / STRIDE_PX).round().astype(int)
        counted[max(top, 0) : bottom + 1, max(left, 0) : right + 1] = 0
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    # Of heads that overlap, the smaller one is in front.
    for head in sorted(scene.heads, key=lambda head: -area(head.box)):
        left, top, right, bottom = np.array(head.box) / STRIDE_PX
        column = min(max(int((left + right) / 2), 0), width - 1)
        row = min(max(int((top + bottom) / 2), 0), height - 1)
        reach_x, reach_y = (int((right - left) / 2 * SPREAD), int((bottom - top) / 2 * SPREAD))
        near = np.exp(
            -((x - column) ** 2) / (2 * ((2 * reach_x + 1) / 6) ** 2)
            - (y - row) ** 2 / (2 * ((2 * reach_y + 1) / 6) ** 2)
        ).astype(np.float32)
        near[(abs(x - column) > reach_x) | (abs(y - row) > reach_y)] = 0
        cells = near > 0
        weights = near / near.sum()
        if head.counts_as_head:
            channel = heat[LABELS.index(head.label)]
            np.maximum(channel, near, out=channel)
            counted[cells] = 1
            boxes[:, cells] = np.array(head.box, np.float32)[:, None]
        box_weights[cells] = weights[cells] if head.counts_as_head else 0
        point_weights[:, cells] = 0
        if head.points is not None:
            known = np.array(head.points, np.float32).reshape(-1)
            valid = ~np.isnan(known)
            number = len(known)
            points[:number, cells] = np.where(valid, known, 0)[:, None]
            side = np.sqrt(area(head.box))
            point_weights[:number, cells] = valid[:, None] * weights[cells] / side / max(valid.sum(), 1)
    return heat, counted, boxes, box_weights, points, point_weights


def area(box: Sequence[float]) -> float:
    """Compute the area of a box, at least 1."""
    return max((box[2] - box[0]) * (box[3] - box[1]), 1.0)
