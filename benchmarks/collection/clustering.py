"""Measure clustering time, memory and quality of growing collections, and compare with scikit-learn's HDBSCAN.

    gallery.py clustering [--counts 20000,50000,100000,200000,1000000] [--peer 20000] [--rounds 3]

Vectors of 128 dimensions, by `vectors.py`; every count runs in its own process, whose peak memory (Linux) includes the
vectors. CPU seconds are of all cores, and are more reliable on a machine with other load. HDBSCAN (clusters of two or
more; noise becomes clusters of one) alternates with ours at `--peer` vectors (0: not at all). Compare times, not F: our
threshold was chosen for these vectors.
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
from familiar.neighbors.clustering import cluster

THRESHOLD = 0.4  # chosen on 20,000 such vectors with another seed


def main(options: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="gallery.py clustering",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--counts", default="20000,50000,100000,200000,1000000", help="numbers of vectors")
    parser.add_argument("--peer", type=int, default=20_000, help="vectors of the comparison with HDBSCAN; 0: none")
    parser.add_argument("--rounds", type=int, default=3, help="repetitions of both methods at --peer vectors")
    arguments = parser.parse_args(options)
    counts = [int(count) for count in arguments.counts.split(",") if count]
    print("| vectors | s | CPU s | peak MB | clusters / true | pairwise F | B-cubed F |")
    print("|---|---|---|---|---|---|---|")
    totals = [_in_fresh_process(_at_scale, count) for count in counts]
    if len(counts) > 1:
        exponent = np.polyfit(np.log(counts), np.log(totals), 1)[0]
        print(f"\ntime grows as n^{exponent:.2f} from {min(counts):,} to {max(counts):,}")
    if arguments.peer:
        print("\n| vectors | method | median s | x ours | clusters / true | pairwise F | B-cubed F |")
        print("|---|---|---|---|---|---|---|")
        _in_fresh_process(_against_peer, arguments.peer, arguments.rounds)


def _in_fresh_process(work: Callable[..., float], *arguments: int) -> float:
    """Run a function in a fresh process and return its result."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def _at_scale(count: int) -> float:
    embeddings, identities = synthetic(count)
    started, worked = time.perf_counter(), time.process_time()
    groups = cluster(embeddings, THRESHOLD)
    done, worked = time.perf_counter(), time.process_time() - worked
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    times = f"{done - started:.1f} | {worked:.1f}"
    print(f"| {count:,} | {times} | {peak:,.0f} | {figures(groups, identities)} |", flush=True)
    return done - started


def _against_peer(count: int, rounds: int) -> float:
    embeddings, identities = synthetic(count)
    methods = {"ours": _ours, "HDBSCAN": _hdbscan}
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    clusters: dict[str, np.ndarray] = {}
    for _ in range(rounds):
        for name, method in methods.items():
            started = time.perf_counter()
            clusters[name] = method(embeddings)
            seconds[name].append(time.perf_counter() - started)
    middle = {name: median(each) for name, each in seconds.items()}
    for name in methods:
        ratio = middle[name] / middle["ours"]
        quality = figures(clusters[name], identities)
        print(f"| {count:,} | {name} | {middle[name]:.1f} | {ratio:.1f} | {quality} |", flush=True)
    return middle["HDBSCAN"] / middle["ours"]


def _ours(embeddings: np.ndarray) -> np.ndarray:
    return cluster(embeddings, THRESHOLD)


def _hdbscan(embeddings: np.ndarray) -> np.ndarray:
    clusters = HDBSCAN(min_cluster_size=2, copy=True).fit_predict(embeddings)
    noise = clusters < 0
    return np.where(noise, clusters.max() + np.cumsum(noise), clusters)


def figures(groups: np.ndarray, identities: np.ndarray) -> str:
    true = np.unique(identities, return_inverse=True)[1]
    table = contingency(true, groups)
    sizes = f"{len(np.unique(groups)):,} / {true.max() + 1:,}"
    return f"{sizes} | {table.pairwise().f:.4f} | {table.bcubed().f:.4f}"
