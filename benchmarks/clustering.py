"""Compare `neighbors.clustering` with HDBSCAN, DBSCAN, Chinese whispers and average linkage on real photos.

    clustering.py MODEL DATA [--split RUN/split.json] [--splits 3] [--sets cats,orl,lfw,cows,pooled,domains] [--few]
    clustering.py --scale 100000

Each method's threshold is the one with the best mean of pairwise F and B-cubed F on *other* identities than those it is
scored on: half of a set's identities, both ways, for each of `--splits` random halvings. The scores are means over the
halves, the same for every method; next to them are the two F scores at the best possible threshold for the same half.
HDBSCAN has no threshold: its minimum cluster size is fitted instead, and its noise becomes clusters of one. `pooled`
is all sets as one collection, `domains` the same, but each set whitened on its own. With `--split`, the thresholds are
also fitted once on the run's validation identities and scored on whole sets. With `--few`: collections of few
individuals. DATA contains `cats23_gpriamo`, `orl_faces`, `lfw_112` (of which people outside peopleDevTrain.txt are
used) and `holstein2025_cows`. `--scale` clusters that many synthetic vectors instead, and reports time and memory.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import squareform
from sklearn.cluster import DBSCAN, HDBSCAN

from familiar.core.vectors import normalize
from familiar.datasets.folders import IdentityTable, open_photo, read_identity_list, scan_folders, sort_by_hash
from familiar.embedding.embedder import Embedder, embed_photos
from familiar.metrics.clustering import contingency
from familiar.neighbors.clustering import THRESHOLDS, prepare_linkage
from familiar.neighbors.domains import cluster_by_domain
from familiar.neighbors.whitening import domain_shift, whiten_to_domain

SETS = {"cats": "cats23_gpriamo", "orl": "orl_faces", "lfw": "lfw_112", "cows": "holstein2025_cows"}
MIN_FACES = 3  # Immich's default
MIN_CLUSTER_SIZES = (2, 3, 4, 5, 7, 10, 15)  # of HDBSCAN
IN_DOMAIN_THRESHOLDS = tuple(round(0.4 + step / 50, 2) for step in range(18))  # domains are detected at 0.15 less
SEED = 0

Partitions = Callable[[Sequence[float]], list[np.ndarray]]  # thresholds -> the cluster of each row at each


class Labeled(NamedTuple):
    embeddings: np.ndarray
    identities: np.ndarray


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--split", type=Path)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--sets", default=f"{','.join(SETS)},pooled,domains", help="sets to evaluate")
    parser.add_argument("--few", action="store_true")
    parser.add_argument("--scale", type=int)
    options = parser.parse_args()
    if options.scale:
        run_at_scale(options.scale)
        return
    embedder = Embedder(options.model)
    sets = {name: embed_table(embedder, test_table(options.data, name)) for name in SETS}
    whitened_sets = {name: Labeled(whiten_to_domain(rows.embeddings), rows.identities) for name, rows in sets.items()}
    sets["pooled"], sets["domains"] = pool(sets.values()), pool(whitened_sets.values())
    if options.few:
        run_few(sets["cats"], sets["orl"])
        return
    sets = {name: sets[name] for name in options.sets.split(",") if name}
    print("| set | method | threshold | pairwise P / R / F | B-cubed P / R / F | best Fs | clusters / true | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for name, rows in sets.items():
        for method in METHODS:
            if name != "domains" or "whitened" not in method:
                print(table_row(name, method, score_halves(rows, METHODS[method], options.splits)), flush=True)
    if options.split:
        chosen = json.loads(options.split.read_text())["validation"]
        roots = {options.data / identity.split("/")[0] for identity in chosen}
        validation = embed_table(embedder, scan_folders(*sorted(roots)).select_identities(chosen))
        high_precision = embedder.metadata.calibration.high_precision.similarity
        print(f"\n{len(set(validation.identities))} validation identities, {len(validation.identities)} photos")
        fit = {name: best_setting(score_all(method, validation), method.settings) for name, method in METHODS.items()}
        for name, rows in sets.items():
            for method in METHODS:
                print(table_row(name, method, [score_at(METHODS[method], rows, fit[method])]), flush=True)
            lowered = high_precision * (1 - 0.4 * domain_shift(rows.embeddings))
            for method, threshold in (
                ("familiar", lowered),
                ("familiar", high_precision),
                ("familiar, not whitened", high_precision),
            ):
                score = score_at(METHODS[method], rows, threshold)
                print(table_row(name, f"{method}, bundle's", [score]), flush=True)


def test_table(data: Path, name: str) -> IdentityTable:
    table = scan_folders(data / SETS[name])
    if name == "lfw":
        trained_on = read_identity_list(data / SETS[name] / "peopleDevTrain.txt")
        table = table.select_identities(
            identity for identity in table.names if identity.split("/")[1] not in trained_on
        )
    return table


def embed_table(embedder: Embedder, table: IdentityTable) -> Labeled:
    result = embed_photos(embedder, table.photos, "none", open_photo=open_photo)
    return Labeled(result.embeddings, np.array(table.names)[table.labels[result.rows]])


def pool(sets: Iterable[Labeled]) -> Labeled:
    return Labeled(*(np.concatenate(parts) for parts in zip(*sets, strict=True)))


# --- Methods: from rows to clusters at any thresholds -----------------------------------------------------------


def familiar_clusters(embeddings: np.ndarray) -> Partitions:
    return prepare_linkage(embeddings).clusters_at


def familiar_domains(embeddings: np.ndarray) -> Partitions:
    return for_each(lambda threshold: cluster_by_domain(embeddings, threshold)[0])


def for_each(cluster_at: Callable[[float], np.ndarray]) -> Partitions:
    return lambda thresholds: [cluster_at(threshold) for threshold in thresholds]


def average_linkage(embeddings: np.ndarray) -> Partitions:
    """Cluster as scikit-learn's AgglomerativeClustering does, but build the tree once for all thresholds."""
    distances = np.clip(1 - embeddings.astype(np.float64) @ embeddings.T, 0, 2)
    np.fill_diagonal(distances, 0)
    tree = linkage(squareform(distances, checks=False), "average")
    return for_each(lambda threshold: fcluster(tree, 1 - threshold, "distance"))


