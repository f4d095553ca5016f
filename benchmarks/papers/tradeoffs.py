"""FaceNet's trade-offs: networks, input size, embedding size, amount of data, image quality and batch norm."""

from papers.bench import Bench, Evaluation, Training
from papers.facenet import BATCH_128
from papers.figures import number, over_seeds, paired, table
from papers.history import read_history
from papers.shared import DEV_TEST, DEV_TRAIN, NO_LEAKS, PEOPLE, at_px, for_epochs

TITLE = "FaceNet's trade-offs"
PATHS = {
    "ROC AUC": "verification.auc",
    "TAR at a FAR of .01": "verification.tar_at_far.1e-2",
    "TAR at a FAR of .001": "verification.tar_at_far.1e-3",
}
AUC = PATHS["ROC AUC"]
QUALITY = Evaluation(
    "quality", PEOPLE, ("--pairs", "PHOTOS/lfw_112/pairsDevTest.txt", "--suite", "robustness", *NO_LEAKS)
)
ALL_PAIRS = Evaluation(
    "all-pairs", PEOPLE, ("--identities", "PHOTOS/lfw_112/peopleDevTest.txt", "--suite", "verification", *NO_LEAKS)
)
# Of NN1 and NN2 a step of 1,800 photos takes minutes, so this is a small photo set: it compares networks and settings
# with each other under one budget, nothing with the paper.
FEW = ("--max-identities", "150", "--max-photos", "8")
EPOCHS = 10  # enough to compare settings, and a few minutes each


def small(name: str, *settings: str, people: tuple[str, ...] = ("--max-photos", "12")) -> Training:
    """Define a training of NNS2 at 96 px with semi-hard triplets; later settings replace earlier ones."""
    common = ("loss.name=semi_hard", *BATCH_128, "split.min_photos=2", "split.test=0", *at_px(96), *for_epochs(EPOCHS))
    return Training(f"tradeoffs/{name}", "facenet-small", PEOPLE, (*common, *settings), (*DEV_TRAIN, *people))


def network(name: str, size_px: int) -> Training:
    """Define a training of one of the paper's networks, at its input size, under one budget."""
    settings = (f"model.name={name}", *at_px(size_px), *for_epochs(6), "sampler.identities=30", "sampler.chunk_size=30")
    return small(f"network-{name}", *settings, people=FEW)


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
# The same number of steps, so fewer people are shown more often.
BY_PEOPLE = {
    f"{count} people": small(f"people-{count}", *for_epochs(epochs), people=("--max-photos", "12", *limit))
    for count, epochs, limit in (
        (132, 4 * EPOCHS, ("--max-identities", "147")),
        (265, 2 * EPOCHS, ("--max-identities", "295")),
        (530, EPOCHS, ("--max-identities", "590")),
    )
} | {"all": REFERENCE}
NORMS = {
    name: small(f"norm-{name}", *settings, "validation.every_epochs=1")
    for name, settings in (("with", ("model.batch_norm=true",)), ("without", ("model.batch_norm=false",)))
}


def measure(bench: Bench) -> str:
    bench.train(NETWORKS.values(), (ALL_PAIRS, DEV_TEST), may_fail=True)
    groups = {"input size": BY_SIZE, "embedding": BY_DIM, "training data": BY_PEOPLE}
    different = {training.name: training for group in groups.values() for training in group.values()}
    bench.train(different.values(), (ALL_PAIRS, DEV_TEST), may_fail=True)
    bench.train([REFERENCE], (QUALITY,))
    bench.train(NORMS.values(), (ALL_PAIRS, DEV_TEST), may_fail=True)
    return "\n\n".join(
        [
            "One seed; 95 % intervals over people. Trained on LFW's peopleDevTrain, evaluated on all pairs of "
            "the 963 of peopleDevTest: its positive and negative pairs are enough for a true accept rate (TAR) at a "
            "false accept rate (FAR) of .001, the paper's headline, for which `pairsDevTest` has too few.",
            "**Networks**, 150 people with at most 8 photos, six epochs, each network at its input size. A set this "
            "small says how they learn, not how good they can become.",
            group_table(bench, NETWORKS),
            *(f"**By {name}**, NNS2:\n\n{group_table(bench, group)}" for name, group in groups.items()),
            "**Image quality**, NNS2 at 96 px; what is lost by changed photos of DevTest's people:",
            quality_table(bench),
            "**Batch norm**, NNS2: AUC on validation people after each epoch.",
            norm_table(bench),
        ]
    )


def group_table(bench: Bench, group: dict[str, Training]) -> str:
    first = next(iter(group.values()))
    rows: list[list[str]] = []
    for name, training in group.items():
        if bench.failure(training) is not None:
            rows.append([name, "ended early", *["-"] * (len(PATHS) + 1)])
            continue
        results = bench.results(training, ALL_PAIRS.label)
        history = read_history(bench.run(training))
        minutes = f"{history.seconds / 60:.1f} ({history.photos:,} photos)"
        difference = "" if training is first else paired([bench.results(first, ALL_PAIRS.label)], [results], AUC)
        rows.append([name, *(over_seeds([results], path) for path in PATHS.values()), minutes, difference])
    return table(["", *PATHS, "minutes", "AUC, difference from the first row"], rows)


def quality_table(bench: Bench) -> str:
    robustness = bench.results(REFERENCE, QUALITY.label).robustness
    rows = [
        [name, number(point.severity), number(point.recall_at_1), number(point.auc)]
        for name in ("jpeg", "downscale")
        for point in robustness.sweeps[name]
    ]
    return table(["change", "quality, or share of the pixels", "recall@1", "ROC AUC"], rows)


def norm_table(bench: Bench) -> str:
    histories = {name: read_history(bench.run(training)) for name, training in NORMS.items()}
    epochs = [0, 1, 2, 4, 6, 9]
    rows = [
        [f"{name} batch norm", *(number(history.epochs[epoch]["validation_auc"]) for epoch in epochs)]
        for name, history in histories.items()
        if len(history.epochs) > epochs[-1]
    ]
    return table(["", *(f"epoch {epoch + 1}" for epoch in epochs)], rows)
