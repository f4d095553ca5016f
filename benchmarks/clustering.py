"""Compare albums as familiar clusters them with HDBSCAN, DBSCAN, Chinese whispers and average linkage, on real photos.

    clustering.py PHOTOS PEOPLE_MODEL [--models pet-mobile pet-nano] [--albums cats23 ...] [--cache FOLDER]
    clustering.py --scale 100000

Each album is a whole collection that its model has never seen, embedded by it as it is, less the mean of its species.
`once`: a collection with one photo of three in five individuals, drawn five times. `all`: all animals in one album.
No method knows anything about an album: familiar estimates its threshold, HDBSCAN has its default (clusters of five),
and the others have their published minimum of faces and the bundle's `high_precision` threshold, as published distances
mean something else for every model. (At the `balanced` one, which Immich's distance of .5 stands for, they are worse.)
*Oracle* is the same method at its best possible setting for the album. PEOPLE_MODEL is a bundle for people that was not
trained on LFW; it is calibrated on a part of LFW's peopleDevTrain, of whom none is in the albums. The intervals are
over halves of the individuals.

`--scale` clusters that many synthetic vectors instead, and reports time and memory.
"""

import argparse
import resource
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from left_out import COLLECTIONS as MAX_PHOTOS
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from sklearn.cluster import DBSCAN, HDBSCAN

from familiar.core.vectors import normalize
from familiar.datasets import DataSpec
from familiar.datasets.folders import open_photo, read_identity_list, scan_folders
from familiar.embedding.bundle import BundleMetadata
from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import embed_photos
from familiar.gallery.store.space import Space
from familiar.metrics.calibration import calibrate
from familiar.metrics.clustering import contingency
from familiar.neighbors import Centering, cluster_album
from familiar.neighbors.clustering import THRESHOLDS, clusters_at

COLLECTIONS = {  # their folders
    "cats23": "cats23_gpriamo",
    "dogs29": "dogs29_stdove",
    "pandas31": "pandas31_faces",
    "lions94": "lions94_faces",
    "cows82": "holstein2025_cows",
    "orl": "orl_faces",
    "lfw": "lfw_photos_devtest",
}
PEOPLE = ("orl", "lfw")
CALIBRATION_PEOPLE = "lfw_112/peopleDevTrain.txt"
MIN_FACES = 3  # Immich's default
MIN_CLUSTER_SIZES = (2, 3, 4, 5, 7, 10, 15)  # of HDBSCAN
ONCE, DRAWS = 0.6, 5
REPLICATES = 200
SEED = 0

Partitions = Callable[[Sequence[float]], list[np.ndarray]]  # thresholds -> the cluster of each row at each


class Labeled(NamedTuple):
    """Embeddings as a gallery compares them, and the individual of each."""

    embeddings: np.ndarray
    identities: np.ndarray


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS", nargs="?")
    parser.add_argument("people_model", type=Path, metavar="PEOPLE_MODEL", nargs="?")
    parser.add_argument("--models", nargs="+", default=["pet-mobile", "pet-nano"])
    parser.add_argument("--albums", nargs="+", default=[*COLLECTIONS, "once", "all"])
    parser.add_argument("--cache", type=Path, help="folder of embeddings to keep")
    parser.add_argument("--scale", type=int)
    options = parser.parse_args()
    if options.scale:
        run_at_scale(options.scale)
        return
    header = "pairwise / B-cubed F"
    print(f"| album | model | method | {header} | oracle | familiar's lead in each |\n|---|---|---|---|---|---|")
    for model in (*options.models, str(options.people_model)):
        is_people = model == str(options.people_model)
        embedder = Embedder(model)
        threshold = people_threshold(embedder, options) if is_people else high_precision(embedder.metadata)
        names = [name for name in COLLECTIONS if (name in PEOPLE) == is_people]
        stored = {name: embed_collection(embedder, name, options) for name in names}
        for name, draws in albums(stored, is_people=is_people).items():
            if name in options.albums or name.split(" ")[0] in options.albums:
                compare(name, Path(model).stem, [less_means(rows, embedder) for rows in draws], threshold)


