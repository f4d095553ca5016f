"""Uploads that are cut off: nothing partial may remain, and nothing may be stored twice.

    serve.py disconnects MODEL [--uploads 10000] [--seed 0]

Each upload brings one to three photos, of which no two are the same; one in ten is so large that the server writes it
to a temporary file. Most uploads are cut off at any byte, some when all is sent but before the answer is read, and some
are completed; a connection is closed or reset. One cut upload in ten is repeated until it is acknowledged, as a client
would.

At the end the folder of uploads contains exactly the photos of the gallery, each whole; all acknowledged photos are in
it, once; and the server has no temporary file and no more open files than before. Exit 1 otherwise.
"""

import argparse
import contextlib
import hashlib
import io
import json
import random
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path

from PIL import Image

from familiar.gallery.store.store import UPLOADED_PHOTOS, Store
from familiar.gallery.transfer.check import check
from serving.server import Server, request_json, serving

CLIENTS = 6
LARGE_BYTES = 1_200_000  # the form parser has up to 1 MB in memory
CUT, UNREAD, COMPLETE = "cut", "unread", "complete"
SHARES = {CUT: 0.8, UNREAD: 0.1, COMPLETE: 0.1}


@dataclass
class Uploads:
    """What clients sent. `sent` and `acknowledged`: SHA-256 of photos, in hex."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*SHARES, "repeated", "refused"), 0))
    sent: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, kind: str) -> None:
        with self.lock:
            self.counts[kind] += 1


def main(options: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="serve.py disconnects", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--uploads", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(options)
    with tempfile.TemporaryDirectory() as root:
        folder, temporary = Path(root) / "album", Path(root) / "temporary"
        temporary.mkdir()
        with serving(folder, "--model", arguments.model, environment={"TMPDIR": str(temporary)}) as server:
            address = (server.host, server.port)
            uploads = Uploads()
            upload_and_disconnect(address, 20, uploads, seed=-1)  # opens what stays open
            wait_until_enrolled(address)
            before, uploads.counts = _open_files(server), Uploads().counts
            known = frozenset(temporary.iterdir())  # ONNX Runtime has one
            began = time.perf_counter()
            upload_and_disconnect(address, arguments.uploads, uploads, seed=arguments.seed)
            seconds = time.perf_counter() - began
            wait_until_enrolled(address)
            after, memory = _open_files_later(server, before), server.resident_mb()
            problems = find_problems(folder, uploads, temporary, known)
            problems += [f"{after} open files, {before} before"] if after > before else []
    print("| uploads | cut off | answer unread | complete | repeated | photos acknowledged | lost, half or twice |")
    print("|---|---|---|---|---|---|---|")
    counts = uploads.counts
    print(
        f"| {arguments.uploads:,} | {counts[CUT]:,} | {counts[UNREAD]:,} | {counts[COMPLETE]:,} "
        f"| {counts['repeated']:,} | {len(uploads.acknowledged):,} | **{len(problems)}** |"
    )
    print(f"\n{seconds:.0f} s, {counts['refused']:,} answers 503; open files {before} -> {after}; {memory:.0f} MB.")
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else None)


def upload_and_disconnect(address: tuple[str, int], count: int, uploads: Uploads, *, seed: int) -> None:
    """Upload photos from several threads and cut most of the connections.

    Args:
        address: of a server without a token.
        count: number of uploads.
        uploads: what is sent is added to it.
        seed: decides what is sent, and where it is cut.
    """
    numbers = iter(range(count))

    def client() -> None:
        while True:
            with uploads.lock:
                number = next(numbers, None)
            if number is None:
                return
            rng = random.Random(f"{seed} {number}")
            _upload(address, rng.choices(list(SHARES), list(SHARES.values()))[0], rng, uploads)

    clients = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()


def _upload(address: tuple[str, int], kind: str, rng: random.Random, uploads: Uploads) -> None:
    photos = [_photo(rng) for _ in range(rng.randint(1, 3))]
    hashes = {hashlib.sha256(photo).hexdigest() for photo in photos}
    with uploads.lock:
        uploads.sent |= hashes
    uploads.count(kind)
    body, media_type = _form(photos)
    if kind != COMPLETE:
        head = (
            f"POST /api/v1/photos HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\nContent-Type: {media_type}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode()
        request = head + body
        _send(address, request if kind == UNREAD else request[: rng.randrange(len(request))], rng)
        if rng.random() > 0.1:
            return
        uploads.count("repeated")
    while True:
        with contextlib.closing(HTTPConnection(*address, timeout=120)) as connection:
            connection.request("POST", "/api/v1/photos", body, {"Content-Type": media_type})
            response = connection.getresponse()
            answer = response.read()
        if response.status != 503:  # the queue of jobs is full
            break
        uploads.count("refused")
        time.sleep(0.2)
    assert response.status == 202, answer
    with uploads.lock:
        uploads.acknowledged |= hashes


def _send(address: tuple[str, int], content: bytes, rng: random.Random) -> None:
    with contextlib.suppress(OSError), socket.create_connection(address, timeout=60) as connection:
        if rng.random() < 0.5:  # reset instead of closed
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(content)
        if rng.random() < 0.3:
            time.sleep(0.02 * rng.random())


def _photo(rng: random.Random) -> bytes:
    """Return a small JPEG; what follows its end makes it differ from all others, and large now and then."""
    content = io.BytesIO()
    Image.new("RGB", (32, 24), (rng.randrange(256), 90, 90)).save(content, "JPEG")
    return content.getvalue() + rng.randbytes(16) + bytes(LARGE_BYTES if rng.random() < 0.1 else 0)


def _form(photos: list[bytes]) -> tuple[bytes, str]:
    boundary = "a-boundary-of-these-photos"
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="files"; filename="{number}.jpg"\r\n\r\n'.encode()
        + photo
        + b"\r\n"
        for number, photo in enumerate(photos)
    ]
    return b"".join(parts) + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"


def wait_until_enrolled(address: tuple[str, int]) -> None:
    """Wait until the jobs have ended, and no request is left that may begin another."""
    idle_since = time.monotonic()
    while time.monotonic() - idle_since < 1.0:
        with contextlib.closing(HTTPConnection(*address, timeout=120)) as connection:
            status, body = request_json(connection, "GET", "/api/v1/jobs")
        assert status == 200, body
        if not all(job["state"] in ("done", "stopped", "failed") for job in json.loads(body)):
            idle_since = time.monotonic()
        time.sleep(0.1)


def find_problems(folder: Path, uploads: Uploads, temporary: Path, known: Collection[Path] = frozenset()) -> list[str]:
    """List what is partial, lost or stored twice.

    Args:
        folder: the gallery's.
        uploads: all that was sent since the gallery was created.
        temporary: the server's folder of temporary files.
        known: those that were there before.
    """
    files = [path for path in (folder / UPLOADED_PHOTOS).rglob("*") if path.is_file()]
    contents = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    with Store.open(folder) as gallery:
        problems = list(map(str, check(gallery).problems))
        with gallery.read() as repository:
            rows = [photo.sha256.hex() for photo in repository.photos.rows()]
    problems += [
        f"{path}: not named by its content"
        for path, sha256 in zip(files, contents, strict=True)
        if path.name[:64] != sha256
    ]
    problems += [f"{sha256}: a file without a row" for sha256 in set(contents) - set(rows)]
    problems += [f"{sha256}: enrolled, and never sent" for sha256 in set(rows) - uploads.sent]
    problems += [f"{sha256}: acknowledged, and lost" for sha256 in uploads.acknowledged - set(rows)]
    problems += [f"{sha256}: stored twice" for sha256 in set(contents) if contents.count(sha256) > 1]
    problems += [f"{path}: left behind" for path in temporary.iterdir() if path not in known]
    return problems


def _open_files(server: Server) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def _open_files_later(server: Server, before: int) -> int:
    """Count the open files when connections that were cut had time to be closed."""
    end = time.monotonic() + 30
    while (after := _open_files(server)) > before and time.monotonic() < end:
        time.sleep(0.2)
    return after
