"""Softmax, NormFace and ArcFace on MNIST with two components: trained on digits 0 to 4, tested on all ten."""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.stats import t as student
from torch import nn

from familiar.core.files import write_atomically
from familiar.datasets.folders import DataSpec
from familiar.datasets.idx import IdxPhoto
from familiar.loading.crops import read_table
from familiar.loading.dataset import FaceDataset
from familiar.recipes import RECIPES
from familiar.recipes.digits import TRAINING_DIGITS
from familiar.training.checkpoint import load_weights
from familiar.training.network import build_network
from familiar.training.objective import Objective
from familiar.training.validation import embed_dataset
from papers.bench import Bench, Training, cached
from papers.digits_pictures import draw_outlier, draw_planes
from papers.figures import number, signed, table
from papers.planes import (
    DUNNS,
    KNOWN,
    SPACES,
    Figures,
    Plane,
    aucs,
    describe_distance,
    outlier,
    plane_figures,
    unit_rows,
)
from papers.plots import save

TITLE = "Digits in the plane"
SEEDS = range(3)
LOSSES = {
    "softmax": ("digits-softmax", ()),
    "softmax with bias": ("digits-softmax", ("loss.bias=true",)),
    "NormFace, s = 1": ("digits-normface", ("loss.scale=1",)),
    "ArcFace, s = 1, m = .5": ("digits-arcface", ("loss.scale=1",)),
    "NormFace, s = 16": ("digits-normface", ("loss.scale=16",)),
    "ArcFace, s = 16, m = .5": ("digits-arcface", ()),
}
EPOCHS = 5
# Held-out digits: two, as validation and calibration compare all pairs, and the last epoch is used whatever they say.
HELD_OUT = ("5", "6")
IDENTITIES = "digits/identities.txt"  # in RUNS
TRAININGS = {
    loss: [
        Training(
            f"digits/{loss.replace(' = ', '').replace(', ', '-').replace('.', '').replace(' ', '-')}/{seed}",
            recipe,
            ("mnist",),
            (
                *settings,
                f"seed={seed}",
                f"budget.epochs={EPOCHS}",
                f"validation.every_epochs={EPOCHS}",
            ),
            ("--identities", f"RUNS/{IDENTITIES}"),
        )
        for seed in SEEDS
    ]
    for loss, (recipe, settings) in LOSSES.items()
}
COMPARED_FIGURES = ("accuracy", "auc known", "auc unseen")
NEARER = {
    "nearer than nearest": "nearer than the nearest positive",
    "nearer than farthest": "nearer than the farthest positive",
}
MARGIN_EFFECTS = {  # with the margin: without
    "ArcFace, s = 1, m = .5": "NormFace, s = 1",
    "ArcFace, s = 16, m = .5": "NormFace, s = 16",
}
COMPARED = MARGIN_EFFECTS | {"softmax with bias": "softmax"}
# The output of the essay's networks: normalized for all losses but softmax.
OUTPUT_SPACE = {loss: "raw" if loss.startswith("softmax") else "unit" for loss in LOSSES}
CLAIMED = {"softmax": 5.31, "NormFace, s = 1": 29.11}  # the essay's Dunn indices
Runs = dict[str, list[Figures]]  # by loss


def measure(bench: Bench) -> str:
    (bench.runs / IDENTITIES).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(bench.runs / IDENTITIES, "\n".join([*TRAINING_DIGITS, *HELD_OUT]).encode())
    bench.train(TRAININGS[loss][seed] for seed in SEEDS for loss in LOSSES)
    digits = _test_digits(bench)
    first = {loss: _plane(bench, runs[0], digits) for loss, runs in TRAININGS.items()}
    save(draw_planes(first, known=True), bench.pictures / "digits-planes.png")
    save(draw_planes(first, known=False), bench.pictures / "digits-unseen.png")
    softmax = first["softmax"].correctly_classified
    if (outlier_rows := outlier(softmax.raw, softmax.digits)) is not None:
        save(draw_outlier(softmax, outlier_rows), bench.pictures / "digits-outlier.png")
    runs = {loss: [_figures(bench, run, digits) for run in trainings] for loss, trainings in TRAININGS.items()}
    return "\n\n".join(
        [
            _introduction(digits),
            _verification(runs, _pixels(digits)),
            _dunn(runs),
            _dunn_of_margin(runs),
            _neighbors(runs),
            _outlier(softmax, outlier_rows),
        ]
    )