def components(embeddings: np.ndarray) -> Partitions:
    similarity = embeddings @ embeddings.T
    return for_each(lambda threshold: connected_components(coo_matrix(similarity >= threshold), directed=False)[1])


def dbscan(embeddings: np.ndarray) -> Partitions:
    distances = np.clip(1 - embeddings @ embeddings.T, 0, 2)

    def cluster_at(threshold: float) -> np.ndarray:
        return noise_as_singletons(
            DBSCAN(eps=1 - threshold, min_samples=MIN_FACES, metric="precomputed").fit_predict(distances)
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


def singletons(embeddings: np.ndarray) -> Partitions:
    return for_each(lambda _: np.arange(len(embeddings)))


def whitened(make: Callable[[np.ndarray], Partitions]) -> Callable[[np.ndarray], Partitions]:
    return lambda embeddings: make(whiten_to_domain(embeddings))


class Method(NamedTuple):
    make: Callable[[np.ndarray], Partitions]
    settings: Sequence[float] = THRESHOLDS


METHODS: dict[str, Method] = {
    "familiar": Method(whitened(familiar_clusters)),
    "familiar, not whitened": Method(familiar_clusters),
    "familiar, domains detected": Method(familiar_domains, IN_DOMAIN_THRESHOLDS),
    "average linkage": Method(average_linkage),
    "connected components": Method(components),
    "DBSCAN (3)": Method(dbscan),
    "HDBSCAN": Method(hdbscan, MIN_CLUSTER_SIZES),
    "Chinese whispers": Method(chinese_whispers),
    "average linkage, whitened": Method(whitened(average_linkage)),
    "HDBSCAN, whitened": Method(whitened(hdbscan), MIN_CLUSTER_SIZES),
    "Chinese whispers, whitened": Method(whitened(chinese_whispers)),
    "all singletons": Method(singletons, (1.0,)),
}


# --- Fitting thresholds and scoring ------------------------------------------------------------------------------


class Score(NamedTuple):
    threshold: float
    figures: tuple[float, ...]  # pairwise P, R, F, B-cubed P, R, F
    clusters: int
    identities: int
    seconds: float
    best: tuple[float, ...] = (float("nan"),) * 6  # figures at the best threshold for the same identities


def score_halves(rows: Labeled, method: Method, splits: int) -> list[Score]:
    scores: list[Score] = []
    for seed in range(splits):
        names = sort_by_hash(np.unique(rows.identities).tolist(), seed)
        first = np.isin(rows.identities, names[: len(names) // 2])
        parts = [Labeled(rows.embeddings[part], rows.identities[part]) for part in (first, ~first)]
        tried = [score_all(method, part) for part in parts]
        for index, part in enumerate(parts):
            score = score_at(method, part, best_setting(tried[1 - index], method.settings))
            scores.append(score._replace(best=max(tried[index], key=objective)))
    return scores


def score_all(method: Method, rows: Labeled) -> list[tuple[float, ...]]:
    return [figures(rows.identities, clusters) for clusters in method.make(rows.embeddings)(method.settings)]


def best_setting(tried: Sequence[tuple[float, ...]], settings: Sequence[float]) -> float:
    scores = np.array([objective(figures) for figures in tried])
    best = np.flatnonzero(scores == scores.max())
    return settings[best[(len(best) - 1) // 2]]


def score_at(method: Method, rows: Labeled, threshold: float) -> Score:
    started = time.perf_counter()
    clusters = method.make(rows.embeddings)([threshold])[0]
    seconds = time.perf_counter() - started
    return Score(
        threshold,
        figures(rows.identities, clusters),
        len(np.unique(clusters)),
        len(np.unique(rows.identities)),
        seconds,
    )


def figures(identities: np.ndarray, clusters: np.ndarray) -> tuple[float, ...]:
    table = contingency(np.unique(identities, return_inverse=True)[1], clusters)
    pairs, photos = table.pairwise(), table.bcubed()
    return (pairs.precision or 0.0, pairs.recall, pairs.f, photos.precision or 0.0, photos.recall, photos.f)


def objective(figures: tuple[float, ...]) -> float:
    return (figures[2] + figures[5]) / 2


def table_row(name: str, method: str, scores: Iterable[Score]) -> str:
    scores = list(scores)
    mean = np.mean([score.figures for score in scores], axis=0)
    pairs, photos = (" / ".join(f"{figure:.3f}" for figure in part) for part in (mean[:3], mean[3:]))
    best = np.mean([score.best for score in scores], axis=0)
    threshold = np.mean([score.threshold for score in scores])
    clusters, identities = sum(score.clusters for score in scores), sum(score.identities for score in scores)
    seconds = np.median([score.seconds for score in scores])
    sizes = f"{clusters / len(scores):.0f} / {identities / len(scores):.0f}"
    possible = "" if np.isnan(best[0]) else f"{best[2]:.3f} / {best[5]:.3f}"
    return f"| {name} | {method} | {threshold:.2f} | {pairs} | {photos} | {possible} | {sizes} | {seconds:.2f} |"


def run_few(*sets: Labeled) -> None:
    """Print the mean of both F scores at each draw's best threshold, for few individuals drawn 20 times."""
    counts = (1, 2, 3, 5, 8, 12, 20)
    print(f"| individuals | {' | '.join(map(str, counts))} |\n|---|{'---|' * len(counts)}")
    for rows in sets:
        names = np.unique(rows.identities)
        for method in ("familiar, not whitened", "familiar"):
            means = []
            for count in counts:
                rng = np.random.default_rng(SEED)
                draws = [np.isin(rows.identities, rng.choice(names, count, replace=False)) for _ in range(20)]
                best = [
                    max(map(objective, score_all(METHODS[method], Labeled(*(part[draw] for part in rows)))))
                    for draw in draws
                ]
                means.append(f"{np.mean(best):.2f}")
            print(f"| {names[0].split('/')[0]}, {method} | {' | '.join(means)} |", flush=True)


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
    rows = prepare_linkage(whiten_to_domain(embeddings))
    searched = time.perf_counter()
    clusters = rows.clusters_at([0.4])[0]
    print(
        f"{count:,} x 128: neighbors {searched - started:.0f} s, clusters {time.perf_counter() - searched:.1f} s; "
        f"{clusters.max() + 1:,} clusters of {len(np.unique(identities)):,}; "
        f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB, {before / 1024:.0f} before"
    )


if __name__ == "__main__":
    main()
