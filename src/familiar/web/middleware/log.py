"""Request log without private data: no names, numbers, queries or paths of photos."""

import logging
import re
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

WORD = re.compile("[a-z]{1,16}")
CLIENT_CLOSED_REQUEST = 499  # nginx's status for a client that disconnected before the response began
log = logging.getLogger("familiar.serve")


class LogMiddleware:
    """Middleware that logs METHOD PATH ROUTE STATUS MILLISECONDS when a response has ended."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, began = CLIENT_CLOSED_REQUEST, time.perf_counter()

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        finally:
            method = scope["method"] if re.fullmatch("[A-Z]{1,10}", scope["method"]) else "?"
            milliseconds = 1000 * (time.perf_counter() - began)
            log.info("%s %s %d %.1f ms", method, loggable_path(scope), status, milliseconds)


def loggable_path(scope: Scope) -> str:
    """Return the start of the path that cannot contain a name or number, and the name of the route's function.

    The route is "-" if none was reached.

    >>> loggable_path({"path": "/photos/rex.jpg"}), loggable_path({"path": "/api/v1/faces/12"})
    ('/photos/* -', '/api/v1/* -')
    """
    parts = scope["path"].split("/")[1:]
    words = [part for part in parts[:1] if WORD.fullmatch(part)]
    if parts[:2] == ["api", "v1"]:
        words.append("v1")
    path = "/" + "/".join([*words, *(["*"] if parts[len(words) :] not in ([], [""]) else [])])
    return f"{path} {getattr(scope.get('route'), 'name', None) or '-'}"
