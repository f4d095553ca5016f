"""FaceNet's trade-offs: networks, input size, embedding size, amount of data, image quality and batch norm."""

import re
from pathlib import Path
from statistics import mean

import numpy as np

from familiar.evaluation.results.figures import names_between
from papers.bench import Bench, Evaluation, Training
from papers.facenet import BATCH_128
from papers.figures import Results, number, over_seeds, paired, table
from papers.history import read_history
from papers.shared import NO_LEAKS, PEOPLE, SEEDS, at_px, for_epochs

TITLE = "FaceNet's trade-offs"
PATHS = {
    "ROC AUC": "verification.auc",
    "TAR at a FAR of .01": "verification.tar_at_far.1e-2",
    "TAR at a FAR of .001": "verification.tar_at_far.1e-3",
}
AUC = PATHS["ROC AUC"]
FIGURES = ("recall_at_1", "auc")
QUALITY = Evaluation(
    "quality", PEOPLE, ("--pairs", "PHOTOS/lfw_112/pairsDevTest.txt", "--suite", "robustness", *NO_LEAKS)
)
ALL_PAIRS = Evaluation(
    "all-pairs", PEOPLE, ("--identities", "PHOTOS/lfw_112/peopleDevTest.txt", "--suite", "verification", *NO_LEAKS)
)
# Twelve photos of each at most. The people are listed in files, since of the first of DevTrain most have one photo.
MAX_PHOTOS = ("--max-photos", "12")
ALL = 1_184  # people of DevTrain with two photos or more
EPOCHS = 10  # enough to compare settings, and a few minutes each


def people(count: int, min_photos: int = 2) -> tuple[str, ...]:
    """Choose people of DevTrain at random: the options for the list that `list_people` writes."""
    return "--identities", f"RUNS/tradeoffs/people-{count}-with-{min_photos}.txt"


def training(name: str, seed: int, *settings: str, chosen: tuple[str, ...] = people(ALL)) -> Training:
    """Define a training of NNS2 at 96 px with semi-hard triplets; later settings replace earlier ones."""
    common = ("loss.name=semi_hard", *BATCH_128, "split.test=0", *at_px(96), *for_epochs(EPOCHS, EPOCHS))
    seeds = (f"seed={seed}",) if seed else ()
    return Training(
        f"tradeoffs/{name}/{seed}", "facenet-small", PEOPLE, (*common, *settings, *seeds), (*chosen, *MAX_PHOTOS)
    )


def small(name: str, *settings: str, chosen: tuple[str, ...] = people(ALL)) -> list[Training]:
    """Define the trainings of every seed."""
    return [training(name, seed, *settings, chosen=chosen) for seed in SEEDS]


# NN1 takes a second for three photos, so this is a small photo set: it compares networks under one budget with each
# other, nothing with the paper.
WITH_FOUR = 430
NETWORK_SETTINGS = ("sampler.identities=16", *for_epochs(2))


def network(name: str, size_px: int) -> list[Training]:
    """Define the training of one of the paper's networks, at its input size, under one budget: of a single seed."""
    settings = (f"model.name={name}", *at_px(size_px), *NETWORK_SETTINGS)
    return [training(f"network-{name}", 0, *settings, chosen=people(WITH_FOUR, min_photos=4))]


NETWORKS = {
    "NN1 (220 px)": network("facenet_nn1", 220),
    "NN2 (224 px)": network("facenet_nn2", 224),
    "NN3 (160 px)": network("facenet_nn3", 160),
    "NN4 (96 px)": network("facenet_nn4", 96),
    "NNS1 (165 px)": network("facenet_nns1", 165),
    "NNS2 (128 px)": network("facenet_nns2", 128),
}
REFERENCE = small("reference")
SIZES = {"48 px": 48, "64 px": 64, "80 px": 80, "96 px": 96, "112 px": 112}
BY_SIZE = {name: REFERENCE if px == 96 else small(f"px-{px}", *at_px(px)) for name, px in SIZES.items()}
BY_DIM = {
    f"{dim} components": REFERENCE if dim == 128 else small(f"dim-{dim}", f"model.embedding_dim={dim}")
    for dim in (32, 64, 128, 256, 512)
}
# The same number of steps, so fewer people are shown more often. One person in ten is for validation.
BY_PEOPLE = {
    f"{count} people": small(f"people-{count}", *for_epochs(times * EPOCHS, EPOCHS), chosen=people(count))
    for count, times in ((148, 8), (296, 4), (592, 2))
} | {f"{ALL:,} people": REFERENCE}
NORMS = {"with": REFERENCE, "without": small("norm-without", "model.batch_norm=false")}


