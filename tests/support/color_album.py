"""A gallery of photos of one color: red, green and blue are three individuals, as the mean-color bundle sees them."""

from pathlib import Path

import numpy as np

from familiar.core.types import Detection, Photo
from familiar.embedding.embedder import Embedder
from familiar.gallery.database.connection import Gallery, Space
from familiar.gallery.enrollment.enroll import enroll
from familiar.photos.decoding import save_photo

SIDE_PX = 32
RGB_U8 = {"red": (200, 20, 20), "green": (20, 200, 20), "blue": (20, 20, 200)}


class Squares:
    """As many faces side by side as the photo holds squares."""

    def detect(self, photo: Photo) -> list[Detection]:
        width, height = photo.size_px
        lefts = range(0, width, height)
        return [Detection((float(left), 0.0, float(left + height), float(height)), None, 1.0) for left in lefts]


def photo(path: Path, *colors: str, shade: int = 0) -> Path:
    """One square of each color, side by side; each `shade` is another picture of them."""
    # A chessboard, since one color is as blurred as can be, and what is blurred is not grouped.
    sharp = np.indices((SIDE_PX, SIDE_PX)).sum(axis=0)[..., None] % 2 * 30
    squares = [np.array(RGB_U8[color]) + shade + sharp for color in colors]
    pixels = np.concatenate(squares, axis=1).astype(np.uint8)
    return save_photo(Photo(pixels, "drawn", (pixels.shape[1], SIDE_PX)), path)


def album(folder: Path, **each: int) -> list[Path]:
    """`red=3` is red1.png to red3.png."""
    folder.mkdir(parents=True, exist_ok=True)
    return [
        photo(folder / f"{color}{number}.png", color, shade=number)
        for color, count in each.items()
        for number in range(1, count + 1)
    ]


def gallery_of(folder: Path, bundle: Path, paths: list[Path]) -> Gallery:
    """A new one, open."""
    embedder = Embedder(bundle, threads=1)
    gallery = Gallery.create(folder, Space.from_metadata(embedder.metadata))
    enroll(gallery, embedder, paths, Squares())
    return gallery
