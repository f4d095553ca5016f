"""Circle loss on mined triplets, after a course project in face verification: recipe, miners and networks, on LFW."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from matplotlib.axes import Axes

from familiar.datasets.folders import DataSpec
from familiar.embedding.bundle import load_bundle
from familiar.embedding.embedder import Embedder
from familiar.evaluation.context import EvaluationOptions, build_context
from familiar.evaluation.plots.chart import LIGHT, TEXT_PT
from familiar.evaluation.verification_pairs import ScoredPairs
from familiar.metrics.roc import RocCounts
from familiar.metrics.verification import accuracy_at, average_precision, best_accuracy, roc_auc, roc_curve
from papers.bench import Bench, Training
from papers.figures import figure, number, paired, table
from papers.history import History, describe_photos, draw_over_photos, read_history
from papers.plots import panels, save
from papers.shared import DEV_TEST, DEV_TRAIN, PEOPLE

TITLE = "Circle loss with triplet mining"
MINERS = ("batch_hard", "batch_all", "semi_hard", "hard_negative")
# About four minutes on one core each. The learning rate decays over each network's own number of epochs; margin and
# gamma step every five epochs, so only V2 has a step.
NETWORKS = {"circle-simple-v2": 8, "circle-simple": 2, "circle-efficientnet": 2}


def training(recipe: str, miner: str, variant: str = "", *settings: str) -> Training:
    epochs = NETWORKS[recipe]
    return Training(
        f"circle/{recipe}-{miner}{variant}",
        recipe,
        PEOPLE,
        (
            f"loss.mining={miner}",
            f"budget.epochs={epochs}",
            "optimizer.decay_to=1",
            "optimizer.decay_from=0.4",
            "split.min_photos=2",
            "split.test=0",
            *settings,
        ),
        (*DEV_TRAIN, "--max-photos", "50"),
    )


BY_MINER = {miner: training("circle-simple-v2", miner) for miner in MINERS}
BY_NETWORK = {recipe: training(recipe, "batch_hard") for recipe in NETWORKS}
V2, V1 = "circle-simple-v2", "circle-simple"
TOPS = {
    "V2, flattened": BY_NETWORK[V2],
    "V2, averaged": training(V2, "batch_hard", "-average", "model.head=average"),
    "simple, flattened": BY_NETWORK[V1],
    "simple, averaged": training(V1, "batch_hard", "-average", "model.head=average"),
    "simple of 4 blocks, average pooling, averaged": training(
        V1, "batch_hard", "-four", "model.blocks=4", "model.pooling=average", "model.head=average"
    ),
}
SCHEDULES = {
    "every 5 epochs, the recipe": BY_NETWORK[V2],
    "every epoch": training(
        V2, "batch_hard", "-every-epoch", "loss.margin=0.2 + 0.02 every 1", "loss.gamma=64 + 32 every 1"
    ),
    "never, the values of circle loss's authors": training(
        V2, "batch_hard", "-fixed", "loss.margin=0.25", "loss.gamma=256"
    ),
}
# Trained with all cores, to measure its speed: the others share the cores.
SPEED = replace(
    BY_NETWORK["circle-simple-v2"],
    name="circle/speed",
    settings=(*BY_NETWORK["circle-simple-v2"].settings, "budget.epochs=2"),
)
# Published: SimpleEmbeddingNet trained on 8,000 identities of CASIA-WebFace, tested on 6,000 pairs of LFW.
PUBLISHED = ("*the project's `simple`, on its own pairs*", ".779", ".799", ".709", *["-"] * 5)
PUBLISHED_SPEED = 238  # crops per second: 500 in 2.1 s, the best; V2 with 6 blocks
PATHS = (
    "verification.auc",
    "verification.average_precision",
    "verification.best_accuracy",
    "verification.at_bundle_thresholds.balanced.accuracy",
)
_LINES = ("-", "--", "-.", ":")


def measure(bench: Bench) -> str:
    groups = (BY_MINER, BY_NETWORK, TOPS, SCHEDULES)
    bench.train({training.name: training for group in groups for training in group.values()}.values(), (DEV_TEST,))
    replace(bench, jobs=1).train((SPEED,))
    scored_by_miner = {miner: score_devtest(bench, training) for miner, training in BY_MINER.items()}
    draw_devtest(bench, scored_by_miner)
    draw_miners(bench, scored_by_miner)
    draw_training(bench)
    photos = describe_photos(bench.run(BY_MINER["batch_hard"]))
    return "\n\n".join(
        [
            f"Trained on {photos}, from random weights, with the circle-loss project's recipe and its learning rate "
            "schedule compressed to fewer epochs; tested on the 1,000 pairs of `pairsDevTest`. The epoch with the best "
            "recall@1 in validation is kept. The best accuracy uses a threshold chosen on the test pairs, as in the "
            "project; the bundle's own threshold was fitted in validation. The last column is the difference in ROC "
            "AUC from the first row, bold if its interval excludes zero; there is one seed each, so variation over "
            "seeds is not included. Minutes are training time only, on a machine shared with other work.",
            "Four miners on SimpleEmbeddingNetV2 (6 blocks):",
            results(bench, "miner", BY_MINER, "batch_hard"),
            "Three networks, `batch_hard`:",
            results(bench, "network", BY_NETWORK, "circle-simple-v2", [PUBLISHED]),
            "The circle-loss project trained on 211,958 photos of 8,000 people (CASIA-WebFace), its V2 for 7 hours. "
            "Its row is for its network `simple` on a different list of 6,000 pairs of LFW, so it is not directly "
            "comparable.",
            "The top: the project finds flattening better than pooling in all its experiments, and `simple` with four "
            "blocks, average pooling and averaging at the top worse still.",
            results(bench, "network", TOPS, "V2, flattened"),
            "Margin and gamma grow by .02 and 32 from .2 and 64: the project finds that better than .25 and 256 "
            "throughout.",
            results(bench, "grow", SCHEDULES, "every 5 epochs, the recipe"),
            speed(bench),
        ]
    )


def results(
    bench: Bench,
    kind: str,
    trainings: Mapping[str, Training],
    reference: str,
    others: Sequence[Sequence[str]] = (),
) -> str:
    """Format one row per training, compared with `reference`."""
    rows: list[Sequence[str]] = []
    first = [bench.results(trainings[reference], DEV_TEST.label)]
    for name, training in trainings.items():
        epochs = read_history(bench.run(training))
        evaluated = bench.results(training, DEV_TEST.label)
        rows.append(
            [
                f"`{name}`",
                *(figure(evaluated, path) for path in PATHS),
                number(best_recall(epochs)),
                f"{epochs.photos:,}",
                f"{epochs.seconds / 60:.1f}",
                "" if name == reference else paired(first, [evaluated], "verification.auc"),
            ]
        )
    return table(
        [
            *(kind, "ROC AUC", "PR AUC", "best accuracy", "at its own threshold", "validation recall@1"),
            *("crops shown", "minutes", "ROC AUC, difference"),
        ],
        [*rows, *others],
    )


def speed(bench: Bench) -> str:
    epochs = read_history(bench.run(SPEED)).epochs
    rate = epochs[1]["photos_per_second"] if len(epochs) > 1 else None
    if rate is None:
        return "Crops per second of a single training: not measured."
    return (
        f"With all cores, SimpleEmbeddingNetV2 (6 blocks) trains on {rate:.0f} crops per second, loading and "
        f"augmentation included ({number(rate / PUBLISHED_SPEED, 2)} times the best published value, "
        f"{PUBLISHED_SPEED}, on another machine)."
    )


def best_recall(epochs: History) -> float | None:
    return max((value for _, value in epochs.known("validation_recall_at_1")), default=None)


def score_devtest(bench: Bench, training: Training) -> ScoredPairs:
    """Embed and score the pairs of `pairsDevTest`: result files do not contain single pairs, which the plots need."""
    options = EvaluationOptions(pairs_file=bench.photos / "lfw_112" / "pairsDevTest.txt")
    people = DataSpec(tuple(str(bench.photos / name) for name in PEOPLE)).read()
    return build_context(Embedder(bench.run(training).bundle), people, options).scored_pairs


def draw_devtest(bench: Bench, scored_by_miner: Mapping[str, ScoredPairs]) -> None:
    """Draw the published four plots for the miner with the best validation."""
    best = max(scored_by_miner, key=lambda miner: best_recall(read_history(bench.run(BY_MINER[miner]))) or 0.0)
    bundle_threshold = load_bundle(bench.run(BY_MINER[best]).bundle).metadata.calibration.balanced.similarity
    picture, panel_axes = panels(4, 7.4)
    grid = picture.add_gridspec(2, 2)
    for index, axes in enumerate(panel_axes):
        axes.set_subplotspec(grid[index])
    _similarities(panel_axes[0], scored_by_miner[best])
    _roc(panel_axes[1], {best: scored_by_miner[best]})
    _precision(panel_axes[2], scored_by_miner[best].counts)
    _accuracy(panel_axes[3], scored_by_miner[best].counts, bundle_threshold)
    save(picture, bench.pictures / "circle-devtest.png")


def draw_miners(bench: Bench, scored_by_miner: Mapping[str, ScoredPairs]) -> None:
    picture, (axes,) = panels(1, 5.4)
    _roc(axes, scored_by_miner)
    save(picture, bench.pictures / "circle-miners.png")


def draw_training(bench: Bench) -> None:
    picture, (miners, networks) = panels(2, 4.2, share_y=True)
    for axes, title, trainings in (
        (miners, "four miners on circle-simple-v2", BY_MINER),
        (networks, "three networks, batch_hard", BY_NETWORK),
    ):
        histories = {name: read_history(bench.run(training)) for name, training in trainings.items()}
        draw_over_photos(axes, histories, "validation_recall_at_1")
        _label(axes, title, "crops shown", "")
        _legend(axes, "lower right")
    miners.set_ylabel("recall@1 among unseen people")
    miners.set_ylim(bottom=0)
    save(picture, bench.pictures / "circle-training.png")


def _similarities(axes: Axes, scored: ScoredPairs) -> None:
    same = scored.pairs.same
    edges = np.linspace(scored.scores.min(), scored.scores.max(), 36)
    for scores, name, color, hatch in (
        (scored.scores[~same], "two people", LIGHT.different, "////"),
        (scored.scores[same], "one person", LIGHT.same, None),
    ):
        heights = np.histogram(scores, edges)[0]
        axes.stairs(heights, edges, fill=True, color=color, alpha=0.3)
        axes.stairs(heights, edges, color=color, linewidth=1.6, hatch=hatch, label=name)
    axes.set_ylim(top=1.25 * axes.get_ylim()[1])  # room for the legend
    _label(axes, "similarities", "cosine", "pairs")
    _legend(axes, "upper left")


def _roc(axes: Axes, scored_by_miner: Mapping[str, ScoredPairs]) -> None:
    for index, (name, scored) in enumerate(scored_by_miner.items()):
        label = f"{name}: {number(roc_auc(scored.counts))}"
        axes.plot(*roc_curve(scored.counts), color=LIGHT.series[index], linestyle=_LINES[index], label=label)
    axes.plot([0, 1], [0, 1], color=LIGHT.muted, linewidth=1, linestyle=":")
    _label(axes, "ROC, and the area under it", "different people accepted", "same person accepted")
    _legend(axes, "lower right")


def _precision(axes: Axes, counts: RocCounts) -> None:
    precision = counts.accepted_same / (counts.accepted_same + counts.accepted_different)
    recall = counts.accepted_same / counts.same
    axes.plot(recall, precision, color=LIGHT.accent, label=f"average precision: {number(average_precision(counts))}")
    axes.set_ylim(0.45, 1.02)
    _label(axes, "precision and recall", "same person accepted", "share of the accepted that are the same")
    _legend(axes, "lower left")


def _accuracy(axes: Axes, counts: RocCounts, bundle_threshold: float) -> None:
    best, best_threshold = best_accuracy(counts, balanced=True)
    thresholds = np.unique(
        [*np.linspace(counts.scores[0], counts.scores[-1], 240), best_threshold, bundle_threshold]
    ).tolist()
    accuracy = [accuracy_at(counts, threshold, balanced=True) for threshold in thresholds]
    axes.plot(thresholds, accuracy, color=LIGHT.accent)
    axes.plot(
        best_threshold, best, "o", color=LIGHT.different, label=f"best: {number(best)} at {number(best_threshold, 2)}"
    )
    bundle_accuracy = accuracy_at(counts, bundle_threshold, balanced=True)
    label = f"bundle's: {number(bundle_accuracy)} at {number(bundle_threshold, 2)}"
    axes.plot(
        [bundle_threshold, bundle_threshold],
        [0.5, bundle_accuracy],
        color=LIGHT.ink,
        linestyle="--",
        linewidth=1.3,
        label=label,
    )
    axes.set_ylim(bottom=0.5 - 0.3 * (best - 0.5))
    _label(axes, "accuracy over the threshold", "threshold (cosine)", "accuracy")
    _legend(axes, "lower left")


def _label(axes: Axes, title: str, x_label: str, y_label: str) -> None:
    axes.set_title(title, color=LIGHT.ink, fontsize=TEXT_PT)
    axes.set_xlabel(x_label, color=LIGHT.ink, fontsize=TEXT_PT)
    axes.set_ylabel(y_label, color=LIGHT.ink, fontsize=TEXT_PT)


def _legend(axes: Axes, corner: Literal["upper left", "lower left", "lower right"]) -> None:
    axes.legend(frameon=False, labelcolor=LIGHT.ink, fontsize=TEXT_PT - 1, loc=corner)
