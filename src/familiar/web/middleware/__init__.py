"""Middleware between the server and the app: hosts, sizes of bodies, sessions, access, security headers, the log."""

import ipaddress

from starlette.datastructures import Headers
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from familiar.web.errors import HttpProblem
from familiar.web.middleware.access import AccessMiddleware
from familiar.web.middleware.bodies import BodyLimitMiddleware
from familiar.web.middleware.error_responses import error_response
from familiar.web.middleware.headers import SecurityHeadersMiddleware
from familiar.web.middleware.log import LogMiddleware
from familiar.web.middleware.root_path import RootPathMiddleware
from familiar.web.middleware.sessions import EndedSessions, with_sessions
from familiar.web.settings import ServerSettings

POLICY_VIOLATION = 1008  # a close code of RFC 6455
# Whose X-Forwarded-For and X-Forwarded-Proto count: others could be anybody.
PROXIES = ["127.0.0.1", "::1", "::ffff:127.0.0.1"]
UNKNOWN_HOST = HttpProblem(
    421, "unknown-host", "this server does not answer to that name; start it with --host NAME to let browsers use it"
)


def wrap_app(app: ASGIApp, settings: ServerSettings) -> ASGIApp:
    """Wrap `app` in its path, the log, security headers, and all that refuses requests.

    There are no websocket endpoints, so websockets are closed.
    """
    ended = EndedSessions(settings.session_file)
    chain = with_sessions(AccessMiddleware(_answer_head(app), settings, ended), settings, ended)
    chain = SecurityHeadersMiddleware(_check_host(BodyLimitMiddleware(chain, settings.limits), settings))
    chain = ProxyHeadersMiddleware(LogMiddleware(chain), PROXIES)  # pyright: ignore[reportArgumentType] - its own types
    chain = RootPathMiddleware(chain, settings.root_path, getattr(app, "routes", ()))

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await chain(scope, receive, send)
        elif scope["type"] == "lifespan":
            await app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})

    return run


def _check_host(app: ASGIApp, settings: ServerSettings) -> ASGIApp:
    """Answer only under this server's names.

    A page of another site can point its own name to this machine (DNS rebinding) and then has the same origin as this
    server. If other machines can reach it, any IP address is accepted, too: rebinding takes a name.
    """
    names = ["localhost", "127.0.0.1", "::1", settings.address, *settings.hosts]
    allowed = [f"[{name}]" if ":" in name else name for name in names]

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        admitted: list[Scope] = []

        async def admit(scope: Scope, _receive: Receive, _send: Send) -> None:
            admitted.append(scope)

        async def ignore(_: Message) -> None:
            """Send nothing: Starlette's own refusal does not say what to do."""

        by_address = not settings.loopback and _is_address(Headers(scope=scope).get("host", ""))
        trusted = TrustedHostMiddleware(admit, ["*"] if by_address else allowed, www_redirect=False)
        await trusted(scope, receive, ignore)
        await (app if admitted else error_response(UNKNOWN_HOST, scope))(scope, receive, send)

    return run


def _is_address(host: str) -> bool:
    """Tell whether a Host header is an IP address, with or without a port.

    >>> _is_address("192.168.1.5:8000"), _is_address("[2001:db8::1]"), _is_address("album.example")
    (True, True, False)
    """
    name = host.removeprefix("[").partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _answer_head(app: ASGIApp) -> ASGIApp:
    """Answer HEAD as GET without the body (RFC 9110, 9.3.2): the routes of pages and API know only GET."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_head(message: Message) -> None:
            await send(message | {"body": b""} if message["type"] == "http.response.body" else message)

        if scope["method"] == "HEAD":
            await app(dict(scope) | {"method": "GET"}, receive, send_head)
        else:
            await app(scope, receive, send)

    return run
