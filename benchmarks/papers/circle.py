"""The circle-loss coursework (seed 002) on LFW: its recipe, its miners, its networks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from matplotlib.axes import Axes

from familiar.datasets.folders import DataSpec
from familiar.embedding.bundle import load_bundle
from familiar.embedding.embedder import Embedder
from familiar.evaluation.context import EvaluationOptions
from familiar.evaluation.context import build_context as embed
from familiar.evaluation.plots.chart import LIGHT, TEXT_PT
from familiar.evaluation.verification_pairs import ScoredPairs
from familiar.metrics.roc import RocCounts
from familiar.metrics.verification import accuracy_at, average_precision, best_accuracy, roc_auc, roc_curve
from papers.bench import Bench, Training
from papers.figures import figure, number, paired, table
from papers.history import History, draw_over_photos, read_history, sides
from papers.plots import panels, save
from papers.shared import DEV_TEST, DEV_TRAIN, PEOPLE

TITLE = "Circle loss with triplet mining (seed 002)"
MINERS = ("batch_hard", "batch_all", "semi_hard", "hard_negative")
# Some four minutes on a core each. The rate falls over a network's own epochs; margin and gamma step every five, so
# that only V2 sees a step.
NETWORKS = {"circle-simple-v2": 8, "circle-simple": 2, "circle-efficientnet": 2}


def training(recipe: str, miner: str) -> Training:
    epochs = NETWORKS[recipe]
    return Training(
        f"circle/{recipe}-{miner}",
        recipe,
        PEOPLE,
        (
            f"loss.mining={miner}",
            f"budget.epochs={epochs}",
            "optimizer.decay_to=1",
            "optimizer.decay_from=0.4",
            "split.min_photos=2",
            "split.test=0",
        ),
        (*DEV_TRAIN, "--max-photos", "50"),
    )


BY_MINER = {miner: training("circle-simple-v2", miner) for miner in MINERS}
BY_NETWORK = {recipe: training(recipe, "batch_hard") for recipe in NETWORKS}
# Trained alone, on all cores, for its speed: the others share theirs.
SPEED = replace(
    BY_NETWORK["circle-simple-v2"],
    name="circle/speed",
    settings=(*BY_NETWORK["circle-simple-v2"].settings, "budget.epochs=2"),
)
# As seed 002 prints it: SimpleEmbeddingNet after 8,000 identities of CASIA-WebFace, on 6,000 pairs of LFW.
COURSEWORK = ("*the coursework's `simple`, on its own pairs*", ".779", ".799", ".709", *["-"] * 5)
COURSEWORK_SPEED = 238  # crops a second: 500 in 2.1 s, its best; of V2 with 6 blocks
PATHS = (
    "verification.auc",
    "verification.average_precision",
    "verification.best_accuracy",
    "verification.at_bundle_thresholds.balanced.accuracy",
)
_LINES = ("-", "--", "-.", ":")


def measure(bench: Bench) -> str:
    bench.train(dict.fromkeys([*BY_MINER.values(), *BY_NETWORK.values()]), (DEV_TEST,))
    replace(bench, jobs=1).train((SPEED,))
    judged = {miner: judge(bench, training) for miner, training in BY_MINER.items()}
    draw_devtest(bench, judged)
    draw_miners(bench, judged)
    draw_training(bench)
    photos = sides(bench.run(BY_MINER["batch_hard"]))
    return "\n\n".join(
        [
            f"Trained on {photos}, from random weights, by the coursework's recipe, its rate's schedule laid over "
            "fewer epochs; judged on the 1,000 pairs of `pairsDevTest`. The epoch kept is that of the best recall@1 "
            "in validation. The best accuracy chooses its threshold on the pairs it judges, as the coursework did; "
            "the bundle's own was fitted in validation. The last column is the difference of ROC AUC to the row that "
            "has none, bold where its interval leaves out zero; one seed each, so what another would make of it is not "
            "in there. Minutes are of training alone, beside whatever else the machine did.",
            "Four miners on SimpleEmbeddingNetV2 (6 blocks):",
            results(bench, "miner", BY_MINER, "batch_hard"),
            "Three networks, `batch_hard`:",
            results(bench, "network", BY_NETWORK, "circle-simple-v2", [COURSEWORK]),
            "The coursework trained on 211,958 photos of 8,000 people (CASIA-WebFace), its V2 for 7 hours. Its row is "
            "of its `simple`, on 6,000 pairs of LFW, another list: a landmark, not a rival.",
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
    """A row a training, compared with `reference`'s."""
    rows: list[Sequence[str]] = []
    first = [bench.results(trainings[reference], DEV_TEST.label)]
    for name, training in trainings.items():
        epochs = read_history(bench.run(training))
        found = bench.results(training, DEV_TEST.label)
        rows.append(
            [
                f"`{name}`",
                *(figure(found, path) for path in PATHS),
                number(best_recall(epochs)),
                f"{epochs.photos:,}",
                f"{epochs.seconds / 60:.1f}",
                "" if name == reference else paired(first, [found], "verification.auc"),
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
        return "Crops a second of one training alone: not measured."
    return (
        f"Alone on all cores, SimpleEmbeddingNetV2 (6 blocks) trains on {rate:.0f} crops a second, loading and "
        f"augmentation included ({number(rate / COURSEWORK_SPEED, 2)} times the coursework's "
        f"{COURSEWORK_SPEED} at best, which was of another machine)."
    )


def best_recall(epochs: History) -> float | None:
    return max((value for _, value in epochs.known("validation_recall_at_1")), default=None)


def judge(bench: Bench, training: Training) -> ScoredPairs:
    """The pairs of `pairsDevTest`, embedded again: results keep figures, pictures want every pair."""
    asked = EvaluationOptions(pairs_file=bench.photos / "lfw_112" / "pairsDevTest.txt")
    people = DataSpec(tuple(str(bench.photos / name) for name in PEOPLE)).read()
    return embed(Embedder(bench.run(training).bundle), people, asked).judged


def draw_devtest(bench: Bench, judged: Mapping[str, ScoredPairs]) -> None:
    """What the coursework draws of its best model, for the miner that validated best."""
    best = max(judged, key=lambda miner: best_recall(read_history(bench.run(BY_MINER[miner]))) or 0.0)
    own = load_bundle(bench.run(BY_MINER[best]).bundle).metadata.calibration.balanced.similarity
    picture, every = panels(4, 7.4)
    grid = picture.add_gridspec(2, 2)
    for place, axes in enumerate(every):
        axes.set_subplotspec(grid[place])
    _similarities(every[0], judged[best])
    _roc(every[1], {best: judged[best]})
    _precision(every[2], judged[best].counts)
    _accuracy(every[3], judged[best].counts, own)
    save(picture, bench.pictures / "circle-devtest.png")


def draw_miners(bench: Bench, judged: Mapping[str, ScoredPairs]) -> None:
    picture, (axes,) = panels(1, 5.4)
    _roc(axes, judged)
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
        _key(axes, "lower right")
    miners.set_ylabel("recall@1 among unseen people")
    miners.set_ylim(bottom=0)
    save(picture, bench.pictures / "circle-training.png")


def _similarities(axes: Axes, judged: ScoredPairs) -> None:
    same = judged.pairs.same
    edges = np.linspace(judged.scores.min(), judged.scores.max(), 36)
    for scores, name, color, hatch in (
        (judged.scores[~same], "two people", LIGHT.different, "////"),
        (judged.scores[same], "one person", LIGHT.same, None),
    ):
        heights = np.histogram(scores, edges)[0]
        axes.stairs(heights, edges, fill=True, color=color, alpha=0.3)
        axes.stairs(heights, edges, color=color, linewidth=1.6, hatch=hatch, label=name)
    axes.set_ylim(top=1.25 * axes.get_ylim()[1])  # room for the key
    _label(axes, "similarities", "cosine", "pairs")
    _key(axes, "upper left")


def _roc(axes: Axes, judged: Mapping[str, ScoredPairs]) -> None:
    for place, (name, one) in enumerate(judged.items()):
        label = f"{name}: {number(roc_auc(one.counts))}"
        axes.plot(*roc_curve(one.counts), color=LIGHT.series[place], linestyle=_LINES[place], label=label)
    axes.plot([0, 1], [0, 1], color=LIGHT.muted, linewidth=1, linestyle=":")
    _label(axes, "ROC, and the area under it", "strangers accepted", "same person accepted")
    _key(axes, "lower right")


def _precision(axes: Axes, counts: RocCounts) -> None:
    precision = counts.accepted_same / (counts.accepted_same + counts.accepted_different)
    recall = counts.accepted_same / counts.same
    axes.plot(recall, precision, color=LIGHT.accent, label=f"average precision: {number(average_precision(counts))}")
    axes.set_ylim(0.45, 1.02)
    _label(axes, "precision and recall", "same person accepted", "of those accepted, the same")
    _key(axes, "lower left")


def _accuracy(axes: Axes, counts: RocCounts, own: float) -> None:
    best, at = best_accuracy(counts, balanced=True)
    thresholds = np.unique([*np.linspace(counts.scores[0], counts.scores[-1], 240), at, own]).tolist()
    accuracy = [accuracy_at(counts, threshold, balanced=True) for threshold in thresholds]
    axes.plot(thresholds, accuracy, color=LIGHT.accent)
    axes.plot(at, best, "o", color=LIGHT.different, label=f"best: {number(best)} at {number(at, 2)}")
    there = accuracy_at(counts, own, balanced=True)
    label = f"its own: {number(there)} at {number(own, 2)}"
    axes.plot([own, own], [0.5, there], color=LIGHT.ink, linestyle="--", linewidth=1.3, label=label)
    axes.set_ylim(bottom=0.5 - 0.3 * (best - 0.5))
    _label(axes, "accuracy over the threshold", "threshold (cosine)", "accuracy")
    _key(axes, "lower left")


def _label(axes: Axes, title: str, below: str, beside: str) -> None:
    axes.set_title(title, color=LIGHT.ink, fontsize=TEXT_PT)
    axes.set_xlabel(below, color=LIGHT.ink, fontsize=TEXT_PT)
    axes.set_ylabel(beside, color=LIGHT.ink, fontsize=TEXT_PT)


def _key(axes: Axes, place: Literal["upper left", "lower left", "lower right"]) -> None:
    axes.legend(frameon=False, labelcolor=LIGHT.ink, fontsize=TEXT_PT - 1, loc=place)
