"""Access control: Host header, rate limit, authentication and CSRF, in one place and order."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from familiar.web.access_token import AccessToken
from familiar.web.errors import HttpProblem
from familiar.web.middleware.csrf import SAFE_METHODS, require_same_origin, require_token
from familiar.web.middleware.error_responses import error_response, wants_page
from familiar.web.middleware.hosts import AllowedHosts
from familiar.web.middleware.login import Login, is_secure, redirect_to_login
from familiar.web.middleware.rate import TokenBuckets, client_key
from familiar.web.middleware.session import Session, Sessions
from familiar.web.middleware.session_file import SessionFile
from familiar.web.settings import ServerSettings

log = logging.getLogger("familiar.serve")
CSRF_STATE_KEY = "csrf"  # of scope["state"], and in the address of a plain form: the token that a page writes with


@dataclass(frozen=True)
class _Credentials:
    """Credentials of a request: a session's cookie, the bearer token, both or neither."""

    session: Session | None
    bearer: bool

    @property
    def are_valid(self) -> bool:
        return self.bearer or self.session is not None


class AccessMiddleware:
    """Passes on the requests that the policies admit, and answers all others itself."""

    def __init__(
        self, app: ASGIApp, settings: ServerSettings, clock: Callable[[], float], monotonic: Callable[[], float]
    ) -> None:
        self._app = app
        self._hosts = AllowedHosts(settings)
        self._rate = TokenBuckets(settings.limits.requests_per_minute, monotonic)
        token = AccessToken(settings.token, settings.token_file)
        self._sessions = Sessions(settings.session_name, token, SessionFile(settings.session_file), clock)
        wrong_tokens = TokenBuckets(settings.limits.wrong_tokens_per_minute, monotonic)
        self._login = Login(token, self._sessions, wrong_tokens)
        self._gives_sessions = not token.is_required

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            admitted = await self._authorize(request)
        except ClientDisconnect:
            return
        except HttpProblem as error:
            log.warning("refused, %s, from %s", error.kind, client_key(scope))
            admitted = error_response(error, scope)
        if isinstance(admitted, Response):
            await admitted(scope, receive, send)
            return
        session = admitted.session
        if session is None and self._gives_sessions and request.method == "GET" and wants_page(scope):
            session = self._sessions.begin()
            send = _add_cookie(self._sessions.cookie(session, secure=is_secure(scope)), send)
        scope.setdefault("state", {})[CSRF_STATE_KEY] = "" if session is None else self._sessions.csrf_token(session)
        await self._app(scope, receive, send)

    async def _authorize(self, request: Request) -> _Credentials | Response:
        """Apply the policies; their order matters.

        1. The Host header is a name of this server.
        2. The client's address has not sent too many requests.
        3. A bearer token, if there is one, is right.
        4. A write without one does not come from a page of another site.
        5. The client is logged in, unless the request needs no login.
        6. A browser's write has the CSRF token of its session.

        Returns:
            The request's credentials, or the response if the app is not to answer it.

        Raises:
            HttpProblem: a policy refuses the request.
        """
        self._hosts.check(request.headers)
        self._count_request(request)
        credentials = _Credentials(
            self._sessions.read(request.headers, secure=is_secure(request.scope)), self._login.has_bearer_token(request)
        )
        is_login, is_logout = _is_post(request, "/login"), _is_post(request, "/logout")
        can_be_forged = request.method not in SAFE_METHODS and not credentials.bearer
        if can_be_forged:
            # Login CSRF is harmless: there is a single shared token, and who knows it needs no other's browser.
            require_same_origin(request.headers, null=is_login)
        if is_login:
            return await self._login.log_in(request)
        if not credentials.are_valid and not self._login.is_open(request):
            return _ask_to_log_in(request)
        if can_be_forged:
            self._require_csrf_token(request, credentials.session)
        if is_logout:
            return await self._login.log_out(request)
        return credentials

    def _count_request(self, request: Request) -> None:
        """Take one of the requests that an address other than this machine may send per minute."""
        client = client_key(request.scope)
        if client != "this machine":
            self._rate.require(client, "too many requests; wait a moment")
            self._rate.take(client)

    def _require_csrf_token(self, request: Request, session: Session | None) -> None:
        """Check the CSRF token of a browser's request. Programs send neither an Origin nor cookies."""
        if "origin" in request.headers or self._sessions.cookie_values(
            request.headers, secure=is_secure(request.scope)
        ):
            expected = None if session is None else self._sessions.csrf_token(session)
            require_token(request.headers, expected, request.query_params.get(CSRF_STATE_KEY, ""))


def _is_post(request: Request, path: str) -> bool:
    return (request.method, request.scope["path"]) == ("POST", path)


def _ask_to_log_in(request: Request) -> Response:
    if request.method in ("GET", "HEAD") and wants_page(request.scope):
        return redirect_to_login(request)
    raise HttpProblem(
        HTTPStatus.UNAUTHORIZED,
        "not-logged-in",
        "log in at /login, or send the token as Authorization: Bearer TOKEN",
    )


def _add_cookie(cookie: str, send: Send) -> Send:
    async def send_with_cookie(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).append("Set-Cookie", cookie)
        await send(message)

    return send_with_cookie
