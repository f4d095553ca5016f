"""Label the photos that the detector learns from and is judged by, and keep all labels in one file."""

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import cv2
import numpy as np

from familiar.datasets.synthetic import SyntheticPhoto, SyntheticSource
from familiar.datasets.synthetic import photo as drawing
from familiar.datasets.synthetic.canvas import make_canvas
from familiar.datasets.synthetic.face import render_face
from familiar.photos.decoding import load_photo
from familiar.photos.listing import find_photos
from pet_detector.teachers import (
    Box,
    DogLandmarkTeacher,
    HeadTeacher,
    PersonTeacher,
    PetTeacher,
    contains,
    middle,
    overlap,
)

HELD_BACK = 3  # one photo of so many, by its file's name
SURE, UNSURE = 0.5, 0.2  # scores of the teachers: a head; something that is neither counted as one nor as none
SURE_PERSON = 0.75
MIN_FACE_PX = 14
SAME_HEAD = 0.4  # overlap of a hand-drawn box and a teacher's
LEVEL = 0.07  # most that a dog's landmarks and those of its mirror image differ by, in sides of the head
# A tight box of a cat's face as a head with ears: medians of the teacher's boxes on the photos that were not held back
# (10 % to 90 %: ±.1, and -.25 to -.03 for the upper edge), in widths and heights of the tight box.
HEAD_OF_TIGHT = (0.008, -0.117, -0.012, -0.048)
# Eyes and nose of the small aligned cat faces, in sides of the photo: read off the mean of 1,500.
CAT_FACE_POINTS = ((0.287, 0.413), (0.727, 0.413), (0.508, 0.780))
LFW_BORDER_PX = 24
# The head in an aligned photo of a dog's face, in sides of the photo: the teacher's medians in 200 photos.
HEAD_OF_DOG_FACE = (0.07, 0.05, 0.93, 0.84)
KEPT_DOGS = Path(__file__).parents[1] / "shipped" / "kept_dogs.txt"
DRAWN_PETS, DRAWN_PHOTOS, DRAWN_SEED = 300, 2, 2719  # of each species, of each pet; no page or test uses this seed


@dataclass
class Head:
    """A head in a photo: its box, and landmarks if known (left eye, right eye, nose, for people corners of the mouth).

    `counts_as_head` is False for a crop of a face whose box is not known: only its landmarks are learned.
    """

    label: str
    box: list[float]
    points: list[list[float]] | None = None
    tight_box: list[float] | None = None
    counts_as_head: bool = True


@dataclass
class LabeledPhoto:
    """A photo with its heads. `ignored`: boxes of what may be a head; nothing is learned there."""

    file: str
    source: str
    held_back: bool
    heads: list[Head] = field(default_factory=list)
    ignored: list[list[float]] = field(default_factory=list)


class Teachers:
    """All of them, opened once."""

    def __init__(self, weights: Path) -> None:
        self.heads, self.pets = HeadTeacher(weights), PetTeacher(weights)
        self.people, self.dogs = PersonTeacher(weights), DogLandmarkTeacher(weights)

    def candidates(self, rgb_u8: np.ndarray, min_pet_score: float = 0.3) -> list[Box]:
        """Return heads whose middle lies in a cat or a dog."""
        pets = self.pets(rgb_u8, min_pet_score)
        return [
            head for head in self.heads(rgb_u8, UNSURE) if any(contains(pet.xyxy, middle(head.xyxy)) for pet in pets)
        ]

    def landmarks(self, rgb_u8: np.ndarray, label: str, box: Sequence[float]) -> list[list[float]] | None:
        """Return the landmarks of a dog that looks at the camera."""
        if label != "dog":
            return None
        points, off = self.dogs(rgb_u8, box)
        return rounded(points) if off < LEVEL and all(contains(box, point) for point in points) else None


def label_photos(photos: Path, weights: Path, output: Path) -> list[LabeledPhoto]:
    """Label all photos, or read the labels that an earlier call has written to the folder `output`.

    Each source's have a file, so that an interruption costs only those of one.
    """
    output.mkdir(parents=True, exist_ok=True)
    teachers = cache(lambda: Teachers(weights))
    sources: dict[str, Callable[[], Iterator[LabeledPhoto]]] = {
        "pet_heads": lambda: pet_heads(photos, teachers()),
        "other_animals": lambda: other_animals(photos),
        "drawn": lambda: drawn_pets(output.parent / "drawn"),
        "cats64": lambda: small_cat_faces(photos),
        "dogfacenet": lambda: dog_faces(photos, teachers()),
        "people": lambda: people(photos, teachers()),
        "pet_photos": lambda: pet_photos(photos, teachers()),
    }
    labeled: list[LabeledPhoto] = []
    for source, label in sources.items():
        file = output / f"{source}.json"
        if not file.exists():
            file.write_text(json.dumps([asdict(photo) for photo in label()]))
        labeled += read_labels(file)
    return labeled


