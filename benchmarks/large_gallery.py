"""Recall@1, ROC AUC and equal error rate of the pet bundles in galleries as large as those of the published embedder.

    large_gallery.py PHOTOS OUTPUT [--bundles pet-mobile pet-nano] [--before BUNDLE]

The queries are all photos of the 23 cats of `cats23_gpriamo`, each searched among the others and a growing number of
other cats (`cats64_strangers`, one photo of 64 px each), once as they are and once reduced to 64 px, so that their size
does not give the other cats away. None of these cats was trained on: the 600 faces that `pet-nano` saw without labels
are left out. Dogs: those of `dogfacenet900` that are kept from training (`shipped/kept_dogs.txt`); all 900 by
`pet-nano`, which learned none of them, and by the bundle `--before`, a `pet-mobile` that learned none either (commit
c2c20e5c).

ROC AUC and equal error rate are over all pairs of the gallery, the intervals of recall@1 over individuals. "Less the
mean": of the gallery's photos, as a gallery compares. Embeddings are kept in OUTPUT.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
from jaxtyping import Float32, Int64
from left_out import DOGS, REPLICATES, interval
from pet_detector.labels import kept_dogs

from familiar import Embedder
from familiar.core.types import Photo
from familiar.datasets import DataSpec, IdentityTable
from familiar.datasets.folders import open_photo
from familiar.datasets.photo_references import PhotoRef
from familiar.embedding.photos import embed_photos
from familiar.metrics.bootstrap import mean_replicates
from familiar.metrics.retrieval import rank_queries
from familiar.metrics.roc import roc_counts_all_pairs
from familiar.metrics.verification import equal_error_rate, roc_auc
from familiar.neighbors import Centering

CATS, OTHER_CATS = "cats23_gpriamo", "cats64_strangers"
GALLERIES = (370, 2_000, 4_000, 7_770)  # photos; the published test set has 1,996 cats, its photos are not counted
SEEN = 600  # of the other cats, evenly spaced by name: `pet-nano` learned what its teachers saw in them
SMALL_PX = 64


@dataclass(frozen=True, eq=False)
class Embedded:
    """Photos of one kind, embedded by one bundle."""

    embeddings: Float32[np.ndarray, "n d"]
    labels: Int64[np.ndarray, " n"]

    def among(self, others: Float32[np.ndarray, "m d"]) -> "Embedded":
        """Add one photo each of other individuals."""
        labels = np.arange(len(others)) + self.labels.max() + 1
        return Embedded(np.concatenate([self.embeddings, others]), np.concatenate([self.labels, labels]))

    @property
    def centered(self) -> "Embedded":
        """The same, less their mean."""
        return Embedded(Centering.fit(self.embeddings).apply(self.embeddings), self.labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos_folder", type=Path, metavar="PHOTOS")
    parser.add_argument("output", type=Path)
    parser.add_argument("--bundles", nargs="+", default=["pet-mobile", "pet-nano"])
    parser.add_argument("--before", help="a pet-mobile that learned no dog")
    options = parser.parse_args()
    cats = DataSpec((str(options.photos_folder / CATS),)).read()
    others = unseen_cats(options.photos_folder)
    dogs = {
        "kept dogs": DataSpec((str(options.photos_folder / DOGS),), tuple(sorted(kept_dogs()))).read(),
        "all dogs": DataSpec((str(options.photos_folder / DOGS),)).read(),
    }
    print("| bundle | queries | photos in the gallery | recall@1 | ROC AUC | EER | less the mean |")
    print("|---|---|--:|---|--:|--:|---|")
    for model in options.bundles:

        def embed(
            name: str, table: IdentityTable, opener: Callable[..., Photo] = open_photo, model: str = model
        ) -> Embedded:
            return embedded(model, table, options.output / f"{Path(model).stem}-{name}.npy", opener)

        distractors = embed("other-cats", others).embeddings
        for name, opener in (("cats23", open_photo), ("cats23, 64 px", open_small)):
            queries = embed(name, cats, opener)
            for size in GALLERIES:
                print_row(model, name, queries.among(distractors[: max(0, size - len(queries.labels))]))
        for name in ("kept dogs", "all dogs") if model == "pet-nano" else ("kept dogs",):
            print_row(model, name, embed(name, dogs[name]))
    if options.before:
        table = dogs["all dogs"]
        print_row("before", "all dogs", embedded(options.before, table, options.output / "before.npy", open_photo))


def unseen_cats(photos_folder: Path) -> IdentityTable:
    """List the other cats whose faces no bundle was shown, in an order drawn at random."""
    names = [path.parent.name for path in sorted((photos_folder / OTHER_CATS).rglob("*.jpg"))]
    seen = {names[index * len(names) // SEEN] for index in range(SEEN)}
    table = DataSpec((str(photos_folder / OTHER_CATS),)).read()
    rows = [row for row, label in enumerate(table.labels) if Path(table.names[label]).name not in seen]
    return table.select_rows(np.random.default_rng(0).permutation(rows))


def open_small(photo: PhotoRef, /, *, min_side_px: int | None = None) -> Photo:
    """Decode a photo, reduced to the size of the other cats."""
    original = open_photo(photo, min_side_px=min_side_px)
    scale = SMALL_PX / max(original.rgb_u8.shape[:2])
    height, width = (max(1, round(side * scale)) for side in original.rgb_u8.shape[:2])
    return replace(original, rgb_u8=cv2.resize(original.rgb_u8, (width, height), interpolation=cv2.INTER_AREA))


def embedded(model: str, table: IdentityTable, file: Path, opener: Callable[..., Photo]) -> Embedded:
    """Embed photos whole, unless the file has their embeddings."""
    if not file.exists():
        result = embed_photos(Embedder(model), table.photos, "none", open_photo=opener)
        assert not result.skipped, result.skipped
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, result.embeddings)
    return Embedded(np.load(file), table.labels)


def print_row(model: str, queries: str, gallery: Embedded) -> None:
    """Print the figures of one gallery, as it is and less its mean."""
    as_it_is, centered = figures(gallery), figures(gallery.centered)
    size = f"{len(gallery.labels):,} of {len(np.unique(gallery.labels)):,} individuals"
    print(f"| {model} | {queries} | {size} | {' | '.join(as_it_is)} | {' / '.join(centered)} |", flush=True)


def figures(gallery: Embedded) -> Sequence[str]:
    """Format recall@1 with its interval, ROC AUC and equal error rate."""
    ranked = rank_queries(gallery.embeddings, gallery.labels)
    hits = ranked.figures((1,))["recall_at_1"]
    replicates = mean_replicates({"recall": hits}, ranked.identity, replicates=REPLICATES)["recall"]
    counts = roc_counts_all_pairs(gallery.embeddings, gallery.labels)
    return (
        f"{hits.mean():.3f} {interval(replicates)}",
        f"{roc_auc(counts):.4f}",
        f"{equal_error_rate(counts)[0]:.4f}",
    )


if __name__ == "__main__":
    main()
