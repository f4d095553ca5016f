"""Measure how often the detector's label sends a photo to the bundle of its species, and an album of several species.

    gallery.py species PHOTOS [--pet-model pet-mobile] [--people-model person-mobile]

A photo is routed right if its best face that has a bundle, as `Embedder.face` takes it, has the right species; photos
in which nothing is found are counted apart. The collections: cats23 and dogs29, whole photos and crops around their
heads; DevTest's people, whole photos and tight crops.

The album has every second individual of cats23, dogs29 and ORL, and 60 people of LFW's peopleDevTest. A figure is the
mean of pairwise and B-cubed F of a species' faces, or of all; unassigned faces are individuals of their own. Its photos
are crops, and the species is known: it is that of the folder.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from collection.answers import score
from familiar.core.errors import FamiliarError
from familiar.datasets.folders import DataSpec, IdentityTable, open_photo, read_identity_list
from familiar.detection.detectors import WholePhoto, build_detector
from familiar.embedding.embedder import Embedder
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.enroll.enroll import enroll
from familiar.gallery.same.album import species_clusterings
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store

SETS = {"cat": "cats23_gpriamo", "dog": "dogs29_stdove", "person": "orl_faces"}
ROUTED = (  # collections, and the species that they show
    ("cat", "cats23_gpriamo", ""),
    ("dog", "dogs29_stdove", ""),
    ("dog", "dogfacenet900", ""),
    ("person", "lfw_photos_devtest", ""),
    ("person", "lfw_112", "peopleDevTest.txt"),
    ("person", "orl_faces", ""),
)
MOST_ROUTED = 1_600  # photos of a collection
MORE_PEOPLE = 60


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="gallery.py species", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS")
    parser.add_argument("--pet-model", default="pet-mobile")
    parser.add_argument("--people-model", default="person-mobile")
    options = parser.parse_args(arguments)
    pets, people = Embedder(options.pet_model), Embedder(options.people_model)
    models = Embedder({"cat": pets.bundle, "dog": pets.bundle, "person": people.bundle})
    print("| collection | photos | nothing found | routed right | routed wrong |")
    print("|---|--:|--:|--:|--:|")
    for species, folder, names in ROUTED:
        report_routing(models, species, options.photos_folder / folder, names)
    print("\n| model | all | cats | dogs | people | thresholds |")
    print("|---|---|---|---|---|---|")
    tables = {name: DataSpec((str(options.photos_folder / folder),)).read() for name, folder in SETS.items()}
    album = read_album(options.photos_folder, tables)
    for name, model in ((options.pet_model, pets), (options.people_model, people), ("each its own", models)):
        report_album(name, model, album)


def report_routing(models: Embedder, species: str, folder: Path, names: str) -> None:
    """Print to which species the photos of a collection are sent."""
    table = DataSpec((str(folder),), read_identity_list(folder / names) if names else None).read()
    step = -(-len(table) // MOST_ROUTED)
    photos = table.photos[::step]
    counts = {"nothing": 0, "right": 0, "wrong": 0}
    detector = build_detector("auto")
    for photo in photos:
        try:
            face = models.detect_faces(photo, detector, open_photo=open_photo, choice="best").faces[0]
        except FamiliarError:
            counts["nothing"] += 1
        else:
            counts["right" if face.species == species else "wrong"] += 1
    routed = counts["right"] + counts["wrong"]
    share = f"{counts['right'] / routed:.4f}" if routed else "-"
    name = f"{folder.name}{', ' + Path(names).stem if names else ''}"
    print(f"| {name} | {len(photos):,} | {counts['nothing']} | {share} | {counts['wrong']} |", flush=True)


def read_album(folder: Path, tables: dict[str, IdentityTable]) -> dict[str, tuple[list[Path], list[str]]]:
    """Return the photos of the album by species, and their individuals."""
    lfw = folder / "lfw_112"
    people = DataSpec((str(lfw),), read_identity_list(lfw / "peopleDevTest.txt")).read().with_min_photos(3)
    parts = [(name, table.select_identities(table.names[1::2])) for name, table in tables.items()]
    parts.append(("person", people.select_identities(people.names[:MORE_PEOPLE])))
    album: dict[str, tuple[list[Path], list[str]]] = {name: ([], []) for name in SETS}
    for name, table in parts:
        album[name][0].extend(Path(str(photo)) for photo in table.photos)
        album[name][1].extend(table.names[label] for label in table.labels)
    return album


def report_album(name: str, model: Embedder, album: dict[str, tuple[list[Path], list[str]]]) -> None:
    """Enroll and cluster the album, and print a row."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Store.create(Path(folder, "gallery"), Space.from_model(model)) as gallery,
    ):
        for species, (photos, _) in album.items():
            enroll(gallery, model, photos, WholePhoto(), species=species)
        cluster(gallery)
        labels = np.unique([each for _, names in album.values() for each in names], return_inverse=True)[1]
        rows = np.repeat([*album], [len(photos) for photos, _ in album.values()])
        figures = [score(gallery, labels), *(score(gallery, labels, np.flatnonzero(rows == each)) for each in album)]
        thresholds = ", ".join(f"{each.species or 'all'} {each.threshold:.2f}" for each in species_clusterings(gallery))
        print(f"| {name} | {' | '.join(f'{value:.3f}' for value in figures)} | {thresholds} |", flush=True)
