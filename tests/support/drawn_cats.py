"""Photos of drawn cats, in a folder for each."""

from pathlib import Path

from familiar.datasets.synthetic import SyntheticSource
from familiar.photos.decoding import save_photo


def draw_cats(folder: Path, cats: int, photos: int) -> None:
    """Draw FOLDER/cat-0/0.png and so on."""
    source = SyntheticSource.parse(f"synthetic:cats:{cats}x{photos}")
    for cat in range(cats):
        (folder / f"cat-{cat}").mkdir(parents=True, exist_ok=True)
        for index, photo in enumerate(source.photos(cat)):
            save_photo(photo.draw(), folder / f"cat-{cat}" / f"{index}.png")
