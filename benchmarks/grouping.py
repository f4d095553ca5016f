"""`neighbors.group` against HDBSCAN, DBSCAN, Chinese whispers and average linkage, on real photos.

    grouping.py MODEL DATA [--split RUN/split.json] [--splits 3] [--sets cats,orl,lfw,cows,pooled,kinds] [--few]
    grouping.py --scale 100000

Each method's one threshold is the one with the best mean of pairwise F and B-cubed F on *other* identities than it is
judged on: half of a set's identities, both ways, for each of `--splits` random halvings; the figures are means over
the halves judged, the same for every method. Beside them stand the two Fs at the best threshold there is for the half
judged. HDBSCAN has no threshold: the smallest size of a group is fitted instead, and its noise is groups of one.
`pooled` are all sets as one collection, `kinds` the same, but each set adapted on its own. With `--split`, also: fitted
once on the run's validation identities and judged on whole sets. With `--few`: collections of few individuals.
DATA holds `cats23_gpriamo`, `orl_faces`, `lfw_112` (people outside peopleDevTrain.txt are taken) and
`holstein2025_cows`. `--scale` groups as many synthetic vectors instead, and reports time and memory.
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
from familiar.datasets.folders import IdentityTable, by_hash, open_photo, read_identity_list, scan_folders
from familiar.embedding.embedder import Embedder, embed_photos
from familiar.metrics.clustering import contingency
from familiar.neighbors.clustering import THRESHOLDS, prepare_linkage
from familiar.neighbors.domains import cluster_by_domain
from familiar.neighbors.whitening import domain_shift, whiten_to_domain

SETS = {"cats": "cats23_gpriamo", "orl": "orl_faces", "lfw": "lfw_112", "cows": "holstein2025_cows"}
MIN_FACES = 3  # Immich's default
GROUP_SIZES = (2, 3, 4, 5, 7, 10, 15)  # of HDBSCAN's smallest groups
AT_HOME = tuple(round(0.4 + step / 50, 2) for step in range(18))  # kinds are looked for at .15 less
SEED = 0

Groups = Callable[[Sequence[float]], list[np.ndarray]]  # thresholds -> the group of each row at each


class Labeled(NamedTuple):
    embeddings: np.ndarray
    identities: np.ndarray


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--split", type=Path)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--sets", default=f"{','.join(SETS)},pooled,kinds", help="which of them to judge")
    parser.add_argument("--few", action="store_true")
    parser.add_argument("--scale", type=int)
    options = parser.parse_args()
    if options.scale:
        at_scale(options.scale)
        return
    embedder = Embedder(options.model)
    sets = {name: embedded(embedder, test_table(options.data, name)) for name in SETS}
    kinds = {name: Labeled(whiten_to_domain(rows.embeddings), rows.identities) for name, rows in sets.items()}
    sets["pooled"], sets["kinds"] = pooled(sets.values()), pooled(kinds.values())
    if options.few:
        of_few(sets["cats"], sets["orl"])
        return
    sets = {name: sets[name] for name in options.sets.split(",") if name}
    print("| set | method | threshold | pairwise P / R / F | B-cubed P / R / F | best Fs | groups / true | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for name, rows in sets.items():
        for method in METHODS:
            if name != "kinds" or "adapted" not in method:
                print(row(name, method, halves(rows, METHODS[method], options.splits)), flush=True)
    if options.split:
        chosen = json.loads(options.split.read_text())["validation"]
        roots = {options.data / identity.split("/")[0] for identity in chosen}
        validation = embedded(embedder, scan_folders(*sorted(roots)).of_identities(chosen))
        high_precision = embedder.metadata.calibration.high_precision.similarity
        print(f"\n{len(set(validation.identities))} validation identities, {len(validation.identities)} photos")
        fit = {name: fitted(tried(method, validation), method.settings) for name, method in METHODS.items()}
        for name, rows in sets.items():
            for method in METHODS:
                print(row(name, method, [judged(METHODS[method], rows, fit[method])]), flush=True)
            lowered = high_precision * (1 - 0.4 * domain_shift(rows.embeddings))
            for method, threshold in (
                ("ours", lowered),
                ("ours", high_precision),
                ("ours, not adapted", high_precision),
            ):
                found = judged(METHODS[method], rows, threshold)
                print(row(name, f"{method}, bundle's", [found]), flush=True)


def test_table(data: Path, name: str) -> IdentityTable:
    table = scan_folders(data / SETS[name])
    if name == "lfw":
        seen = read_identity_list(data / SETS[name] / "peopleDevTrain.txt")
        table = table.of_identities(who for who in table.names if who.split("/")[1] not in seen)
    return table


def embedded(embedder: Embedder, table: IdentityTable) -> Labeled:
    found = embed_photos(embedder, table.photos, open_photo=open_photo)
    return Labeled(found.embeddings, np.array(table.names)[table.labels[found.rows]])


def pooled(sets: Iterable[Labeled]) -> Labeled:
    return Labeled(*(np.concatenate(parts) for parts in zip(*sets, strict=True)))


# --- the methods: rows in, groups at any threshold out -----------------------------------------------------------


def ours(embeddings: np.ndarray) -> Groups:
    return prepare_linkage(embeddings).groups_at


def kinds_found(embeddings: np.ndarray) -> Groups:
    return each(lambda threshold: cluster_by_domain(embeddings, threshold)[0])


def each(at: Callable[[float], np.ndarray]) -> Groups:
    return lambda thresholds: [at(threshold) for threshold in thresholds]


def average_linkage(embeddings: np.ndarray) -> Groups:
    """As scikit-learn's AgglomerativeClustering has it, but the tree is built once for all thresholds."""
    distances = np.clip(1 - embeddings.astype(np.float64) @ embeddings.T, 0, 2)
    np.fill_diagonal(distances, 0)
    tree = linkage(squareform(distances, checks=False), "average")
    return each(lambda threshold: fcluster(tree, 1 - threshold, "distance"))


