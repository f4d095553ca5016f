"""Harmonic embeddings cut to 4 to 256 components: trained with three sets of weights, and without prefixes."""

from functools import partial

from papers.bench import Bench, Training, cached
from papers.figures import Results, over_seeds, table
from papers.harmonic import DEDICATED, PATHS, semi_hard
from papers.shared import CATS, DEV_TEST, SEEDS
from papers.vectors import cut_short

TITLE = "Harmonic embeddings: short prefixes, and their weights"
LENGTHS = (4, 8, 16, 32, 64, 128, 256)
WEIGHTS = {  # of the lengths, in their order
    "longer counts more": (0.04, 0.06, 0.08, 0.12, 0.16, 0.22, 0.32),
    "all count alike": (1 / 7,) * 7,
    "shorter counts more": (0.32, 0.22, 0.16, 0.12, 0.08, 0.06, 0.04),
}
NESTED = {
    name: [
        semi_hard(
            f"prefixes-{name.replace(' ', '-')}",
            seed,
            "model.embedding_dim=256",
            f"loss.prefixes={','.join(map(str, LENGTHS))}",
            f"loss.prefix_weights={','.join(f'{weight:.4f}' for weight in weights)}",
        )
        for seed in SEEDS
    ]
    for name, weights in WEIGHTS.items()
}


def measure(bench: Bench) -> str:
    runs_by_name = {**NESTED, "without prefixes": DEDICATED[256]}
    bench.train([run for runs in runs_by_name.values() for run in runs], (DEV_TEST, CATS))
    rows: list[list[str]] = []
    for name, runs in runs_by_name.items():
        cuts = [_cuts(bench, run) for run in runs]
        for length in map(str, LENGTHS):
            cells = (over_seeds([cut[label][length] for cut in cuts], path) for label, path in PATHS.values())
            rows.append([name, length, *cells])
    return table(["", "components", *PATHS], rows)


def _cuts(bench: Bench, run: Training) -> dict[str, dict[str, Results]]:
    """Evaluate a run at all lengths, on people and on cats; cached in its folder."""
    people, cats = bench.photos / "lfw_112", bench.photos / "cats23_gpriamo"
    return {
        label: cached(
            bench.run(run).path / label / "short.json",
            partial(cut_short, bench.run(run).bundle, photos, LENGTHS, pairs),
        )
        for label, photos, pairs in (("devtest", people, people / "pairsDevTest.txt"), ("cats", cats, None))
    }
