"""One query at a time among unit vectors of 128 dimensions: exact search against NumPy's bare product, by a prefix,
and an HNSW index that another process opens from the disk.

    gallery.py search [--count 100000] [--queries 500] [--decay 6.5|inf]

Queries are other photos of the individuals in the album. The exact searches take turns with the bare product, query
by query; figures are medians. Peak memory is of the process that opens the index (Linux).
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
from familiar.neighbors.brute_force import search, search_prefix
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
    parser.add_argument("--decay", type=float, default=LFW_DECAY, help="inf: all components count alike")
    given = parser.parse_args(options)
    embeddings, _ = synthetic(given.count + given.queries, decay=given.decay)
    vectors, queries = embeddings[: given.count], embeddings[given.count :]
    truth, _ = search(vectors, queries, K)
    print("| vectors | decay | search | p50 ms | x bare | recall@10 | |")
    print("|---|---|---|---|---|---|---|")

    def row(name: str, ms: float, bare: float, found: np.ndarray | None, notes: str = "") -> None:
        recall = "" if found is None else f"{_recall(found, truth):.4f}"
        times = f"{ms:.3f} | {ms / bare:.2f}"
        print(f"| {given.count:,} | {given.decay} | {name} | {times} | {recall} | {notes} |", flush=True)

    answers, times = _in_turns(_exact_searches(vectors), queries)
    bare = times["bare product, float32"]
    for name, ms in times.items():
        row(name, ms, bare, answers[name])
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        index = HnswIndex.build(vectors, np.arange(given.count))
        built = time.perf_counter() - started
        stamp = index.save(Path(folder), "benchmark")
        megabytes = (Path(folder) / INDEX_FILE).stat().st_size / 1e6
        del index
        found, ms, opened, peak = _in_another_process(Path(folder), stamp, queries)
    notes = f"built in {built:.0f} s, {megabytes:.0f} MB, opened in {opened:.2f} s, peak {peak:.0f} MB"
    row("HNSW, memory-mapped", ms, bare, found, notes)


def _exact_searches(vectors: np.ndarray) -> dict[str, Callable[[np.ndarray], np.ndarray | None]]:
    halves, prefixes = vectors.astype(np.float16), prefix(vectors, PREFIX)

    def bare(query: np.ndarray) -> None:
        vectors @ query[0]

    return {
        "bare product, float32": bare,
        "exact, float32": lambda query: search(vectors, query, K)[0],
        "exact, float16": lambda query: search(halves, query, K)[0],
        f"prefix {PREFIX}, {CANDIDATES} candidates": lambda query: search_prefix(
            vectors, prefixes, query, K, CANDIDATES
        )[0],
    }


def _in_turns(
    searches: dict[str, Callable[[np.ndarray], np.ndarray | None]], queries: np.ndarray
) -> tuple[dict[str, np.ndarray | None], dict[str, float]]:
    """What each search finds for all queries, and the median milliseconds of one."""
    seconds: dict[str, list[float]] = {name: [] for name in searches}
    found: dict[str, list[np.ndarray]] = {name: [] for name in searches}
    for query in queries:
        for name, find in searches.items():
            started = time.perf_counter()
            rows = find(query[None])
            seconds[name].append(time.perf_counter() - started)
            if rows is not None:
                found[name].append(rows)
    answers = {name: np.concatenate(rows) if rows else None for name, rows in found.items()}
    return answers, {name: 1000 * float(np.median(taken)) for name, taken in seconds.items()}


def _in_another_process(folder: Path, stamp: Stamp, queries: np.ndarray) -> tuple[np.ndarray, float, float, float]:
    """Keys found, median milliseconds a query, seconds to open, peak megabytes."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(_opened, (folder, stamp, queries))


def _opened(folder: Path, stamp: Stamp, queries: np.ndarray) -> tuple[np.ndarray, float, float, float]:
    started = time.perf_counter()
    index = HnswIndex.open(folder, stamp)
    opened = time.perf_counter() - started
    assert index is not None
    seconds, found = [], []
    for query in queries:
        started = time.perf_counter()
        keys, _ = index.search(query[None], K)
        seconds.append(time.perf_counter() - started)
        found.append(keys)
    return np.concatenate(found), 1000 * float(np.median(seconds)), opened, _peak_megabytes()


def _peak_megabytes() -> float:
    """Of this process alone: `ru_maxrss` would count that of the one that started it."""
    status = Path("/proc/self/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(peak.split()[1]) * 1024 / 1e6


def _recall(found: np.ndarray, truth: np.ndarray) -> float:
    """Mean share of the true nearest that were found."""
    return float(np.mean([np.isin(right, rows).mean() for right, rows in zip(truth, found, strict=True)]))
