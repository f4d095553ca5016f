"""The pet recipe as it was published, on real cats and dogs: five folds by identity, and collections left out."""

import numpy as np

from familiar.datasets.folders import DataSpec, open_photo
from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import embed_photos
from papers.bench import Bench, Evaluation, Training, cached
from papers.figures import Results, figure, number, over_seeds, paired, table
from papers.ladder import FOLDS, FoldScores, pooled, score_fold
from papers.pets_tables import PUBLISHED_RESULTS
from papers.shared import NO_LEAKS, PRETRAINED
from papers.vectors import results_of

TITLE = "The pet recipe as published, on real cats and dogs"
FOLDERS = {"cats": "cats23_gpriamo", "dogs": "dogs29_stdove"}
TRAINED_ON = {"cats": ("cats",), "dogs": ("dogs",), "joint": ("cats", "dogs")}
OTHERS = ("pandas31_faces", "holstein2025_cows")
# Nothing of the published recipe is changed: 224 px, 40 epochs, its schedule, augmentation, smoothing and dropout. Only
# the fold's own identities must choose no epoch, so they are validated once, at the end.
AT_THE_END = "validation.every_epochs=40"
PATHS = {
    "ROC AUC": "verification.auc",
    "accuracy, balanced": "verification.best_accuracy",
    "recall@1": "retrieval.recall_at_1",
}
UNPUBLISHED = {
    "MRR": "retrieval.mrr",
    "NDCG@10": "retrieval.ndcg_at_10",
    "purity": "clustering.kmeans.purity",
    "Spearman": "verification.spearman",
    "mean margin of triplets": "triplets.average_margin",
}
GAP = "overfitting.gap"


def identities_of(bench: Bench, species: str, fold: int) -> list[str]:
    """List the identities of a fold: every fifth by name."""
    folder = bench.photos / FOLDERS[species]
    return sorted(path.name for path in folder.iterdir() if path.is_dir())[fold::FOLDS]


def in_folds(bench: Bench, kind: str, fold: int, variant: str = "", *changed: str) -> Training:
    """Define a training on the other folds' identities, with some settings of the recipe changed."""
    held_out = ",".join(name for species in TRAINED_ON[kind] for name in identities_of(bench, species, fold))
    settings = (*PRETRAINED, AT_THE_END, f"split.validate={held_out}", *changed)
    data = tuple(FOLDERS[species] for species in TRAINED_ON[kind])
    return Training(f"published/{kind}-{variant}{fold}", "pet-mobile", data, settings)


def without(species: str) -> Training:
    """Define a training on all animals but one species."""
    data = (*(folder for name, folder in FOLDERS.items() if name != species), *OTHERS)
    settings = (*PRETRAINED, "split.test=0", "split.min_photos=2")
    return Training(f"published/without-{species}", "pet-mobile", data, settings, ("--max-photos", "25"))


# Split 80/10/10 by identity, as published: the overfitting suite needs identities that nothing was chosen on.
WHOLE = Training("published/whole", "pet-mobile", tuple(FOLDERS.values()), PRETRAINED)
OVERFITTING = Evaluation("overfitting", tuple(FOLDERS.values()), ("--suite", "overfitting", *NO_LEAKS))
LEFT_OUT = {species: Evaluation(f"left-out-{species}", (folder,), NO_LEAKS) for species, folder in FOLDERS.items()}


def measure(bench: Bench) -> str:
    bench.train([in_folds(bench, kind, fold) for fold in range(FOLDS) for kind in TRAINED_ON])
    bench.train([WHOLE], [OVERFITTING])
    for species, evaluation in LEFT_OUT.items():
        bench.train([without(species)], [evaluation])
    return "\n\n".join(
        [
            "`pet-mobile` as published (224 px, 40 epochs, its schedule, augmentation, dropout, ImageNet's weights), "
            "on 23 real cats and 29 real dogs. Five folds by identity: each network is trained on the other folds' "
            "individuals, and the similarities of all pairs within the folds are pooled; a photo is searched among "
            "those of its fold, about five individuals. *Joint*: trained on both species. One seed; 95 % intervals "
            "over the individuals.",
            folds_table(bench),
            "Collections left out: trained on the other species, pandas and cows (25 photos of each individual at "
            "most), evaluated on the whole collection. The published values are of other photos.",
            left_out_table(bench),
            "Overfitting of a joint network trained on a split of 80/10/10: recall@1 of individuals that it was "
            f"trained on less that of others {figure(bench.results(WHOLE, OVERFITTING.label), GAP)}.",
        ]
    )


def folds_table(bench: Bench) -> str:
    rows: list[list[str]] = []
    for species in FOLDERS:
        results = {kind: on_folds(bench, kind, species) for kind, trained in TRAINED_ON.items() if species in trained}
        for kind, outcome in results.items():
            difference = "" if kind == species else paired([results[species]], [outcome], PATHS["recall@1"])
            cells = [over_seeds([outcome], path) for path in PATHS.values()]
            rows.append([species, f"trained on {'both' if kind == 'joint' else species}", *cells, difference])
    return table(["tested on", "", *PATHS, "recall@1, difference of joint"], rows)


def on_folds(bench: Bench, kind: str, species: str, variant: str = "", *changed: str) -> Results:
    """Evaluate every fold's individuals of a species with the network that was not trained on them."""

    def work() -> Results:
        folder = FOLDERS[species]
        photos = DataSpec((str(bench.photos / folder),)).read()
        folds: list[FoldScores] = []
        for fold in range(FOLDS):
            fold_photos = photos.select_identities(f"{folder}/{name}" for name in identities_of(bench, species, fold))
            embedder = Embedder(bench.run(in_folds(bench, kind, fold, variant, *changed)).bundle)
            embedded = embed_photos(embedder, fold_photos.photos, "none", open_photo=open_photo)
            labels = np.searchsorted(np.array(photos.names), np.array(fold_photos.names)[fold_photos.labels])
            folds.append(score_fold(embedded.embeddings, labels))
        return results_of(pooled(folds))

    return cached(bench.runs / "published" / f"{kind}-{variant}on-{species}.json", work)


def left_out_table(bench: Bench) -> str:
    results = [bench.results(without(species), LEFT_OUT[species].label) for species in FOLDERS]
    compared = PUBLISHED_RESULTS | {name: (path, None, None) for name, path in UNPUBLISHED.items()}
    rows = [
        [name, number(cats), figure(results[0], path), number(dogs), figure(results[1], path)]
        for name, (path, cats, dogs) in compared.items()
    ]
    return table(["", "cats: published", "cats: ours", "dogs: published", "dogs: ours"], rows)
