"""Measure light, sharpness, size and pose of the best face in each photo, for `familiar evaluate --slices`.

    face_facts.py DATA [--detector auto] --output facts.csv
    familiar evaluate person-nano DATA --slices facts.csv

A photo without a face has no row. `familiar evaluate` divides each column of numbers into quartiles:

- `brightness`: mean gray level of the crop, 0 to 255.
- `sharpness`: standard deviation of the Laplacian of the crop at 112 px, where it does not depend on the face's size.
- `face_share`: longer side of the box, in shorter sides of the photo: about 1 in a close-up, less where a pet is shown
  with its body.
- `eye_distance_px`, and `turn`: by how many distances of the eyes the nose is off their middle. Only of people: the
  landmarks of pets do not follow a turned head.
"""

import argparse
import csv
from pathlib import Path

import cv2
import numpy as np

from familiar import Face, Photo, align, build_detector, load_photo
from familiar.datasets import DataSpec
from familiar.photos.preprocessing import Preprocessing

SIDE_PX = 112
COLUMNS = ("photo", "brightness", "sharpness", "face_share", "eye_distance_px", "turn")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", metavar="DATA", help="folder of identities")
    parser.add_argument("--detector", default="auto")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    detector = build_detector(args.detector)
    table = DataSpec((args.data,)).read()
    with args.output.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        for path, label in zip(table.photos, table.labels.tolist(), strict=True):
            assert isinstance(path, Path)
            photo = load_photo(path)
            if faces := detector.detect(photo):
                rows.writerow([f"{table.names[label]}/{path.name}", *measure(photo, faces[0])])


def measure(photo: Photo, face: Face) -> list[str]:
    """Return the values of a face, in the order of the columns."""
    gray = cv2.cvtColor(align(photo, face, Preprocessing(size_px=SIDE_PX)).rgb_u8, cv2.COLOR_RGB2GRAY)
    left, top, right, bottom = face.box_xyxy_px
    share = max(right - left, bottom - top) / min(photo.size_px)
    values = [f"{gray.mean():.1f}", f"{cv2.Laplacian(gray, cv2.CV_32F).std():.2f}", f"{share:.3f}"]
    if face.landmarks_px is None or face.label != "person":
        return [*values, "", ""]
    left_eye, right_eye, nose = face.landmarks_px[:3]
    between, distance = (left_eye + right_eye) / 2, float(np.linalg.norm(right_eye - left_eye))
    turn = abs(float((nose - between) @ (right_eye - left_eye))) / distance**2
    return [*values, f"{distance:.1f}", f"{turn:.3f}"]


if __name__ == "__main__":
    main()
