"""Photos of single colors: for the mean-color bundle, red, green and blue are three individuals."""

from pathlib import Path

import numpy as np

from familiar.core.types import Face, Photo
from familiar.embedding.embedder import Embedder
from familiar.gallery.enroll.enroll import enroll
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store
from familiar.photos.decoding import save_photo

SIDE_PX = 32
RGB_U8 = {"red": (200, 20, 20), "green": (20, 200, 20), "blue": (20, 20, 200)}


class SquareDetector:
    """A detector that returns every square of the photo's height, side by side, as a face."""

    def detect(self, photo: Photo) -> list[Face]:
        width, height = photo.size_px
        return [
            Face((float(left_px), 0.0, float(left_px + height), float(height)), None, 1.0)
            for left_px in range(0, width, height)
        ]


def draw_photo(path: Path, *colors: str, shade: int = 0) -> Path:
    """Draw and save one square of each color, side by side. Each `shade` gives another picture."""
    # A chessboard pattern: a plain color counts as fully blurred, and blurred faces are not clustered.
    sharp = np.indices((SIDE_PX, SIDE_PX)).sum(axis=0)[..., None] % 2 * 30
    squares = [np.array(RGB_U8[color]) + shade + sharp for color in colors]
    pixels = np.concatenate(squares, axis=1).astype(np.uint8)
    return save_photo(Photo(pixels, "drawn", (pixels.shape[1], SIDE_PX)), path)


def draw_album(folder: Path, **counts: int) -> list[Path]:
    """Draw an album: `red=3` gives red1.png to red3.png."""
    folder.mkdir(parents=True, exist_ok=True)
    return [
        draw_photo(folder / f"{color}{number}.png", color, shade=number)
        for color, count in counts.items()
        for number in range(1, count + 1)
    ]


def create_gallery(folder: Path, bundle: Path, paths: list[Path]) -> Store:
    """Create and open a gallery of these photos."""
    embedder = Embedder(bundle, threads=1)
    gallery = Store.create(folder, Space.from_metadata(embedder.metadata))
    enroll(gallery, embedder, paths, SquareDetector())
    return gallery
