"""Group the album of a family, pets and people, without any correction, as the commands do it with no option given.

    family_album.py PHOTOS [--people sface.onnx ...] [--seed 0]

PHOTOS contains the collections. The album has 20 people of LFW's DevTest with at least five photos, whole ones, five
cats and five dogs, at most ten photos each: drawn by the seed. It is created with no model named, and with the pets'
model and each of those of `--people` besides. All is clustered with default settings. A photo counts with its best
face; one in which nothing was found is a group of its own.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from people import gallery_clusters

from familiar import metrics
from familiar.datasets import IdentityTable, scan_folders

PEOPLE, MIN_PHOTOS = 20, 5
PETS, MAX_PHOTOS = 5, 10  # of each species; photos of an individual
FOLDERS = {"cat": "cats23_gpriamo", "dog": "dogs29_stdove", "person": "lfw_photos_devtest"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS")
    parser.add_argument("--people", nargs="+", default=[], metavar="BUNDLE", help="of people")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    album = draw_album(options.photos_folder, options.seed)
    photos = [Path(str(photo)) for table in album.values() for photo in table.photos]
    names = [f"{species}/{table.names[label]}" for species, table in album.items() for label in table.labels]
    labels = np.unique(names, return_inverse=True)[1]
    species = np.array([name.partition("/")[0] for name in names])
    counts = ", ".join(f"{len(table.names)} of {species}, {len(table)} photos" for species, table in album.items())
    print(f"Individuals of the album, seed {options.seed}: {counts}\n")
    print("| models | all | cats | dogs | people | people, pairwise | groups of people / true |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for number, models in enumerate([None, *(["pet-mobile", people] for people in options.people)]):
            groups = gallery_clusters(Path(folder, f"gallery {number}"), models, None, photos)
            rows = [np.arange(len(photos)), *(np.flatnonzero(species == each) for each in FOLDERS)]
            figures = [f"{metrics.bcubed(labels[each], groups[each]).f:.3f}" for each in rows]
            pairwise = metrics.pairwise(labels[rows[-1]], groups[rows[-1]]).f
            sizes = f"{len(np.unique(groups[rows[-1]]))} / {len(np.unique(labels[rows[-1]]))}"
            print(
                f"| {', '.join(models or ['none named'])} | {' | '.join(figures)} | {pairwise:.3f} | {sizes} |",
                flush=True,
            )


def draw_album(photos_folder: Path, seed: int) -> dict[str, IdentityTable]:
    """Draw individuals of each species, and photos of theirs if there are many."""
    draw = np.random.default_rng(seed)
    album = {}
    for species, folder in FOLDERS.items():
        table = scan_folders(photos_folder / folder).with_min_photos(MIN_PHOTOS)
        count = PEOPLE if species == "person" else PETS
        chosen = sorted(draw.permutation(len(table.names))[:count].tolist())
        album[species] = table.select_identities([table.names[each] for each in chosen]).with_max_photos(MAX_PHOTOS)
    return album


if __name__ == "__main__":
    main()
