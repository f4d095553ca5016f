"""Measure what confirmed individuals teach a gallery about the others.

    gallery.py learning PHOTOS PEOPLE_MODEL [--pet-model pet-mobile] [--albums cats23,dogs29,pandas31,cows82,orl,lfw]

Albums are collections that their models have never seen. All faces of 5, 10 or 20 individuals are confirmed, then the
album is clustered, once with what was learned from them and once without. Only the individuals that were not confirmed
count: the mean of pairwise and B-cubed F of their faces, and recall@1 among them. Means of `--draws` draws of the
individuals, with the standard error of the difference over draws.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from clustering import PEOPLE, Labeled, embed_collection

from collection.answers import score
from familiar.embedding.embedder import Embedder
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.edits.corrections import Individual, assign
from familiar.gallery.enroll.enroll import enroll_embeddings
from familiar.gallery.same.album import load_album
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store
from familiar.metrics.retrieval import retrieval_metrics

CONFIRMED = (5, 10, 20)
MIN_FACES = 4  # of an individual that is confirmed
MIN_LEFT = 5  # individuals that are not


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="gallery.py learning", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS")
    parser.add_argument("people_model", type=Path, metavar="PEOPLE_MODEL")
    parser.add_argument("--pet-model", default="pet-mobile")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--albums", default="cats23,dogs29,pandas31,cows82,orl,lfw")
    options = parser.parse_args(arguments)
    print("| album | confirmed | used | F without | F with | difference | recall@1 without | with | difference |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in options.albums.split(","):
        embedder = Embedder(options.people_model if name in PEOPLE else options.pet_model)
        rows, space = embed_collection(embedder, name, options), Space.from_metadata(embedder.metadata)
        for count in CONFIRMED:
            report(name, count, [after_confirming(space, rows, count, draw) for draw in range(options.draws)])


def report(name: str, individuals: int, draws: list[np.ndarray]) -> None:
    """Print a row; each draw has whether it was used, and F and recall@1 without and with what was learned."""
    values = np.array(draws)
    used, without, learned = values[:, 0], values[:, 1:3], values[:, 3:5]
    difference = learned - without
    error = difference.std(axis=0, ddof=1) / len(draws) ** 0.5
    cells = [
        f"{without[:, column].mean():.3f} | {learned[:, column].mean():.3f} | "
        f"{difference[:, column].mean():+.3f} ± {error[column]:.3f}"
        for column in (0, 1)
    ]
    print(f"| {name} | {individuals} | {used.mean():.0%} | {' | '.join(cells)} |", flush=True)


def after_confirming(space: Space, rows: Labeled, individuals: int, draw: int) -> np.ndarray:
    """Confirm some individuals, and compare what becomes of the others without and with what was learned."""
    labels = np.unique(rows.identities, return_inverse=True)[1]
    several = np.flatnonzero(np.bincount(labels) >= MIN_FACES)
    count = min(individuals, len(several) - MIN_LEFT)
    chosen = np.random.default_rng((draw, individuals)).permutation(several)[:count]
    others = np.flatnonzero(~np.isin(labels, chosen))
    with tempfile.TemporaryDirectory() as folder, Store.create(Path(folder, "gallery"), space) as gallery:
        names = [f"{row}.jpg" for row in range(len(labels))]
        faces = np.array(enroll_embeddings(gallery, rows.embeddings, names, space.space_id))
        assign(gallery, [Individual(None, tuple(faces[labels == label].tolist())) for label in chosen])
        with_learned = figures(gallery, labels, others)
        is_used = load_album(gallery).gains[0] is not None
        with gallery.write() as repository:
            repository.learned_faces.replace([])
        return np.array([is_used, *figures(gallery, labels, others), *with_learned])


def figures(gallery: Store, labels: np.ndarray, others: np.ndarray) -> tuple[float, float]:
    compared = load_album(gallery).rows[others]
    cluster(gallery, rebuild=True)
    return score(gallery, labels, others), retrieval_metrics(compared, labels[others]).recall_at_k[1]