def mean_over_trainings(values: Sequence[float], show: Callable[[float], str] = number) -> tuple[str, bool]:
    """Format the mean of two runs or more with Student's 95 % interval, and tell whether it excludes zero."""
    mean = float(np.mean(values))
    width = float(student.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5)
    low, high = mean - width, mean + width
    return f"{show(mean)} [{show(low)}, {show(high)}]", not low <= 0 <= high


def _introduction(digits: FaceDataset) -> str:
    known = int((digits.table.labels < KNOWN).sum())
    return (
        f"All training images of the digits 0 to 4, {EPOCHS} epochs, two components, {len(SEEDS)} seeds; the last "
        f"epoch's weights, so nothing is selected on digits 5 to 9. Tested on MNIST's test part: {known:,} images of 0 "
        f"to 4, {len(digits) - known:,} of 5 to 9. Means, with Student's 95 % interval **over the seeds**: the "
        "variation over trainings, not over test sets."
    )


def _verification(runs: Runs, pixels: Figures) -> str:
    head = ("loss", "accuracy, 0 to 4", "AUC, 0 to 4", "AUC, 5 to 9, never trained on")
    rows = _rows(runs, COMPARED_FIGURES)
    rows.append(["cosines of the pixels, no training", "-", *(number(pixels[name]) for name in COMPARED_FIGURES[1:])])
    differences = [
        [f"{loss} minus {other}", *(_paired(runs, loss, other, name) for name in COMPARED_FIGURES)]
        for loss, other in COMPARED.items()
    ]
    return (
        f"ROC AUC of the cosine over all pairs.\n\n{table(head, rows)}\n\nEffects of the margin and of the bias: "
        "differences paired by seed; bold if the interval excludes zero.\n\n"
        f"{table(('', *head[1:]), differences)}"
    )


def _paired(runs: Runs, loss: str, other: str, name: str, digits: int = 3) -> str:
    values = [a[name] - b[name] for a, b in zip(runs[loss], runs[other], strict=True)]
    text, certain = mean_over_trainings(values, lambda value: signed(value, digits))
    return f"**{text}**" if certain else text


def _dunn(runs: Runs) -> str:
    """Format the Dunn indices: all definitions and losses, and the essay's comparison."""
    names = [f"{space} {reading}" for space in SPACES for reading in DUNNS]
    head = ["loss", *(f"{DUNNS[reading]}, {space}" for space in SPACES for reading in DUNNS)]
    comparison: list[list[str]] = []
    errors: dict[str, float] = {}
    for reading, words in DUNNS.items():
        steps = {
            loss: float(np.mean([figures[f"{space} {reading}"] for figures in runs[loss]]))
            for loss, space in OUTPUT_SPACE.items()
        }
        errors[words] = float(
            np.exp(np.mean([abs(np.log(steps[loss] / claimed)) for loss, claimed in CLAIMED.items()]))
        )
        comparison.append([words, *(number(step, 2) for step in steps.values()), f"{errors[words]:,.1f} times"])
    comparison.append(["**the essay**", *(number(CLAIMED.get(loss), 2) for loss in OUTPUT_SPACE), ""])
    return (
        "Dunn indices, without the members of each class beyond the 95th percentile of distance to its "
        "centroid. *Members*: nearest members of two classes / largest diameter (Dunn's own). *Centroids*: nearest "
        "centroids / largest diameter. *Centroids to mean*: nearest centroids / mean distance of two members of a "
        "class. *Raw*: the output of the head; *unit*: normalized.\n\n"
        f"{table(head, _rows(runs, names, lambda value: number(value, 2)))}\n\n"
        "The essay's comparison, on the output of its networks: raw for softmax, unit for the others. Its NormFace "
        "has no scale, so s = 1. The last column is the factor by which ours differ from its two values (geometric "
        "mean).\n\n"
        f"{table(('definition', *OUTPUT_SPACE, 'factor'), comparison)}\n\n"
        f"The definition closest to the essay's values is *{min(errors, key=errors.__getitem__)}*."
    )