def read_labels(path: Path) -> list[LabeledPhoto]:
    """Read a file of `label_photos`."""
    rows: list[dict[str, Any]] = json.loads(path.read_text())
    return [LabeledPhoto(**{**row, "heads": [Head(**head) for head in row["heads"]]}) for row in rows]


def pet_heads(photos: Path, teachers: Teachers) -> Iterator[LabeledPhoto]:
    """Label photos that have boxes drawn by hand; a further head that a teacher sees is ignored."""
    for row in json.loads((photos / "pet_heads" / "heads.json").read_text()):
        file = f"pet_heads/{row['file']}"
        rgb_u8 = load_photo(photos / file).rgb_u8
        candidates, heads = teachers.candidates(rgb_u8), []
        for drawn in row["boxes_xyxy_px"]:
            same = [box for box in candidates if box.score >= SURE and overlap(box.xyxy, drawn) >= SAME_HEAD]
            is_tight = row["kind"] == "face_tight"
            box = head_of_tight(drawn) if is_tight else drawn
            if is_tight and same and not is_held_back(file):
                box = same[0].xyxy
            points = teachers.landmarks(rgb_u8, row["species"], box)
            heads.append(Head(row["species"], rounded(box), points, drawn if is_tight else None))
        more = [
            box
            for box in candidates
            if all(overlap(box.xyxy, head.tight_box or head.box) < SAME_HEAD / 2 for head in heads)
        ]
        yield with_people(
            LabeledPhoto(
                file, row["file"].split("/")[0], is_held_back(file), heads, [rounded(box.xyxy) for box in more]
            ),
            rgb_u8,
            teachers,
        )


def pet_photos(photos: Path, teachers: Teachers) -> Iterator[LabeledPhoto]:
    """Label photos of one species, as their folder says, with the heads that two teachers agree on."""
    for path in find_photos(photos / "pet_photos"):
        rgb_u8 = load_photo(path).rgb_u8
        candidates = teachers.candidates(rgb_u8)
        label = path.parent.name
        heads = [
            Head(label, rounded(box.xyxy), teachers.landmarks(rgb_u8, label, box.xyxy))
            for box in candidates
            if box.score >= SURE
        ]
        if heads:
            unsure = [rounded(box.xyxy) for box in candidates if box.score < SURE]
            labeled = LabeledPhoto(str(path.relative_to(photos)), "pet_photos", False, heads, unsure)
            yield with_people(labeled, rgb_u8, teachers)


def other_animals(photos: Path) -> Iterator[LabeledPhoto]:
    """Label animals that are neither cats nor dogs: there is nothing to find."""
    for path in find_photos(photos / "other_animals"):
        file = str(path.relative_to(photos))
        yield LabeledPhoto(file, "other_animals", is_held_back(file))


def people(photos: Path, teachers: Teachers) -> Iterator[LabeledPhoto]:
    """Label faces of people that are no part of LFW's DevTest."""
    names = [line.split("\t")[0] for line in (photos / "lfw_112" / "peopleDevTrain.txt").read_text().splitlines()[1:]]
    lfw = [path for name in names for path in sorted((photos / "lfw_112" / name).iterdir())]
    for source, paths, border in (
        ("lfw", lfw, LFW_BORDER_PX),
        ("orl", find_photos(photos / "orl_faces"), LFW_BORDER_PX),
    ):
        for path in paths:
            rgb_u8 = cv2.copyMakeBorder(load_photo(path).rgb_u8, *[border] * 4, cv2.BORDER_REPLICATE)
            faces = teachers.people(rgb_u8, SURE_PERSON)[:1]
            heads = [
                Head("person", rounded(np.array(face.xyxy) - border), rounded(np.array(face.points) - border))
                for face in faces
            ]
            if heads:
                yield LabeledPhoto(str(path.relative_to(photos)), source, False, heads)


def dog_faces(photos: Path, teachers: Teachers) -> Iterator[LabeledPhoto]:
    """Label aligned faces of dogs that are not kept for judging; the box is the teacher's, if it sees the head."""
    set_aside = kept_dogs()
    for path in find_photos(photos / "dogfacenet900"):
        if path.parent.name in set_aside:
            continue
        rgb_u8 = load_photo(path).rgb_u8
        height, width = rgb_u8.shape[:2]
        box = list(np.array(HEAD_OF_DOG_FACE) * [width, height, width, height])
        seen = [head.xyxy for head in teachers.heads(rgb_u8, SURE) if overlap(head.xyxy, box) >= SAME_HEAD]
        box = rounded(seen[0] if seen else box)
        head = Head("dog", box, teachers.landmarks(rgb_u8, "dog", box))
        yield LabeledPhoto(str(path.relative_to(photos)), "dogfacenet", False, [head])


