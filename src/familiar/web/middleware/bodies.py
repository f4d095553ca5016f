"""The size of a request's body, by its path. How slowly it may arrive is for a reverse proxy to limit."""

import asyncio
import contextlib
import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from familiar.web.errors import HttpProblem
from familiar.web.middleware.error_responses import error_response
from familiar.web.settings import Limits

PHOTO_PATHS = re.compile(
    r"/api/v1/(photos|detect|embed|search/photo|verify|identities/[0-9]+/verify)|/search|/compare|/predict"
    r"|/desk/pets|/desk/[0-9]+/photos"
)
LINGER_SECONDS = 2.0
COMPRESSED = HttpProblem(400, "compressed", "the body is compressed; send it as it is, without Content-Encoding")


class BodyLimitMiddleware:
    """Middleware that answers 413 to a body that is too large, and 400 to a compressed one.

    After an early response the rest of the body is read for a while: closing a socket with unread data may lose it.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, received = Headers(scope=scope), 0
        limit = max_body_bytes(scope["path"], headers.get("content-type", ""), self._limits)
        announced = headers.get("content-length", "0")
        has_more = "transfer-encoding" in headers or announced != "0"

        async def receive_within_limit() -> Message:
            nonlocal received, has_more
            message = await receive()
            received, has_more = received + len(message.get("body", b"")), message.get("more_body", False)
            if received > limit:
                raise too_large_error(limit)
            return message

        async def send_and_read_on(message: Message) -> None:
            nonlocal has_more
            if has_more and message["type"] == "http.response.body" and not message.get("more_body"):
                await send({**message, "more_body": True})
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LINGER_SECONDS):
                        while has_more:
                            has_more = (await receive()).get("more_body", False)
                message = {"type": "http.response.body"}
            await send(message)

        app: ASGIApp = self._app
        if announced.isdecimal() and int(announced[:20]) > limit:
            app = error_response(too_large_error(limit), scope)
        elif headers.get("content-encoding", "").strip().lower() not in ("", "identity"):
            app = error_response(COMPRESSED, scope)
        await app(scope, receive_within_limit, send_and_read_on)


def max_body_bytes(path: str, content_type: str, limits: Limits) -> int:
    """Return the maximum size of a request's body."""
    kind = content_type.partition(";")[0].strip().lower()
    has_photos = kind == "multipart/form-data" or kind.startswith("image/")
    return limits.upload_bytes if has_photos and PHOTO_PATHS.fullmatch(path) else limits.json_bytes


def too_large_error(limit: int) -> HttpProblem:
    return HttpProblem(413, "too-large", f"a body may have at most {limit:,} bytes here")
