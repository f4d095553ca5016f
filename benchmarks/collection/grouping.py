"""Grouping at scale: time, memory and quality as the collection grows, and against scikit-learn's HDBSCAN.

    gallery.py grouping [--counts 20000,50000,100000,200000,1000000] [--peer 20000] [--rounds 3]

Vectors of 128 dimensions, by `vectors.py`; every count has a process of its own, whose peak memory (Linux) holds the
vectors too. CPU seconds are of all cores, and tell more on a machine with other work. HDBSCAN (groups of two or more;
what it calls noise is alone) takes turns with ours at `--peer` vectors (0: not at all). Compare times, not F: our
threshold suits these vectors.
"""

import argparse
import resource
import time
from collections.abc import Callable
from multiprocessing import get_context
from statistics import median

import numpy as np
from sklearn.cluster import HDBSCAN

from collection.vectors import synthetic
from familiar.metrics.clustering import contingency
from familiar.neighbors.clustering import prepare_linkage

THRESHOLD = 0.4  # chosen on 20,000 of these vectors of another seed


def main(options: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="gallery.py grouping",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--counts", default="20000,50000,100000,200000,1000000")
    parser.add_argument("--peer", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3, help="of both, at --peer vectors")
    given = parser.parse_args(options)
    counts = [int(count) for count in given.counts.split(",") if count]
    print("| vectors | neighbors s | merging s | total s | CPU s | peak MB | groups / true | pairwise F | B-cubed F |")
    print("|---|---|---|---|---|---|---|---|---|")
    totals = [_apart(_at_scale, count) for count in counts]
    if len(counts) > 1:
        exponent = np.polyfit(np.log(counts), np.log(totals), 1)[0]
        print(f"\ntime grows as n^{exponent:.2f} from {min(counts):,} to {max(counts):,}")
    if given.peer:
        print("\n| vectors | method | median s | x ours | groups / true | pairwise F | B-cubed F |")
        print("|---|---|---|---|---|---|---|")
        _apart(_against_peer, given.peer, given.rounds)


def _apart(work: Callable[..., float], *arguments: int) -> float:
    """What the work returns, done in a process that has held nothing else."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def _at_scale(count: int) -> float:
    embeddings, identities = synthetic(count)
    started, worked = time.perf_counter(), time.process_time()
    rows = prepare_linkage(embeddings)
    searched = time.perf_counter()
    groups = rows.groups_at([THRESHOLD])[0]
    done, worked = time.perf_counter(), time.process_time() - worked
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    times = f"{searched - started:.1f} | {done - searched:.1f} | {done - started:.1f} | {worked:.1f}"
    print(f"| {count:,} | {times} | {peak:,.0f} | {_figures(groups, identities)} |", flush=True)
    return done - started


def _against_peer(count: int, rounds: int) -> float:
    embeddings, identities = synthetic(count)
    methods = {"ours": _ours, "HDBSCAN": _hdbscan}
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    found: dict[str, np.ndarray] = {}
    for _ in range(rounds):
        for name, method in methods.items():
            started = time.perf_counter()
            found[name] = method(embeddings)
            seconds[name].append(time.perf_counter() - started)
    middle = {name: median(each) for name, each in seconds.items()}
    for name in methods:
        ratio = middle[name] / middle["ours"]
        figures = _figures(found[name], identities)
        print(f"| {count:,} | {name} | {middle[name]:.1f} | {ratio:.1f} | {figures} |", flush=True)
    return middle["HDBSCAN"] / middle["ours"]


def _ours(embeddings: np.ndarray) -> np.ndarray:
    return prepare_linkage(embeddings).groups_at([THRESHOLD])[0]


def _hdbscan(embeddings: np.ndarray) -> np.ndarray:
    found = HDBSCAN(min_cluster_size=2, copy=True).fit_predict(embeddings)
    alone = found < 0
    return np.where(alone, found.max() + np.cumsum(alone), found)


def _figures(groups: np.ndarray, identities: np.ndarray) -> str:
    true = np.unique(identities, return_inverse=True)[1]
    table = contingency(true, groups)
    sizes = f"{len(np.unique(groups)):,} / {true.max() + 1:,}"
    return f"{sizes} | {table.pairwise().f:.4f} | {table.bcubed().f:.4f}"
