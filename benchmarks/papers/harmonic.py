"""Harmonic embeddings: prefixes against dedicated models, and a new model with an old model's gallery."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from familiar.datasets.folders import DataSpec, read_identity_list
from familiar.evaluation.plots.chart import LIGHT, TEXT_PT
from papers import losses
from papers.bench import Bench, Training, cached
from papers.figures import Results, mean_of, over_seeds, paired, table
from papers.plots import legend_above, panels, save, whiskers
from papers.shared import ANIMALS, CATS, DEV_TEST, DEV_TRAIN, PEOPLE, SEEDS, SMALL
from papers.vectors import OLD_OLD, across, cut_short

TITLE = "Harmonic embeddings: prefixes, and across models"
PREFIXES = (64, 128, 256)


def semi_hard(name: str, seed: int, *settings: str) -> Training:
    """Define the loss comparison's triplet training with other embedding settings."""
    return Training(
        f"harmonic/{name}/{seed}",
        "pet-mobile",
        (*PEOPLE, *ANIMALS),
        (*SMALL, *losses.LOSSES["triplet"], f"seed={seed}", *settings),
        (*DEV_TRAIN, "--max-photos", "12"),
    )


NESTED = [
    semi_hard(
        "nested",
        seed,
        "model.embedding_dim=256",
        "loss.prefixes=64,128,256",
        "loss.prefix_weights=0.2,0.3,0.5",
    )
    for seed in SEEDS
]
NESTED_128 = [
    semi_hard(
        "nested-128",
        seed,
        "model.embedding_dim=128",
        "loss.prefixes=64,128",
        "loss.prefix_weights=0.4,0.6",
    )
    for seed in SEEDS
]
DEDICATED = {
    dim: [semi_hard(f"dedicated-{dim}", seed, f"model.embedding_dim={dim}") for seed in SEEDS] for dim in (64, 256)
} | {128: losses.TRAININGS["triplet"]}

# The old model is trained on a third of the photos of each identity, the new ones on all.
OLD = Training(
    "harmonic/old",
    "pet-mobile",
    (*PEOPLE, *ANIMALS),
    (*SMALL, *losses.LOSSES["ArcFace"], "seed=10"),
    (*DEV_TRAIN, "--max-photos", "4"),
)
NEW_ALONE = losses.TRAININGS["ArcFace"]


def compatible(bench: Bench, seed: int) -> Training:
    """Define the loss comparison's ArcFace training, compatible with the old bundle."""
    settings = (*SMALL, *losses.LOSSES["ArcFace"], f"loss.compatible_with={bench.run(OLD).bundle}")
    return Training(
        f"harmonic/compatible/{seed}",
        "pet-mobile",
        (*PEOPLE, *ANIMALS),
        (*settings, f"seed={seed}"),
        (*DEV_TRAIN, "--max-photos", "12"),
    )


def longer(bench: Bench, seed: int) -> Training:
    """Define a compatible training of 256 components, whose first 128 can be compared with the old bundle's."""
    settings = (*SMALL, *losses.LOSSES["ArcFace"], f"loss.compatible_with={bench.run(OLD).bundle}")
    nested = ("model.embedding_dim=256", "loss.prefixes=128,256", "loss.prefix_weights=0.5,0.5")
    return Training(
        f"harmonic/longer/{seed}",
        "pet-mobile",
        (*PEOPLE, *ANIMALS),
        (*settings, *nested, f"seed={seed}"),
        (*DEV_TRAIN, "--max-photos", "12"),
    )


PATHS = losses.PATHS
CUT, NAIVE, AT_LENGTH = "truncated, trained with prefixes", "truncated, trained without", "trained at this length"
CUT_128 = "of 128, trained with prefixes"
GALLERIES = {"people": ("lfw_112", "peopleDevTest.txt"), "cats": ("cats23_gpriamo", None)}
Cuts = dict[str, dict[int, dict[str, list[Results]]]]  # by kind, length and set: one of each seed
Ways = dict[str, dict[str, list[Results]]]  # by set and way


def measure(bench: Bench) -> str:
    bench.train([OLD, *NESTED, *(run for runs in DEDICATED.values() for run in runs), *NEW_ALONE], (DEV_TEST, CATS))
    bench.train(NESTED_128, (DEV_TEST, CATS))
    bench.train([make(bench, seed) for seed in SEEDS for make in (compatible, longer)], (DEV_TEST, CATS))
    cuts: Cuts = {
        CUT: _cuts(bench, NESTED, PREFIXES),
        CUT_128: _cuts(bench, NESTED_128, PREFIXES[:2]),
        NAIVE: _cuts(bench, DEDICATED[256], PREFIXES),
        AT_LENGTH: {
            length: {label: [bench.results(run, label) for run in runs] for label in ("devtest", "cats")}
            for length, runs in DEDICATED.items()
        },
    }
    ways_by_seed = [_ways(bench, seed) for seed in SEEDS]
    ways: Ways = {
        name: {way: [seed_ways[name][way] for seed_ways in ways_by_seed] for way in ways_by_seed[0][name]}
        for name in GALLERIES
    }
    _draw_prefixes(bench, cuts)
    whiskers(
        bench.pictures / "harmonic-across.png",
        {
            f"{name}: recall@1": {
                way: mean_of(results, "across.recall_at_1") for way, results in results_by_way.items()
            }
            for name, results_by_way in ways.items()
        },
    )
    return "\n\n".join([*_on_prefixes(cuts), *_on_ways(ways)])


