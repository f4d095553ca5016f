"""Misbehaving connections to a real uvicorn: silent, endless, not reading, or too many."""

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from familiar.web.middleware import limits, wrap_app
from familiar.web.middleware.http_protocol import MAX_UNPARSED_BYTES, make_protocol_factory
from familiar.web.settings import Limits
from support.middleware import CERTIFICATE, KEY, OPEN, PATIENCE, until
from support.tiers import small_and_exhaustive

QUICK = Limits(header_seconds=0.5, chunk_seconds=0.5, json_bytes=100_000, connections=40)
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
PIECE = b"x" * 65_536


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer GET / at once, /large with 64 MB, /events for 0.8 seconds, /never not; POST with the bytes read."""
    request = Request(scope, receive)
    if request.method == "POST":
        answer = PlainTextResponse(str(len(await request.body())))
    elif scope["path"] == "/never":
        while not await request.is_disconnected():
            await asyncio.sleep(0.02)
        return
    elif scope["path"] == "/events":
        answer = StreamingResponse(pieces(4, b"data: 1\n\n", 0.2))
    elif scope["path"] == "/large":
        answer = StreamingResponse(pieces(1_000, PIECE, 0))
    else:
        answer = PlainTextResponse("hello")
    await answer(scope, receive, send)


async def pieces(many: int, piece: bytes, wait: float) -> AsyncIterator[bytes]:
    for _ in range(many):
        await asyncio.sleep(wait)
        yield piece


class Serving:
    """Run a server in its own thread."""

    def __init__(self, loop: str, limits: Limits, tls: ssl.SSLContext | None) -> None:
        config = uvicorn.Config(
            wrap_app(app, replace(OPEN, limits=limits)),
            host="127.0.0.1",
            port=0,
            http=make_protocol_factory(limits, tls),
            loop=loop,  # pyright: ignore
            ws="none",
            lifespan="off",
            log_config=None,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=1,
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run)

    def connect(self) -> socket.socket:
        address = self.server.servers[0].sockets[0].getsockname()
        return socket.create_connection(address, timeout=PATIENCE)

    def waiting_ports(self) -> list[int]:
        """List the clients' ports of the connections that the server waits for, the longest waiting first."""
        connections: list[Any] = list(self.server.server_state.connections)
        waits = [(each.waiting_since, each.client[1]) for each in connections if each.waiting_since is not None]
        return [port for _, port in sorted(waits)]


@contextlib.contextmanager
def serving(loop: str, limits: Limits = QUICK, tls: ssl.SSLContext | None = None) -> Iterator[Serving]:
    served = Serving(loop, limits, tls)
    served.thread.start()
    try:
        until(lambda: served.server.started)
        yield served
    finally:
        served.server.should_exit = True
        served.thread.join(PATIENCE)
        assert not served.thread.is_alive()


@pytest.fixture(params=small_and_exhaustive("uvloop", "asyncio"))
def served(request: pytest.FixtureRequest) -> Iterator[Serving]:
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    with serving(request.param) as server:
        yield server


