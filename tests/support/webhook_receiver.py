"""A receiver of webhooks on this machine, which answers as the test says."""

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Request:
    headers: Message
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """What was received.

    Attributes:
        url: to post to.
        answers: the next statuses, each for one request, then 200. None: the connection is closed without an answer.
        location: of a redirect.
        requests: in the order in which they came.
    """

    url: str = ""
    answers: list[int | None] = field(default_factory=list)
    location: str = "http://127.0.0.1:9/"
    requests: list[Request] = field(default_factory=list)


@contextlib.contextmanager
def running_receiver() -> Iterator[Receiver]:
    """Run a receiver in a thread, on a free port."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.requests.append(Request(self.headers, body))
            status = receiver.answers.pop(0) if receiver.answers else 200
            if status is None:
                self.close_connection = True
                return
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", receiver.location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Stay quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_address[1]}/secret-path"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()
