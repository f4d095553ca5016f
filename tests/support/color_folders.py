"""Photos of one color each, where an identity is a color, which the mean-color bundle can distinguish; and patterns."""

from pathlib import Path

import cv2
import numpy as np

from familiar.core.types import Photo
from familiar.photos.decoding import save_photo


def color_folder(root: Path, identities: int = 12, photos: int = 4, spread: float = 25.0, seed: int = 1) -> Path:
    """Write ROOT/Person_00/Person_00_0001.png and so on, named like LFW's photos."""
    generator = np.random.default_rng(seed)
    for identity in range(identities):
        base = generator.integers(20, 230, 3)
        folder = root / f"Person_{identity:02d}"
        folder.mkdir(parents=True)
        for photo in range(1, photos + 1):
            rgb_u8 = np.clip(base + generator.normal(0, spread, 3), 1, 255).astype(np.uint8)
            pixels = np.broadcast_to(rgb_u8, (36, 36, 3)).copy()
            save_photo(Photo(pixels, "drawn", (36, 36)), folder / f"{folder.name}_{photo:04d}.png")
    return root


def pattern_folder(root: Path, identities: int = 12, photos: int = 4) -> Path:
    """Write photos whose identity is a pattern of light and dark, each photo in another color."""
    generator = np.random.default_rng(3)
    for identity in range(identities):
        pattern = generator.uniform(0.2, 1, (4, 4))
        folder = root / f"p{identity:02d}"
        folder.mkdir(parents=True)
        for photo in range(photos):
            tint = generator.uniform(100, 250, 3)
            pixels_u8 = (cv2.resize(pattern, (32, 32))[..., None] * tint).astype(np.uint8)
            save_photo(Photo(pixels_u8, "drawn", (32, 32)), folder / f"{photo}.png")
    return root