def rest_of(connection: socket.socket) -> bytes:
    """Return all bytes until the server closes the connection; fail if it does not."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(1 << 16):
            received += piece
    return received


def answer_of(connection: socket.socket, ending: bytes) -> bytes:
    received = b""
    while not received.endswith(ending):
        piece = connection.recv(1 << 16)
        assert piece, f"closed after {received!r}"
        received += piece
    return received


def sent_until_closed(connection: socket.socket, piece: bytes, wait: float = 0.0) -> int:
    """Return how often `piece` could be sent."""
    connection.settimeout(0.001)
    end, times = time.monotonic() + PATIENCE, 0
    while time.monotonic() < end:
        try:
            connection.sendall(piece)
            times += 1
            with contextlib.suppress(TimeoutError):
                if not connection.recv(1 << 16):
                    return times
        except OSError:
            return times
        time.sleep(wait)
    pytest.fail(f"still open after {times} pieces")


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize("first", [b"", b"\r\n", b"GET", GET[:-2], GET + GET[:-2], GET + b"\r\n"])
def test_closes_connection_when_head_is_incomplete(served: Serving, first: bytes) -> None:
    with served.connect() as connection:
        connection.sendall(first[: len(GET)] if first.startswith(GET) else first)
        if first.startswith(GET):
            answer_of(connection, b"hello")
            connection.sendall(first[len(GET) :])
        began = time.monotonic()
        assert rest_of(connection) == b""
        assert time.monotonic() - began >= QUICK.header_seconds - 0.1


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize("piece", [b"X", b"\r\n"])
@pytest.mark.parametrize("before", [b"", GET])
def test_closes_connection_when_head_arrives_slowly(served: Serving, before: bytes, piece: bytes) -> None:
    with served.connect() as connection:
        if before:
            connection.sendall(before)
            answer_of(connection, b"hello")
        if piece == b"X":
            connection.sendall(b"GET / HTTP/1.1\r\nA: ")
        sent_until_closed(connection, piece, 0.05)


@pytest.mark.exhaustive
def test_keeps_well_behaved_connections_open(served: Serving) -> None:
    with served.connect() as connection:
        for _ in range(3):
            time.sleep(0.1)
            connection.sendall(GET[:10])
            time.sleep(0.1)
            connection.sendall(GET[10:])
            answer_of(connection, b"hello")
        time.sleep(0.8)  # idle for longer than a head may take: that is uvicorn's to end
        connection.sendall(GET + GET)
        assert answer_of(connection, b"hello").count(b"HTTP/1.1 200") in (1, 2)
    with served.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000\r\n\r\n")
        for _ in range(4):  # the body has time of its own
            time.sleep(0.2)
            connection.sendall(b"x" * 500)
        assert b"200 OK" in answer_of(connection, b"2000")
        connection.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answer_of(connection, b"0\r\n\r\n").count(b"data: 1") == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    "endless",
    [
        (b"GET /", b"x" * 1_000),
        (b"GET / HTTP/1.1\r\n", b"A: " + b"x" * 1_000 + b"\r\n"),
        (b"GET / HTTP/1.1\r\nA: ", b"x" * 1_000),
        (CHUNKED + b"0\r\n", b"A: " + b"x" * 1_000 + b"\r\n"),
        (CHUNKED + b"0\r\nA: ", b"x" * 1_000),
        (CHUNKED + b"1;a=", b"x" * 1_000),
    ],
    ids=["path", "headers", "header", "trailers", "trailer", "extension"],
)
def test_closes_connection_when_unparsed_input_is_endless(served: Serving, endless: tuple[bytes, bytes]) -> None:
    first, piece = endless
    with served.connect() as connection:
        connection.sendall(first)
        assert sent_until_closed(connection, piece) < 20 * MAX_UNPARSED_BYTES / len(piece)


def test_accepts_many_heads_on_one_connection(served: Serving) -> None:
    with served.connect() as connection:
        for _ in range(3 * MAX_UNPARSED_BYTES // 8_000):
            connection.sendall(GET[:-2] + b"A: " + b"x" * 8_000 + b"\r\n\r\n")
            answer_of(connection, b"hello")


def test_accepts_large_chunked_body(served: Serving) -> None:
    with served.connect() as connection:
        connection.sendall(CHUNKED + b"%x\r\n" % 100_000 + b"x" * 100_000 + b"\r\n0\r\n\r\n")
        assert b"200 OK" in answer_of(connection, b"100000")


@pytest.mark.slow
@pytest.mark.parametrize("head", [b"Content-Length: 50000000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"])
def test_oversized_body_returns_413_and_closes_connection(
    served: Serving, head: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LINGER_SECONDS", 0.3)
    with served.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\n" + head)
        with contextlib.suppress(OSError):
            for _ in range(100):
                connection.sendall(b"10000\r\n" + PIECE + b"\r\n" if b"chunked" in head else PIECE)
        received = rest_of(connection)
    assert received.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in received
    assert b"too-large" in received
    assert b"server: uvicorn" in received, "to be turned off where uvicorn is started"


@pytest.mark.exhaustive
@pytest.mark.parametrize("loop", small_and_exhaustive("uvloop", "asyncio"))
def test_drops_nonreading_client_but_keeps_slow_reader(loop: str) -> None:
    with serving(loop) as served:
        with served.connect() as deaf:
            deaf.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert deaf.recv(8) == b"HTTP/1.1"
            until(lambda: not served.server.server_state.connections and not served.server.server_state.tasks)
        with served.connect() as slow:
            slow.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
            end = time.monotonic() + 1.5
            while time.monotonic() < end:
                assert slow.recv(1 << 19)
                time.sleep(0.05)
            assert served.server.server_state.connections, "it reads, if slowly"


MANY_SECONDS = replace(QUICK, connections=4, header_seconds=PATIENCE, chunk_seconds=PATIENCE, json_bytes=10_000_000)
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\n\r\n"


@pytest.mark.slow
@pytest.mark.parametrize("loop", small_and_exhaustive("uvloop", "asyncio"))
def test_new_connection_replaces_the_longest_waiting_one(loop: str) -> None:
    with serving(loop, MANY_SECONDS) as served, contextlib.ExitStack() as stack:

        def connect(sent: bytes) -> socket.socket:
            connection = stack.enter_context(served.connect())
            connection.sendall(sent)
            return connection

        def waiting(*connections: socket.socket) -> None:
            """Wait until the server waits for exactly these, for the first one the longest."""
            ports = [connection.getsockname()[1] for connection in connections]
            until(lambda: served.waiting_ports() == ports)
            time.sleep(0.005)  # what comes next comes later, by the milliseconds of uvloop's clock

        busy = connect(GET.replace(b"GET /", b"GET /never"))
        waiting()
        body = connect(POST)
        waiting(body)
        idle = connect(GET)
        waiting(body, idle)
        head = connect(GET[:20])
        waiting(body, idle, head)
        body.sendall(PIECE)
        waiting(idle, head, body)
        idle.sendall(GET)
        waiting(head, body, idle)
        head.sendall(b"x")  # no progress
        newest = connect(GET)
        waiting(body, idle, newest)
        assert rest_of(head) == b""
        latest = connect(GET)
        waiting(idle, newest, latest)
        assert rest_of(body) == b""
        busy.sendall(GET)  # still open: it waits for the server


def test_new_connection_is_closed_while_all_others_wait_for_the_server() -> None:
    with serving("asyncio", replace(MANY_SECONDS, connections=3)) as served, contextlib.ExitStack() as stack:
        connections = [stack.enter_context(served.connect()) for _ in range(3)]
        for connection in connections:
            connection.sendall(GET.replace(b"GET /", b"GET /never"))
        until(lambda: len(served.server.server_state.tasks) == 3)
        with contextlib.suppress(ConnectionResetError), served.connect() as another:  # closed before it is connected
            assert rest_of(another) == b""
        connections[0].close()
        until(lambda: len(served.server.server_state.connections) == 2)
        with served.connect() as welcome:
            welcome.sendall(GET)
            answer_of(welcome, b"hello")


@pytest.mark.slow
def test_slow_reader_is_replaced_by_a_new_connection() -> None:
    with serving("asyncio", replace(MANY_SECONDS, connections=2)) as served, contextlib.ExitStack() as stack:
        reader = stack.enter_context(served.connect())
        reader.sendall(GET.replace(b"GET /", b"GET /large"))
        answer_of(reader, b"x")
        until(lambda: len(served.waiting_ports()) == 1)
        idle = stack.enter_context(served.connect())
        until(lambda: len(served.waiting_ports()) == 2)
        last = stack.enter_context(served.connect())
        last.sendall(GET)
        answer_of(last, b"hello")
        until(lambda: reader.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0)  # not left to the system to end
        assert len(rest_of(reader)) < 1_000 * len(PIECE)
        idle.sendall(GET)
        answer_of(idle, b"hello")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.0\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", b"400"),
        (b"GET http://localhost/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"421"),
        (b"GET / HTTP/1.1\r\nHost: localhost \r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n", b"400"),
        (
            b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"400",
        ),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", b"400"),
    ],
)
def test_rejects_malformed_or_misdirected_heads(served: Serving, head: bytes, status: bytes) -> None:
    with served.connect() as connection:
        connection.sendall(head)
        assert connection.recv(1 << 16).split()[1] == status


# --- TLS -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    (tmp_path / "both.pem").write_text(CERTIFICATE + KEY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "both.pem")
    return context


def speaking_tls(connection: socket.socket) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(connection)


@pytest.mark.slow
@pytest.mark.parametrize("loop", small_and_exhaustive("uvloop", "asyncio"))
def test_serves_tls_and_closes_silent_or_plain_connections(loop: str, tls: ssl.SSLContext) -> None:
    with serving(loop, tls=tls) as served:
        with speaking_tls(served.connect()) as connection:
            for _ in range(2):
                connection.sendall(GET)
                assert answer_of(connection, b"hello").startswith(b"HTTP/1.1 200")
            connection.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
            size = 0
            while size < 1_000 * len(PIECE):
                size += len(connection.recv(1 << 16))
        began = time.monotonic()
        with served.connect() as silent:
            assert rest_of(silent) == b""
        with speaking_tls(served.connect()) as silent:
            assert rest_of(silent) == b""
        assert 2 * QUICK.header_seconds - 0.1 <= time.monotonic() - began < PATIENCE
        with served.connect() as plain:
            plain.sendall(GET)
            assert b"HTTP" not in rest_of(plain)


@pytest.mark.slow
@pytest.mark.parametrize("loop", small_and_exhaustive("uvloop", "asyncio"))
def test_connection_limit_counts_pending_tls_handshakes(loop: str, tls: ssl.SSLContext) -> None:
    with serving(loop, replace(MANY_SECONDS, connections=3), tls) as served, contextlib.ExitStack() as stack:
        silent = []
        for _ in range(2):
            silent.append(stack.enter_context(served.connect()))
            time.sleep(0.05)  # the server does not list them yet
        spoken = stack.enter_context(speaking_tls(served.connect()))
        spoken.sendall(GET)
        answer_of(spoken, b"hello")
        for replaced in silent:
            connection = stack.enter_context(speaking_tls(served.connect()))
            connection.sendall(GET)
            answer_of(connection, b"hello")
            assert rest_of(replaced) == b""
        spoken.sendall(GET)
        answer_of(spoken, b"hello")
