"""Embedding through HTTP compared with the same bundle in this process, at the same batch size.

    serve.py embed MODEL PHOTOS [--batch 16] [--clients 4] [--rounds 9]

PHOTOS is a folder of crops. Both embed all of them in each round, in turns; a request has one batch, and `clients` send
requests in parallel. The figures are medians over the rounds.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import embed_photos
from familiar.photos.listing import find_photos
from serving.server import Form, Server, serving


def main(options: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="serve.py embed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--most", type=int, default=512, help="maximum number of photos")
    arguments = parser.parse_args(options)
    photos = find_photos([arguments.photos])[: arguments.most]
    batches = [photos[start : start + arguments.batch] for start in range(0, len(photos), arguments.batch)]
    forms = [Form.from_photos(batch) for batch in batches]
    embedder = Embedder(arguments.model)
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder) / "album", "--model", arguments.model, "--detector", "none") as server,
    ):
        expected = embed_photos(embedder, photos, "none", batch_size=arguments.batch).embeddings
        received = np.array(_embedded(server, forms, arguments.clients), np.float32)
        print(f"largest difference of an embedding: {np.abs(expected - received).max():.1e}")
        in_process_seconds: list[float] = []
        http_seconds: list[float] = []
        for _ in range(arguments.rounds):
            started = time.perf_counter()
            embed_photos(embedder, photos, "none", batch_size=arguments.batch)
            in_process_seconds.append(time.perf_counter() - started)
            started = time.perf_counter()
            _post(server, forms, arguments.clients)
            http_seconds.append(time.perf_counter() - started)
    in_process, over_http = (len(photos) / statistics.median(times) for times in (in_process_seconds, http_seconds))
    print("| photos per request | clients | in process /s | HTTP /s | ratio |")
    print("|---|---|---|---|---|")
    speeds = f"{in_process:.0f} | {over_http:.0f} | {over_http / in_process:.2f}"
    print(f"| {arguments.batch} | {arguments.clients} | {speeds} |")


def _post(server: Server, forms: Sequence[Form], clients: int) -> list[bytes]:
    """Post every form, with several clients in parallel; return the responses in order."""

    def post_share(index: int) -> list[bytes]:
        connection = server.connection()
        answers = [form.post(connection, "/api/v1/embed") for form in forms[index::clients]]
        assert all(status == 200 for status, _ in answers), answers[0]
        return [body for _, body in answers]

    with ThreadPoolExecutor(clients) as pool:
        parts = list(pool.map(post_share, range(clients)))
    return [parts[index % clients][index // clients] for index in range(len(forms))]


def _embedded(server: Server, forms: Sequence[Form], clients: int) -> list[list[float]]:
    return [
        photo["faces"][0]["embedding"] for body in _post(server, forms, clients) for photo in json.loads(body)["photos"]
    ]
