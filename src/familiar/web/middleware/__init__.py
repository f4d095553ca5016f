"""Who may ask, how much and how fast: everything between the socket and the app."""

import time
from collections.abc import Callable

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from familiar.web.middleware.access import CSRF_STATE_KEY, AccessMiddleware
from familiar.web.middleware.headers import SecurityHeadersMiddleware
from familiar.web.middleware.limits import LimitsMiddleware
from familiar.web.middleware.log import LogMiddleware
from familiar.web.settings import Settings

POLICY_VIOLATION = 1008  # a close code of RFC 6455


def wrap_app(app: ASGIApp, settings: Settings, clock: Callable[[], float] = time.time) -> ASGIApp:
    """`app` behind the log, safe headers, limits and the door. `clock` in seconds since 1970, for sessions and rates.

    There is nothing for websockets to ask for, so they are closed.
    """
    chain = LogMiddleware(SecurityHeadersMiddleware(LimitsMiddleware(AccessMiddleware(app, settings, clock), settings.limits)))

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await chain(scope, receive, send)
        elif scope["type"] == "lifespan":
            await app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})

    return guard


def csrf_token(request: Request) -> str:
    """What a page sends back as X-CSRF-Token when it writes; "" where the request has no session."""
    return request.scope.get("state", {}).get(CSRF_STATE_KEY, "")
