"""A stand-in for Immich's own machine-learning server."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


@pytest.fixture
def upstream() -> Iterator[tuple[str, list[bytes]]]:
    """Stand in for Immich's own machine-learning server; yields its URL and the bodies it got."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            statuses = {b"broken": 500, b"proxy": 520, b"moved": 301}
            self.send_response(next((statuses[text] for text in statuses if text in bodies[-1]), 200))
            self.end_headers()
            deep = b"[" * 100_000
            self.wfile.write(deep if b"deep" in bodies[-1] else b'{"clip": "[0.5]", "imageHeight": 1, "imageWidth": 2}')

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", bodies
    server.shutdown()
    server.server_close()