def albums(stored: Mapping[str, Labeled], *, is_people: bool) -> dict[str, list[Labeled]]:
    """Return the albums of a model, each drawn once or several times."""
    made = {name: [rows] for name, rows in stored.items()}
    for name, rows in stored.items():
        if name in ("cats23", "dogs29", "pandas31", "lfw"):
            made[f"once {name}"] = [seen_once(rows, draw) for draw in range(DRAWS)]
    if not is_people:
        made["all"] = [pool(stored.values())]
    return made


def seen_once(rows: Labeled, draw: int) -> Labeled:
    """Keep one photo of three in five individuals, and all of the others."""
    rng = np.random.default_rng((SEED, draw))
    names = rng.permutation(np.unique(rows.identities))
    chosen = [
        rng.permutation(np.flatnonzero(rows.identities == name))[: 1 if number < ONCE * len(names) else None]
        for number, name in enumerate(names)
    ]
    kept_rows = np.sort(np.concatenate(chosen))
    return Labeled(rows.embeddings[kept_rows], rows.identities[kept_rows])


def embed_collection(embedder: Embedder, name: str, options: argparse.Namespace) -> Labeled:
    """Embed a collection, or read what was embedded before."""
    folder = COLLECTIONS[name]
    file = None if options.cache is None else options.cache / f"{embedder.bundle.file_id}-{name}.npz"
    if file is not None and file.exists():
        stored = np.load(file)
        return Labeled(stored["embeddings"], stored["identities"])
    table = DataSpec((str(options.photos_folder / folder),), max_photos=MAX_PHOTOS.get(folder)).read()
    result = embed_photos(embedder, table.photos, "auto" if name == "lfw" else "none", open_photo=open_photo)
    rows = Labeled(result.embeddings, np.array(table.names)[table.labels[result.rows]])
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, embeddings=rows.embeddings, identities=rows.identities)
    return rows


def less_means(rows: Labeled, embedder: Embedder) -> Labeled:
    """Subtract the means of species, as a gallery does."""
    means = embedder.metadata.species_means
    if means is None:
        return rows
    return rows._replace(embeddings=Centering.fit(rows.embeddings, means.rows()).apply(rows.embeddings))


def high_precision(metadata: BundleMetadata) -> float:
    return Space.from_metadata(metadata).gallery_calibration.high_precision.similarity


def people_threshold(embedder: Embedder, options: argparse.Namespace) -> float:
    """Calibrate a model on people of whom none is in an album."""
    names = read_identity_list(options.photos_folder / CALIBRATION_PEOPLE)
    table = scan_folders(options.photos_folder / "lfw_112")
    table = table.select_identities([name for name in table.names if name.split("/")[1] in sorted(names)[::4]])
    result = embed_photos(embedder, table.photos, "none", open_photo=open_photo)
    return calibrate(result.embeddings, table.labels[result.rows]).high_precision.similarity


def pool(sets: Iterable[Labeled]) -> Labeled:
    return Labeled(*(np.concatenate(parts) for parts in zip(*sets, strict=True)))


# --- Methods: from rows to clusters at any thresholds -----------------------------------------------------------


def familiar_linkage(embeddings: np.ndarray) -> Partitions:
    return partial(clusters_at, embeddings)


def for_each(cluster_at: Callable[[float], np.ndarray]) -> Partitions:
    return lambda thresholds: [cluster_at(threshold) for threshold in thresholds]


def average_linkage(embeddings: np.ndarray) -> Partitions:
    """Cluster as scikit-learn's AgglomerativeClustering does, but build the tree once for all thresholds."""
    distances = np.clip(1 - embeddings.astype(np.float64) @ embeddings.T, 0, 2)
    np.fill_diagonal(distances, 0)
    tree = linkage(squareform(distances, checks=False), "average")
    return for_each(lambda threshold: fcluster(tree, 1 - threshold, "distance"))


