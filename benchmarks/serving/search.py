"""Search through HTTP, one query at a time, in a gallery of synthetic faces.

    serve.py search [--count 100000] [--queries 300] [--decay inf]

Searches by embedding, as a program does: for photos, for identities, and for both. They are compared with the same
search in this process, in turns of thirty queries: after each search here BLAS's threads spin for a while, and on few
cores the server would wait for them. Medians in milliseconds.
"""

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from collection.vectors import synthetic

from familiar.core.calibration import Calibration, Threshold
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.enroll.enroll import enroll_embeddings
from familiar.gallery.search.folder_index import build_index
from familiar.gallery.search.search import search_faces, search_identities
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store
from serving.server import request_json, serving

K = 10
TURN = 30  # queries


def main(options: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="serve.py search", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--decay", type=float, default=math.inf, help="as of `gallery.py search`")
    arguments = parser.parse_args(options)
    print("| faces | identities | results | in process p50 ms | HTTP p50 ms | p95 ms |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "album"
        identities, queries = make_gallery(folder, arguments.count, arguments.queries, arguments.decay)
        with serving(folder) as server, Store.open(folder) as gallery:
            searches: dict[str, Callable[..., object]] = {
                "photo": lambda query: search_faces(gallery, query, K),
                "identity": lambda query: search_identities(gallery, query, K),
                "both": lambda query: (
                    search_faces(gallery, query, K),
                    search_identities(gallery, query, K),
                ),
            }
            for by, search in searches.items():
                connection = server.connection()
                in_process_ms: list[float] = []
                http_ms: list[float] = []
                for start in range(0, len(queries), TURN):
                    part = queries[start : start + TURN]
                    for query in part:
                        body = {"embedding": query.tolist(), "k": K} | ({} if by == "both" else {"by": by})
                        started = time.perf_counter()
                        status, response = request_json(connection, "POST", "/api/v1/search", body)
                        http_ms.append(1e3 * (time.perf_counter() - started))
                        assert status == 200, response
                    for query in part:
                        started = time.perf_counter()
                        search(query)
                        in_process_ms.append(1e3 * (time.perf_counter() - started))
                p95 = statistics.quantiles(http_ms, n=20)[-1]
                medians = f"{statistics.median(in_process_ms):.2f} | {statistics.median(http_ms):.2f} | {p95:.2f}"
                print(f"| {arguments.count:,} | {identities:,} | {by} | {medians} |", flush=True)


def make_gallery(folder: Path, count: int, queries: int = 0, decay: float = math.inf) -> tuple[int, list[np.ndarray]]:
    """Make a clustered gallery of `count` synthetic faces; return the number of identities, and query vectors."""
    vectors, _ = synthetic(count + queries, decay=decay)
    threshold = Threshold(0.5, 0.001, 0.9)
    space = Space("synthetic", 128, (128,), Calibration(threshold, threshold, threshold, 20.0, -10.0, 0.01, 999, 999))
    with Store.create(folder, space) as gallery:
        enroll_embeddings(gallery, vectors[:count], [f"{index}.jpg" for index in range(count)], "synthetic")
        grouped = cluster(gallery)
        build_index(gallery)
    return grouped.identities, list(vectors[count:])
