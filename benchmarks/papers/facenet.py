"""FaceNet's method (seed 001) on a network a CPU can train: which triplets, and how large a batch."""

from collections.abc import Mapping, Sequence

from familiar.evaluation.plots.chart import LIGHT, TEXT_PT
from familiar.training.recipe import Recipe
from familiar.training.validation import COLLAPSED_SIMILARITY
from papers.bench import Bench, Training
from papers.figures import figure, number, paired, table
from papers.history import History, draw_over_photos, look, read_history, sides
from papers.plots import key_above, panels, save
from papers.shared import DEV_TEST, DEV_TRAIN, PEOPLE
from papers.spread import Spread, spread_of

TITLE = "FaceNet: which triplets, how large a batch (seed 001)"
OF_128 = ("sampler.identities=32", "sampler.photos=4", "sampler.chunk_size=0", "budget.epochs=14")
OF_1800 = ("sampler.identities=450", "sampler.photos=4", "budget.epochs=19")
VARIANTS = {
    "semi-hard, 128": ("loss.name=semi_hard", *OF_128),
    "batch-all, 128": ("loss.name=batch_all", *OF_128),
    "hard negative, 128": ("loss.name=hard_negative", *OF_128),
    "offline, 128": (
        "loss.name=semi_hard",
        "mining.mode=offline",
        "mining.every_steps=20",
        "sampler.batch_size=128",
        "sampler.chunk_size=0",
        "budget.epochs=13",
    ),
    "semi-hard, 1,800": ("loss.name=semi_hard", *OF_1800),
}
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
_LEAST_SHARE = 1e-7  # below it is rounding


def measure(bench: Bench) -> str:
    bench.train(TRAININGS.values(), (DEV_TEST,), may_fail=True)
    histories = {name: read_history(bench.run(training)) for name, training in TRAININGS.items()}
    spreads = {name: spread_of(bench, training) for name, training in TRAININGS.items()}
    draw_training(bench, histories)
    draw_spread(bench, histories, spreads)
    photos = sides(bench.run(TRAININGS[REFERENCE]))
    return "\n\n".join(
        [
            f"`facenet-small` (NNS2, random weights, AdaGrad) at 96 px on {photos}; judged on the 1,000 pairs of "
            "`pairsDevTest`. The numbers are photos in a batch; 1,800 go through the network in chunks of 120 by "
            "gradient caching. The best accuracy chooses its threshold on the pairs it judges; the bundle's own was "
            f"fitted in validation. Differences are those of ROC AUC to {REFERENCE}, bold where the interval leaves "
            "out zero; they know nothing of the seed, which is one. Minutes are of training alone.",
            results(bench, histories),
            "How the embeddings lie. Strangers are pairs of two people: their mean cosine in the last validation, and "
            "among DevTest's photos by the weights of the last epoch; 1 would be a collapse. Active is the share of a "
            "batch's triplets that still cost something, first epoch to last (offline, triplets come mined). The norm "
            "is that of embeddings before they are brought to unit length. The effective dimension is "
            "(sum of the covariance's eigenvalues)^2 / (sum of their squares), of 128.",
            spread_table(histories, spreads),
            worst_of_hard_negatives(histories),
            *(f"{name} ended early: {reason}" for name, reason in failures(bench).items()),
        ]
    )


def results(bench: Bench, histories: Mapping[str, History]) -> str:
    failed = failures(bench)
    rows: list[Sequence[str]] = []
    for name, training in TRAININGS.items():
        shown = histories[name].photos
        steps = round(shown / photos_a_step(bench.run(training).recipe()))
        trained = [f"{steps:,}", f"{shown:,}", f"{histories[name].seconds / 60:.1f}"]
        if name in failed:
            rows.append([name, *["ended early", "-", "-"], *trained, "-"])
            continue
        found = bench.results(training, DEV_TEST.label)
        compared = name != REFERENCE and REFERENCE not in failed
        first = [bench.results(TRAININGS[REFERENCE], DEV_TEST.label)] if compared else []
        difference = paired(first, [found], "verification.auc") if compared else ""
        rows.append([name, *(figure(found, path) for path in PATHS), *trained, difference])
    return table(
        [
            *("triplets, batch", "ROC AUC", "best accuracy", "at its own threshold", "steps", "photos shown"),
            *("minutes", "ROC AUC, difference"),
        ],
        rows,
    )


def spread_table(histories: Mapping[str, History], spreads: Mapping[str, Spread | None]) -> str:
    rows = [
        [
            name,
            first_to_last(histories[name], "stranger_similarity")[-1],
            number(spread.stranger_similarity if spread else None),
            " to ".join(first_to_last(histories[name], "active_triplets")),
            f"{spread.norm_mean:.2f} ± {spread.norm_std:.2f}" if spread else "-",
            f"{spread.effective_dimension:.1f}" if spread else "-",
        ]
        for name, spread in spreads.items()
    ]
    return table(
        [
            *("triplets, batch", "strangers, validation", "strangers, DevTest", "active"),
            *("norm, mean ± standard deviation", "effective dimension"),
        ],
        rows,
    )


def first_to_last(history: History, figure: str) -> list[str]:
    """Once where it is known once."""
    values = [value for _, value in history.known(figure)]
    return [number(value) for value in dict.fromkeys((*values[:1], *values[-1:]))] or ["-"]


def worst_of_hard_negatives(histories: Mapping[str, History]) -> str:
    known = histories["hard negative, 128"].known("stranger_similarity")
    if not known:
        return "Hard negative ended before its first validation."
    shown, worst = max(known, key=lambda point: point[1])
    return (
        f"Hard negative was nearest to one point after {shown:,} photos: strangers had a mean cosine of "
        f"{number(worst)} there (from {COLLAPSED_SIMILARITY} on a run counts as collapsed)."
    )


def failures(bench: Bench) -> dict[str, str]:
    """Why trainings ended early, by variant."""
    reasons = {name: bench.failure(training) for name, training in TRAININGS.items()}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def photos_a_step(recipe: Recipe) -> int:
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
        (active, "triplets of a batch that still cost something"),
    ):
        axes.set_title(title, color=LIGHT.ink, fontsize=TEXT_PT)
        axes.set_xlabel("photos shown", color=LIGHT.ink, fontsize=TEXT_PT)
    active.set_ylim(bottom=0)
    key_above(picture, auc, 3)
    save(picture, bench.pictures / "facenet-training.png")


def draw_spread(bench: Bench, histories: Mapping[str, History], spreads: Mapping[str, Spread | None]) -> None:
    picture, (strangers, variances) = panels(2, 4.6)
    draw_over_photos(strangers, histories, "stranger_similarity")
    strangers.set_title("mean cosine of strangers (1: collapse)", color=LIGHT.ink, fontsize=TEXT_PT)
    strangers.set_xlabel("photos shown", color=LIGHT.ink, fontsize=TEXT_PT)
    for place, found in enumerate(spreads.values()):
        if found is not None:
            shares = [share for share in found.variances if share > _LEAST_SHARE]
            variances.semilogy(range(1, len(shares) + 1), shares, markevery=16, **look(place))
    variances.set_title("share of the variance, DevTest", color=LIGHT.ink, fontsize=TEXT_PT)
    variances.set_xlabel("direction, the widest first", color=LIGHT.ink, fontsize=TEXT_PT)
    key_above(picture, strangers, 3)
    save(picture, bench.pictures / "facenet-spread.png")
