"""SIGKILL during uploads: every acknowledged photo must be in the gallery after a restart.

    serve.py kill [--kills 50] [--seed 0]

Clients upload drawn photos, one or a few at a time, until the process is killed at a random moment. It is started again
on the same gallery, and when its jobs are done, every photo that was answered with 202 must be in the gallery, by its
content. Some clients hang up half-way; only whole photos may be enrolled.
"""

import argparse
import contextlib
import hashlib
import json
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from http.client import HTTPException
from pathlib import Path

from familiar.datasets.synthetic import SyntheticPhoto
from familiar.gallery.store.store import Store
from familiar.gallery.transfer.check import check
from familiar.photos.decoding import save_photo
from serving.server import Form, Server, request_json, serving

CLIENTS = 4


def main(options: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="serve.py kill", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(options)
    rng = random.Random(arguments.seed)
    drawn: set[str] = set()
    acknowledged: set[str] = set()
    lost: set[str] = set()
    begun = 0
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "album"
        for kill in range(arguments.kills):
            with serving(folder, "--model", arguments.model) as server:
                known = _wait_for_jobs(server, folder)
                assert known <= drawn, "half a photo was enrolled"
                lost |= acknowledged - known
                begun += _upload_until_killed(server, Path(root), kill, rng, drawn, acknowledged)
        with serving(folder, "--model", arguments.model) as server:
            lost |= acknowledged - _wait_for_jobs(server, folder)
    print("| kills | uploads started | photos acknowledged | lost |")
    print("|---|---|---|---|")
    print(f"| {arguments.kills} | {begun} | {len(acknowledged)} | {len(lost)} |")
    sys.exit(1 if lost else None)


def _wait_for_jobs(server: Server, folder: Path) -> set[str]:
    """Wait until all jobs are done; check the gallery, and return the SHA-256 of each of its photos."""
    connection = server.connection()
    while True:
        status, body = request_json(connection, "GET", "/api/v1/jobs")
        assert status == 200, body
        if all(job["state"] in ("done", "stopped", "failed") for job in json.loads(body)):
            break
        time.sleep(0.05)
    with Store.open(folder) as gallery:
        assert not check(gallery).problems, check(gallery)
        with gallery.read() as repository:
            return {sha256.hex() for (sha256,) in repository.connection.execute("SELECT sha256 FROM photos")}


def _upload_until_killed(
    server: Server, root: Path, kill: int, rng: random.Random, drawn: set[str], acknowledged: set[str]
) -> int:
    counts = [0] * CLIENTS
    clients = [
        threading.Thread(target=_client, args=(server, root, kill, client, counts, drawn, acknowledged))
        for client in range(CLIENTS)
    ]
    for client in clients:
        client.start()
    time.sleep(rng.uniform(0.05, 1.5))
    server.process.send_signal(signal.SIGKILL)
    for client in clients:
        client.join()
    return sum(counts)


def _client(
    server: Server,
    root: Path,
    kill: int,
    client: int,
    counts: list[int],
    drawn: set[str],
    acknowledged: set[str],
) -> None:
    """Upload until the server does not answer. Each photo is new, so none is in the gallery already."""
    rng = random.Random(f"{kill} {client}")
    while True:
        photos = [
            save_photo(
                SyntheticPhoto("cats", client, rng.randrange(2**30), seed=kill, size_px=64).draw(),
                root / f"{client}-{number}.jpg",
            )
            for number in range(rng.randint(1, 4))
        ]
        form, sent = Form.from_photos(photos), {hashlib.sha256(photo.read_bytes()).hexdigest() for photo in photos}
        drawn |= sent
        counts[client] += 1
        try:
            if rng.random() < 0.2:
                _hang_up(server, form, rng)
                continue
            status, _ = form.post(server.connection(), "/api/v1/photos")
        except (OSError, HTTPException):
            return
        if status == 202:
            acknowledged |= sent
        else:
            assert status == 503, status
            time.sleep(0.1)


def _hang_up(server: Server, form: Form, rng: random.Random) -> None:
    head = (
        f"POST /api/v1/photos HTTP/1.1\r\nHost: {server.host}:{server.port}\r\nContent-Type: {form.media_type}\r\n"
        f"Content-Length: {len(form.content)}\r\n\r\n"
    )
    with contextlib.closing(socket.create_connection((server.host, server.port))) as connection:
        connection.sendall(head.encode() + form.content[: rng.randrange(len(form.content))])
