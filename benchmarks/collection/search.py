"""Measure the search for one query at a time: exact, by prefix and with HNSW, against NumPy's matrix product.

    gallery.py search [--count 100000] [--queries 500] [--decay 6.5|inf]

Vectors have 128 dimensions; queries are other photos of the same individuals. The exact searches alternate with the
bare product, query by query; times are medians. Another process opens the HNSW index from the disk; peak memory is of
that process (Linux).
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from collection.vectors import LFW_DECAY, synthetic
from familiar.core.vectors import prefix
from familiar.neighbors.brute_force import rerank, search
from familiar.neighbors.hnsw import INDEX_FILE, HnswIndex, Stamp

K = 10
PREFIX = 32
CANDIDATES = 200


def main(options: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="gallery.py search",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument(
        "--decay", type=float, default=LFW_DECAY, help="decay of the variance over components; inf: equal variances"
    )
    arguments = parser.parse_args(options)
    embeddings, _ = synthetic(arguments.count + arguments.queries, decay=arguments.decay)
    vectors, queries = embeddings[: arguments.count], embeddings[arguments.count :]
    truth, _ = search(vectors, queries=queries, k=K)
    print("| vectors | decay | search | p50 ms | x bare | recall@10 | |")
    print("|---|---|---|---|---|---|---|")

    def row(name: str, ms: float, bare: float, neighbors: np.ndarray | None, notes: str = "") -> None:
        recall = "" if neighbors is None else f"{_recall(neighbors, truth):.4f}"
        times = f"{ms:.3f} | {ms / bare:.2f}"
        print(f"| {arguments.count:,} | {arguments.decay} | {name} | {times} | {recall} | {notes} |", flush=True)

    answers, times = _in_turns(_exact_searches(vectors), queries)
    bare = times["bare product, float32"]
    for name, ms in times.items():
        row(name, ms, bare, answers[name])
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        index = HnswIndex.build(vectors, np.arange(arguments.count))
        built = time.perf_counter() - started
        stamp = index.save(Path(folder), "benchmark")
        megabytes = (Path(folder) / INDEX_FILE).stat().st_size / 1e6
        del index
        neighbors, ms, opened, peak = _in_another_process(Path(folder), stamp, queries)
    notes = f"built in {built:.0f} s, {megabytes:.0f} MB, opened in {opened:.2f} s, peak {peak:.0f} MB"
    row("HNSW, memory-mapped", ms, bare, neighbors, notes)


def _exact_searches(vectors: np.ndarray) -> dict[str, Callable[[np.ndarray], np.ndarray | None]]:
    halves, prefixes = vectors.astype(np.float16), prefix(vectors, PREFIX)

    def bare(query: np.ndarray) -> None:
        vectors @ query[0]

    def by_prefix(query: np.ndarray) -> np.ndarray:
        candidates, _ = search(prefixes, queries=prefix(query, PREFIX), k=CANDIDATES)
        return rerank(vectors, queries=query, rows=candidates, k=K)[0]

    return {
        "bare product, float32": bare,
        "exact, float32": lambda query: search(vectors, queries=query, k=K)[0],
        "exact, float16": lambda query: search(halves, queries=query, k=K)[0],
        f"prefix {PREFIX}, {CANDIDATES} candidates": by_prefix,
    }


def _in_turns(
    searches: dict[str, Callable[[np.ndarray], np.ndarray | None]], queries: np.ndarray
) -> tuple[dict[str, np.ndarray | None], dict[str, float]]:
    """Run the searches alternately; return each one's neighbors and median milliseconds per query."""
    seconds: dict[str, list[float]] = {name: [] for name in searches}
    neighbors: dict[str, list[np.ndarray]] = {name: [] for name in searches}
    for query in queries:
        for name, find in searches.items():
            started = time.perf_counter()
            rows = find(query[None])
            seconds[name].append(time.perf_counter() - started)
            if rows is not None:
                neighbors[name].append(rows)
    answers = {name: np.concatenate(rows) if rows else None for name, rows in neighbors.items()}
    return answers, {name: 1000 * float(np.median(taken)) for name, taken in seconds.items()}


def _in_another_process(folder: Path, stamp: Stamp, queries: np.ndarray) -> tuple[np.ndarray, float, float, float]:
    """Return neighbor keys, median milliseconds per query, seconds to open, peak megabytes."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(_opened, (folder, stamp, queries))


def _opened(folder: Path, stamp: Stamp, queries: np.ndarray) -> tuple[np.ndarray, float, float, float]:
    started = time.perf_counter()
    index = HnswIndex.open(folder, stamp)
    opened = time.perf_counter() - started
    assert index is not None
    seconds, neighbors = [], []
    for query in queries:
        started = time.perf_counter()
        keys, _ = index.search(query[None], K)
        seconds.append(time.perf_counter() - started)
        neighbors.append(keys)
    return np.concatenate(neighbors), 1000 * float(np.median(seconds)), opened, _peak_megabytes()


def _peak_megabytes() -> float:
    """Peak memory of this process only: `ru_maxrss` would include that of the parent process."""
    status = Path("/proc/self/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(peak.split()[1]) * 1024 / 1e6


def _recall(neighbors: np.ndarray, truth: np.ndarray) -> float:
    """Compute the mean share of the true nearest neighbors that were returned."""
    return float(np.mean([np.isin(expected, rows).mean() for expected, rows in zip(truth, neighbors, strict=True)]))
