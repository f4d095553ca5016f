"""Load test with many clients for a minute: errors, response times, and growth of memory.

    serve.py load MODEL PHOTOS [--clients 64] [--seconds 60] [--most 1000]

Each client sends its next request as soon as it has a response: mostly for pages, images and searches; one in twenty
embeds a photo, one in twenty names an identity. A 503 with Retry-After says that the server is full and counts as
`refused`; any other status than 200 or 304 is an error. The server's memory is read every second: the median of the
second quarter of the time is compared with that of the last.
"""

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx2

from familiar.embedding.embedder import Embedder
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.enroll.enroll import enroll
from familiar.gallery.search.listing import identity_summaries
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store
from familiar.photos.listing import find_photos
from serving.server import Form, Server, serving

WEIGHTS = {
    "individuals": 3,
    "individual": 3,
    "picture": 8,
    "search": 4,
    "questions": 1,
    "embed": 1,
    "name": 1,
}


def main(options: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="serve.py load", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--most", type=int, default=1_000, help="maximum number of photos")
    arguments = parser.parse_args(options)
    photos = find_photos([arguments.photos])[: arguments.most]
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "album"
        embedder = Embedder(arguments.model)
        with Store.create(folder, Space.from_metadata(embedder.metadata)) as gallery:
            faces = enroll(gallery, embedder, photos).faces
            cluster(gallery)
            identities = [tile.identity for tile in identity_summaries(gallery, limit=faces)]
        with serving(folder, "--model", arguments.model) as server:
            load = _Load(server, photos, faces, identities)
            asyncio.run(load.run(arguments.clients, arguments.seconds))
    load.report(arguments.clients, arguments.seconds)


class _Load:
    def __init__(self, server: Server, photos: list[Path], faces: int, identities: list[int]) -> None:
        self._server, self._faces, self._identities = server, faces, identities
        self._forms = [Form.from_photos([photo]) for photo in photos[:50]]
        self._times: defaultdict[str, list[float]] = defaultdict(list)
        self._statuses: Counter[int] = Counter()
        self._memory_mb: list[float] = []
        self._requests: dict[str, Callable[[httpx2.AsyncClient, random.Random], Awaitable[httpx2.Response]]] = {
            "individuals": lambda http, _: http.get("/individuals"),
            "individual": lambda http, rng: http.get(f"/api/v1/identities/{rng.choice(identities)}/faces"),
            "picture": lambda http, rng: http.get(f"/api/v1/faces/{rng.randint(1, faces)}/image?side=160"),
            "search": lambda http, rng: http.post("/api/v1/search", json={"face": rng.randint(1, faces)}),
            "questions": lambda http, _: http.get("/api/v1/questions"),
            "embed": self._embed,
            "name": self._name,
        }

    async def run(self, clients: int, seconds: float) -> None:
        until = time.perf_counter() + seconds
        limits = httpx2.Limits(max_connections=clients)
        async with httpx2.AsyncClient(base_url=self._server.url, timeout=60, limits=limits) as http:
            clients_running = [self._client(http, random.Random(seed), until) for seed in range(clients)]
            await asyncio.gather(self._watch(until), *clients_running)

    async def _client(self, http: httpx2.AsyncClient, rng: random.Random, until: float) -> None:
        while time.perf_counter() < until:
            kind = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            started = time.perf_counter()
            response = await self._requests[kind](http, rng)
            self._times[kind].append(1e3 * (time.perf_counter() - started))
            self._statuses[response.status_code] += 1
            if response.status_code == 503:
                await asyncio.sleep(float(response.headers["Retry-After"]))

    async def _embed(self, http: httpx2.AsyncClient, rng: random.Random) -> httpx2.Response:
        form = rng.choice(self._forms)
        return await http.post("/api/v1/embed", content=form.content, headers={"Content-Type": form.media_type})

    async def _name(self, http: httpx2.AsyncClient, rng: random.Random) -> httpx2.Response:
        number = rng.choice(self._identities)
        return await http.patch(f"/api/v1/identities/{number}", json={"name": f"Name {rng.random()}"})

    async def _watch(self, until: float) -> None:
        while time.perf_counter() < until:
            self._memory_mb.append(self._server.resident_mb())
            await asyncio.sleep(1)

    def report(self, clients: int, seconds: float) -> None:
        print("| request | requests | p50 ms | p99 ms | longest ms |")
        print("|---|---|---|---|---|")
        all_times = sorted(time for times in self._times.values() for time in times)
        for kind, times in [*sorted(self._times.items()), ("all", all_times)]:
            p99 = statistics.quantiles(times, n=100)[-1]
            print(f"| {kind} | {len(times):,} | {statistics.median(times):.0f} | {p99:.0f} | {max(times):.0f} |")
        refused = self._statuses.pop(503, 0)
        errors = sum(count for status, count in self._statuses.items() if status not in (200, 304))
        quarter = len(self._memory_mb) // 4
        before, after = (
            statistics.median(self._memory_mb[quarter : 2 * quarter]),
            statistics.median(self._memory_mb[-quarter:]),
        )
        print(f"\nstatuses: {dict(self._statuses)}")
        print(
            f"{clients} clients, {seconds:.0f} s: {len(all_times) / seconds:.0f} requests/s, {errors} errors, "
            f"{refused} refused, memory {before:.0f} MB -> {after:.0f} MB"
        )
