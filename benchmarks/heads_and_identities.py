"""From photos as they are to identities: what is gained by looking for the heads, and by how they are cropped.

    heads_and_identities.py PHOTOS [--models pet-mobile pet-nano] [--margins 0 .15 .3]

ROC AUC / recall@1 of the collections of cats and dogs, less their mean, as `left_out.py` has them for whole
photos. A photo without a detected head is taken whole, so that all rows have the same photos. Crops: the box as it is
or made square, with a margin; "level" turns the photo so that the eyes are, where they are seen.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
from left_out import LeftOut, Scores, read_row

from familiar.core.types import Crop, Face, Photo
from familiar.datasets.folders import open_photo
from familiar.detection.alignment import align
from familiar.detection.detectors import WholePhoto
from familiar.detection.heads import HeadDetector
from familiar.embedding.embedder import Embedder

PETS = ("cats23_gpriamo", "dogs29_stdove")
MARGINS = (0.0, 0.15, 0.3)

Cut = Callable[[Photo, Face], tuple[Photo, Face]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS")
    parser.add_argument("--models", nargs="+", default=["pet-mobile", "pet-nano"])
    parser.add_argument("--network", type=Path, help="of the detector; default: the package's")
    parser.add_argument("--margins", nargs="+", type=float, default=MARGINS)
    parser.add_argument("--cuts", nargs="+", choices=list(CUTS), default=list(CUTS))
    options = parser.parse_args()
    detector = HeadDetector(network=options.network) if options.network else HeadDetector()
    tables = {name: read_row(options.photos_folder, name) for name in PETS}
    photos = {name: [open_photo(photo) for photo in table.photos] for name, table in tables.items()}
    detections = {name: [first(detector, photo) for photo in each] for name, each in photos.items()}
    none = {name: [None] * len(each) for name, each in photos.items()}
    for name, each in detections.items():
        heads = [detection for detection in each if detection is not None]
        with_landmarks = sum(detection.landmarks_px is not None for detection in heads)
        print(f"{name}: heads in {len(heads)} of {len(each)} photos, {with_landmarks} with landmarks")
    for model in options.models:
        embedder = Embedder(model)
        print(f"\n| {model} | " + " | ".join(PETS) + " |\n|---|" + "---|" * len(PETS))
        print(f"| whole photos | {cells(embedder, tables, photos, none, whole, 0.0)} |", flush=True)
        for cut in options.cuts:
            for margin in options.margins:
                row = cells(embedder, tables, photos, detections, CUTS[cut], margin)
                print(f"| {cut}, margin {margin:g} | {row} |", flush=True)


def first(detector: HeadDetector, photo: Photo) -> Face | None:
    """Return the best head."""
    return next(iter(detector.detect(photo)), None)


def cells(embedder: Embedder, tables, photos, detections, cut: Cut, margin: float) -> str:
    """Measure all collections with one way to crop."""
    preprocessing = replace(embedder.metadata.preprocessing, margin=margin)
    texts: list[str] = []
    for name, table in tables.items():
        crops: list[Crop] = []
        for row, photo in enumerate(photos[name]):
            detection = detections[name][row]
            if detection is None:
                crops.append(align(photo, WholePhoto().detect(photo)[0], preprocessing))
            else:
                crops.append(align(*cut(photo, detection), preprocessing))
        row = LeftOut(embedder.embed(crops), table.labels, *np.triu_indices(len(table), 1))
        scores = Scores.measure(row.centered)
        texts.append(f"{scores.auc:.3f} / {scores.recall_at_1:.3f}")
    return " | ".join(texts)


def whole(photo: Photo, detection: Face) -> tuple[Photo, Face]:
    """Take the box as it is."""
    return photo, detection


def square(photo: Photo, detection: Face) -> tuple[Photo, Face]:
    """Make the box as wide as it is high, about its middle."""
    left, top, right, bottom = detection.box_xyxy_px
    half = max(right - left, bottom - top) / 2
    x, y = (left + right) / 2, (top + bottom) / 2
    return photo, replace(detection, box_xyxy_px=(x - half, y - half, x + half, y + half))


def level(photo: Photo, detection: Face) -> tuple[Photo, Face]:
    """Turn the photo about the middle of the box so that the eyes are level, and make the box square."""
    if detection.landmarks_px is None:
        return square(photo, detection)
    left, top, right, bottom = detection.box_xyxy_px
    eyes = detection.landmarks_px[1] - detection.landmarks_px[0]
    angle = float(np.degrees(np.arctan2(eyes[1], eyes[0])))
    matrix = cv2.getRotationMatrix2D(((left + right) / 2, (top + bottom) / 2), angle, 1.0)
    turned = cv2.warpAffine(photo.rgb_u8, matrix, photo.size_px, borderMode=cv2.BORDER_REPLICATE)
    return square(Photo(turned, photo.source, photo.source_size_px), detection)


CUTS: dict[str, Cut] = {"box": whole, "square": square, "level": level}

if __name__ == "__main__":
    main()