def components(embeddings: np.ndarray) -> Groups:
    similarity = embeddings @ embeddings.T
    return each(lambda threshold: connected_components(coo_matrix(similarity >= threshold), directed=False)[1])


def dbscan(embeddings: np.ndarray) -> Groups:
    distances = np.clip(1 - embeddings @ embeddings.T, 0, 2)

    def at(threshold: float) -> np.ndarray:
        return noise_alone(
            DBSCAN(eps=1 - threshold, min_samples=MIN_FACES, metric="precomputed").fit_predict(distances)
        )

    return each(at)


def hdbscan(embeddings: np.ndarray) -> Groups:
    """By excess of mass. `cluster_selection_epsilon` would be a threshold, but scikit-learn 1.9 fails on it."""
    distances = np.clip(1 - embeddings.astype(np.float64) @ embeddings.T, 0, 2)

    def at(size: float) -> np.ndarray:
        if size > len(distances):
            return np.arange(len(distances))
        found = HDBSCAN(
            min_cluster_size=int(size),
            metric="precomputed",
            copy=True,  # pyright: ignore[reportArgumentType] (its type is guessed from the default, "warn")
        )
        return noise_alone(found.fit_predict(distances))

    return each(at)


def noise_alone(groups: np.ndarray) -> np.ndarray:
    noise = groups < 0
    return np.where(noise, groups.max() + np.cumsum(noise), groups)


def chinese_whispers(embeddings: np.ndarray) -> Groups:
    """Biemann 2006 as dlib runs it: every pair above the threshold is an edge of weight one."""
    similarity = embeddings @ embeddings.T
    np.fill_diagonal(similarity, -2)

    def at(threshold: float) -> np.ndarray:
        rng = np.random.default_rng(SEED)
        linked = [np.flatnonzero(row >= threshold) for row in similarity]
        groups = np.arange(len(linked))
        for _ in range(30):
            before = groups.copy()
            for node in rng.permutation(len(linked)):
                if len(linked[node]):
                    groups[node] = np.bincount(groups[linked[node]]).argmax()
            if (groups == before).all():
                break
        return groups

    return each(at)


def alone(embeddings: np.ndarray) -> Groups:
    return each(lambda _: np.arange(len(embeddings)))


def adapted(make: Callable[[np.ndarray], Groups]) -> Callable[[np.ndarray], Groups]:
    return lambda embeddings: make(whiten_to_domain(embeddings))


class Method(NamedTuple):
    make: Callable[[np.ndarray], Groups]
    settings: Sequence[float] = THRESHOLDS


METHODS: dict[str, Method] = {
    "ours": Method(adapted(ours)),
    "ours, not adapted": Method(ours),
    "ours, kinds found": Method(kinds_found, AT_HOME),
    "average linkage": Method(average_linkage),
    "connected components": Method(components),
    "DBSCAN (3)": Method(dbscan),
    "HDBSCAN": Method(hdbscan, GROUP_SIZES),
    "Chinese whispers": Method(chinese_whispers),
    "average linkage, adapted": Method(adapted(average_linkage)),
    "HDBSCAN, adapted": Method(adapted(hdbscan), GROUP_SIZES),
    "Chinese whispers, adapted": Method(adapted(chinese_whispers)),
    "all alone": Method(alone, (1.0,)),
}