def dbscan(embeddings: np.ndarray, min_faces: int = MIN_FACES) -> Partitions:
    distances = np.clip(1 - embeddings @ embeddings.T, 0, 2)

    def cluster_at(threshold: float) -> np.ndarray:
        return noise_as_singletons(
            DBSCAN(eps=1 - threshold, min_samples=min_faces, metric="precomputed").fit_predict(distances)
        )

    return for_each(cluster_at)


def hdbscan(embeddings: np.ndarray) -> Partitions:
    """Cluster by excess of mass. `cluster_selection_epsilon` would be a threshold, but scikit-learn 1.9 fails on it."""
    distances = np.clip(1 - embeddings.astype(np.float64) @ embeddings.T, 0, 2)

    def cluster_at(size: float) -> np.ndarray:
        if size > len(distances):
            return np.arange(len(distances))
        model = HDBSCAN(
            min_cluster_size=int(size),
            metric="precomputed",
            copy=True,  # pyright: ignore[reportArgumentType] (its type is guessed from the default, "warn")
        )
        return noise_as_singletons(model.fit_predict(distances))

    return for_each(cluster_at)


def noise_as_singletons(clusters: np.ndarray) -> np.ndarray:
    noise = clusters < 0
    return np.where(noise, clusters.max() + np.cumsum(noise), clusters)


def chinese_whispers(embeddings: np.ndarray) -> Partitions:
    """Cluster as dlib does (Biemann 2006): every pair above the threshold is an edge of weight one."""
    similarity = embeddings @ embeddings.T
    np.fill_diagonal(similarity, -2)

    def cluster_at(threshold: float) -> np.ndarray:
        rng = np.random.default_rng(SEED)
        linked = [np.flatnonzero(row >= threshold) for row in similarity]
        clusters = np.arange(len(linked))
        for _ in range(30):
            before = clusters.copy()
            for node in rng.permutation(len(linked)):
                if len(linked[node]):
                    clusters[node] = np.bincount(clusters[linked[node]]).argmax()
            if (clusters == before).all():
                break
        return clusters

    return for_each(cluster_at)


class Method(NamedTuple):
    """A method, the settings to try for its best one, and its published one; None: the model's threshold."""

    make: Callable[[np.ndarray], Partitions]
    settings: Sequence[float] = THRESHOLDS
    published: float | None = None


METHODS: dict[str, Method] = {
    "average linkage": Method(average_linkage),
    "DBSCAN, 3 faces (Immich)": Method(dbscan),
    "DBSCAN, 4 faces (PhotoPrism)": Method(partial(dbscan, min_faces=4)),
    "HDBSCAN, 5 faces": Method(hdbscan, MIN_CLUSTER_SIZES, 5),
    "Chinese whispers (dlib)": Method(chinese_whispers),
}


# --- Scoring -----------------------------------------------------------------------------------------------------


def compare(name: str, model: str, draws: Sequence[Labeled], threshold: float) -> None:
    """Print the rows of an album; figures are means over its draws."""
    ours = [cluster_album(rows.embeddings, threshold) for rows in draws]
    linkages = [familiar_linkage(rows.embeddings) for rows in draws]
    best = [best_of(rows, linkage(THRESHOLDS)) for rows, linkage in zip(draws, linkages, strict=True)]
    print_row(name, model, "**familiar**", draws, ours, best, None)
    if name == "all":
        with_species = [cluster_by_species(rows, threshold) for rows in draws]
        print_row(name, model, "familiar, told the species", draws, with_species, None, ours)
    at_model = [linkage([threshold])[0] for linkage in linkages]
    print_row(name, model, "its linkage at the model's threshold", draws, at_model, None, ours)
    for method, (make, settings, published) in METHODS.items():
        partitions = [make(rows.embeddings) for rows in draws]
        setting = threshold if published is None else published
        clusters = [each([setting])[0] for each in partitions]
        best = [best_of(rows, each(settings)) for rows, each in zip(draws, partitions, strict=True)]
        print_row(name, model, method, draws, clusters, best, ours)


