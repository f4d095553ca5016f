"""How well the detector finds the heads of photos that it did not learn from, and how often it finds one too many."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from familiar.core.types import Detection, Photo
from pet_detector.labels import LabeledPhoto
from pet_detector.teachers import contains, middle, overlap

MIN_IOU = 0.5


@dataclass(frozen=True)
class Finding:
    """One head that was looked for: the best score of a detection on it (0: none), and whether its label is right."""

    file: str
    label: str
    side_share: float  # its longer side, as a share of the photo's
    score: float
    label_is_right: bool


def find_heads(
    photo: LabeledPhoto, pixels: Photo, detect: Callable[[Photo], Sequence[Detection]], *, tight: bool = False
) -> tuple[list[Finding], list[Detection]]:
    """Match detections with the pets' heads of a photo.

    Args:
        photo: its labels.
        pixels: its pixels.
        detect: finds heads.
        tight: match with the tight boxes, where a photo has them, instead of those of whole heads.

    Returns:
        The heads; and the detections that are on none of them and on nothing ignored.
    """
    detections = [each for each in detect(pixels) if each.label != "person"]
    findings: list[Finding] = []
    used: set[int] = set()
    for head in photo.heads:
        if head.label == "person":
            continue
        box = head.tight_box if tight and head.tight_box else head.box
        overlaps = [overlap(each.box_xyxy_px, box) if index not in used else 0.0 for index, each in enumerate(detections)]
        best = int(np.argmax(overlaps)) if overlaps else -1
        side = max(head.box[2] - head.box[0], head.box[3] - head.box[1]) / max(pixels.size_px)
        if best >= 0 and overlaps[best] >= MIN_IOU:
            used.add(best)
            found = detections[best]
            findings.append(Finding(photo.file, head.label, side, found.score, found.label == head.label))
        else:
            findings.append(Finding(photo.file, head.label, side, 0.0, False))
    known = [*photo.ignored, *(head.box for head in photo.heads)]
    others = [
        each
        for index, each in enumerate(detections)
        if index not in used
        and all(
            overlap(each.box_xyxy_px, box) < 0.1 and not contains(each.box_xyxy_px, middle(box)) for box in known
        )
    ]
    return findings, others
