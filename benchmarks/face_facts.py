"""Measure sharpness, size and pose of the best face in each photo, for `familiar evaluate --slices`.

    face_facts.py PHOTOS_FOLDER --output facts.csv
    familiar evaluate person-nano PHOTOS_FOLDER --slices facts.csv

YuNet (`familiar download yunet`) finds the faces. A photo without one has no row.
"""

import argparse
import csv
from pathlib import Path

import cv2
import numpy as np

from familiar import Face, Photo, align, build_detector, find_photos, load_photo
from familiar.photos.preprocessing import Preprocessing

SIDE_PX = 112  # sharpness is measured in crops of this size, so that it does not depend on the face's


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS_FOLDER")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    detector = build_detector("yunet")
    with args.output.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["photo", "sharpness", "eye_distance_px", "turn"])
        for path in find_photos(args.photos_folder):
            photo = load_photo(path)
            faces = detector.detect(photo)
            if faces:
                rows.writerow([f"{path.parent.name}/{path.name}", *measure(photo, faces[0])])


def measure(photo: Photo, face: Face) -> tuple[str, str, str]:
    """Return sharpness, distance of the eyes in px, and by how many eye distances the nose is off their middle.

    Sharpness: standard deviation of the Laplacian, in gray levels.
    """
    crop = align(photo, face, Preprocessing(size_px=SIDE_PX))
    laplacian = cv2.Laplacian(cv2.cvtColor(crop.rgb_u8, cv2.COLOR_RGB2GRAY), cv2.CV_32F)
    assert face.landmarks_px is not None, "YuNet finds landmarks"
    left, right, nose = face.landmarks_px[:3]
    between, distance = (left + right) / 2, float(np.linalg.norm(right - left))
    turn = abs(float((nose - between) @ (right - left))) / distance**2
    return f"{laplacian.std():.2f}", f"{distance:.1f}", f"{turn:.3f}"


if __name__ == "__main__":
    main()
