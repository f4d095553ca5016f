"""Middleware between the socket and the app: access control, limits, security headers, the log."""

import time
from collections.abc import Callable

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from familiar.web.middleware.access import CSRF_STATE_KEY, AccessMiddleware
from familiar.web.middleware.headers import SecurityHeadersMiddleware
from familiar.web.middleware.limits import LimitsMiddleware
from familiar.web.middleware.log import LogMiddleware
from familiar.web.middleware.root_path import RootPathMiddleware
from familiar.web.settings import ServerSettings

POLICY_VIOLATION = 1008  # a close code of RFC 6455


def wrap_app(
    app: ASGIApp,
    settings: ServerSettings,
    clock: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
) -> ASGIApp:
    """Wrap `app` in its path, the log, security headers, limits and access control.

    There are no websocket endpoints, so websockets are closed.

    Args:
        clock: seconds since 1970, for the expiry of sessions.
        monotonic: seconds of a clock that is never set, for rates.
    """
    chain = LogMiddleware(
        SecurityHeadersMiddleware(
            LimitsMiddleware(AccessMiddleware(_answer_head(app), settings, clock, monotonic), settings.limits)
        )
    )
    chain = RootPathMiddleware(chain, settings.root_path, getattr(app, "routes", ()))

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await chain(scope, receive, send)
        elif scope["type"] == "lifespan":
            await app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})

    return run


def _answer_head(app: ASGIApp) -> ASGIApp:
    """Answer HEAD as GET without the body (RFC 9110, 9.3.2): the routes of pages and API know only GET."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_head(message: Message) -> None:
            await send(message | {"body": b""} if message["type"] == "http.response.body" else message)

        if scope["type"] == "http" and scope["method"] == "HEAD":
            await app(dict(scope) | {"method": "GET"}, receive, send_head)
        else:
            await app(scope, receive, send)

    return run


def csrf_token(request: Request) -> str:
    """Return what a page sends as X-CSRF-Token when it writes; "" if the request has no session."""
    return request.scope.get("state", {}).get(CSRF_STATE_KEY, "")
