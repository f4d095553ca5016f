"""Write how large and how sharp each photo is, for `familiar evaluate --slices`.

    photo_attributes.py DATA OUTPUT.csv

`short_side_px` is the shorter side; `sharpness` the standard deviation of the Laplacian of the gray photo at 128 px,
where it does not depend on the size. `familiar evaluate` divides both into quartiles.
"""

import argparse
import csv
from pathlib import Path

import cv2
import numpy as np

from familiar import load_photo
from familiar.datasets import DataSpec

SIDE_PX = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    table = DataSpec((options.data,)).read()
    with options.output.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("photo", "short_side_px", "sharpness"))
        for photo, label in zip(table.photos, table.labels.tolist(), strict=True):
            assert isinstance(photo, Path)
            pixels = load_photo(photo).rgb_u8
            small = cv2.resize(
                cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), (SIDE_PX, SIDE_PX), interpolation=cv2.INTER_AREA
            )
            sharpness = float(np.std(cv2.Laplacian(small, cv2.CV_64F)))
            writer.writerow((f"{table.names[label]}/{photo.name}", min(pixels.shape[:2]), f"{sharpness:.2f}"))


if __name__ == "__main__":
    main()
