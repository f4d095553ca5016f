"""Write how large and how sharp each photo is, and how it is framed, for `familiar evaluate --slices`.

    photo_attributes.py DATA OUTPUT.csv [--heads pethead_ssd_300.onnx]

`short_side_px` is the shorter side; `sharpness` the standard deviation of the Laplacian of the gray photo at 128 px,
where it does not depend on the size; `head_share`, with `--heads`, the longer side of the most certain head of a pet,
divided by the photo's side: 1 in a close-up, less in a photo of the whole body. `familiar evaluate` divides each into
quartiles.
"""

import argparse
import csv
from pathlib import Path

import cv2
import numpy as np
import onnxruntime as ort
from jaxtyping import UInt8

from familiar import load_photo
from familiar.datasets import DataSpec

SIDE_PX = 128
DETECTOR_SIDE_PX = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("output", type=Path)
    parser.add_argument("--heads", type=Path, help="a detector of pets' heads")
    options = parser.parse_args()
    detector = ort.InferenceSession(options.heads, providers=["CPUExecutionProvider"]) if options.heads else None
    table = DataSpec((options.data,)).read()
    with options.output.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("photo", "short_side_px", "sharpness", *(["head_share"] if detector else [])))
        for photo, label in zip(table.photos, table.labels.tolist(), strict=True):
            assert isinstance(photo, Path)
            pixels = load_photo(photo).rgb_u8
            small = cv2.resize(
                cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), (SIDE_PX, SIDE_PX), interpolation=cv2.INTER_AREA
            )
            sharpness = float(np.std(cv2.Laplacian(small, cv2.CV_64F)))
            share = [f"{head_share(detector, pixels):.3f}"] if detector else []
            writer.writerow((f"{table.names[label]}/{photo.name}", min(pixels.shape[:2]), f"{sharpness:.2f}", *share))


def head_share(detector: ort.InferenceSession, pixels: UInt8[np.ndarray, "h w 3"]) -> float:
    """Return the longer side of the most certain head, as a share of the photo's side."""
    resized = cv2.resize(pixels, (DETECTOR_SIDE_PX, DETECTOR_SIDE_PX), interpolation=cv2.INTER_AREA)
    image = resized.transpose(2, 0, 1)[None].astype(np.float32)
    boxes, scores = (np.asarray(output)[0] for output in detector.run(["boxes", "scores"], {"image": image}))
    left, top, right, bottom = boxes[scores.max(axis=1).argmax()].clip(0, 1).tolist()
    return max(right - left, bottom - top)


if __name__ == "__main__":
    main()