def kept_dogs() -> frozenset[str]:
    """Return the names of the folders of dogs that nothing is trained on."""
    lines = KEPT_DOGS.read_text().splitlines()
    return frozenset(line for line in lines if not line.startswith("#"))


def small_cat_faces(photos: Path) -> Iterator[LabeledPhoto]:
    """Label aligned faces of cats with landmarks, which on average are where they are in their mean."""
    for path in find_photos(photos / "cats64_strangers"):
        height, width = load_photo(path).rgb_u8.shape[:2]
        points = rounded(np.array(CAT_FACE_POINTS) * [width, height])
        head = Head("cat", [0.0, 0.0, width, height], points, counts_as_head=False)
        yield LabeledPhoto(str(path.relative_to(photos)), "cats64", False, [head])


def drawn_pets(folder: Path) -> Iterator[LabeledPhoto]:
    """Draw synthetic pets, whose heads and landmarks are known."""
    for species, label in (("cats", "cat"), ("dogs", "dog")):
        source = SyntheticSource(species, DRAWN_PETS, DRAWN_PHOTOS, DRAWN_SEED)
        for identity in range(DRAWN_PETS):
            for photo in source.photos(identity):
                path = folder / species / f"{identity:04}-{photo.index}.jpg"
                path.parent.mkdir(parents=True, exist_ok=True)
                rgb_u8, head = draw_with_head(photo, label)
                cv2.imwrite(str(path), rgb_u8[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 92])
                yield LabeledPhoto(str(path.resolve()), "drawn", False, [head])


def draw_with_head(photo: SyntheticPhoto, label: str) -> tuple[np.ndarray, Head]:
    """Draw a photo; return it with the head as it lies after the pose, which is known only while drawing."""
    poses: list[tuple[np.ndarray, np.ndarray]] = []

    def pose_map(*arguments: Any) -> tuple[np.ndarray, np.ndarray]:
        poses.append(original(*arguments))
        return poses[-1]

    original = drawing._pose_map
    with patch.object(drawing, "_pose_map", pose_map):
        rgb_u8 = photo.draw().rgb_u8
    face = render_face(photo.seed, photo.species, photo.identity, photo.difficulty, photo.size_px)
    columns, rows = poses[0]
    y, x = np.nonzero(cv2.remap(face.head, columns, rows, cv2.INTER_LINEAR) > 0.5)
    pet = face.traits
    parts = [(-pet.eye_spacing, pet.eye_y), (pet.eye_spacing, pet.eye_y), (0.0, pet.nose_y)]
    points: list[list[float]] = []
    for column, row in make_canvas(photo.size_px).to_px(np.array(parts, np.float32)):
        nearest = int(np.argmin((columns - column) ** 2 + (rows - row) ** 2))
        points.append([nearest % photo.size_px + 0.5, nearest // photo.size_px + 0.5])
    return rgb_u8, Head(label, [float(x.min()), float(y.min()), x.max() + 1.0, y.max() + 1.0], points)


def with_people(photo: LabeledPhoto, rgb_u8: np.ndarray, teachers: Teachers) -> LabeledPhoto:
    """Add the people beside the pets. YuNet also finds faces of pets, so that what is near a pet's is none."""
    for face in teachers.people(rgb_u8, UNSURE):
        near = [*(head.box for head in photo.heads if head.label != "person"), *photo.ignored]
        if any(overlap(face.xyxy, box) > 0.1 or contains(box, middle(face.xyxy)) for box in near):
            continue
        if face.score >= SURE_PERSON and face.xyxy[2] - face.xyxy[0] >= MIN_FACE_PX:
            photo.heads.append(Head("person", rounded(face.xyxy), rounded(np.array(face.points))))
        else:
            photo.ignored.append(rounded(face.xyxy))
    return photo


def head_of_tight(box: Sequence[float]) -> list[float]:
    """Bring a tight box of a cat's face to the convention of heads."""
    left, top, right, bottom = box
    width, height = right - left, bottom - top
    shifts = np.array(HEAD_OF_TIGHT) * [width, height, width, height]
    return list(np.array(box) + shifts)


def is_held_back(file: str) -> bool:
    """Return whether a photo judges the detector, and so is not learned from."""
    return zlib.crc32(file.encode()) % HELD_BACK == 0


def rounded(values: Any) -> Any:
    """Return nested lists of numbers with one decimal."""
    return np.round(np.asarray(values, float), 1).tolist()
