"""ROC AUC and recall@1 of bundles on whole collections that none of them has learned from.

    left_out.py PHOTOS OUTPUT BUNDLE ... [--rows COLLECTION ...] [--baseline BUNDLE]

PHOTOS contains the collections; of `dogfacenet900`, only the kept dogs (`shipped/kept_dogs.txt`) are judged, or with
`--all-dogs` all. The bundles are the seeds of one training. Their embeddings are kept in OUTPUT, and what is finished
is not done again: interrupt the command and call it again as you like.

ROC AUC is over all pairs of a collection (for people, those of LFW's `pairsDevTest`), recall@1 over all of its photos.
Both are means over the seeds, plus or minus half their range, with 95 % intervals over individuals. "Less its mean":
less the mean of the collection's own photos, as a gallery compares them. "Gain": over the baseline, individual by
individual. "False accepts" are those at the threshold `high_precision` that is fitted to the other collections' photos,
and what that threshold promises.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from pet_detector.labels import kept_dogs

from familiar import Embedder, metrics
from familiar.datasets import DataSpec, IdentityTable, read_lfw_pairs
from familiar.datasets.folders import open_photo
from familiar.embedding.photos import embed_photos
from familiar.metrics.bootstrap import mean_replicates, verification_replicates
from familiar.metrics.calibration import calibrate_collections
from familiar.neighbors import Centering

COLLECTIONS: dict[str, int | None] = {  # photos per identity at most, when the collection is left out
    "cats23_gpriamo": None,
    "dogfacenet900": None,
    "dogs29_stdove": 15,
    "pandas31_faces": None,
    "lions94_faces": None,
    "holstein2025_cows": 12,
}
DOGS = "dogfacenet900"
PEOPLE = "lfw_112"
PEOPLE_PAIRS = "pairsDevTest.txt"
REPLICATES = 500


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Photos that a network has not seen, embedded by it."""

    embeddings: Float32[np.ndarray, "n d"]
    labels: Int64[np.ndarray, " n"]
    left: Int64[np.ndarray, " p"]  # of the pairs to verify
    right: Int64[np.ndarray, " p"]

    @property
    def centered(self) -> "LeftOut":
        """The same, less the mean of these photos, of which a gallery subtracts most."""
        return replace(self, embeddings=Centering.fit(self.embeddings).apply(self.embeddings))

    @property
    def similarities(self) -> Float64[np.ndarray, " p"]:
        """Of the pairs."""
        return np.einsum("pd,pd->p", self.embeddings[self.left], self.embeddings[self.right], dtype=np.float64)

    @property
    def same(self) -> Bool[np.ndarray, " p"]:
        """Whether both photos of a pair show one individual."""
        return self.labels[self.left] == self.labels[self.right]


