"""One network, one budget, eight losses, three seeds: people and animals trained together, judged apart."""

from statistics import mean

from familiar.evaluation.results import at_path
from papers.bench import Bench, Training
from papers.figures import Results, difference_of, mean_of, number, over_seeds, paired, signed, spread, table
from papers.history import read_history
from papers.plots import whiskers
from papers.shared import ANIMALS, CATS, DEV_TEST, DEV_TRAIN, PEOPLE, SEEDS, SMALL

TITLE = "Eight losses on one network and one budget"
# Nearly as many photos shown either way: 6 epochs of all photos, or 8 of four photos of each identity.
CLASSIFIED = ("budget.epochs=6", "validation.every_epochs=6", "loss.label_smoothing=0")
COMPARED = ("budget.epochs=8", "validation.every_epochs=8", "sampler.identities=24", "sampler.photos=4")
LOSSES = {
    "triplet": ("loss.name=semi_hard", *COMPARED),
    "contrastive": ("loss.name=contrastive", *COMPARED),
    "circle": ("loss.name=circle", *COMPARED),
    "softmax": ("loss.name=softmax", *CLASSIFIED),
    "center": ("loss.name=softmax", "loss.center_weight=0.003", *CLASSIFIED),
    "NormFace": ("loss.name=normface", "loss.scale=32", *CLASSIFIED),
    "ArcFace": ("loss.margin_rad=0 to 0.4 over 0.334", *CLASSIFIED),
    "CosFace": ("loss.name=cosface", "loss.scale=32", *CLASSIFIED),
}


def training(loss: str, seed: int) -> Training:
    return Training(
        f"losses/{loss.lower()}/{seed}",
        "pet-mobile",
        (*PEOPLE, *ANIMALS),
        (*SMALL, *LOSSES[loss], f"seed={seed}"),
        (*DEV_TRAIN, "--max-photos", "12"),
    )


TRAININGS = {loss: [training(loss, seed) for seed in SEEDS] for loss in LOSSES}

PATHS = {
    "people: AUC": ("devtest", "verification.auc"),
    "people: best accuracy": ("devtest", "verification.best_accuracy"),
    "cats: AUC": ("cats", "verification.auc"),
    "cats: recall@1": ("cats", "retrieval.recall_at_1"),
}
REFERENCE = "ArcFace"
Found = dict[str, dict[str, list[Results]]]  # of each loss and set, one of each seed


def measure(bench: Bench) -> str:
    bench.train((one for runs in TRAININGS.values() for one in runs), (DEV_TEST, CATS), may_fail=True)
    bench.require(TRAININGS[REFERENCE])
    ended = {loss: [run for run in runs if bench.failure(run) is None] for loss, runs in TRAININGS.items()}
    found: Found = {
        loss: {label: [bench.results(run, label) for run in runs] for label in ("devtest", "cats")}
        for loss, runs in ended.items()
        if runs
    }
    _draw(bench, found)
    return "\n\n".join(
        [
            f"Means of {len(SEEDS)} seeds, each with a split of its own; in brackets 95 % intervals over the "
            "identities judged.",
            _means(found),
            "Least and largest of the seeds; the similarity of equal error; photos shown in a run:",
            _spreads(bench, found, ended),
            *(
                f"Less {reference}, on the same draws of identities; bold where the interval leaves out zero:\n\n"
                f"{_differences(found, reference)}"
                for reference in (REFERENCE, "softmax")
                if reference in found
            ),
            _sentence(found),
            *_failures(bench),
        ]
    )


def _means(found: Found) -> str:
    return table(
        ["", *PATHS],
        [[loss, *(over_seeds(of[label], path) for label, path in PATHS.values())] for loss, of in found.items()],
    )


def _spreads(bench: Bench, found: Found, ended: dict[str, list[Training]]) -> str:
    rows = []
    for loss, of in found.items():
        shown = mean(read_history(bench.run(run)).photos for run in ended[loss])
        spreads = [spread(of[label], path) for label, path in PATHS.values()]
        thresholds = [_mean_threshold(of[label]) for label in ("devtest", "cats")]
        rows.append([loss, *spreads, *thresholds, f"{shown:,.0f}"])
    return table(["", *PATHS, "EER at, people", "cats", "photos"], rows)


def _mean_threshold(results: list[Results]) -> str:
    return number(mean(at_path(found, "verification.eer_threshold") for found in results), 2)


def _differences(found: Found, reference: str) -> str:
    return table(
        ["", *PATHS],
        [
            [loss, *(paired(found[reference][label], of[label], path) for label, path in PATHS.values())]
            for loss, of in found.items()
            if loss != reference
        ],
    )


def _sentence(found: Found) -> str:
    """Which differences exceed both what the draw of identities and what the seed makes of them."""
    others = [loss for loss in found if loss != REFERENCE]
    real: list[str] = []
    for loss in others:
        asked = {name: (found[REFERENCE][label], found[loss][label], path) for name, (label, path) in PATHS.items()}
        differ = [
            f"{name} {signed(difference_of(*results)[0])}"
            for name, results in asked.items()
            if _beyond_noise(*results) and _apart(*results)
        ]
        real += [f"{loss} ({', '.join(differ)})"] if differ else []
    count = len(others) * len(PATHS)
    return (
        f"Of {count} differences to {REFERENCE}, {count * 0.05:.1f} would leave out zero by chance alone. Those that "
        f"do, and whose seeds all lie on one side of all of {REFERENCE}'s: {'; '.join(real) or 'none'}. Every loss had "
        f"the same learning rates, which are {REFERENCE}'s of the walk, and its published hyper-parameters (but scale "
        "32 for every classifier that has one); none was tuned. So this compares losses as they come, on one small "
        "network and some 5,700 photos, not what each can be brought to."
    )


def _beyond_noise(first: list[Results], second: list[Results], path: str) -> bool:
    _, low, high = difference_of(first, second, path)
    return not low <= 0 <= high


def _apart(first: list[Results], second: list[Results], path: str) -> bool:
    """Whether all runs of the one lie below all of the other."""
    one, other = ([float(at_path(found, path)) for found in results] for results in (first, second))
    return max(one) < min(other) or max(other) < min(one)


def _failures(bench: Bench) -> list[str]:
    return [
        f"{run.name} ended early: {reason}"
        for runs in TRAININGS.values()
        for run in runs
        if (reason := bench.failure(run)) is not None
    ]


def _draw(bench: Bench, found: Found) -> None:
    shown = {name: PATHS[name] for name in ("people: AUC", "cats: AUC", "cats: recall@1")}
    whiskers(
        bench.pictures / "losses-bakeoff.png",
        {name: {loss: mean_of(of[label], path) for loss, of in found.items()} for name, (label, path) in shown.items()},
        of={
            f"{name}/{loss}": [float(at_path(one, path)) for one in of[label]]
            for name, (label, path) in shown.items()
            for loss, of in found.items()
        },
    )
