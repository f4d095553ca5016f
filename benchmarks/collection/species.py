"""Measure one album of several species: with a bundle for all of them, and with a router.

    gallery.py species PHOTOS [--pet-model pet-mobile] [--people-model person-mobile]

The album has every second individual of cats23, dogs29 and ORL, and 60 people of LFW's peopleDevTest. The router's
classifier is fitted on the other individuals of the first three. A figure is the mean of pairwise and B-cubed F of a
species' faces, or of all; unassigned faces are individuals of their own. The photos are crops already.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from familiar.training.species import fit_on_photos

from collection.answers import score
from familiar.datasets.folders import DataSpec, IdentityTable, read_identity_list
from familiar.detection.detectors import WholePhoto
from familiar.embedding.embedder import Embedder

# TODO RoutedEmbedder
from familiar.gallery.clustering.album import load_album
from familiar.gallery.clustering.cluster import cluster
from familiar.gallery.enrollment.enroll import enroll
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store

SETS = {"cat": "cats23_gpriamo", "dog": "dogs29_stdove", "person": "orl_faces"}
MORE_PEOPLE = 60
FITTED_PHOTOS = 10  # at most, of an individual


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="gallery.py species", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS")
    parser.add_argument("--pet-model", default="pet-mobile")
    parser.add_argument("--people-model", default="person-mobile")
    options = parser.parse_args(arguments)
    pets, people = Embedder(options.pet_model), Embedder(options.people_model)
    tables = {name: DataSpec((str(options.photos_folder / folder),)).read() for name, folder in SETS.items()}
    fitted = {
        name: table.select_identities(table.names[::2]).with_max_photos(FITTED_PHOTOS) for name, table in tables.items()
    }
    classifier, _ = fit_on_photos(pets, fitted, WholePhoto())
    router = RoutedEmbedder(pets, classifier, {"cat": pets, "dog": pets, "person": people})
    photos, labels, species = read_album(options.photos_folder, tables)
    print("| model | all | cats | dogs | people | taken for another species | thresholds |")
    print("|---|---|---|---|---|---|---|")
    for name, model in ((options.pet_model, pets), (options.people_model, people), ("router", router)):
        report(name, model, photos, labels, species)


def read_album(folder: Path, tables: dict[str, IdentityTable]) -> tuple[list[Path], np.ndarray, np.ndarray]:
    """Return the photos of the album, their individuals and their species."""
    lfw = folder / "lfw_112"
    people = DataSpec((str(lfw),), read_identity_list(lfw / "peopleDevTest.txt")).read().with_min_photos(3)
    parts = [(name, table.select_identities(table.names[1::2])) for name, table in tables.items()]
    parts.append(("person", people.select_identities(people.names[:MORE_PEOPLE])))
    photos = [Path(str(photo)) for _, table in parts for photo in table.photos]
    names = [table.names[label] for _, table in parts for label in table.labels]
    species = [name for name, table in parts for _ in table.photos]
    return photos, np.unique(names, return_inverse=True)[1], np.array(species)


def report(name: str, model: Embedder, photos: Sequence[Path], labels: np.ndarray, species: np.ndarray) -> None:
    """Enroll and cluster the album, and print a row."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Store.create(Path(folder, "gallery"), Space.from_model(model)) as gallery,
    ):
        enroll(gallery, model, photos, WholePhoto())
        cluster(gallery)
        figures = [score(gallery, labels), *(score(gallery, labels, np.flatnonzero(species == each)) for each in SETS)]
        with gallery.read() as repository:
            named = repository.faces.species()
        wrong = sum(each is not None and each != true for each, true in zip(named, species.tolist(), strict=True))
        thresholds = ", ".join(
            f"{each.species or 'all'} {each.threshold:.2f}" for each in load_album(gallery).thresholds
        )
        routed = "" if named[0] is None else f"{wrong} of {len(named)}"
        print(f"| {name} | {' | '.join(f'{value:.3f}' for value in figures)} | {routed} | {thresholds} |", flush=True)
