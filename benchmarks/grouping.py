"""`neighbors.group` against Chinese whispers, connected components, DBSCAN and average linkage, on real photos.

    grouping.py MODEL DATA [--split RUN/split.json] [--splits 3] [--sets cats,orl,lfw,cows,pooled] [--scale 100000]

Each method's one threshold is the one with the best mean of pairwise F and B-cubed F on *other* identities than it is
judged on: half of a set's identities, both ways, for each of `--splits` random halvings; the figures are means over
the halves judged, the same for every method. With `--split`, also: fitted once on the run's validation identities and
judged on whole sets.
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
from sklearn.cluster import DBSCAN

from familiar.core.vectors import normalise
from familiar.datasets.folders import IdentityTable, by_hash, open_photo, read_identity_list, scan_folders
from familiar.faces.embedder import Embedder, embed_photos
from familiar.metrics.clustering import contingency
from familiar.neighbors.adapt import adapt
from familiar.neighbors.group import THRESHOLDS, groupable

SETS = {"cats": "cats23_gpriamo", "orl": "orl_faces", "lfw": "lfw_112", "cows": "holstein2025_cows"}
MIN_FACES = 3  # Immich's default
SEED = 0

Groups = Callable[[Sequence[float]], list[np.ndarray]]  # thresholds -> the group of each row at each


class Labelled(NamedTuple):
    embeddings: np.ndarray
    identities: np.ndarray


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--split", type=Path)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--sets", default=f"{','.join(SETS)},pooled", help="which of them to judge")
    parser.add_argument("--scale", type=int)
    options = parser.parse_args()
    if options.scale:
        at_scale(options.scale)
        return
    embedder = Embedder(options.model)
    sets = {name: embedded(embedder, test_table(options.data, name)) for name in SETS}
    sets["pooled"] = Labelled(*(np.concatenate(parts) for parts in zip(*sets.values(), strict=True)))
    sets = {name: sets[name] for name in options.sets.split(",")}
    print("| set | method | threshold | pairwise P / R / F | B-cubed P / R / F | groups / true | seconds |")
    print("|---|---|---|---|---|---|---|")
    for name, rows in sets.items():
        for method in METHODS:
            print(row(name, method, halves(rows, METHODS[method], options.splits)), flush=True)
    if options.split:
        chosen = json.loads(options.split.read_text())["validation"]
        roots = {options.data / identity.split("/")[0] for identity in chosen}
        validation = embedded(embedder, scan_folders(*sorted(roots)).of_identities(chosen))
        high_precision = embedder.metadata.calibration.high_precision.similarity
        print(
            f"\n{len(set(validation.identities))} validation identities, {len(validation.identities)} photos"
        )
        for name, rows in sets.items():
            for method, make in METHODS.items():
                best = fitted(make(validation.embeddings), validation.identities)
                print(row(name, method, [judged(make, rows, best)]), flush=True)
            for method in ("ours", "ours, not adapted"):
                found = judged(METHODS[method], rows, high_precision)
                print(row(name, f"{method}, bundle's", [found]), flush=True)


def test_table(data: Path, name: str) -> IdentityTable:
    table = scan_folders(data / SETS[name])
    if name == "lfw":
        seen = read_identity_list(data / SETS[name] / "peopleDevTrain.txt")
        table = table.of_identities(who for who in table.names if who.split("/")[1] not in seen)
    return table


def embedded(embedder: Embedder, table: IdentityTable) -> Labelled:
    found = embed_photos(embedder, table.photos, open_photo=open_photo)
    return Labelled(found.embeddings, np.array(table.names)[table.labels[found.rows]])


# --- the methods: rows in, groups at any threshold out -----------------------------------------------------------


def ours(embeddings: np.ndarray) -> Groups:
    return groupable(adapt(embeddings)).groups_at


def ours_not_adapted(embeddings: np.ndarray) -> Groups:
    return groupable(embeddings).groups_at


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
    return each(
        lambda threshold: connected_components(coo_matrix(similarity >= threshold), directed=False)[1]
    )


def dbscan(embeddings: np.ndarray) -> Groups:
    distances = np.clip(1 - embeddings @ embeddings.T, 0, 2)

    def at(threshold: float) -> np.ndarray:
        found = DBSCAN(eps=1 - threshold, min_samples=MIN_FACES, metric="precomputed").fit_predict(distances)
        alone = found < 0
        return np.where(alone, found.max() + np.cumsum(alone), found)

    return each(at)


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


METHODS: dict[str, Callable[[np.ndarray], Groups]] = {
    "ours": ours,
    "ours, not adapted": ours_not_adapted,
    "average linkage": average_linkage,
    "connected components": components,
    "DBSCAN (3)": dbscan,
    "Chinese whispers": chinese_whispers,
    "all alone": alone,
}


# --- calibrating and judging -------------------------------------------------------------------------------------


class Judged(NamedTuple):
    threshold: float
    figures: tuple[float, ...]  # pairwise P, R, F, B-cubed P, R, F
    groups: int
    identities: int
    seconds: float


def halves(rows: Labelled, make: Callable[[np.ndarray], Groups], splits: int) -> list[Judged]:
    found: list[Judged] = []
    for seed in range(splits):
        names = by_hash(np.unique(rows.identities).tolist(), seed)
        first = np.isin(rows.identities, names[: len(names) // 2])
        parts = [Labelled(rows.embeddings[part], rows.identities[part]) for part in (first, ~first)]
        best = [fitted(make(part.embeddings), part.identities) for part in parts]
        found += [judged(make, parts[0], best[1]), judged(make, parts[1], best[0])]
    return found


def fitted(groups: Groups, identities: np.ndarray) -> float:
    scores = [objective(figures(identities, found)) for found in groups(THRESHOLDS)]
    best = np.flatnonzero(np.array(scores) == max(scores))
    return THRESHOLDS[best[(len(best) - 1) // 2]]


def judged(make: Callable[[np.ndarray], Groups], rows: Labelled, threshold: float) -> Judged:
    started = time.perf_counter()
    groups = make(rows.embeddings)([threshold])[0]
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
    threshold = np.mean([judged.threshold for judged in found])
    groups, identities = sum(judged.groups for judged in found), sum(judged.identities for judged in found)
    seconds = np.median([judged.seconds for judged in found])
    sizes = f"{groups / len(found):.0f} / {identities / len(found):.0f}"
    return f"| {name} | {method} | {threshold:.2f} | {pairs} | {photos} | {sizes} | {seconds:.2f} |"


def at_scale(count: int) -> None:
    """Synthetic identities of 1 to 1,000 photos (a power law), 128-d, as far apart as a fair model's."""
    rng = np.random.default_rng(SEED)
    sizes = np.minimum(1000, np.ceil(rng.pareto(1.0, count) * 2)).astype(np.int64)
    identities = np.repeat(np.arange(count), sizes)[:count]
    centres = rng.normal(size=(count, 128)).astype(np.float32)
    noise = rng.normal(size=(count, 128)).astype(np.float32)
    embeddings = normalise(centres[identities] + np.float32(0.9) * noise)[rng.permutation(count)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    rows = groupable(adapt(embeddings))
    searched = time.perf_counter()
    found = rows.groups_at([0.4])[0]
    print(
        f"{count:,} x 128: neighbours {searched - started:.0f} s, groups {time.perf_counter() - searched:.1f} s; "
        f"{found.max() + 1:,} groups of {len(np.unique(identities)):,}; "
        f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB, {before / 1024:.0f} before"
    )


if __name__ == "__main__":
    main()