def list_people(bench: Bench, chosen: tuple[str, ...]) -> None:
    """Write the file of `people`: some of DevTrain's with enough photos, drawn at random."""
    path = Path(chosen[1].replace("RUNS", str(bench.runs)))
    count, min_photos = (int(word) for word in re.findall(r"\d+", path.stem))
    counts = [line.split() for line in (bench.photos / "lfw_112" / "peopleDevTrain.txt").read_text().splitlines()[1:]]
    eligible = sorted(name for name, photos in counts if int(photos) >= min_photos)
    drawn = np.random.default_rng(0).permutation(eligible)[:count]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(sorted(drawn)) + "\n")


def measure(bench: Bench) -> str:
    groups = {"input size": BY_SIZE, "embedding": BY_DIM, "training data": BY_PEOPLE}
    trainings = {
        training.name: training
        for group in (NETWORKS, *groups.values(), NORMS)  # the longest first
        for seeds in group.values()
        for training in seeds
    }
    for chosen in {training.options[:2] for training in trainings.values()}:
        list_people(bench, chosen)
    bench.train(trainings.values(), (ALL_PAIRS,), may_fail=True)
    bench.train(REFERENCE, (QUALITY,))
    return "\n\n".join(
        [
            "95 % intervals over people. Trained on people of LFW's peopleDevTrain, evaluated on all pairs of the 963 "
            "of peopleDevTest: its positive and negative pairs are enough for a true accept rate (TAR) at a false "
            "accept rate (FAR) of .001, the paper's headline, for which `pairsDevTest` has too few.",
            f"**Networks**, {WITH_FOUR} people with four photos or more, two epochs, each network at its input size, "
            "one seed. A budget this small says how they learn, not how good they can become.",
            group_table(bench, NETWORKS),
            *(
                f"**By {name}**, NNS2, means of {len(SEEDS)} seeds:\n\n{group_table(bench, group)}"
                for name, group in groups.items()
            ),
            "**Image quality**, NNS2 at 96 px; what is lost by changed photos of DevTest's people:",
            quality_table(bench),
            "**Batch norm**, NNS2: AUC on validation people after each epoch; means of the seeds.",
            norm_table(bench),
        ]
    )


def group_table(bench: Bench, group: dict[str, list[Training]]) -> str:
    def results_of(name: str) -> list[Results]:
        return [bench.results(training, ALL_PAIRS.label) for training in group[name]]

    first, *_ = group
    rows: list[list[str]] = []
    for name, seeds in group.items():
        if any(bench.failure(training) for training in seeds):
            rows.append([name, "ended early", *["-"] * (len(PATHS) + 1)])
            continue
        histories = [read_history(bench.run(training)) for training in seeds]
        minutes = f"{mean(each.seconds for each in histories) / 60:.1f} ({histories[0].photos:,} photos)"
        difference = "" if name == first else paired(results_of(first), results_of(name), AUC)
        rows.append([name, *(over_seeds(results_of(name), path) for path in PATHS.values()), minutes, difference])
    return table(["", *PATHS, "minutes", "AUC, difference from the first row"], rows)


def quality_table(bench: Bench) -> str:
    runs = [bench.results(training, QUALITY.label).figures for training in REFERENCE]
    rows = []
    for name in ("jpeg", "downscale"):
        sweep = f"robustness.sweeps.{name}"
        for index in names_between(runs[0], sweep, "severity"):
            means = (mean(figures[f"{sweep}.{index}.{each}"].value for figures in runs) for each in FIGURES)
            rows.append([name, f"{runs[0][f'{sweep}.{index}.severity'].value:g}", *map(number, means)])
    return table(["change", "quality, or share of the side", "recall@1", "ROC AUC"], rows)


def norm_table(bench: Bench) -> str:
    epochs = [0, 1, 2, 4, 6, 9]
    rows: list[list[str]] = []
    for name, seeds in NORMS.items():
        histories = [read_history(bench.run(training)) for training in seeds]
        scores = (mean(each.epochs[epoch]["validation_auc"] for each in histories) for epoch in epochs)
        rows.append([f"{name} batch norm", *map(number, scores)])
    return table(["", *(f"epoch {epoch + 1}" for epoch in epochs)], rows)
