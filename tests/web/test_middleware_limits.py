"""Limits: requests that are too long, too large or too slow, before, during and after the body."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from familiar.web import api, pages
from familiar.web.middleware import limits, wrap_app
from familiar.web.middleware.limits import max_body_bytes
from familiar.web.settings import Limits
from support.middleware import LOCKED, OPEN, TOKEN, scope_of

pytestmark = pytest.mark.slow

FOREVER = 30.0  # seconds; no test waits for it
SMALL = Limits(json_bytes=1_000, upload_bytes=10_000, chunk_seconds=FOREVER, request_seconds=FOREVER, photo_bytes=1)
HOST = ("Host", "localhost")
CHUNKED = ("Transfer-Encoding", "chunked")

Piece = tuple[float, bytes]  # seconds before it comes; what it brings


class Received:
    """The messages that the app received of a request."""

    def __init__(self) -> None:
        self.body_bytes, self.outcome = 0, "asked for nothing"


def reading(received: Received) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        received.outcome = "reads"
        try:
            async for piece in Request(scope, receive).stream():
                received.body_bytes += len(piece)
        except ClientDisconnect:
            received.outcome = "told the client is gone"
            await PlainTextResponse("there was an error parsing the body", 400)(scope, receive, send)
            raise
        received.outcome = "read it all"
        await PlainTextResponse("done")(scope, receive, send)

    return app


def answer(
    app: ASGIApp,
    bound: Limits,
    scope: Scope,
    pieces: Sequence[Piece] = (),
    *,
    ends: bool = True,
    within: float = 5.0,
) -> list[Message]:
    """All that is sent back, which has to come within so many seconds. A body that does not end is never heard of
    again after its pieces."""
    messages: list[Message] = []
    remaining = list(pieces)

    async def receive() -> Message:
        if not remaining:
            await asyncio.sleep(FOREVER)
        wait, body = remaining.pop(0)
        await asyncio.sleep(wait)
        return {"type": "http.request", "body": body, "more_body": bool(remaining) or not ends}

    async def send(message: Message) -> None:
        messages.append(message)

    async def run() -> None:
        await asyncio.wait_for(wrap_app(app, replace(OPEN, limits=bound))(scope, receive, send), within)

    asyncio.run(run())
    starts = [message["type"] == "http.response.start" for message in messages]
    assert starts == [True] + [False] * (len(messages) - 1), "one answer, from its beginning"
    assert [message.get("more_body", False) for message in messages[1:]] == [True] * (len(messages) - 2) + [False]
    return messages


def post(path: str = "/api/v1/cluster", *headers: tuple[str, str]) -> Scope:
    return scope_of("POST", path, [HOST, *headers])


def length(size: int | str) -> tuple[str, str]:
    return ("Content-Length", str(size))


@pytest.fixture(autouse=True)
def _short_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LINGER_SECONDS", 0.05)


@pytest.mark.parametrize(
    ("scope", "status"),
    [
        (post("/" + "x" * 2_047), 200),
        (post("/" + "x" * 2_048), 414),
        (post("/?" + "x" * 8_192), 200),
        (post("/?" + "x" * 8_193), 414),
        (post("/", *[("X-A", "b")] * 99), 200),
        (post("/", *[("X-A", "b")] * 100), 431),
        (post("/", length("0")), 200),
        (post("/", length("1001")), 413),
        (post("/", length("9" * 5_000)), 413),
        (post("/", length("-1")), 400),
        (post("/", length("+1")), 400),
        (post("/", length("1_0")), 400),
        (post("/", length("0x10")), 400),
        (post("/", length("²")), 400),
        (post("/", length("")), 400),
        (post("/", length("1, 1")), 400),
        (post("/", length(1), length(1)), 400),
    ],
)
def test_rejects_oversized_head_or_invalid_content_length(scope: Scope, status: int) -> None:
    received = Received()
    messages = answer(reading(received), SMALL, scope, [(0, b"")])
    assert messages[0]["status"] == status
    assert (received.outcome == "read it all") == (status == 200), "the app is not even asked"


MULTIPART = ("Content-Type", "multipart/form-data; boundary=x")
JPEG = ("Content-Type", "Image/JPEG")
JSON = ("Content-Type", "application/json")


@pytest.mark.parametrize(
    ("path", "kind", "most"),
    [
        ("/api/v1/embed", JPEG, 10_000),
        ("/api/v1/photos", MULTIPART, 10_000),
        ("/search", MULTIPART, 10_000),
        ("/search", JSON, 1_000),
        ("/search", ("Content-Type", "text/plain"), 1_000),
        ("/search", ("X-Content-Type", "image/jpeg"), 1_000),
        ("/undo", MULTIPART, 1_000),
        ("/api/v1/cluster", JPEG, 1_000),
        ("/api/v1/embedded", JPEG, 1_000),
        ("/login", MULTIPART, 1_000),
    ],
)
@pytest.mark.parametrize("announced", ["rightly", "too small", "not at all"])
def test_body_limit_depends_on_path_and_content_type(
    path: str, kind: tuple[str, str], most: int, announced: str
) -> None:
    for size, fits in ((most, True), (most + 1, False)):
        how = {"rightly": length(size), "too small": length(1), "not at all": CHUNKED}[announced]
        received = Received()
        messages = answer(
            reading(received),
            SMALL,
            post(path, kind, how),
            [(0, b"x" * 500)] * (size // 500) + [(0, b"x")] * (size % 500),
        )
        if path == "/login":  # answered by the guard itself
            assert messages[0]["status"] == (415 if fits or announced != "rightly" else 413)
        else:
            assert messages[0]["status"] == (200 if fits else 413)
            assert received.body_bytes <= most


def test_endless_body_returns_413_and_closes_connection() -> None:
    endless = [(0.0, b"x" * 100)] * 1_000_000
    for headers in ([length(10**12)], [CHUNKED]):
        received = Received()
        messages = answer(reading(received), SMALL, post("/", *headers), endless, ends=False)
        assert messages[0]["status"] == 413
        assert (b"connection", b"close") in messages[0]["headers"]
        assert b"1,000 bytes" in messages[1]["body"], "the whole answer comes before the rest is waited for"
        assert received.body_bytes <= 1_000


def test_early_response_closes_connection_with_unread_body() -> None:
    messages = answer(PlainTextResponse("no"), SMALL, post("/", length(500)), [(0, b"x" * 400), (0, b"x" * 100)])
    assert [message.get("body") for message in messages] == [None, b"no", b""]
    assert (b"connection", b"close") in messages[0]["headers"]
    messages = answer(PlainTextResponse("yes"), SMALL, post("/", length(0)))
    assert (b"connection", b"close") not in messages[0]["headers"], "there was no body"


@pytest.mark.parametrize("before", [[], [(0.0, b"x")], [(0.0, b"x" * 400)] * 2])
def test_stalled_body_returns_408(before: list[Piece]) -> None:
    received = Received()
    quick = replace(SMALL, chunk_seconds=0.05)
    messages = answer(reading(received), quick, post("/", length(900)), before, ends=False)
    assert messages[0]["status"] == 408
    assert received.outcome == "told the client is gone"


def test_slow_body_returns_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MIN_BYTES_PER_SECOND", 500)
    received = Received()
    quick = replace(SMALL, chunk_seconds=0.5)
    dripping = [(0.1, b"x")] * 200  # each in time, at 10 bytes a second
    messages = answer(reading(received), quick, post("/", length(900)), dripping)
    assert messages[0]["status"] == 408
    assert received.body_bytes < 10
    steady = [(0.1, b"x" * 100)] * 7  # 1,000 bytes a second
    assert answer(reading(received), quick, post("/", length(700)), steady)[0]["status"] == 200


def test_body_that_came_fast_at_first_must_not_stall_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """An average rate would leave it 18 seconds."""
    monkeypatch.setattr(limits, "MIN_BYTES_PER_SECOND", 500)
    quick = replace(SMALL, json_bytes=10_000, chunk_seconds=0.3)
    messages = answer(reading(Received()), quick, post("/", length(9_900)), [(0, b"x" * 9_000), *[(0.1, b"x")] * 100])
    assert messages[0]["status"] == 408


def test_whole_body_has_an_end() -> None:
    quick = replace(SMALL, body_seconds=0.3)
    steady = [(0.05, b"x" * 50)] * 18
    assert answer(reading(Received()), quick, post("/", length(900)), steady)[0]["status"] == 408
    assert (
        answer(reading(Received()), replace(quick, body_seconds=5.0), post("/", length(900)), steady)[0]["status"]
        == 200
    )


async def sleeping(scope: Scope, receive: Receive, send: Send) -> None:
    await Request(scope, receive).body()
    await asyncio.sleep(FOREVER)
    await PlainTextResponse("at last")(scope, receive, send)


async def deaf(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
    await asyncio.sleep(FOREVER)


@pytest.mark.parametrize("app", [sleeping, deaf])
@pytest.mark.parametrize("headers", [[], [length(1)]])
def test_slow_response_returns_503(app: ASGIApp, headers: list[tuple[str, str]]) -> None:
    quick = replace(SMALL, request_seconds=0.05)
    messages = answer(app, quick, post("/", *headers), [(0, b"x")])
    assert messages[0]["status"] == 503
    assert b"too-slow" in messages[1]["body"]


def test_request_timeout_excludes_body_upload() -> None:
    received = Received()
    quick = replace(SMALL, request_seconds=0.4)
    messages = answer(reading(received), quick, post("/", length(4)), [(0.2, b"x")] * 4)
    assert (messages[0]["status"], received.body_bytes) == (200, 4)


def test_event_stream_may_exceed_request_timeout() -> None:
    async def events(scope: Scope, receive: Receive, send: Send) -> None:
        async def three() -> AsyncIterator[str]:
            for number in range(3):
                await asyncio.sleep(0.2)
                yield f"data: {number}\n\n"

        await StreamingResponse(three(), media_type="text/event-stream")(scope, receive, send)

    quick = replace(SMALL, request_seconds=0.4, chunk_seconds=0.4)
    messages = answer(events, quick, scope_of("GET", "/api/v1/jobs/1/events", [HOST]))
    assert [message["body"] for message in messages[1:]] == [b"data: 0\n\n", b"data: 1\n\n", b"data: 2\n\n", b""]


def test_write_completes_after_request_times_out() -> None:
    written = []

    async def write() -> None:
        await asyncio.sleep(0.1)
        written.append(True)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
        await asyncio.shield(asyncio.ensure_future(write()))

    async def run() -> None:
        messages: list[Message] = []

        async def send(message: Message) -> None:
            messages.append(message)

        bound = replace(SMALL, request_seconds=0.02)
        await wrap_app(app, replace(OPEN, limits=bound))(post(), lambda: asyncio.sleep(FOREVER), send)  # pyright: ignore
        assert messages[0]["status"] == 503
        assert not written
        await asyncio.sleep(0.2)

    asyncio.run(run())
    assert written


def test_upload_limit_applies_exactly_to_file_endpoints() -> None:
    application = FastAPI()
    application.include_router(api.router)
    application.include_router(pages.router, include_in_schema=True)
    for path, methods in application.openapi()["paths"].items():
        media_types = {
            kind for received in methods.values() for kind in received.get("requestBody", {}).get("content", {})
        }
        most = max_body_bytes(path.replace("{identity}", "12"), "multipart/form-data; boundary=x", SMALL)
        assert most == (SMALL.upload_bytes if "multipart/form-data" in media_types else SMALL.json_bytes), path


def test_total_body_bytes_are_bounded_across_requests():
    """Of three bodies of 400 bytes with a limit of 1,000 the third is refused; after the others there is room again."""
    bound = replace(SMALL, total_body_bytes=1_000)
    release = asyncio.Event()
    counts: list[int] = []

    async def holding(scope: Scope, receive: Receive, send: Send) -> None:
        body = await Request(scope, receive).body()
        counts.append(len(body))
        await release.wait()
        await PlainTextResponse("done")(scope, receive, send)

    chain = wrap_app(holding, replace(OPEN, limits=bound))

    async def post() -> int:
        messages: list[Message] = []
        pieces = [{"type": "http.request", "body": b"x" * 400, "more_body": False}]

        async def receive() -> Message:
            if pieces:
                return pieces.pop()
            await asyncio.sleep(FOREVER)
            raise AssertionError

        async def send(message: Message) -> None:
            messages.append(message)

        with contextlib.suppress(ClientDisconnect):
            await chain(scope_of("POST", "/api/v1/x", [HOST, ("Content-Length", "400")]), receive, send)
        return messages[0]["status"]

    async def run() -> tuple[list[int], int]:
        first = [asyncio.ensure_future(post()) for _ in range(2)]
        await asyncio.sleep(0.05)
        third = await post()
        release.set()
        return [third, *await asyncio.gather(*first)], await post()

    assert asyncio.run(run()) == ([503, 200, 200], 200)
    assert counts == [400, 400, 400]


@pytest.mark.parametrize("headers", [[length(900)], [CHUNKED]])
def test_discarded_bodies_do_not_use_memory_budget(
    headers: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused client sends as much as the limit allows, and is read for a while; another is served then."""
    monkeypatch.setattr(limits, "LINGER_SECONDS", 0.5)
    chain = wrap_app(reading(Received()), replace(LOCKED, limits=replace(SMALL, total_body_bytes=800)))

    async def ask(pieces: list[bytes], *headers: tuple[str, str]) -> int:
        messages: list[Message] = []

        async def receive() -> Message:
            if not pieces:
                await asyncio.sleep(FOREVER)
            return {"type": "http.request", "body": pieces.pop(0), "more_body": True}

        async def send(message: Message) -> None:
            messages.append(message)

        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(chain(post("/api/v1/cluster", *headers), receive, send), 0.3)
        return messages[0]["status"]

    async def run() -> tuple[int, int]:
        refused = asyncio.ensure_future(ask([b"x" * 100] * 9, *headers))
        await asyncio.sleep(0.1)
        signed = ("Authorization", f"Bearer {TOKEN}")
        answers: list[Message] = []

        async def whole() -> Message:
            return {"type": "http.request", "body": b"x" * 100, "more_body": False}

        async def send(message: Message) -> None:
            answers.append(message)

        await chain(post("/api/v1/cluster", length(100), signed), whole, send)
        return await refused, answers[0]["status"]

    assert asyncio.run(run()) == (401, 200)


def test_discards_no_more_bytes_than_body_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LINGER_SECONDS", FOREVER)
    read = 0

    async def receive() -> Message:
        nonlocal read
        read += 100
        await asyncio.sleep(0)
        return {"type": "http.request", "body": b"x" * 100, "more_body": True}

    async def send(message: Message) -> None:  # noqa: ARG001
        await asyncio.sleep(0)

    chain = wrap_app(reading(Received()), replace(LOCKED, limits=SMALL))
    asyncio.run(asyncio.wait_for(chain(post("/", CHUNKED), receive, send), 5))
    assert read == SMALL.json_bytes
