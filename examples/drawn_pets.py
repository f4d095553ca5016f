"""Draw contact sheets of synthetic pets: one identity per row, at three difficulties. Usage: drawn_pets.py FOLDER"""

import sys
from pathlib import Path

from familiar.core.types import Photo
from familiar.datasets.inspection import contact_sheet
from familiar.datasets.synthetic import SyntheticSource
from familiar.photos.decoding import save_photo

IDENTITIES, PHOTOS_EACH, TILE_PX = 6, 7, 110


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for species in ("cats", "dogs"):
        for difficulty in (0.0, 0.5, 1.0):
            source = SyntheticSource(species, IDENTITIES, PHOTOS_EACH, seed=3, difficulty=difficulty)
            photos = [photo.draw() for identity in range(IDENTITIES) for photo in source.photos(identity)]
            sheet = contact_sheet(photos, PHOTOS_EACH, TILE_PX)
            name = f"{species} at difficulty {difficulty:g}.png"
            print(save_photo(Photo(sheet, name, sheet.shape[1::-1]), folder / name))


if __name__ == "__main__":
    main()
