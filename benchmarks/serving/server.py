"""A server in its own process, as a user starts it, and requests to it with little overhead for their sender."""

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Server:
    host: str
    port: int
    process: subprocess.Popen[str]

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def connection(self) -> HTTPConnection:
        return HTTPConnection(self.host, self.port, timeout=120)

    def resident_mb(self) -> float:
        """Return the resident memory of the process (Linux)."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1e3


@contextlib.contextmanager
def serving(gallery: Path, *options: str | Path, environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Run `familiar serve GALLERY ...` on a free port; stop it at the end as Ctrl+C does, unless it was killed.

    Args:
        gallery: created if it does not exist.
        options: further ones of the command.
        environment: variables to add to those of this process.
    """
    command = [sys.executable, "-m", "familiar", "serve", gallery, "--port", "0", *options]
    process = subprocess.Popen(
        list(map(str, command)), stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
    )
    assert process.stderr is not None
    for line in process.stderr:
        if address := re.search(r"http://([\d.]+):(\d+)/", line):
            break
    else:
        sys.exit("the server did not start")
    log = _drain_log(process)
    try:
        yield Server(address[1], int(address[2]), process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(60)
        log.join()


def _drain_log(process: "subprocess.Popen[str]") -> Any:
    """Read the process's log in a thread, or the process would block when the pipe is full."""
    import threading

    def read() -> None:
        assert process.stderr is not None
        for _ in process.stderr:
            pass

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def request_json(connection: HTTPConnection, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
    """Send a JSON request; return status and body of the response."""
    content = None if body is None else json.dumps(body)
    connection.request(method, path, content, {} if content is None else {"Content-Type": "application/json"})
    response = connection.getresponse()
    return response.status, response.read()


@dataclass(frozen=True)
class Form:
    """Photos as a multipart body, made in advance."""

    content: bytes
    media_type: str

    @staticmethod
    def from_photos(photos: Sequence[Path], field: str = "files") -> "Form":
        boundary = secrets.token_hex(16)
        parts = b"".join(
            f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"; filename="{photo.name}"\r\n'
            "Content-Type: image/jpeg\r\n\r\n".encode()
            + photo.read_bytes()
            + b"\r\n"
            for photo in photos
        )
        return Form(parts + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}")

    def post(self, connection: HTTPConnection, path: str) -> tuple[int, bytes]:
        connection.request("POST", path, self.content, {"Content-Type": self.media_type})
        response = connection.getresponse()
        return response.status, response.read()
