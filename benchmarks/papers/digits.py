"""Softmax, NormFace and ArcFace on MNIST in the plane (seed 003): trained on 0 to 4, judged on 5 to 9 as well."""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.stats import t as student
from torch import nn

from familiar.datasets.folders import DataSpec
from familiar.datasets.idx import IdxPhoto
from familiar.loading.crops import read_table
from familiar.loading.dataset import FaceDataset
from familiar.recipes import RECIPES
from familiar.training.checkpoint import load_weights
from familiar.training.network import build_network
from familiar.training.objective import Objective
from familiar.training.validation import embed_dataset
from papers.bench import Bench, Training, kept
from papers.digits_pictures import draw_outlier, draw_planes
from papers.figures import number, signed, table
from papers.planes import DUNNS, KNOWN, SPACES, Figures, Plane, apart, aucs, outlier, plane_figures, unit_rows
from papers.plots import save

TITLE = "Digits in the plane (seed 003)"
SEEDS = range(5)
LOSSES = {
    "softmax": ("digits-softmax", ()),
    "NormFace, s = 1": ("digits-normface", ("loss.scale=1",)),
    "NormFace, s = 16": ("digits-normface", ("loss.scale=16",)),
    "NormFace, s = 30": ("digits-normface", ("loss.scale=30",)),
    "ArcFace, s = 16, m = .5": ("digits-arcface", ()),
}
EPOCHS = 4
MAX_PHOTOS = 3000  # of each digit
TRAININGS = {
    loss: [
        Training(
            f"digits/{loss.replace(' = ', '').replace(', ', '-').replace('.', '')}/{seed}",
            recipe,
            ("mnist",),
            (
                *settings,
                f"seed={seed}",
                f"budget.epochs={EPOCHS}",
                f"validation.every_epochs={EPOCHS}",
            ),
            ("--max-photos", str(MAX_PHOTOS)),
        )
        for seed in SEEDS
    ]
    for loss, (recipe, settings) in LOSSES.items()
}
JUDGED = ("accuracy", "auc known", "auc unseen")
NEARER = {"nearer than nearest": "than its nearest mate", "nearer than farthest": "than its farthest"}
MARGIN, COMPARED = "ArcFace, s = 16, m = .5", ("NormFace, s = 16", "softmax")
# Of the vectors that the essay's networks end in: all but softmax's are normalized.
LADDER = {loss: "raw" if loss == "softmax" else "unit" for loss in LOSSES}
CLAIMED = {"softmax": 5.31, "NormFace, s = 1": 29.11}  # the essay's Dunn indices
Runs = dict[str, list[Figures]]  # by loss


def measure(bench: Bench) -> str:
    bench.train(training for runs in TRAININGS.values() for training in runs)
    digits = _test_digits(bench)
    first = {loss: _plane(bench, runs[0], digits) for loss, runs in TRAININGS.items()}
    save(draw_planes(first, known=True), bench.pictures / "digits-planes.png")
    save(draw_planes(first, known=False), bench.pictures / "digits-unseen.png")
    softmax = first["softmax"].right
    if (found := outlier(softmax.raw, softmax.digits)) is not None:
        save(draw_outlier(softmax, found), bench.pictures / "digits-outlier.png")
    runs = {loss: [_figures(bench, run, digits) for run in of] for loss, of in TRAININGS.items()}
    return "\n\n".join(
        [
            _introduction(digits),
            _verification(runs, _pixels(digits)),
            _dunn(runs),
            _neighbors(runs),
            _outlier(softmax, found),
        ]
    )


def mean_over_trainings(values: Sequence[float], show: Callable[[float], str] = number) -> tuple[str, bool]:
    """Mean of two runs or more with Student's 95 % interval, and whether that leaves out zero."""
    mean = float(np.mean(values))
    width = float(student.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5)
    low, high = mean - width, mean + width
    return f"{show(mean)} [{show(low)}, {show(high)}]", not low <= 0 <= high


def _introduction(digits: FaceDataset) -> str:
    known = int((digits.table.labels < KNOWN).sum())
    return (
        f"{MAX_PHOTOS:,} images of each digit 0 to 4, {EPOCHS} epochs, two components, {len(SEEDS)} seeds; the last "
        f"epoch's weights, so nothing is chosen by digits 5 to 9. Judged on MNIST's test part: {known:,} images of 0 "
        f"to 4, {len(digits) - known:,} of 5 to 9. Means, with Student's 95 % interval **over the seeds**: how "
        "another training would do, not another test set."
    )


def _verification(runs: Runs, pixels: Figures) -> str:
    head = ("loss", "accuracy, 0 to 4", "AUC, 0 to 4", "AUC, 5 to 9, never trained on")
    rows = _rows(runs, JUDGED)
    rows.append(["cosines of the pixels, nothing trained", "-", *(number(pixels[name]) for name in JUDGED[1:])])
    differences = [[f"{MARGIN} less {other}", *(_paired(runs, other, name) for name in JUDGED)] for other in COMPARED]
    return (
        f"ROC AUC of the cosine over all pairs.\n\n{table(head, rows)}\n\nThe margin's worth: differences paired by "
        f"seed, bold where the interval leaves out zero.\n\n{table(('', *head[1:]), differences)}"
    )