def _dunn_of_margin(runs: Runs) -> str:
    """Format what the margin changes in the Dunn indices of unit vectors, by seed."""
    rows = [
        [
            f"{loss} minus {other}",
            *(_paired(runs, loss, other, f"unit {reading}", digits=2) for reading in DUNNS),
        ]
        for loss, other in MARGIN_EFFECTS.items()
    ]
    return (
        "Effect of the margin on the Dunn indices of unit vectors: differences paired by seed; bold if the interval "
        f"excludes zero.\n\n{table(('', *DUNNS.values()), rows)}"
    )


def _neighbors(runs: Runs) -> str:
    names = [f"{space} {which}" for which in NEARER for space in SPACES]
    head = ["loss", *(f"{NEARER[which]}, {space}" for which in NEARER for space in SPACES)]
    return (
        "Correctly classified images of 0 to 4: the share with a negative (a correctly classified image of another "
        "digit) nearer than their nearest positive, and nearer than their farthest positive.\n\n"
        + table(head, _rows(runs, names, lambda value: f"{100 * value:.1f} %"))
    )


def _rows(runs: Runs, names: Sequence[str], show: Callable[[float], str] = number) -> list[list[str]]:
    return [
        [loss, *(mean_over_trainings([figures[name] for figures in runs_of_loss], show)[0] for name in names)]
        for loss, runs_of_loss in runs.items()
    ]


def _outlier(plane: Plane, outlier_rows: tuple[int, int, int] | None) -> str:
    if outlier_rows is None:
        return "No image in softmax's plane of seed 0 has a negative nearer than a positive by both distance and angle."
    sample, negative, positive = (
        f"test image {plane.image_index[row]} (a {plane.digits[row]})" for row in outlier_rows
    )
    near, far = (describe_distance(plane, outlier_rows[0], other) for other in outlier_rows[1:])
    return (
        f"An example of the essay's case, found by search in softmax's plane of seed 0: {sample} is nearer to "
        f"{negative}, {near}, than to {positive}, {far}. All three are classified correctly. Of all such images it "
        "has the largest difference between the cosines to its nearest negative and to its farthest positive."
    )


def _figures(bench: Bench, training: Training, digits: FaceDataset) -> Figures:
    """Compute the metrics of a run, cached in its folder."""
    file = bench.run(training).path / "plane.json"
    return cached(file, lambda: plane_figures(_plane(bench, training, digits)))


def _test_digits(bench: Bench) -> FaceDataset:
    table = DataSpec((f"mnist:{bench.photos / 'mnist'}:test",)).read()
    read = read_table(table, RECIPES["digits-softmax"]().input.preprocessing())
    return FaceDataset(read.table, read.crops)


def _plane(bench: Bench, training: Training, digits: FaceDataset) -> Plane:
    run = bench.run(training)
    recipe = run.recipe()
    network = build_network(recipe)
    objective = Objective(recipe.loss, recipe.model.embedding_dim, KNOWN)
    load_weights(run.best, network=network, objective=objective)
    raw = embed_dataset(nn.Sequential(network.trunk, network.head), digits)
    centers = objective.loss.centers.detach().numpy()
    image_index = np.array([photo.index for photo in digits.table.photos if isinstance(photo, IdxPhoto)])
    if recipe.loss.name != "softmax":
        centers = unit_rows(centers)
    bias = getattr(objective.loss, "biases", None)
    bias = np.zeros(KNOWN, np.float32) if bias is None else bias.detach().numpy()
    return Plane(raw, digits.table.labels, image_index, centers, bias)


def _pixels(digits: FaceDataset) -> Figures:
    """Compute the AUC with pixels as embeddings."""
    crops = np.stack([digits.crops[row][..., 0].reshape(-1) for row in range(len(digits))])
    return aucs(unit_rows(crops.astype(np.float32)), digits.table.labels)