@dataclass(frozen=True, eq=False)
class Scores:
    """How well individuals are told apart, and the same in replicates of the individuals."""

    auc: float
    recall_at_1: float
    auc_replicates: Float64[np.ndarray, " r"]
    recall_replicates: Float64[np.ndarray, " r"]

    @staticmethod
    def measure(row: LeftOut) -> "Scores":
        """Measure the pairs of a row, and the nearest photo of each."""
        scores, labels = row.similarities, row.labels
        auc = metrics.roc_auc(metrics.roc_counts(scores[row.same], scores[~row.same]))
        similarities = row.embeddings @ row.embeddings.T
        np.fill_diagonal(similarities, -2)
        queries = np.bincount(labels)[labels] > 1
        hits = (labels[similarities.argmax(axis=1)] == labels)[queries].astype(np.float64)
        pairs = verification_replicates(
            scores, labels[row.left], labels[row.right], replicates=REPLICATES, only={"auc"}
        )
        recall = mean_replicates({"recall": hits}, labels[queries], replicates=REPLICATES)
        return Scores(float(auc), float(hits.mean()), pairs["auc"], recall["recall"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS")
    parser.add_argument("output", type=Path)
    parser.add_argument("bundles", nargs="+", type=Path, metavar="BUNDLE")
    parser.add_argument("--rows", nargs="+", choices=[*COLLECTIONS, PEOPLE], default=[*COLLECTIONS, PEOPLE])
    parser.add_argument("--baseline", type=Path, help="bundle whose figures the others are compared with")
    parser.add_argument("--all-dogs", action="store_true", help=f"of {DOGS}, for bundles that saw none")
    options = parser.parse_args()
    tables = {name: read_row(options.photos_folder, name, options.all_dogs) for name in options.rows}
    rows: dict[str, list[LeftOut]] = {name: [] for name in options.rows}
    for seed, bundle in enumerate(options.bundles):
        for name, table in tables.items():
            file = options.output / f"{name}-{seed}.npy"
            rows[name].append(embedded(options.photos_folder, name, table, bundle, file))
            print_row(name, rows[name][-1:], [])
    baseline: dict[str, list[LeftOut]] = {}
    if options.baseline:
        for name, table in tables.items():
            file = options.output / f"{name}-{options.baseline.stem}.npy"
            baseline[name] = [embedded(options.photos_folder, name, table, options.baseline, file)]
    print("\n| left out | as it is | less its mean | gain over the baseline, less the mean |\n|---|---|---|---|")
    for name in options.rows:
        print_row(name, rows[name], baseline.get(name, []))
    print("\n| left out | promised | false accepts | promised, less the means | false accepts |\n|---|--:|--:|--:|--:|")
    for name in (name for name in options.rows if name in COLLECTIONS):
        others = [row for other in COLLECTIONS if other in rows and other != name for row in rows[other]]
        if others:
            as_it_is = false_accepts(rows[name], others)
            centered = false_accepts([row.centered for row in rows[name]], [row.centered for row in others])
            print(f"| {name} | {as_it_is} | {centered} |")


def read_row(photos_folder: Path, name: str, all_dogs: bool = False) -> IdentityTable:
    """List the photos of a collection that judges bundles."""
    folders = (str(photos_folder / name),)
    if name == PEOPLE:
        people = DataSpec(folders).read()
        pairs = read_lfw_pairs(photos_folder / name / PEOPLE_PAIRS, people)
        return people.select_rows(np.unique(np.concatenate([pairs.left, pairs.right])))
    identities = tuple(sorted(kept_dogs())) if name == DOGS and not all_dogs else None
    return DataSpec(folders, identities, max_photos=COLLECTIONS[name]).read()


def trained_dogs(photos_folder: Path) -> tuple[str, ...]:
    """Return the names of the dogs that are not kept."""
    names = {folder.name for folder in (photos_folder / DOGS).iterdir() if folder.is_dir()}
    return tuple(sorted(names - kept_dogs()))


def embedded(photos_folder: Path, name: str, table: IdentityTable, model: Path, file: Path) -> LeftOut:
    """Embed the photos of a collection, unless the file has them."""
    if not file.exists():
        result = embed_photos(Embedder(model), table.photos, "none", open_photo=open_photo)
        assert not result.skipped, result.skipped
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, result.embeddings)
    embeddings: Float32[np.ndarray, "n d"] = np.load(file)
    if name == PEOPLE:
        pairs = read_lfw_pairs(photos_folder / name / PEOPLE_PAIRS, table)
        return LeftOut(embeddings, table.labels, pairs.left, pairs.right)
    return LeftOut(embeddings, table.labels, *np.triu_indices(len(table), 1))


def print_row(name: str, rows: Sequence[LeftOut], baseline: Sequence[LeftOut]) -> None:
    """Print a row of the first table."""
    plain, centered = ([Scores.measure(row) for row in each] for each in (rows, [row.centered for row in rows]))
    cells = [cell(plain), cell(centered)]
    for row in baseline:
        before = Scores.measure(row.centered)
        auc = np.mean([scores.auc_replicates for scores in centered], axis=0) - before.auc_replicates
        recall = np.mean([scores.recall_replicates for scores in centered], axis=0) - before.recall_replicates
        gains = np.mean([(scores.auc, scores.recall_at_1) for scores in centered], axis=0)
        cells.append(
            f"{gains[0] - before.auc:+.3f} {interval(auc)} / {gains[1] - before.recall_at_1:+.3f} {interval(recall)}"
        )
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def cell(runs: Sequence[Scores]) -> str:
    """Write both figures: the mean over seeds, half the range, and the interval over individuals."""
    aucs, recalls = [run.auc for run in runs], [run.recall_at_1 for run in runs]
    auc_interval = interval(np.mean([run.auc_replicates for run in runs], axis=0))
    recall_interval = interval(np.mean([run.recall_replicates for run in runs], axis=0))
    return f"{spread(aucs)} {auc_interval} / {spread(recalls)} {recall_interval}"


def spread(values: Sequence[float]) -> str:
    """Write a mean over seeds, and half the range."""
    return f"{np.mean(values):.3f}" + (f" ± {np.ptp(values) / 2:.3f}" if len(values) > 1 else "")


def interval(replicates: Float64[np.ndarray, " r"]) -> str:
    """Write the central 95 % of the replicates."""
    low, high = np.quantile(replicates, [0.025, 0.975])
    return f"[{low:.3f}, {high:.3f}]"


def false_accepts(rows: Sequence[LeftOut], others: Sequence[LeftOut]) -> str:
    """Write what the other collections' threshold promises, and what it gives here."""
    calibration = calibrate_collections([(other.embeddings, other.labels) for other in others])
    rates = [float((row.similarities[~row.same] >= calibration.high_precision.similarity).mean()) for row in rows]
    return f"{calibration.target_far:.1%} | {np.mean(rates):.2%}"


if __name__ == "__main__":
    main()
