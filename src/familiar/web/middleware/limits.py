"""One request within its limits: how long its head and body are, and how long they and the answer may take."""

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
MIN_BYTES_PER_SECOND = 500  # of a body, on average; Apache's mod_reqtimeout asks the same
# That we read on after an early answer: a socket that is closed on unread data may lose the answer.
LINGER_SECONDS = 2.0
PHOTO_PATHS = re.compile(r"/api/v1/(photos|detect|embed|search/photo|verify|identities/[0-9]+/verify)|/search|/compare")
DISCONNECT: Message = {"type": "http.disconnect"}
REST_MISSING = HttpProblem(HTTPStatus.REQUEST_TIMEOUT, "too-slow", "the rest of the request did not come in time")
TOO_SLOW = HttpProblem(HTTPStatus.SERVICE_UNAVAILABLE, "too-slow", "that took too long here; try again later")
BROKEN = HttpProblem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal-error", "something broke here; the server's log says what")


class LimitsMiddleware:
    """Answers 400, 408, 413, 414, 431 or 503 in the app's place where a request is beyond `limits`."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits, self._held = app, limits, _BodyBytes()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = _Exchange(scope, receive, send, self._limits, self._held)
        try:
            await exchange.run(self._app)
        finally:
            self._held.bytes -= exchange.received


@dataclass
class _BodyBytes:
    """Bytes that the app was given of the bodies of all requests under way: small photos lie in memory until they are
    answered."""

    bytes: int = 0


class _Exchange:
    """A request and its answer. Once refused, the app is told that the client is gone, and what it says is dropped."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limits: Limits, held: _BodyBytes) -> None:
        self._scope, self._receive, self._send, self._limits = scope, receive, send, limits
        self._body_bytes = held
        headers = Headers(scope=scope)
        self._max_bytes = max_body_bytes(scope["path"], headers.get("content-type", ""), limits)
        self._body_remains = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
        self.received = 0  # bytes of the body that the app was given
        self._waited = 0.0  # seconds for them
        self._started = self._refused = False
        self._answer_deadline = asyncio.timeout(None)

    async def run(self, app: ASGIApp) -> None:
        try:
            check_head(self._scope, self._max_bytes)
            async with self._answer_deadline:
                self._expect_answer()
                await app(self._scope, self.receive, self.send)
        except HttpProblem as error:
            await self._refuse(error)
        except Exception as error:
            if self._refused:
                return  # it stumbled over the client we said was gone
            late = isinstance(error, TimeoutError) and self._answer_deadline.expired()
            await self._refuse(TOO_SLOW if late else BROKEN)
            if not late:
                raise

    async def receive(self) -> Message:
        """The next piece of the body, in time. 408 and 413 are answered here, whatever the app makes of it."""
        if self._refused:
            return DISCONNECT
        if not self._body_remains:
            return await self._receive()
        self._expect_answer(waiting=True)
        loop = asyncio.get_running_loop()
        began = loop.time()
        patience = self._limits.chunk_seconds
        patience = min(patience, patience + self.received / MIN_BYTES_PER_SECOND - self._waited)
        try:
            async with asyncio.timeout(patience):
                message = await self._next_piece()
        except TimeoutError:
            await self._refuse(REST_MISSING)
            return DISCONNECT
        self._waited += loop.time() - began
        size = len(message.get("body", b""))
        self.received += size
        self._body_bytes.bytes += size
        if self.received > self._max_bytes:
            await self._refuse(too_large_error(self._max_bytes))
            return DISCONNECT
        if self._body_bytes.bytes > self._limits.total_body_bytes:
            await self._refuse(unavailable("too much is being sent at once; try again in a moment"))
            return DISCONNECT
        self._expect_answer()
        return message

    async def send(self, message: Message) -> None:
        if self._refused or self._answer_deadline.expired():
            return
        await self._pass_on(message)

    async def _pass_on(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._expect_answer(waiting=True)
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
        """What comes is thrown away, so it is not held."""
        left = self._max_bytes
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                while self._body_remains and left > 0:
                    left -= len((await self._next_piece()).get("body", b""))

    def _expect_answer(self, *, waiting: bool = False) -> None:
        """From now on the app has so long to begin its answer or ask for more; `waiting`: it is not its turn."""
        if self._started or self._refused or self._answer_deadline.expired():
            return
        now = asyncio.get_running_loop().time()
        self._answer_deadline.reschedule(None if waiting else now + self._limits.request_seconds)


def max_body_bytes(path: str, content_type: str, limits: Limits) -> int:
    """That a request's body may have."""
    kind = content_type.partition(";")[0].strip().lower()
    brings_photos = kind == "multipart/form-data" or kind.startswith("image/")
    return limits.upload_bytes if brings_photos and PHOTO_PATHS.fullmatch(path) else limits.json_bytes


def check_head(scope: Scope, most: int) -> None:
    """Refused where the path, the headers or the body they announce are beyond what is sane or `most` bytes."""
    if len(scope["raw_path"]) > MAX_PATH_CHARACTERS or len(scope.get("query_string", b"")) > MAX_QUERY_CHARACTERS:
        raise HttpProblem(HTTPStatus.REQUEST_URI_TOO_LONG, "too-long", f"a path has at most {MAX_PATH_CHARACTERS} characters")
    if len(scope["headers"]) > MAX_HEADERS:
        raise HttpProblem(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            "too-large",
            f"at most {MAX_HEADERS} headers",
        )
    lengths = Headers(scope=scope).getlist("content-length")
    if len(lengths) > 1 or any(not (said.isascii() and said.isdigit()) for said in lengths):
        raise HttpProblem(HTTPStatus.BAD_REQUEST, "bad-length", "Content-Length is one whole number")
    if lengths and (len(lengths[0]) > 18 or int(lengths[0]) > most):
        raise too_large_error(most)


def too_large_error(most: int) -> HttpProblem:
    return HttpProblem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", f"such a request may bring {most:,} bytes at most")
