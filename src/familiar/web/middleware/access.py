"""What a request's head must be like before the app sees it, in one place and order."""

from collections.abc import Callable
from http import HTTPStatus

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from familiar.web.errors import HttpProblem
from familiar.web.middleware.csrf import SAFE_METHODS, require_same_origin, require_token
from familiar.web.middleware.error_responses import error_response, wants_page
from familiar.web.middleware.hosts import AllowedHosts
from familiar.web.middleware.login import Login, redirect_to_login
from familiar.web.middleware.rate import TokenBuckets, client_key
from familiar.web.middleware.session import Session, Sessions
from familiar.web.settings import Settings

CSRF_STATE_KEY = "csrf"  # where in scope["state"] a page finds what it sends along when it writes


class AccessMiddleware:
    """Host, rate, login and forged requests, in this order: the cheapest first."""

    def __init__(self, app: ASGIApp, settings: Settings, clock: Callable[[], float]) -> None:
        self._app = app
        self._hosts = AllowedHosts(settings)
        self._rate = TokenBuckets(settings.limits.requests_per_minute, clock)
        self._sessions = Sessions(settings.gallery, settings.token, clock)
        wrong = TokenBuckets(settings.limits.wrong_tokens_per_minute, clock)
        self._login = Login(settings.token, self._sessions, wrong)
        self._gives_sessions = settings.token is None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            session, response = await self._authorize(request)
        except ClientDisconnect:
            return
        except HttpProblem as error:
            session, response = None, error_response(error, scope)
        if response is not None:
            await response(scope, receive, send)
            return
        if session is None and self._gives_sessions and request.method == "GET" and wants_page(scope):
            session = self._sessions.begin()
            send = _add_cookie(self._sessions.cookie(session, secure=scope["scheme"] == "https"), send)
        scope.setdefault("state", {})[CSRF_STATE_KEY] = "" if session is None else self._sessions.csrf_token(session)
        await self._app(scope, receive, send)

    async def _authorize(self, request: Request) -> tuple[Session | None, Response | None]:
        """The request's session, and the answer where the app is not to be asked for one."""
        self._hosts.check(request.headers)
        if (who := client_key(request.scope)) != "this machine":
            self._rate.require(who, "too many requests; wait a moment")
            self._rate.take(who)
        asked = (request.method, request.scope["path"])
        session, bearer = self._sessions.read(request.headers), self._login.has_bearer_token(request)
        guarded_write = request.method not in SAFE_METHODS and not bearer
        if guarded_write:
            # Nobody gains by logging us in: there is one token, and who knows it needs no browser of ours.
            require_same_origin(request.headers, null=asked == ("POST", "/login"))
        if asked == ("POST", "/login"):
            return None, await self._login.log_in(request)
        if session is None and not bearer and not self._login.is_open(request):
            return None, _ask_to_log_in(request)
        if guarded_write and ("origin" in request.headers or self._sessions.cookie_values(request.headers)):
            require_token(request.headers, None if session is None else self._sessions.csrf_token(session))
        if asked == ("POST", "/logout"):
            return None, self._login.log_out(request)
        return session, None


def _ask_to_log_in(request: Request) -> Response:
    if request.method in ("GET", "HEAD") and wants_page(request.scope):
        return redirect_to_login(request)
    raise HttpProblem(
        HTTPStatus.UNAUTHORIZED,
        "not-logged-in",
        "log in at /login, or send the token as Authorization: Bearer TOKEN",
    )


def _add_cookie(cookie: str, send: Send) -> Send:
    async def give(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).append("Set-Cookie", cookie)
        await send(message)

    return give
