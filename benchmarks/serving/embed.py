"""Embedding through HTTP against the same bundle in one's own process, at the same batch.

    serve.py embed MODEL PHOTOS [--batch 16] [--clients 4] [--rounds 9]

PHOTOS is a folder of crops. Both embed all of them in each round, taking turns; a request brings one batch, and
`clients` ask at once. Figures are medians over rounds.
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

from familiar.embedding.embedder import Embedder, embed_photos
from familiar.photos.decoding import find_photos
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
    parser.add_argument("--most", type=int, default=512, help="so many photos at most")
    given = parser.parse_args(options)
    photos = find_photos([given.photos])[: given.most]
    batches = [photos[start : start + given.batch] for start in range(0, len(photos), given.batch)]
    forms = [Form.of(batch) for batch in batches]
    embedder = Embedder(given.model)
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder) / "album", "--model", given.model) as server,
    ):
        own = embed_photos(embedder, photos, batch_size=given.batch).embeddings
        away = np.array(_embedded(server, forms, given.clients), np.float32)
        print(f"largest difference of an embedding: {np.abs(own - away).max():.1e}")
        here: list[float] = []
        there: list[float] = []
        for _ in range(given.rounds):
            started = time.perf_counter()
            embed_photos(embedder, photos, batch_size=given.batch)
            here.append(time.perf_counter() - started)
            started = time.perf_counter()
            _post(server, forms, given.clients)
            there.append(time.perf_counter() - started)
    in_process, over_http = (len(photos) / statistics.median(times) for times in (here, there))
    print("| photos a request | clients | in process /s | HTTP /s | ratio |")
    print("|---|---|---|---|---|")
    print(f"| {given.batch} | {given.clients} | {in_process:.0f} | {over_http:.0f} | {over_http / in_process:.2f} |")


def _post(server: Server, forms: Sequence[Form], clients: int) -> list[bytes]:
    """Every form posted, by so many clients at once; the answers in order."""

    def some(place: int) -> list[bytes]:
        connection = server.connection()
        answers = [form.posted(connection, "/api/v1/embed") for form in forms[place::clients]]
        assert all(status == 200 for status, _ in answers), answers[0]
        return [body for _, body in answers]

    with ThreadPoolExecutor(clients) as pool:
        parts = list(pool.map(some, range(clients)))
    return [parts[place % clients][place // clients] for place in range(len(forms))]


def _embedded(server: Server, forms: Sequence[Form], clients: int) -> list[list[float]]:
    return [
        photo["faces"][0]["embedding"] for body in _post(server, forms, clients) for photo in json.loads(body)["photos"]
    ]