def _cuts(bench: Bench, runs: list[Training], lengths: Sequence[int]) -> dict[int, dict[str, list[Results]]]:
    """Evaluate runs at all prefix lengths, the last of which is their own; cached in RUNS."""
    cuts = {length: {"devtest": [], "cats": []} for length in lengths}
    people, cats = bench.photos / "lfw_112", bench.photos / "cats23_gpriamo"
    for run in runs:
        model = bench.run(run).bundle
        for label, photos, pairs in (("devtest", people, people / "pairsDevTest.txt"), ("cats", cats, None)):
            cut = cached(
                bench.run(run).path / label / "cut.json",
                partial(cut_short, model, photos, lengths[:-1], pairs),
            )
            for length in lengths[:-1]:
                cuts[length][label].append(cut[str(length)])
            cuts[lengths[-1]][label].append(bench.results(run, label))
    return cuts


def _ways(bench: Bench, seed: int) -> dict[str, dict[str, Results]]:
    """Evaluate new queries in an old gallery, on both sets; cached in RUNS."""
    new = (NEW_ALONE[seed], compatible(bench, seed), longer(bench, seed))
    return {
        name: cached(bench.runs / "harmonic" / f"across-{name}-{seed}.json", partial(new_in_old, bench, *new, name))
        for name in GALLERIES
    }


def new_in_old(bench: Bench, new: Training, adapted: Training, extended: Training, gallery: str) -> dict[str, Results]:
    """Evaluate queries of new networks in the old one's gallery, of people or of cats."""
    folder, listed = GALLERIES[gallery]
    root = bench.photos / folder
    identities = tuple(sorted(read_identity_list(root / listed))) if listed else None
    queries = DataSpec((str(root),), identities).read().with_min_photos(2)
    run = bench.run(new)
    known = run.data_spec().read().select_identities(run.split().train)
    known = known.with_min_photos(run.recipe().split.min_photos)
    bundles = (bench.run(each).bundle for each in (OLD, new, adapted, extended))
    return across(*bundles, known, queries)


def _on_prefixes(cuts: Cuts) -> list[str]:
    rows = [
        [f"{length}, {kind}", *(over_seeds(results[length][label], path) for label, path in PATHS.values())]
        for length in reversed(PREFIXES)
        for kind, results in cuts.items()
        if length in results and not (kind == NAIVE and length == PREFIXES[-1])  # the same as the dedicated network
    ]
    differences = [
        [
            f"{length}, {kind}",
            *(
                paired(cuts[AT_LENGTH][length][label], cuts[kind][length][label], path)
                for label, path in PATHS.values()
            ),
        ]
        for kind in (CUT, CUT_128, NAIVE)
        for length in reversed(PREFIXES)
        if length in cuts[kind] and not (kind == NAIVE and length == PREFIXES[-1])
    ]
    return [
        "### Prefixes",
        f"Semi-hard triplets. Rows by number of components; means of {len(SEEDS)} seeds, 95 % intervals over the test "
        "identities.",
        table(["", *PATHS], rows),
        "Difference from the network trained at this length (paired bootstrap); bold if the interval excludes zero. "
        "The appendix reports a loss of .001 at 128 of 256, and .989 for a network of 128 truncated to 64, with no "
        "64-d network for comparison.",
        table(["", *PATHS], differences),
    ]


def _on_ways(ways: Ways) -> list[str]:
    head = [
        f"{name}: {figure}" for name in ways for figure in ("recall@1", "AUC", f"recall@1, difference from {OLD_OLD}")
    ]
    rows = []
    for way in next(iter(ways.values())):
        cells = [way]
        for results in ways.values():
            cells += [over_seeds(results[way], f"across.{name}") for name in ("recall_at_1", "auc")]
            cells.append("-" if way == OLD_OLD else paired(results[OLD_OLD], results[way], "across.recall_at_1"))
        rows.append(cells)
    return [
        "### Across models",
        "ArcFace. Rows are query / gallery, without the query's own photo. *Alone*: trained without the old bundle. "
        "*Rotated*, *ridge*: mapped to the other space by a rotation or a ridge regression, fitted on the new run's "
        "training photos, embedded by both. The old bundle was trained on at most 4 photos of each identity, the new "
        "ones on 12. *Longer* has 256 components, of which 128 are compared with old embeddings; *half old*: every "
        "second photo is missing and keeps its old embedding, or has a mapped one. People: those outside DevTrain with "
        "two photos or more; cats: cats23. Means of "
        f"{len(SEEDS)} new networks and one old, 95 % intervals over the test identities.",
        table(["", *head], rows),
    ]


def _draw_prefixes(bench: Bench, cuts: Cuts) -> None:
    """Draw the AUC over the length, the three kinds slightly apart so that their intervals are visible."""
    shown = {name: PATHS[name] for name in ("people: AUC", "cats: AUC")}
    figure, panel_axes = panels(len(shown), 3.8)
    for axes, (title, (label, path)) in zip(panel_axes, shown.items(), strict=True):
        for index, (kind, results) in enumerate(cuts.items()):
            estimates = np.array([mean_of(results[length][label], path) for length in sorted(results)])
            lengths = np.array(sorted(results)) * 1.05 ** (index - 1)
            axes.errorbar(
                lengths,
                estimates[:, 0],
                yerr=np.abs(estimates[:, 1:] - estimates[:, :1]).T,
                color=LIGHT.series[(0, 3, 5, 2)[index]],
                marker="odsv"[index],
                linewidth=1.8,
                elinewidth=1.1,
                capsize=3,
                label=kind,
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks(PREFIXES, [str(length) for length in PREFIXES])
        axes.set_title(title, color=LIGHT.ink, fontsize=TEXT_PT)
        axes.set_xlabel("components", color=LIGHT.ink, fontsize=TEXT_PT)
    legend_above(figure, panel_axes[0], 2)
    save(figure, bench.pictures / "harmonic-prefixes.png")
