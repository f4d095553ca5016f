"""Limits per request: size of head and body, time for them and for the response."""

import asyncio
import contextlib
import re
from dataclasses import dataclass
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from familiar.web.errors import HttpProblem, unavailable
from familiar.web.middleware.error_responses import error_response
from familiar.web.settings import Limits

MAX_PATH_CHARACTERS = 2_048
MAX_QUERY_CHARACTERS = 8_192
MAX_HEADERS = 100
# Of a body; the default of Apache's mod_reqtimeout. There it is an average, so that a client that sends much at first
# may then hold on to it for days; here it holds for any `chunk_seconds`.
MIN_BYTES_PER_SECOND = 500
# The rest of a body is read this long after an early response: closing a socket with unread data may lose the response.
LINGER_SECONDS = 2.0
PHOTO_PATHS = re.compile(
    r"/api/v1/(photos|detect|embed|search/photo|verify|identities/[0-9]+/verify)|/search|/compare|/predict"
    r"|/desk/pets|/desk/[0-9]+/photos"
)
DISCONNECT: Message = {"type": "http.disconnect"}
REST_MISSING = HttpProblem(HTTPStatus.REQUEST_TIMEOUT, "too-slow", "the rest of the request did not arrive in time")
TOO_SLOW = HttpProblem(HTTPStatus.SERVICE_UNAVAILABLE, "too-slow", "the server took too long; try again later")
BROKEN = HttpProblem(
    HTTPStatus.INTERNAL_SERVER_ERROR, "internal-error", "something went wrong on the server; its log says where"
)


class LimitsMiddleware:
    """Middleware that enforces the limits: it answers 400, 408, 413, 414, 431 or 503 instead of the app."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits, self._body_bytes = app, limits, _BodyBytes()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = _Exchange(scope, receive, send, self._limits, self._body_bytes)
        try:
            await exchange.run(self._app)
        finally:
            self._body_bytes.bytes -= exchange.received


@dataclass
class _BodyBytes:
    """Body bytes passed to the app, of all current requests: small photos stay in memory until the response."""

    bytes: int = 0


class _Exchange:
    """A request and its response. Once refused, the app receives a disconnect, and its messages are dropped."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limits: Limits, body_bytes: _BodyBytes) -> None:
        self._scope, self._receive, self._send, self._limits = scope, receive, send, limits
        self._body_bytes = body_bytes
        headers = Headers(scope=scope)
        self._max_bytes = max_body_bytes(scope["path"], headers.get("content-type", ""), limits)
        self._body_remains = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
        self.received = 0  # bytes of the body passed to the app
        self._patience = limits.chunk_seconds  # that may pass until the next bytes
        self._body_end = asyncio.get_running_loop().time() + limits.body_seconds
        self._started = self._refused = False
        self._answer_deadline = asyncio.timeout(None)

    async def run(self, app: ASGIApp) -> None:
        try:
            check_head(self._scope, self._max_bytes)
            async with self._answer_deadline:
                self._expect_response()
                await app(self._scope, self.receive, self.send)
        except HttpProblem as error:
            await self._refuse(error)
        except Exception as error:
            if self._refused:
                return  # the app failed because it received a disconnect
            late = isinstance(error, TimeoutError) and self._answer_deadline.expired()
            await self._refuse(TOO_SLOW if late else BROKEN)
            if not late:
                raise

    async def receive(self) -> Message:
        """Return the next piece of the body, in time. 408 and 413 are answered here, whatever the app does then."""
        if self._refused:
            return DISCONNECT
        if not self._body_remains:
            return await self._receive()
        self._expect_response(waiting=True)
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout_at(min(began + self._patience, self._body_end)):
                message = await self._next_piece()
        except TimeoutError:
            await self._refuse(REST_MISSING)
            return DISCONNECT
        size = len(message.get("body", b""))
        patience = self._patience - (loop.time() - began) + size / MIN_BYTES_PER_SECOND
        self._patience = min(patience, self._limits.chunk_seconds)
        self.received += size
        self._body_bytes.bytes += size
        if self.received > self._max_bytes:
            await self._refuse(too_large_error(self._max_bytes))
            return DISCONNECT
        if self._body_bytes.bytes > self._limits.total_body_bytes:
            await self._refuse(unavailable("too much is being sent at once; try again in a moment"))
            return DISCONNECT
        self._expect_response()
        return message

    async def send(self, message: Message) -> None:
        if self._refused or self._answer_deadline.expired():
            return
        await self._pass_on(message)

    async def _pass_on(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._expect_response(waiting=True)
            self._started = True
            if self._body_remains:
                MutableHeaders(scope=message)["Connection"] = "close"
        elif self._body_remains and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            await self._read_on()
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self._send(message)

    async def _refuse(self, error: HttpProblem) -> None:
        self._refused = True
        if not self._started:
            await error_response(error, self._scope)(self._scope, self._receive, self._pass_on)

    async def _next_piece(self) -> Message:
        message = await self._receive()
        self._body_remains = message["type"] == "http.request" and message.get("more_body", False)
        return message

    async def _read_on(self) -> None:
        """Read the rest of the body and discard it."""
        remaining_bytes = self._max_bytes
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                while self._body_remains and remaining_bytes > 0:
                    remaining_bytes -= len((await self._next_piece()).get("body", b""))

    def _expect_response(self, *, waiting: bool = False) -> None:
        """Restart the app's time to begin its response or receive more; `waiting`: stop it, it is the client's turn."""
        if self._started or self._refused or self._answer_deadline.expired():
            return
        now = asyncio.get_running_loop().time()
        self._answer_deadline.reschedule(None if waiting else now + self._limits.request_seconds)


def max_body_bytes(path: str, content_type: str, limits: Limits) -> int:
    """Return the maximum size of a request's body."""
    kind = content_type.partition(";")[0].strip().lower()
    brings_photos = kind == "multipart/form-data" or kind.startswith("image/")
    return limits.upload_bytes if brings_photos and PHOTO_PATHS.fullmatch(path) else limits.json_bytes


def check_head(scope: Scope, max_bytes: int) -> None:
    """Check the size of the path and the headers, and what they announce of the body.

    Raises:
        HttpProblem: 400, 413, 414 or 431.
    """
    if len(scope["raw_path"]) > MAX_PATH_CHARACTERS or len(scope.get("query_string", b"")) > MAX_QUERY_CHARACTERS:
        raise HttpProblem(
            HTTPStatus.REQUEST_URI_TOO_LONG, "too-long", f"a path may have at most {MAX_PATH_CHARACTERS} characters"
        )
    if len(scope["headers"]) > MAX_HEADERS:
        raise HttpProblem(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            "too-large",
            f"a request may have at most {MAX_HEADERS} headers",
        )
    headers = Headers(scope=scope)
    if headers.get("content-encoding", "").strip().lower() not in ("", "identity"):
        raise HttpProblem(
            HTTPStatus.BAD_REQUEST, "compressed", "the body is compressed; send it as it is, without Content-Encoding"
        )
    lengths = headers.getlist("content-length")
    if len(lengths) > 1 or any(not (length.isascii() and length.isdigit()) for length in lengths):
        raise HttpProblem(HTTPStatus.BAD_REQUEST, "bad-length", "Content-Length must be one whole number")
    if lengths and (len(lengths[0]) > 18 or int(lengths[0]) > max_bytes):
        raise too_large_error(max_bytes)


def too_large_error(max_bytes: int) -> HttpProblem:
    return HttpProblem(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "too-large",
        f"a body may have at most {max_bytes:,} bytes here",
    )
