"""Many slow clients beside a few normal users, behind nginx: how long the users wait, and what the slow ones cost.

    serve.py slow MODEL [--slow 1000] [--rounds 4] [--seconds 15]

A quarter of the slow clients each: sends a head, or a body, a byte per second; reads a photo of some megabytes a few
bytes per second; is silent. A client that is cut off connects again.
nginx is configured as docs/how-to/deploy.md says, but without TLS. Users open pages, load thumbnails and search, each
request on a connection of its own, with 0.2 s between them. The slow clients come and go in turns, so that both medians
are of the same run: in every round users are measured for so many seconds without them, and for so many with them,
after five seconds for them to connect.
Files and memory are the server's behind it, read every half second.
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import random
import socket
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from PIL import Image

from familiar.embedding.embedder import Embedder
from familiar.gallery.enroll.enroll import enroll
from familiar.gallery.store.store import Store
from serving.contract import drawn_gallery
from serving.proxies import nginx_before
from serving.server import Server, request_json, serving

USERS = 4
PAUSE_SECONDS = 0.2  # of a user, between two requests
SETTLE_SECONDS = 5.0
LARGE = "/api/v1/photos/25/image?side=2048"  # more than the system buffers
SLOW_CLIENTS = ("head", "body", "reader", "silent")
USER_PATHS = ("/individuals", "/api/v1/faces/1/image?side=128", "/api/v1/identities", "search")


def main(options: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="serve.py slow", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--slow", type=int, default=1_000, help="number of slow clients")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=15.0)
    arguments = parser.parse_args(options)
    with tempfile.TemporaryDirectory() as root:
        folder = drawn_gallery(Path(root), arguments.model)
        _add_large_photo(folder, Path(root), arguments.model)
        with (
            serving(folder, "--model", arguments.model) as server,
            nginx_before(f"http://{server.host}:{server.port}", Path(root) / "nginx") as url,
        ):
            proxied = replace(server, port=urlsplit(url).port)
            _report(_measure(proxied, arguments.slow, arguments.rounds, arguments.seconds))


def _add_large_photo(folder: Path, root: Path, model: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (2_048, 2_048, 3), np.uint8)
    Image.fromarray(noise).save(root / "noise.png")
    with Store.open(folder) as gallery:
        enroll(gallery, Embedder(model), [root / "noise.png"])


def _measure(server: Server, slow: int, rounds: int, seconds: float) -> dict[str, Any]:
    status, photo = request_json(server.connection(), "GET", LARGE)
    assert status == 200, photo
    print(f"A slow reader's photo has {len(photo) / 1e6:.1f} MB.\n")
    results: dict[str, Any] = {"quiet": [], "slow": [], "failed": 0, "files": [], "memory": [], "cuts": {}}
    context = multiprocessing.get_context("spawn")
    active, stop, cuts = context.Event(), context.Event(), context.Queue()
    attackers = context.Process(target=_attack, args=(server.host, server.port, slow, active, stop, cuts))
    attackers.start()
    try:
        asyncio.run(_users(server, seconds))  # once, to warm up
        for _ in range(rounds):
            for phase in ("quiet", "slow"):
                if phase == "slow":
                    active.set()
                    time.sleep(SETTLE_SECONDS)
                latencies, failed = asyncio.run(_users(server, seconds, results["files"], results["memory"]))
                results[phase] += latencies
                results["failed"] += failed
                active.clear()
                time.sleep(2)
    finally:
        stop.set()
        active.set()
        results["cuts"] = cuts.get(timeout=60)
        attackers.join()
    return results


def _report(results: dict[str, Any]) -> None:
    medians = {phase: statistics.median(results[phase]) * 1e3 for phase in ("quiet", "slow")}
    print(
        "| users' requests | failed | p50 ms without | p50 ms with | ratio | longest ms with | most files | most MB |"
    )
    print("|---|---|---|---|---|---|---|---|")
    print(
        f"| {len(results['quiet']) + len(results['slow']):,} | {results['failed']} | {medians['quiet']:.1f} "
        f"| {medians['slow']:.1f} | **{medians['slow'] / medians['quiet']:.2f}** | {max(results['slow']) * 1e3:.0f} "
        f"| {max(results['files'])} | {max(results['memory']):.0f} |"
    )
    print("\n| slow client | cut off | p50 s | longest s |")
    print("|---|---|---|---|")
    for kind, seconds in results["cuts"].items():
        if seconds:
            print(f"| {kind} | {len(seconds):,} | {statistics.median(seconds):.1f} | {max(seconds):.1f} |")
    sys.exit(1 if results["failed"] else None)


# --- users -----------------------------------------------------------------------------------------------------------


async def _users(
    server: Server, seconds: float, files: list[int] | None = None, memory: list[float] | None = None
) -> tuple[list[float], int]:
    """Return the latency of each request in seconds, and how many failed."""
    latencies: list[float] = []
    failures: list[str] = []
    end = time.perf_counter() + seconds

    async def user(number: int) -> None:
        rng = random.Random(number)
        while time.perf_counter() < end:
            path = rng.choice(USER_PATHS)
            began = time.perf_counter()
            try:
                status = await asyncio.wait_for(_request(server, path), 30)
            except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError) as error:
                failures.append(f"{path}: {error!r}")
            else:
                if status != 200:
                    failures.append(f"{path}: {status}")
            latencies.append(time.perf_counter() - began)
            await asyncio.sleep(PAUSE_SECONDS)

    async def watch() -> None:
        while time.perf_counter() < end:
            if files is not None and memory is not None:
                files.append(len(list(Path(f"/proc/{server.process.pid}/fd").iterdir())))
                memory.append(server.resident_mb())
            await asyncio.sleep(0.5)

    await asyncio.gather(watch(), *(user(number) for number in range(USERS)))
    for failure in failures[:5]:
        print(failure, file=sys.stderr)
    return latencies, len(failures)


async def _request(server: Server, path: str) -> int:
    reader, writer = await asyncio.open_connection(server.host, server.port)
    try:
        head = f"Host: {server.host}:{server.port}\r\nConnection: close\r\n"
        if path == "search":
            body = json.dumps({"face": 1})
            writer.write(
                f"POST /api/v1/search HTTP/1.1\r\n{head}Content-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
            )
        else:
            writer.write(f"GET {path} HTTP/1.1\r\n{head}Accept: */*\r\n\r\n".encode())
        answer = await reader.read(-1)
        return int(answer.split(b" ", 2)[1]) if answer else 0
    finally:
        writer.close()


# --- slow clients ----------------------------------------------------------------------------------------------------


def _attack(host: str, port: int, count: int, active: Event, stop: Event, cuts: Any) -> None:
    seconds: dict[str, list[float]] = defaultdict(list)
    while not stop.is_set():
        active.wait()
        if not stop.is_set():
            asyncio.run(_attack_until_inactive(host, port, count, active, stop, seconds))
    cuts.put({kind: seconds[kind] for kind in SLOW_CLIENTS})


async def _attack_until_inactive(
    host: str, port: int, count: int, active: Event, stop: Event, seconds: dict[str, list[float]]
) -> None:
    clients = [
        asyncio.ensure_future(_slow_client(host, port, SLOW_CLIENTS[number % len(SLOW_CLIENTS)], seconds))
        for number in range(count)
    ]
    while active.is_set() and not stop.is_set():
        await asyncio.sleep(0.2)
    for client in clients:
        client.cancel()
    await asyncio.wait(clients, timeout=5)  # `wait_for` may lose a cancellation; the end of the loop repeats it


async def _slow_client(host: str, port: int, kind: str, seconds: dict[str, list[float]]) -> None:
    """Keep a connection as long as the server lets it, again and again."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(2 * random.random())
    while True:
        with contextlib.suppress(OSError), socket.socket() as connection:
            connection.setblocking(False)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
            await loop.sock_connect(connection, (host, port))
            began = time.perf_counter()
            with contextlib.suppress(OSError):
                await _be_slow(loop, connection, kind, f"{host}:{port}")
            seconds[kind].append(time.perf_counter() - began)
        await asyncio.sleep(0.5 + random.random())


async def _be_slow(loop: asyncio.AbstractEventLoop, connection: socket.socket, kind: str, host: str) -> None:
    """Return when the server closes the connection."""
    first = {
        "head": "GET / HTTP/1.1\r\nX: ",
        "body": f"POST /api/v1/search HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        "Content-Length: 100000\r\n\r\n{",
        "reader": f"GET {LARGE} HTTP/1.1\r\nHost: {host}\r\n\r\n" * 4,
        "silent": "",
    }[kind]
    await loop.sock_sendall(connection, first.encode())
    while True:
        try:
            if not await asyncio.wait_for(loop.sock_recv(connection, 4), 1.0):
                return
            await asyncio.sleep(1.0)
            if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):  # reset, though there is more to read
                return
        except TimeoutError:
            pass
        if kind in ("head", "body"):
            await loop.sock_sendall(connection, b" ")