# --- calibrating and judging -------------------------------------------------------------------------------------


class Judged(NamedTuple):
    threshold: float
    figures: tuple[float, ...]  # pairwise P, R, F, B-cubed P, R, F
    groups: int
    identities: int
    seconds: float
    best: tuple[float, ...] = (float("nan"),) * 6  # figures at the best threshold for these very identities


def halves(rows: Labeled, method: Method, splits: int) -> list[Judged]:
    found: list[Judged] = []
    for seed in range(splits):
        names = by_hash(np.unique(rows.identities).tolist(), seed)
        first = np.isin(rows.identities, names[: len(names) // 2])
        parts = [Labeled(rows.embeddings[part], rows.identities[part]) for part in (first, ~first)]
        at = [tried(method, part) for part in parts]
        for part, own, other in ((parts[0], at[0], at[1]), (parts[1], at[1], at[0])):
            result = judged(method, part, fitted(other, method.settings))
            found.append(result._replace(best=max(own, key=objective)))
    return found


def tried(method: Method, rows: Labeled) -> list[tuple[float, ...]]:
    return [figures(rows.identities, groups) for groups in method.make(rows.embeddings)(method.settings)]


def fitted(found: Sequence[tuple[float, ...]], settings: Sequence[float]) -> float:
    scores = np.array([objective(one) for one in found])
    best = np.flatnonzero(scores == scores.max())
    return settings[best[(len(best) - 1) // 2]]


def judged(method: Method, rows: Labeled, threshold: float) -> Judged:
    started = time.perf_counter()
    groups = method.make(rows.embeddings)([threshold])[0]
    seconds = time.perf_counter() - started
    return Judged(
        threshold,
        figures(rows.identities, groups),
        len(np.unique(groups)),
        len(np.unique(rows.identities)),
        seconds,
    )


def figures(identities: np.ndarray, groups: np.ndarray) -> tuple[float, ...]:
    table = contingency(np.unique(identities, return_inverse=True)[1], groups)
    pairs, photos = table.pairwise(), table.bcubed()
    return (pairs.precision or 0.0, pairs.recall, pairs.f, photos.precision or 0.0, photos.recall, photos.f)


def objective(found: tuple[float, ...]) -> float:
    return (found[2] + found[5]) / 2


def row(name: str, method: str, found: Iterable[Judged]) -> str:
    found = list(found)
    mean = np.mean([judged.figures for judged in found], axis=0)
    pairs, photos = (" / ".join(f"{figure:.3f}" for figure in part) for part in (mean[:3], mean[3:]))
    best = np.mean([judged.best for judged in found], axis=0)
    threshold = np.mean([judged.threshold for judged in found])
    groups, identities = sum(judged.groups for judged in found), sum(judged.identities for judged in found)
    seconds = np.median([judged.seconds for judged in found])
    sizes = f"{groups / len(found):.0f} / {identities / len(found):.0f}"
    possible = "" if np.isnan(best[0]) else f"{best[2]:.3f} / {best[5]:.3f}"
    return f"| {name} | {method} | {threshold:.2f} | {pairs} | {photos} | {possible} | {sizes} | {seconds:.2f} |"


def of_few(*sets: Labeled) -> None:
    """Mean of both Fs at each draw's best threshold, of some individuals drawn 20 times."""
    counts = (1, 2, 3, 5, 8, 12, 20)
    print(f"| individuals | {' | '.join(map(str, counts))} |\n|---|{'---|' * len(counts)}")
    for rows in sets:
        names = np.unique(rows.identities)
        for method in ("ours, not adapted", "ours"):
            means = []
            for count in counts:
                rng = np.random.default_rng(SEED)
                draws = [np.isin(rows.identities, rng.choice(names, count, replace=False)) for _ in range(20)]
                best = [
                    max(map(objective, tried(METHODS[method], Labeled(*(part[draw] for part in rows)))))
                    for draw in draws
                ]
                means.append(f"{np.mean(best):.2f}")
            print(f"| {names[0].split('/')[0]}, {method} | {' | '.join(means)} |", flush=True)


def at_scale(count: int) -> None:
    """Synthetic identities of 1 to 1,000 photos (a power law), 128-d, as far apart as a fair model's."""
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
    found = rows.groups_at([0.4])[0]
    print(
        f"{count:,} x 128: neighbors {searched - started:.0f} s, groups {time.perf_counter() - searched:.1f} s; "
        f"{found.max() + 1:,} groups of {len(np.unique(identities)):,}; "
        f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB, {before / 1024:.0f} before"
    )


if __name__ == "__main__":
    main()
