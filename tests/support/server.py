"""The server in a thread, on a free port of this machine."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import uvicorn

from familiar.web.server import make_app
from familiar.web.service import Service
from familiar.web.settings import Settings


@contextlib.contextmanager
def running_server(settings: Settings) -> Iterator[str]:
    """Run a server and provide its URL. At the end, current requests are completed."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(make_app(Service(settings)), log_config=None, ws="none"))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)
        listening.close()