def _paired(runs: Runs, other: str, name: str) -> str:
    values = [one[name] - two[name] for one, two in zip(runs[MARGIN], runs[other], strict=True)]
    text, certain = mean_over_trainings(values, signed)
    return f"**{text}**" if certain else text


def _dunn(runs: Runs) -> str:
    """Both tables: all readings, and the essay's ladder."""
    names = [f"{space} {reading}" for space in SPACES for reading in DUNNS]
    head = ["loss", *(f"{DUNNS[reading]}, {space}" for space in SPACES for reading in DUNNS)]
    ladder: list[list[str]] = []
    off: dict[str, float] = {}
    for reading, words in DUNNS.items():
        steps = {
            loss: float(np.mean([one[f"{space} {reading}"] for one in runs[loss]])) for loss, space in LADDER.items()
        }
        off[words] = float(np.exp(np.mean([abs(np.log(steps[loss] / told)) for loss, told in CLAIMED.items()])))
        ladder.append([words, *(number(step, 2) for step in steps.values()), f"{off[words]:,.1f} times"])
    ladder.append(["**the essay**", *(number(CLAIMED.get(loss), 2) for loss in LADDER), ""])
    return (
        "Dunn indices, after dropping of each class the members beyond the 95th percentile of distance to its "
        "centroid. *Members*: nearest members of two classes / largest diameter (Dunn's own). *Centroids*: nearest "
        "centroids / largest diameter. *Centroids to mean*: nearest centroids / mean distance of two members of a "
        "class. *Raw*: as the head gives the vectors; *unit*: at unit length.\n\n"
        f"{table(head, _rows(runs, names, lambda value: number(value, 2)))}\n\n"
        "The essay's ladder, on the vectors that its networks give: softmax's raw, the others' unit. Its NormFace "
        "has no scale, so it is s = 1. Last column: how far off its two figures, geometric mean.\n\n"
        f"{table(('reading', *LADDER, 'off by'), ladder)}\n\n"
        f"The reading nearest to the essay's figures is *{min(off, key=off.__getitem__)}*."
    )


def _neighbors(runs: Runs) -> str:
    names = [f"{space} {which}" for which in NEARER for space in SPACES]
    head = ["loss", *(f"{NEARER[which]}, {space}" for which in NEARER for space in SPACES)]
    return (
        "Images of 0 to 4 that the classifier gets right: how many have a stranger (of another digit, got right as "
        "well) nearer than their nearest mate, and nearer than their farthest.\n\n"
        + table(head, _rows(runs, names, lambda value: f"{100 * value:.1f} %"))
    )


def _rows(runs: Runs, names: Sequence[str], show: Callable[[float], str] = number) -> list[list[str]]:
    return [
        [loss, *(mean_over_trainings([one[name] for one in of], show)[0] for name in names)]
        for loss, of in runs.items()
    ]


def _outlier(plane: Plane, found: tuple[int, int, int] | None) -> str:
    if found is None:
        return "No image in softmax's plane of seed 0 has a stranger nearer than a mate by distance and angle alike."
    one, stranger, mate = (f"test image {plane.place[row]} (a {plane.digits[row]})" for row in found)
    near, far = (apart(plane, found[0], other) for other in found[1:])
    return (
        f"The essay's sample, found by search in softmax's plane of seed 0: {one} is nearer to {stranger}, {near}, "
        f"than to {mate}, {far}. All three are classified right. Of all such images it has the largest gap between "
        "the cosines to its nearest stranger and to its farthest mate."
    )


def _figures(bench: Bench, training: Training, digits: FaceDataset) -> Figures:
    """Computed once, and kept beside the run."""
    file = bench.run(training).path / "plane.json"
    return kept(file, lambda: plane_figures(_plane(bench, training, digits)))


def _test_digits(bench: Bench) -> FaceDataset:
    found = DataSpec((f"mnist:{bench.photos / 'mnist'}:test",)).read()
    read = read_table(found, RECIPES["digits-softmax"]().input.preprocessing())
    return FaceDataset(read.table, read.crops)


def _plane(bench: Bench, training: Training, digits: FaceDataset) -> Plane:
    run = bench.run(training)
    recipe = run.recipe()
    network = build_network(recipe)
    objective = Objective(recipe.loss, recipe.model.embedding_dim, KNOWN)
    load_weights(run.best, network=network, objective=objective)
    raw = embed_dataset(nn.Sequential(network.trunk, network.head), digits)
    centers = objective.loss.centers.detach().numpy()
    place = np.array([photo.index for photo in digits.table.photos if isinstance(photo, IdxPhoto)])
    return Plane(raw, digits.table.labels, place, centers if recipe.loss.name == "softmax" else unit_rows(centers))


def _pixels(digits: FaceDataset) -> Figures:
    """AUC where a digit's vector is its pixels."""
    crops = np.stack([digits.crops[row][..., 0].reshape(-1) for row in range(len(digits))])
    return aucs(unit_rows(crops.astype(np.float32)), digits.table.labels)
