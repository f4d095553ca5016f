"""Measure an index in Milvus against exact search: recall, time, writing and comparing.

    gallery.py milvus [--count 100000] [--queries 100] [--index milvus:URI] [--decay 6.5|inf]

Vectors as for `gallery.py search`. Searches of both alternate; times are medians of one query at a time. Without
--index: a file of Milvus Lite in a temporary folder.
"""

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from collection.vectors import LFW_DECAY, synthetic
from familiar.gallery import IndexRow
from familiar.integrations.milvus import MilvusIndex, open_index
from familiar.neighbors.brute_force import rerank, search

K, EXTRA, WRITTEN_ROWS = 10, 50, 2_000  # as a gallery asks


def main(options: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="gallery.py milvus", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--index", help="milvus:URI")
    parser.add_argument("--decay", type=float, default=LFW_DECAY)
    arguments = parser.parse_args(options)
    embeddings, _ = synthetic(arguments.count + arguments.queries, decay=arguments.decay)
    vectors, queries = embeddings[: arguments.count], embeddings[arguments.count :]
    with tempfile.TemporaryDirectory() as folder:
        address = arguments.index or f"milvus:{Path(folder) / 'faces.db'}"
        with contextlib.closing(open_index(address, "familiar_benchmark", vectors.shape[1])) as index:
            index.drop()
            written = seconds(lambda: write(index, vectors))
            indexed = seconds(index.flush)
            measure(index, vectors, queries)
            listed = seconds(index.versions)
            removed = seconds(lambda: index.remove(range(1000)))
            print(f"written in {written:.0f} s and indexed in {indexed:.0f} s; all versions listed in {listed:.1f} s;")
            print(f"1,000 removed, and proved gone, in {removed:.2f} s")
            index.drop()


def write(index: MilvusIndex, vectors: np.ndarray) -> None:
    for start in range(0, len(vectors), WRITTEN_ROWS):
        part = vectors[start : start + WRITTEN_ROWS]
        index.write([IndexRow(start + offset, vector, 0, "cat") for offset, vector in enumerate(part)])


def measure(index: MilvusIndex, vectors: np.ndarray, queries: np.ndarray) -> None:
    index.search(queries[0], K + EXTRA)  # which may load the collection
    times: dict[str, list[float]] = {"exact": [], "milvus": []}
    recalls: list[float] = []
    for query in queries:
        started = time.perf_counter()
        expected, _ = search(vectors, queries=query[None], k=K)
        times["exact"].append(time.perf_counter() - started)
        started = time.perf_counter()
        candidates = index.search(query, K + EXTRA)
        neighbors, _ = rerank(vectors, queries=query[None], rows=candidates[None], k=K)
        times["milvus"].append(time.perf_counter() - started)
        recalls.append(len({*expected[0].tolist()} & {*neighbors[0].tolist()}) / K)
    exact, milvus = (1000 * float(np.median(taken)) for taken in times.values())
    print(
        f"{len(vectors):,} vectors: recall@{K} {np.mean(recalls):.4f}; one query {milvus:.2f} ms, "
        f"comparing all {exact:.2f} ms (x {milvus / exact:.2f})",
        flush=True,
    )


def seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started
