"""Train the strongest embedders of people and of pets with the data available, selected on held-out identities."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from papers.bench import Bench, Evaluation, Training
from papers.figures import figure, mean_of, paired, table, value_at
from papers.history import read_history
from papers.plots import whiskers
from papers.shared import (
    ANIMALS,
    CATS,
    DEV_TEST,
    DEV_TRAIN,
    GENTLE,
    HEADLINES,
    NO_LEAKS,
    PEOPLE,
    PRETRAINED,
    at_px,
    for_epochs,
)

TITLE = "Best results"
SETTINGS = (
    *PRETRAINED,
    *GENTLE,
    "model.dropout=0.2",
    "loss.label_smoothing=0",
    "loss.margin_rad=0 to 0.3 over 0.334",
    "optimizer.lr=1e-3",
    "optimizer.backbone_lr=2e-4",
    "optimizer.warmup_epochs=1",
    "split.min_photos=2",
    "split.validation=0.04",
    "validation.best_by=auc",
)
STRONGER_AUGMENTATION = (
    "augmentation.rotate_deg=12",
    "augmentation.translate=0.08",
    "augmentation.scale=0.12",
    "augmentation.gray_p=0.1",
    "augmentation.blur_p=0.1",
    "augmentation.noise_p=0.1",
    "augmentation.downscale_p=0.2",
    "augmentation.dropout_p=0.4",
)
FLATTEN = ("model.head=flatten",)
ADDED_TRIPLETS = ("loss.triplet_weight=1", "sampler.identities=24", "sampler.photos=4")
COMPILED = ("--compile", "--max-photos", "20")
HELD_OUT = "held-out"
SMALLEST = "112 px"
FLATTENED = f"{SMALLEST}, `flatten` head"
AUC, RECALL = "verification.auc", "retrieval.recall_at_1"


# A tenth of DevTrain's people is held out for model selection.
def people(name: str, *settings: str) -> Training:
    chosen = (*SETTINGS, "split.test=0.1", *settings)
    return Training(f"best/people-{name}", "pet-mobile", PEOPLE, chosen, (*DEV_TRAIN, *COMPILED))


PEOPLE_CANDIDATES = {
    SMALLEST: people("112", *at_px(112), *for_epochs(12, 2)),
    FLATTENED: people("flatten", *at_px(112), *for_epochs(12, 2), *FLATTEN),
    "192 px": people("192", *at_px(192), *for_epochs(12, 2)),
    "192 px, triplet loss added": people("triplets", *at_px(192), *for_epochs(12, 2), *ADDED_TRIPLETS),
    "192 px, stronger augmentation": people("harder", *at_px(192), *for_epochs(12, 2), *STRONGER_AUGMENTATION),
}
HELD_OUT_PEOPLE = Evaluation(HELD_OUT, PEOPLE, (*DEV_TRAIN, "--split", "test", *HEADLINES, *NO_LEAKS))


# The pet embedder is selected on a species absent from training, since cats are absent too.
def pets(name: str, *settings: str) -> Training:
    data = (*(animals for animals in ANIMALS if animals != PANDAS), *PEOPLE)
    chosen = (*SETTINGS, "split.test=0", *settings)
    return Training(f"best/pets-{name}", "pet-mobile", data, chosen, (*DEV_TRAIN, *COMPILED))


PANDAS = "pandas31_faces"
PETS_CANDIDATES = {
    "animals and people, 112 px": pets("people-112", *at_px(112), *for_epochs(4, 2)),
    "animals and people, 112 px, `flatten` head": pets("people-flatten", *at_px(112), *for_epochs(4, 2), *FLATTEN),
    "animals and people, 192 px": pets("people-192", *at_px(192), *for_epochs(4, 2)),
}
HELD_OUT_SPECIES = Evaluation(HELD_OUT, (PANDAS,), (*HEADLINES, *NO_LEAKS))

WITH_MIRROR = {
    "people": replace(DEV_TEST, label="devtest-mirrored", options=(*DEV_TEST.options, "--tta")),
    "pets": replace(CATS, label="cats-mirrored", options=(*CATS.options, "--tta")),
}
BASELINES = {
    "people": ("*baseline: 112 px, 18 epochs*", ".943", ".882", "-"),
    "pets": ("*baseline: the same network, people only*", ".905", "-", "-", ".881"),
}
TARGETS = {"people": ("*target*", ".98", ".95", "-"), "pets": ("*target*", ".97", "-", "-", ".95")}
FINAL_EVALUATION = {"people": DEV_TEST, "pets": CATS}


def measure(bench: Bench) -> str:
    tried = {"people": PEOPLE_CANDIDATES, "pets": PETS_CANDIDATES}
    bench.train(PEOPLE_CANDIDATES.values(), (HELD_OUT_PEOPLE,))
    bench.train(PETS_CANDIDATES.values(), (HELD_OUT_SPECIES,))
    final = {"people": final_people(bench), "pets": final_pets(bench)}
    for kind, training in final.items():
        bench.train([training], (FINAL_EVALUATION[kind], WITH_MIRROR[kind]))
        _draw(bench, kind, tried[kind])
    return "\n\n".join(
        [
            "MobileNetV3-Small from ImageNet's weights, one seed each; 95 % intervals over the test identities.",
            "People, selected on all pairs of photos of a held-out tenth of DevTrain; differences from the first row, "
            "bold if the interval excludes zero:",
            candidate_table(bench, tried["people"]),
            "Pets, selected on pandas, on which no candidate is trained:",
            candidate_table(bench, tried["pets"]),
            "The settings with the largest AUC, with the `flatten` head if that is better at 112 px, are trained once "
            "more including the held-out identities (pets three times as long), and evaluated once.",
            *(final_table(bench, kind, training) for kind, training in final.items()),
        ]
    )


def final_people(bench: Bench) -> Training:
    best = _best(bench, PEOPLE_CANDIDATES)
    head = _head(bench, PEOPLE_CANDIDATES[SMALLEST], PEOPLE_CANDIDATES[FLATTENED])
    return replace(best, name="best/people", settings=(*best.settings, "split.test=0", *head))


def final_pets(bench: Bench) -> Training:
    """Train three times as long: candidates were trained briefly, so that more could be tried."""
    best = _best(bench, PETS_CANDIDATES)
    head = _head(bench, *(PETS_CANDIDATES[f"animals and people, {name}"] for name in (SMALLEST, FLATTENED)))
    return replace(
        best,
        name="best/pets",
        data=(*best.data, PANDAS),
        settings=(*best.settings, *for_epochs(12, 2), *head),
    )


def _best(bench: Bench, tried: Mapping[str, Training]) -> Training:
    return max(tried.values(), key=lambda training: _held_out(bench, training))


def _head(bench: Bench, plain: Training, flattened: Training) -> tuple[str, ...]:
    """Return the settings of the flattened head if it is better than the same network without it."""
    return FLATTEN if _held_out(bench, flattened) > _held_out(bench, plain) else ()


def _held_out(bench: Bench, training: Training) -> float:
    return value_at(bench.results(training, HELD_OUT), AUC)


def candidate_table(bench: Bench, tried: Mapping[str, Training]) -> str:
    rows: list[list[str]] = []
    first = [bench.results(next(iter(tried.values())), HELD_OUT)]
    for name, training in tried.items():
        results, history = bench.results(training, HELD_OUT), read_history(bench.run(training))
        compared = [paired(first, [results], path) if rows else "" for path in (AUC, RECALL)]
        cost = [f"{history.photos:,}", f"{history.seconds / 60:.0f}"]
        rows.append([name, figure(results, AUC), figure(results, RECALL), *compared, *cost])
    return table(
        ["", "ROC AUC", "recall@1", "AUC, difference", "recall@1, difference", "photos shown", "minutes"], rows
    )


def final_table(bench: Bench, kind: str, training: Training) -> str:
    evaluations = {"photo only": FINAL_EVALUATION[kind], "with the mirror image": WITH_MIRROR[kind]}
    paths = (
        AUC,
        "verification.best_accuracy",
        "verification.at_bundle_thresholds.balanced.accuracy",
        *((RECALL,) if kind == "pets" else ()),
    )
    rows: list[Sequence[str]] = [
        [name, *(figure(bench.results(training, evaluation.label), path) for path in paths)]
        for name, evaluation in evaluations.items()
    ]
    head = ["", "ROC AUC", "best accuracy", "at the bundle's own threshold", "recall@1"]
    title = {
        "people": "People: the 1,000 pairs of LFW's `pairsDevTest`",
        "pets": "Pets: 23 cats; no cat was trained on",
    }[kind]
    history = read_history(bench.run(training))
    cost = f"{history.photos:,} photos shown in {history.seconds / 60:.0f} minutes"
    return f"{title} ({cost}):\n\n" + table(head[: len(paths) + 1], [*rows, BASELINES[kind], TARGETS[kind]])


def _draw(bench: Bench, kind: str, tried: Mapping[str, Training]) -> None:
    whiskers(
        bench.pictures / f"best-{kind}.png",
        {
            f"{title}, held-out identities": {
                name.replace("`", ""): mean_of([bench.results(training, HELD_OUT)], path)
                for name, training in tried.items()
            }
            for title, path in (("ROC AUC", AUC), ("recall@1", RECALL))
        },
    )