def cluster_by_species(rows: Labeled, threshold: float) -> np.ndarray:
    """Cluster each collection alone, as a gallery does with each species."""
    species = np.array([identity.split("/")[0] for identity in rows.identities])
    clusters = np.zeros(len(species), np.int64)
    for each in np.unique(species):
        clusters[species == each] = clusters.max() + 1 + cluster_album(rows.embeddings[species == each], threshold)
    return clusters


def print_row(
    name: str,
    model: str,
    method: str,
    draws: Sequence[Labeled],
    clusters: Sequence[np.ndarray],
    best: Sequence[np.ndarray] | None,
    ours: Sequence[np.ndarray] | None,
) -> None:
    scores = np.mean([f_scores(rows.identities, each) for rows, each in zip(draws, clusters, strict=True)], axis=0)
    oracle = ""
    if best is not None:
        scores_at_best = [f_scores(rows.identities, each) for rows, each in zip(draws, best, strict=True)]
        oracle = " / ".join(f"{score:.3f}" for score in np.mean(scores_at_best, axis=0))
    lead = ""
    if ours is not None:
        leads = [lead_interval(rows, our, each) for rows, our, each in zip(draws, ours, clusters, strict=True)]
        lead = " / ".join(f"{mean:+.3f} ({low:+.3f} to {high:+.3f})" for mean, low, high in np.mean(leads, axis=0).T)
    shown = " / ".join(f"{score:.3f}" for score in scores)
    print(f"| {name} | {model} | {method} | {shown} | {oracle} | {lead} |", flush=True)


def f_scores(identities: np.ndarray, clusters: np.ndarray) -> tuple[float, float]:
    """Compute pairwise and B-cubed F."""
    table = contingency(*(np.unique(each, return_inverse=True)[1] for each in (identities, clusters)))
    return table.pairwise().f, table.bcubed().f


def best_of(rows: Labeled, partitions: Iterable[np.ndarray]) -> np.ndarray:
    """Return the clusters with the best mean of both F."""
    return max(partitions, key=lambda clusters: np.mean(f_scores(rows.identities, clusters)))


def lead_interval(rows: Labeled, ours: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the differences of both F, and their 95 % intervals; shape (3, 2): means, lower and upper limits.

    Over random halves of the individuals: a half varies about as much as the whole does from the individuals that
    there are.
    """
    rng = np.random.default_rng(SEED)
    names, labels = np.unique(rows.identities, return_inverse=True)
    in_pairs = np.flatnonzero(np.bincount(labels) > 1)

    def lead(chosen: np.ndarray) -> np.ndarray:
        first, second = (np.array(f_scores(labels[chosen], each[chosen])) for each in (ours, others))
        return first - second

    leads = []
    for _ in range(REPLICATES):
        half = rng.permutation(len(names))[: len(names) // 2]
        if np.isin(half, in_pairs).any():
            leads.append(lead(np.isin(labels, half)))
    whole = lead(np.ones(len(labels), bool))
    return np.stack([whole, *(whole + np.quantile(leads, [0.025, 0.975], axis=0) - np.mean(leads, axis=0))])


def run_at_scale(count: int) -> None:
    """Cluster synthetic identities of 1 to 1,000 photos (a power law), 128-d, as far apart as a fair model's."""
    rng = np.random.default_rng(SEED)
    sizes = np.minimum(1000, np.ceil(rng.pareto(1.0, count) * 2)).astype(np.int64)
    identities = np.repeat(np.arange(count), sizes)[:count]
    centers = rng.normal(size=(count, 128)).astype(np.float32)
    noise = rng.normal(size=(count, 128)).astype(np.float32)
    embeddings = normalize(centers[identities] + np.float32(0.9) * noise)[rng.permutation(count)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    clusters = cluster_album(embeddings, 0.4)
    print(
        f"{count:,} x 128: {time.perf_counter() - started:.1f} s; "
        f"{clusters.max() + 1:,} clusters of {len(np.unique(identities)):,}; "
        f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB, {before / 1024:.0f} before"
    )


if __name__ == "__main__":
    main()
