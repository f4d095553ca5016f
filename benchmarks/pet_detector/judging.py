"""How well the detector finds heads in photos that it did not learn from, and how often it finds one too many."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image

from familiar.core.types import Face, Photo
from familiar.detection.detector import Detector
from familiar.detection.heads import PETS, SEARCH_SIDE_PX, HeadDetector
from familiar.photos.decoding import decode_photo, load_photo
from familiar.photos.listing import find_photos
from pet_detector.labels import LabeledPhoto
from pet_detector.teachers import contains, middle, overlap

MIN_IOU = 0.5
FALSE_SHARE = 1 / 20  # most false detections a photo of people, and of other animals
LOWEST = 0.05
PERSON = 1.15  # at 1 three times as many cats are taken for people; at 1.35 people are missed
SMALL, SMALLER = 1 / 5, 1 / 8  # longer side of a head, in long sides of the photo
HUGE_PX, HUGE_PHOTOS, ORIENTATION = 100_000_000, 25, 274
EDGE, DARK_U8 = 0.01, 50
NOT_HEADS = 0.1  # a detection that overlaps a head, or what may be one, by less is on none


@dataclass
class Findings:
    """What was found in some photos.

    Attributes:
        heads: of each head that was looked for: its label, the source of its photo, its side as a share of the photo's,
            the score of the detection on it (0: none), and that detection's label.
        false: the labels and scores of detections on nothing, of each photo.
        missed: how many heads of each kind were not found.
        taken_for_pets: how many detections on nothing there are in photos of each folder.
    """

    heads: list[tuple[str, str, float, float, str | None]] = field(default_factory=list)
    false: list[list[tuple[str, float]]] = field(default_factory=list)
    missed: Counter[str] = field(default_factory=Counter)
    taken_for_pets: Counter[str] = field(default_factory=Counter)

    def recall(self, label: str | None = None, source: str | None = None, side: tuple[float, float] = (0, 9)) -> str:
        """Return the share of heads with a score of at least .5, and of how many."""
        scores = [
            score
            for its_label, its_source, its_side, score, _ in self.heads
            if label in (None, its_label) and source in (None, its_source) and side[0] <= its_side < side[1]
        ]
        return f"{np.mean([score >= 0.5 for score in scores]):.3f} of {len(scores)}" if scores else "none"

    def false_share(self) -> float:
        """Return false detections of pets a photo, of a score of at least .5."""
        return sum(score >= 0.5 for photo in self.false for _, score in photo) / max(len(self.false), 1)


def judge(network: Path, photos_folder: Path, held_back: Sequence[LabeledPhoto]) -> dict[str, Any]:
    """Measure recall and false detections.

    Args:
        network: the file.
        photos_folder: of the photos.
        held_back: photos that were not learned from. The thresholds were chosen by those of other animals among them:
            their false detections are what was chosen, recall is not.
    """
    animals, pets = from_source(held_back, "other_animals"), [photo for photo in held_back if photo.heads]
    people = people_photos(photos_folder)
    detector = HeadDetector(network=network)
    as_they_are, tight = find(detector, photos_folder, pets), find(detector, photos_folder, pets, tight=True)
    several = find(detector, photos_folder, [photo for photo in pets if pets_in(photo) > 1])
    gray = find(detector, photos_folder, pets, change=to_gray)
    turned = find(detector, photos_folder, pets, change=turned_by_exif)
    huge = find(detector, photos_folder, pets[:HUGE_PHOTOS], change=enlarged)
    on_animals, on_people = (find(detector, photos_folder, each) for each in (animals, people))
    return {
        "recall": {
            "cats, Oxford": as_they_are.recall("cat", "oxford"),
            "dogs, Oxford": as_they_are.recall("dog", "oxford"),
            "cats, Dogs-vs-Cats": as_they_are.recall("cat", "dogsvscats"),
            "the same by their tight boxes": tight.recall("cat", "dogsvscats"),
            "of at most a fifth of the photo's side": as_they_are.recall(side=(0, SMALL)),
            "of at most an eighth": as_they_are.recall(side=(0, SMALLER)),
            "two or more in one photo": several.recall(),
            "in gray": gray.recall(),
            "turned by EXIF": turned.recall(),
            "enlarged to 100 megapixels": huge.recall(),
            "the same as they are": find(detector, photos_folder, pets[:HUGE_PHOTOS]).recall(),
        },
        "labels that are right": float(
            np.mean([its == label for its, _, _, score, label in as_they_are.heads if score >= 0.5])
        ),
        "false detections a photo": {
            "people": on_people.false_share(),
            "other animals": on_animals.false_share(),
            "on photos of pets": as_they_are.false_share(),
        },
        "heads missed": dict(as_they_are.missed.most_common()),
        "taken for pets": dict(on_animals.taken_for_pets.most_common()),
        "photos": {"pets": len(pets), "people": len(people), "other animals": len(animals)},
    }


def choose_thresholds(network: Path, photos_folder: Path, held_back: Sequence[LabeledPhoto]) -> dict[str, float]:
    """Choose a threshold for cats and one for dogs on the photos held back.

    Each is the lowest at which its label has at most half of the false detections that are allowed on people, and on
    other animals. A person's is `PERSON` times the lower of the two: it competes with them.
    """
    detector = FirstLook(network)
    photos = (from_source(held_back, "other_animals"), people_photos(photos_folder))
    without_pets = [find(detector, photos_folder, each) for each in photos]
    thresholds: dict[str, float] = {}
    for label in ("cat", "dog"):
        thresholds[label] = LOWEST
        for findings in without_pets:
            scores = sorted((score for photo in findings.false for its, score in photo if its == label), reverse=True)
            allowed = int(FALSE_SHARE / 2 * len(findings.false))
            if len(scores) > allowed:
                thresholds[label] = max(thresholds[label], scores[allowed] + 1e-3)
    return {**thresholds, "person": PERSON * min(thresholds.values())}


class FirstLook:
    """Detector for pets by the first look alone, with all scores: the further ones depend on the thresholds."""

    def __init__(self, network: Path) -> None:
        self._heads = HeadDetector(network=network, min_score=LOWEST)

    def detect(self, photo: Photo) -> list[Face]:
        """Find the heads of pets in a photo."""
        heads = self._heads._look(photo.rgb_u8, SEARCH_SIDE_PX, photo.size_px)
        return [head for head in heads if head.label in PETS]


def find(
    detector: Detector,
    photos_folder: Path,
    photos: Iterable[LabeledPhoto],
    *,
    tight: bool = False,
    change: Any = lambda photo: photo,
) -> Findings:
    """Detect the pets of photos.

    Args:
        detector: finds heads.
        photos_folder: of the photos.
        photos: their labels.
        tight: match with the tight boxes, where a photo has them, instead of those of whole heads.
        change: applied to each photo before; it may change its size.
    """
    findings = Findings()
    for labeled in photos:
        photo = load_photo(photos_folder / labeled.file)
        changed = change(photo)
        factor = photo.size_px[0] / changed.size_px[0]
        heads, false = match(labeled, [scaled(each, factor) for each in detector.detect(changed)], tight=tight)
        side = max(photo.size_px)
        findings.heads += [
            (
                head.label,
                labeled.source,
                max(head.box[2] - head.box[0], head.box[3] - head.box[1]) / side,
                0.0 if detection is None else detection.score,
                None if detection is None else detection.label,
            )
            for head, detection in heads
        ]
        findings.false.append([(each.label or "", each.score) for each in false])
        findings.missed.update(kind_of_head(photo, head.box) for head, detection in heads if detection is None)
        findings.taken_for_pets.update(Path(labeled.file).parent.name for _ in false)
    return findings


def match(
    photo: LabeledPhoto, detections: Sequence[Face], *, tight: bool = False
) -> tuple[list[tuple[Any, Face | None]], list[Face]]:
    """Match a photo's pets with detections of pets, each with one.

    Returns:
        (head, detection or None) of each; and the detections that are on no head and on nothing that may be one.
    """
    waiting = [each for each in detections if each.label != "person"]
    pairs: list[tuple[Any, Face | None]] = []
    for head in photo.heads:
        if head.label == "person":
            continue
        box = head.tight_box if tight and head.tight_box else head.box
        best = max(waiting, key=lambda each: overlap(each.box_xyxy_px, box), default=None)
        if best is not None and overlap(best.box_xyxy_px, box) >= MIN_IOU:
            waiting.remove(best)
            pairs.append((head, best))
        else:
            pairs.append((head, None))
    known = [*photo.ignored, *(head.box for head in photo.heads)]
    false = [
        each
        for each in waiting
        if all(
            overlap(each.box_xyxy_px, box) < NOT_HEADS and not contains(each.box_xyxy_px, middle(box)) for box in known
        )
    ]
    return pairs, false


def scaled(detection: Face, factor: float) -> Face:
    """Give a detection the pixels of a smaller or larger photo."""
    left, top, right, bottom = (factor * value for value in detection.box_xyxy_px)
    return replace(detection, box_xyxy_px=(left, top, right, bottom))


def kind_of_head(photo: Photo, box: Sequence[float]) -> str:
    """Tell what may have made a head hard to find."""
    width, height = photo.size_px
    left, top, right, bottom = (round(value) for value in box)
    if max(right - left, bottom - top) < SMALL * max(width, height):
        return "small"
    if min(left, top, width - right, height - bottom) < EDGE * max(width, height):
        return "cut off by the photo's edge"
    if photo.rgb_u8[top:bottom, left:right].mean() < DARK_U8:
        return "dark"
    return "turned away, hidden, or for no reason that can be measured"


def from_source(photos: Sequence[LabeledPhoto], source: str) -> list[LabeledPhoto]:
    """Return the photos of a source."""
    return [photo for photo in photos if photo.source == source]


def people_photos(photos_folder: Path) -> list[LabeledPhoto]:
    """Return LFW's DevTest photos, of which none was learned from: there are no pets."""
    return [
        LabeledPhoto(str(path.relative_to(photos_folder)), "people", True)
        for path in find_photos(photos_folder / "lfw_photos_devtest")
    ]


def pets_in(photo: LabeledPhoto) -> int:
    """Count the pets of a photo."""
    return sum(head.label != "person" for head in photo.heads)


def turned_by_exif(photo: Photo) -> Photo:
    """Store a photo on its side in a JPEG whose EXIF data say so, and read it."""
    exif, content = Image.Exif(), BytesIO()
    exif[ORIENTATION] = 6  # to be turned to the right
    Image.fromarray(np.rot90(photo.rgb_u8)).save(content, "JPEG", quality=95, exif=exif)
    return decode_photo(content.getvalue(), photo.source)


def enlarged(photo: Photo) -> Photo:
    """Enlarge a photo to 100 megapixels."""
    width, height = photo.size_px
    scale = math.sqrt(HUGE_PX / (width * height))
    size = int(width * scale), int(height * scale)
    return Photo(cv2.resize(photo.rgb_u8, size, interpolation=cv2.INTER_LINEAR), photo.source, size)


def to_gray(photo: Photo) -> Photo:
    """Take the colors from a photo."""
    gray = cv2.cvtColor(photo.rgb_u8, cv2.COLOR_RGB2GRAY)
    return Photo(np.repeat(gray[..., None], 3, axis=2), photo.source, photo.source_size_px)
