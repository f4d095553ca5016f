"""Compare eight losses on one network and budget, three seeds: trained on people and animals, tested separately."""

from statistics import mean

from papers.bench import Bench, Training
from papers.figures import Results, difference_of, mean_of, number, over_seeds, paired, signed, spread, table, value_at
from papers.history import read_history
from papers.plots import whiskers
from papers.shared import ANIMALS, CATS, DEV_TEST, DEV_TRAIN, PEOPLE, SEEDS, SMALL

TITLE = "Eight losses on one network and one budget"
# Nearly the same number of photos shown: 6 epochs of all photos, or 8 of four photos of each identity.
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
ResultsByLoss = dict[str, dict[str, list[Results]]]  # by loss and test set, one for each seed


def measure(bench: Bench) -> str:
    bench.train((run for runs in TRAININGS.values() for run in runs), (DEV_TEST, CATS), may_fail=True)
    bench.require(TRAININGS[REFERENCE])
    ended = {loss: [run for run in runs if bench.failure(run) is None] for loss, runs in TRAININGS.items()}
    results_by_loss: ResultsByLoss = {
        loss: {label: [bench.results(run, label) for run in runs] for label in ("devtest", "cats")}
        for loss, runs in ended.items()
        if runs
    }
    _draw(bench, results_by_loss)
    return "\n\n".join(
        [
            f"Means of {len(SEEDS)} seeds, each with its own split; in brackets 95 % intervals over the test "
            "identities.",
            _means(results_by_loss),
            "Minimum and maximum over the seeds; the threshold of the equal error rate (EER); photos shown per run:",
            _spreads(bench, results_by_loss, ended),
            *(
                f"Difference from {reference} (paired bootstrap); bold if the interval excludes zero:\n\n"
                f"{_differences(results_by_loss, reference)}"
                for reference in (REFERENCE, "softmax")
                if reference in results_by_loss
            ),
            _sentence(results_by_loss),
            *_failures(bench),
        ]
    )


def _means(results_by_loss: ResultsByLoss) -> str:
    return table(
        ["", *PATHS],
        [
            [loss, *(over_seeds(runs[label], path) for label, path in PATHS.values())]
            for loss, runs in results_by_loss.items()
        ],
    )


def _spreads(bench: Bench, results_by_loss: ResultsByLoss, ended: dict[str, list[Training]]) -> str:
    rows = []
    for loss, results in results_by_loss.items():
        shown = mean(read_history(bench.run(run)).photos for run in ended[loss])
        spreads = [spread(results[label], path) for label, path in PATHS.values()]
        thresholds = [_mean_threshold(results[label]) for label in ("devtest", "cats")]
        rows.append([loss, *spreads, *thresholds, f"{shown:,.0f}"])
    return table(["", *PATHS, "people: EER threshold", "cats: EER threshold", "photos shown"], rows)


def _mean_threshold(results: list[Results]) -> str:
    return number(mean(value_at(run, "verification.eer_threshold") for run in results), 2)


def _differences(results_by_loss: ResultsByLoss, reference: str) -> str:
    return table(
        ["", *PATHS],
        [
            [loss, *(paired(results_by_loss[reference][label], runs[label], path) for label, path in PATHS.values())]
            for loss, runs in results_by_loss.items()
            if loss != reference
        ],
    )


def _sentence(results_by_loss: ResultsByLoss) -> str:
    """List the differences that exceed both the variation over identities and over seeds."""
    others = [loss for loss in results_by_loss if loss != REFERENCE]
    certain: list[str] = []
    for loss in others:
        comparisons = {
            name: (results_by_loss[REFERENCE][label], results_by_loss[loss][label], path)
            for name, (label, path) in PATHS.items()
        }
        differ = [
            f"{name} {signed(difference_of(*results)[0])}"
            for name, results in comparisons.items()
            if _beyond_noise(*results) and _separated(*results)
        ]
        certain += [f"{loss} ({', '.join(differ)})"] if differ else []
    count = len(others) * len(PATHS)
    return (
        f"Of {count} differences from {REFERENCE}, {count * 0.05:.1f} are expected to exclude zero by chance. Those "
        f"that do, and in which all seeds are better or all are worse than every seed of {REFERENCE}: "
        f"{'; '.join(certain) or 'none'}. Every loss had the same learning rates, those of {REFERENCE} in "
        "`end_to_end.sh`, and its published hyperparameters (but a scale of 32 for every classifier that has one); "
        "none was tuned. So this compares untuned losses on one small network and some 5,700 photos, not the best "
        "that each can reach."
    )


def _beyond_noise(first: list[Results], second: list[Results], path: str) -> bool:
    _, low, high = difference_of(first, second, path)
    return not low <= 0 <= high


def _separated(first: list[Results], second: list[Results], path: str) -> bool:
    """Tell whether all runs of one loss lie below all runs of the other."""
    first_values, second_values = ([value_at(run, path) for run in results] for results in (first, second))
    return max(first_values) < min(second_values) or max(second_values) < min(first_values)


def _failures(bench: Bench) -> list[str]:
    return [
        f"{run.name} ended early: {reason}"
        for runs in TRAININGS.values()
        for run in runs
        if (reason := bench.failure(run)) is not None
    ]


def _draw(bench: Bench, results_by_loss: ResultsByLoss) -> None:
    shown = {name: PATHS[name] for name in ("people: AUC", "cats: AUC", "cats: recall@1")}
    whiskers(
        bench.pictures / "losses-bakeoff.png",
        {
            name: {loss: mean_of(runs[label], path) for loss, runs in results_by_loss.items()}
            for name, (label, path) in shown.items()
        },
        single_runs={
            f"{name}/{loss}": [value_at(run, path) for run in runs[label]]
            for name, (label, path) in shown.items()
            for loss, runs in results_by_loss.items()
        },
    )
