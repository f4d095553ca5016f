"""Cut out the pets from which networks learn what their teachers see: they need no labels.

    unlabeled_pets.py PHOTOS OUTPUT [--size 256]

PHOTOS contains `pet_heads` with `heads.json`, `pet_photos` and `other_animals`. OUTPUT gets these folders, with one
subfolder per animal: the heads of cats, those of dogs, and the middle squares of the same photos, of others, and of
photos of other animals.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

MARGIN = 0.15  # around a head, in sides of its box
QUALITY = 92


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS")
    parser.add_argument("output", type=Path)
    parser.add_argument("--size", type=int, default=256)
    options = parser.parse_args()
    for name, pets in unlabeled_pets(options.photos_folder).items():
        count = 0
        for number, pet in enumerate(pets):
            folder = options.output / name / f"{number:05}"
            folder.mkdir(parents=True, exist_ok=True)
            pet.thumbnail((options.size, options.size), Image.Resampling.LANCZOS)
            pet.save(folder / "1.jpg", quality=QUALITY)
            count += 1
        print(f"{name}: {count} pets")


def unlabeled_pets(photos_folder: Path) -> dict[str, Iterator[Image.Image]]:
    """Return the animals by the name of their folder."""
    folder = photos_folder / "pet_heads"
    boxes = json.loads((folder / "heads.json").read_text())
    return {
        "cat_heads": heads(folder, [photo for photo in boxes if photo["species"] == "cat"]),
        "dog_heads": heads(folder, [photo for photo in boxes if photo["species"] == "dog"]),
        "head_photos": middles([folder / photo["file"] for photo in boxes]),
        "pet_photos": middles(photos_in(photos_folder / "pet_photos")),
        "other_animals": middles(photos_in(photos_folder / "other_animals")),
    }


def heads(folder: Path, boxes: Sequence[dict[str, Any]]) -> Iterator[Image.Image]:
    """Yield a square around each head."""
    for photo in boxes:
        image = upright(folder / photo["file"])
        for left, top, right, bottom in photo["boxes_xyxy_px"]:
            half = max(right - left, bottom - top) * (0.5 + MARGIN)
            x, y = (left + right) / 2, (top + bottom) / 2
            box = (max(0, x - half), max(0, y - half), min(image.width, x + half), min(image.height, y + half))
            yield image.crop(tuple(map(round, box)))


def middles(photos: Sequence[Path]) -> Iterator[Image.Image]:
    """Yield the middle square of each photo."""
    for photo in photos:
        image = upright(photo)
        side = min(image.size)
        yield ImageOps.fit(image, (side, side))


def photos_in(folder: Path) -> list[Path]:
    """Return all photos below a folder, by name."""
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))


def upright(path: Path) -> Image.Image:
    """Read a photo as it is meant to be seen."""
    return ImageOps.exif_transpose(Image.open(path)).convert("RGB")


if __name__ == "__main__":
    main()
