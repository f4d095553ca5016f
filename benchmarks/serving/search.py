"""One search at a time through HTTP in a gallery of synthetic faces.

    serve.py search [--count 100000] [--queries 300] [--decay inf]

By embedding, as a program asks: for photos, for identities, and for both. Beside it what the same search takes in this
process, in turns of thirty queries: after each search here BLAS's threads spin for a while, and on few cores the server
would wait for them. Medians of milliseconds.
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
from familiar.gallery.clustering.cluster import cluster
from familiar.gallery.database.connection import Gallery, Space
from familiar.gallery.enrollment.enroll import enroll_embeddings
from familiar.gallery.search.search import build_index, search_identities, search_photos
from serving.server import asked, serving

K = 10
TURN = 30  # queries


def main(options: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="serve.py search", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--decay", type=float, default=math.inf, help="as of `gallery.py search`")
    given = parser.parse_args(options)
    print("| faces | identities | asked for | in process p50 ms | HTTP p50 ms | p95 ms |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "album"
        identities, queries = make_gallery(folder, given.count, given.queries, given.decay)
        with serving(folder) as server, Gallery.open(folder) as gallery:
            own: dict[str, Callable[..., object]] = {
                "photo": lambda query: search_photos(gallery, query, K),
                "identity": lambda query: search_identities(gallery, query, K),
                "both": lambda query: (
                    search_photos(gallery, query, K),
                    search_identities(gallery, query, K),
                ),
            }
            for by, search in own.items():
                connection = server.connection()
                here: list[float] = []
                there: list[float] = []
                for start in range(0, len(queries), TURN):
                    some = queries[start : start + TURN]
                    for query in some:
                        body = {"embedding": query.tolist(), "k": K} | ({} if by == "both" else {"by": by})
                        started = time.perf_counter()
                        status, answer = asked(connection, "POST", "/api/v1/search", body)
                        there.append(1e3 * (time.perf_counter() - started))
                        assert status == 200, answer
                    for query in some:
                        started = time.perf_counter()
                        search(query)
                        here.append(1e3 * (time.perf_counter() - started))
                p95 = statistics.quantiles(there, n=20)[-1]
                medians = f"{statistics.median(here):.2f} | {statistics.median(there):.2f} | {p95:.2f}"
                print(f"| {given.count:,} | {identities:,} | {by} | {medians} |", flush=True)


def make_gallery(folder: Path, count: int, queries: int = 0, decay: float = math.inf) -> tuple[int, list[np.ndarray]]:
    """A gallery of so many synthetic faces, grouped; how many groups, and vectors to ask for."""
    vectors, _ = synthetic(count + queries, decay=decay)
    decide = Threshold(0.5, 0.001, 0.9)
    space = Space("synthetic", 128, (128,), Calibration(decide, decide, decide, 20.0, -10.0, 0.01, 999, 999))
    with Gallery.create(folder, space) as gallery:
        enroll_embeddings(gallery, vectors[:count], [f"{place}.jpg" for place in range(count)], "synthetic")
        grouped = cluster(gallery)
        build_index(gallery)
    return grouped.identities, list(vectors[count:])
