"""The size of a request's body: refused before the app reads too much of it, in words that say how much it may have."""

import asyncio
from dataclasses import replace

import pytest
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Scope

from familiar.web import api, pages
from familiar.web.error_handlers import answer_errors
from familiar.web.middleware import wrap_app
from familiar.web.middleware.bodies import max_body_bytes
from familiar.web.middleware.error_responses import error_response
from familiar.web.settings import Limits
from support.middleware import OPEN, scope_of

SMALL = Limits(json_bytes=1_000, upload_bytes=10_000, photo_bytes=1)
MULTIPART = ("Content-Type", "multipart/form-data; boundary=x")
JPEG = ("Content-Type", "Image/JPEG")
JSON = ("Content-Type", "application/json")
CHUNKED = ("Transfer-Encoding", "chunked")


def answering(app: FastAPI) -> FastAPI:
    """Let an app answer errors as those of this package do."""
    answer_errors(app, lambda request, problem: error_response(problem, request.scope))
    return app


def reading(pieces: list[bytes]) -> FastAPI:
    """Make an app that reads the body of any request, and appends what it read to `pieces`."""
    app = FastAPI()

    async def read(request: Request) -> PlainTextResponse:
        async for piece in request.stream():
            pieces.append(piece)  # noqa: PERF401 - also those before an error
        return PlainTextResponse("done")

    app.add_api_route("/{path:path}", read, methods=["POST"])
    return answering(app)


def length(size: int) -> tuple[str, str]:
    return ("Content-Length", str(size))


def post(path: str, *headers: tuple[str, str]) -> Scope:
    return scope_of("POST", path, [("Host", "localhost"), *headers])


def answer(app: ASGIApp, scope: Scope, pieces: list[bytes]) -> list[Message]:
    """Return all that is sent back. The pieces end the body; those that are read are removed."""
    messages = list[Message]()

    async def receive() -> Message:
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    async def send(message: Message) -> None:
        messages.append(message)

    async def run() -> None:
        await wrap_app(app, replace(OPEN, limits=SMALL))(scope, receive, send)

    asyncio.run(run())
    return messages


@pytest.mark.parametrize(
    ("path", "kind", "most"),
    [
        ("/api/v1/embed", JPEG, 10_000),
        ("/api/v1/photos", MULTIPART, 10_000),
        ("/search", MULTIPART, 10_000),
        ("/search", JSON, 1_000),
        ("/search", ("X-Content-Type", "image/jpeg"), 1_000),
        ("/undo", MULTIPART, 1_000),
        ("/api/v1/cluster", JPEG, 1_000),
        ("/api/v1/embedded", JPEG, 1_000),
    ],
)
@pytest.mark.parametrize("announced", ["rightly", "too small", "not at all"])
def test_body_limit_depends_on_path_and_content_type(
    path: str, kind: tuple[str, str], most: int, announced: str
) -> None:
    for size, fits in ((most, True), (most + 1, False)):
        how = {"rightly": length(size), "too small": length(1), "not at all": CHUNKED}[announced]
        read: list[bytes] = []
        pieces = [b"x" * 500] * (size // 500) + [b"x"] * (size % 500)
        messages = answer(reading(read), post(path, kind, how), pieces)
        assert messages[0]["status"] == (200 if fits else 413)
        assert sum(map(len, read)) <= most
        if not fits:
            assert f"a body may have at most {most:,} bytes here".encode() in messages[1]["body"]


def test_app_that_parses_a_body_answers_413_too() -> None:
    """FastAPI takes any error while it reads a body for a malformed one."""
    app = answering(FastAPI())
    app.include_router(api.router)
    part = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
    for path, kind, first in (("/api/v1/cluster", JSON, b"{"), ("/api/v1/detect", MULTIPART, part)):
        messages = answer(app, post(path, kind, CHUNKED), [first, *[b"x" * 900] * 20])
        assert messages[0]["status"] == 413
        assert b"too-large" in messages[1]["body"]


def test_early_response_is_followed_by_the_rest_of_the_body() -> None:
    """A socket that is closed with unread data is reset, and the response may be lost."""
    for headers, pieces, remaining in (
        ([length(400)], [b"x" * 100] * 4, 0),
        ([CHUNKED], [b"x" * 100] * 4, 0),
        ([length(2_000)], [b"x" * 500] * 4, 0),  # also more than a body may have here
    ):
        messages = answer(PlainTextResponse("no"), post("/", *headers), pieces)
        assert [message.get("more_body", False) for message in messages[1:]] == [True, False]
        assert len(pieces) == remaining


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
