"""ROC AUC and recall@1 on whole collections that were left out of training.

    leave_one_out.py PHOTOS OUTPUT [--recipe pet-lite] [--set KEY=VALUE ...] [--seeds 3] [--rows COLLECTION ...]

PHOTOS contains the collections. For each of them and each seed the recipe is trained on all others, and all photos of
the one left out are embedded, with their mirror images. Runs are kept in OUTPUT, and a run that is finished is not
trained again: interrupt the command and call it again as you like.

Columns: similarities as they are, and less the mean of the collection's own photos; as means over seeds, with half the
range. "false accepts" are those at the threshold at which .3 % of the other collections' negative pairs are accepted,
each collection counting the same, with the networks that left these out.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Float64, Int64

from familiar import Embedder, metrics
from familiar.core.vectors import normalize
from familiar.datasets import DataSpec
from familiar.datasets.folders import open_photo
from familiar.embedding.embedder import embed_photos
from familiar.export import train
from familiar.metrics.pairs import count_all_pairs
from familiar.recipes import recipe_named

COLLECTIONS: dict[str, int | None] = {  # photos per identity at most, when the collection is left out
    "cats23_gpriamo": None,
    "dogs29_stdove": 15,
    "pandas31_faces": None,
    "lions94_faces": None,
    "holstein2025_cows": 12,
}
MAX_TRAINING_PHOTOS = 15  # per identity, so that no collection outweighs the others
TARGET_FAR = 0.003  # of `high_precision`
QUANTILES = 4096  # of each collection's similarities of negative pairs, kept for the thresholds


@dataclass(frozen=True)
class Scores:
    """How well one network tells the identities of a collection apart that it was not trained on."""

    auc: float
    recall_at_1: float

    @staticmethod
    def measure(rows: Float32[np.ndarray, "n d"], labels: Int64[np.ndarray, " n"]) -> "Scores":
        """Measure unit rows over all pairs."""
        auc = float(metrics.roc_auc(count_all_pairs(rows, labels)))
        return Scores(auc, float(metrics.retrieval_metrics(rows, labels).recall_at_k[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS")
    parser.add_argument("output", type=Path)
    parser.add_argument("--recipe", default="pet-lite")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", nargs="+", choices=COLLECTIONS, default=list(COLLECTIONS))
    options = parser.parse_args()
    results: dict[str, list[dict[str, dict[str, float]]]] = {name: [] for name in options.rows}
    for seed in range(options.seeds):
        for name in options.rows:
            run = options.output / f"{name}-{seed}"
            if not (run / "left_out.json").exists():
                train_without(name, options, seed, run)
                measure(options.photos_folder, name, run)
            results[name].append(json.loads((run / "left_out.json").read_text()))
            print(f"{name}, seed {seed}: {results[name][-1]}", flush=True)
    print("\n| left out | as it is | less its mean | false accepts |\n|---|---|---|--:|")
    for name, runs in results.items():
        cells = (" / ".join(spread(runs, column, score) for score in ("auc", "recall_at_1")) for column in runs[0])
        print(f"| {name} | {' | '.join(cells)} | {false_accepts(options, name)} |")


def train_without(name: str, options: argparse.Namespace, seed: int, run: Path) -> None:
    """Train the recipe on all collections but one, unless the run is finished."""
    if (run / "model.onnx").exists():
        return
    sources = tuple(str(options.photos_folder / collection) for collection in COLLECTIONS)
    spec = DataSpec(sources, max_photos=MAX_TRAINING_PHOTOS, leave_out=(name,))
    recipe = replace(recipe_named(options.recipe).with_settings(options.settings), seed=seed)
    train(spec, run, recipe, resume=(run / "recipe.json").exists(), on_epoch=print)


def measure(photos_folder: Path, name: str, run: Path) -> None:
    """Embed the collection left out, and store the scores and the similarities of its negative pairs."""
    table = DataSpec((str(photos_folder / name),), max_photos=COLLECTIONS[name]).read()
    embedded = embed_photos(Embedder(run), table.photos, "none", open_photo=open_photo, flip=True)
    assert not embedded.skipped, embedded.skipped
    rows, labels = embedded.embeddings, table.labels
    centered = normalize(rows - rows.mean(axis=0))
    np.savez(run / "negatives.npz", plain=negatives(rows, labels), centered=negatives(centered, labels))
    scores = {
        "as it is": asdict(Scores.measure(rows, labels)),
        "less its mean": asdict(Scores.measure(centered, labels)),
    }
    (run / "left_out.json").write_text(json.dumps(scores))


def negatives(rows: Float32[np.ndarray, "n d"], labels: Int64[np.ndarray, " n"]) -> Float64[np.ndarray, " q"]:
    """Return quantiles of the similarities of all negative pairs."""
    first, second = np.triu_indices(len(rows), 1)
    different = labels[first] != labels[second]
    similarities = (rows @ rows.T)[first[different], second[different]]
    return np.quantile(similarities, np.linspace(0, 1, QUANTILES))


def false_accepts(options: argparse.Namespace, name: str) -> str:
    """Return the false accept rates at the other collections' threshold, as it is and less the mean."""
    cells: list[str] = []
    for column in ("plain", "centered"):
        rates = list(_false_accept_rates(options, name, column))
        cells.append(f"{np.mean(rates):.1%}" if rates else "-")
    return " / ".join(cells)


def _false_accept_rates(options: argparse.Namespace, name: str, column: str) -> Iterator[float]:
    for seed in range(options.seeds):
        stored = {row: np.load(options.output / f"{row}-{seed}" / "negatives.npz")[column] for row in options.rows}
        left_out = stored.pop(name)
        if stored:
            threshold = np.quantile(np.concatenate(list(stored.values())), 1 - TARGET_FAR)
            yield float((left_out >= threshold).mean())


def spread(runs: list[dict[str, dict[str, float]]], column: str, score: str) -> str:
    """Write a score's mean over seeds, and half its range."""
    values = [run[column][score] for run in runs]
    return f"{np.mean(values):.3f}" + (f" ± {np.ptp(values) / 2:.3f}" if len(values) > 1 else "")


if __name__ == "__main__":
    main()
