"""FaceNet's method on a network that a CPU can train: triplet mining and batch sizes."""

from collections.abc import Mapping, Sequence

from familiar.evaluation.plots.chart import LIGHT, TEXT_PT
from familiar.training.recipe import Recipe
from familiar.training.validation import COLLAPSED_SIMILARITY
from papers.bench import Bench, Training
from papers.figures import figure, number, paired, table
from papers.history import History, describe_photos, draw_over_photos, read_history
from papers.plots import legend_above, panels, save
from papers.shared import DEV_TEST, DEV_TRAIN, PEOPLE

TITLE = "FaceNet: triplet mining and batch size"
BATCH_128 = ("sampler.identities=32", "sampler.photos=4", "sampler.chunk_size=0", "budget.epochs=14")
BATCH_1800 = ("sampler.identities=450", "sampler.photos=4", "budget.epochs=19")
VARIANTS = {
    "semi-hard, 128": ("loss.name=semi_hard", *BATCH_128),
    "batch-all, 128": ("loss.name=batch_all", *BATCH_128),
    "hard negative, 128": ("loss.name=hard_negative", *BATCH_128),
    "offline, 128": (
        "loss.name=semi_hard",
        "mining.mode=offline",
        "mining.every_steps=20",
        "sampler.batch_size=128",
        "sampler.chunk_size=0",
        "budget.epochs=13",
    ),
    "semi-hard, 1,800": ("loss.name=semi_hard", *BATCH_1800),
    "batch-all over all, 128": ("loss.name=batch_all", "loss.reduction=all", *BATCH_128),
    "batch-hard, 128": ("loss.name=batch_hard", *BATCH_128),
    **{
        f"{name}, from zero": (f"loss.name={name}", "optimizer.accumulator=0", *BATCH_128)
        for name in ("semi_hard", "batch_hard", "hard_negative")
    },
}
OFFLINE = "offline, 128"
TRAINED = f"{OFFLINE}, trained"  # offline mining that begins with the network of the first row
VARIANTS[TRAINED] = (*VARIANTS[OFFLINE], "model.initial_weights=RUNS/facenet/semi-hard-128")
TRAININGS = {
    name: Training(
        f"facenet/{name.replace(', ', '-').replace(' ', '-').replace('1,800', '1800')}",
        "facenet-small",
        PEOPLE,
        (*settings, "input.size_px=96", "input.resize_px=96", "split.min_photos=2", "split.test=0"),
        (*DEV_TRAIN, "--max-photos", "12"),
    )
    for name, settings in VARIANTS.items()
}


REFERENCE = "semi-hard, 128"
PATHS = (
    "verification.auc",
    "verification.best_accuracy",
    "verification.at_bundle_thresholds.balanced.accuracy",
)


def measure(bench: Bench) -> str:
    first = [training for name, training in TRAININGS.items() if name != TRAINED]
    bench.train(first, (DEV_TEST,), may_fail=True)
    bench.train([TRAININGS[TRAINED]], (DEV_TEST,), may_fail=True)
    histories = {name: read_history(bench.run(training)) for name, training in TRAININGS.items()}
    draw_training(bench, dict(list(histories.items())[:5]))
    photos = describe_photos(bench.run(TRAININGS[REFERENCE]))
    return "\n\n".join(
        [
            f"`facenet-small` (NNS2, random weights, AdaGrad) at 96 px, trained on {photos}; tested on the 1,000 pairs "
            "of `pairsDevTest`. The numbers are batch sizes; batches of 1,800 photos go through the network in chunks "
            "of 120 (gradient caching). The best accuracy uses a threshold chosen on the test pairs; the bundle's own "
            f"threshold was fitted in validation. The last column is the difference in ROC AUC from {REFERENCE}, bold "
            "if the interval excludes zero; there is one seed, so variation over seeds is not included. Minutes are "
            "training time only; active is the share of triplets with a loss above zero, first epoch to last.",
            results(bench, histories),
            worst_of_hard_negatives(histories),
            *(f"{name} ended early: {reason}" for name, reason in failures(bench).items()),
        ]
    )


def results(bench: Bench, histories: Mapping[str, History]) -> str:
    failed = failures(bench)
    rows: list[Sequence[str]] = []
    for name, training in TRAININGS.items():
        shown = histories[name].photos
        steps = round(shown / photos_per_step(bench.run(training).recipe()))
        active = " to ".join(first_to_last(histories[name], "active_triplets"))
        trained = [f"{steps:,}", f"{shown:,}", f"{histories[name].seconds / 60:.1f}", active]
        if name in failed:
            rows.append([name, *["ended early", "-", "-"], *trained, "-"])
            continue
        evaluated = bench.results(training, DEV_TEST.label)
        compared = name != REFERENCE and REFERENCE not in failed
        first = [bench.results(TRAININGS[REFERENCE], DEV_TEST.label)] if compared else []
        difference = paired(first, [evaluated], "verification.auc") if compared else ""
        rows.append([name, *(figure(evaluated, path) for path in PATHS), *trained, difference])
    return table(
        [
            *("triplets, batch", "ROC AUC", "best accuracy", "at its own threshold", "steps", "photos shown"),
            *("minutes", "active", "ROC AUC, difference"),
        ],
        rows,
    )


def first_to_last(history: History, figure: str) -> list[str]:
    """Format the first and last known value of a metric, or the only one."""
    values = [value for _, value in history.known(figure)]
    return [number(value) for value in dict.fromkeys((*values[:1], *values[-1:]))] or ["-"]


def worst_of_hard_negatives(histories: Mapping[str, History]) -> str:
    known = histories["hard negative, 128"].known("stranger_similarity")
    if not known:
        return "Hard negative mining ended before its first validation."
    shown, worst = max(known, key=lambda point: point[1])
    return (
        f"Hard negative mining came closest to a collapse after {shown:,} photos, with a mean cosine of negatives of "
        f"{number(worst)} (a run counts as collapsed from {COLLAPSED_SIMILARITY} on)."
    )


def failures(bench: Bench) -> dict[str, str]:
    """List why trainings ended early, by variant."""
    reasons = {name: bench.failure(training) for name, training in TRAININGS.items()}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def photos_per_step(recipe: Recipe) -> int:
    sampler = recipe.sampler
    if recipe.mining.mode == "offline":
        return 3 * (sampler.batch_size // 3)
    return sampler.identities * sampler.photos


def draw_training(bench: Bench, histories: Mapping[str, History]) -> None:
    picture, (auc, active) = panels(2, 4.6)
    draw_over_photos(auc, histories, "validation_auc")
    draw_over_photos(active, histories, "active_triplets")
    for axes, title in (
        (auc, "ROC AUC, unseen people"),
        (active, "share of triplets with a loss above zero"),
    ):
        axes.set_title(title, color=LIGHT.ink, fontsize=TEXT_PT)
        axes.set_xlabel("photos shown", color=LIGHT.ink, fontsize=TEXT_PT)
    active.set_ylim(bottom=0)
    legend_above(picture, auc, 3)
    save(picture, bench.pictures / "facenet-training.png")
