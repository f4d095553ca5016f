"""Access control: forged requests, the token, and sessions that a browser gets for it, in one place and order."""

import hmac
import logging
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from http import HTTPStatus
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from familiar.web.access_token import AccessToken
from familiar.web.errors import HttpProblem
from familiar.web.middleware.client_address import client_address
from familiar.web.middleware.error_responses import error_response, wants_page
from familiar.web.middleware.sessions import EndedSessions
from familiar.web.settings import ServerSettings

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
TRUSTED_SITES = ("same-origin", "none")  # values of Sec-Fetch-Site; none: the user typed the address
OPEN_PATHS = frozenset({"/login", "/healthz", "/ping"})  # /ping: Immich's health check
LOCAL_PATH = re.compile(r"/(?!/)[!-\[\]-~]{0,2047}")  # printable ASCII without spaces and backslashes
log = logging.getLogger("familiar.serve")


class AccessMiddleware:
    """Passes on the requests that the policies admit, and answers all others itself.

    Without a token no login is needed. Runs within `with_sessions`.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings, ended: EndedSessions) -> None:
        self._app, self._ended = app, ended
        self._token = AccessToken(settings.token, settings.token_file)
        self._wrong = WrongTokens(settings.limits.wrong_tokens_per_minute)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._answer(Request(scope, receive))
        except ClientDisconnect:
            return
        except HttpProblem as error:
            log.warning("refused, %s, from %s", error.kind, client_address(scope))
            response = error_response(error, scope)
        await (response or self._app)(scope, receive, send)

    async def _answer(self, request: Request) -> Response | None:
        """Apply the policies; their order matters.

        1. A bearer token, if there is one, is right.
        2. A write without one does not come from a page of another site.
        3. The client is logged in, unless the request needs no login.

        Returns:
            The response, if the app is not to answer the request.

        Raises:
            HttpProblem: a policy refuses the request.
        """
        has_token = self._has_bearer_token(request)
        if request.method not in SAFE_METHODS and not has_token:
            require_same_origin(request.headers)
        posted = request.scope["path"] if request.method == "POST" else ""
        if posted == "/login":
            return await self._log_in(request)
        if not (has_token or self._is_open(request) or self._is_logged_in(request)):
            return _ask_to_log_in(request)
        if posted == "/logout":
            return await self._log_out(request)
        return None

    def _has_bearer_token(self, request: Request) -> bool:
        """Tell whether the Authorization header has the token. HttpProblem: 401, it has a wrong one; as below."""
        values = request.headers.getlist("authorization")
        if not self._token.is_required or not any(value.lower().startswith("bearer ") for value in values):
            return False
        if len(values) != 1 or not self._is_right_token(request, values[0][len("bearer ") :].strip()):
            raise HttpProblem(401, "wrong-token", "that is not the token of this server")
        return True

    def _is_right_token(self, request: Request, token: str) -> bool:
        """Compare a token in constant time.

        The right token is accepted even after too many wrong ones: otherwise a client that shares an address with
        others, behind a proxy or on this machine, could lock them out. Its length is what keeps it from being guessed.

        Raises:
            HttpProblem: 429, it is wrong, as were too many from the same address; 503, the server's cannot be read.
        """
        digests = (sha256(each.encode(errors="replace")).digest() for each in (token, self._token.read()))
        if hmac.compare_digest(*digests):
            return True
        client = client_address(request.scope)
        self._wrong.add(client)
        log.warning("wrong token from %s", client)
        return False

    def _is_open(self, request: Request) -> bool:
        """Tell whether a request needs no login: the login page, its static files, and the health check."""
        path = request.scope["path"]  # as the app's router reads it
        is_open = path in OPEN_PATHS or path.startswith("/static/")
        return not self._token.is_required or (request.method in ("GET", "HEAD") and is_open)

    def _is_logged_in(self, request: Request) -> bool:
        session = request.session
        mark = hmac.compare_digest(str(session.get("token", "")).encode(), self._token_mark().encode())
        return mark and session.get("id") not in self._ended

    def _token_mark(self) -> str:
        """Return what a session stores of the token, so that it ends with it; it tells a thief nothing about it."""
        return hmac.digest(self._ended.secret.encode(), self._token.read().encode(), "sha256").hex()

    async def _log_in(self, request: Request) -> Response:
        """Answer the login form, with a new session if the token is right. HttpProblem: 400, 429, 503."""
        try:
            form = await request.form(max_files=0, max_fields=10)
        except (HTTPException, MultiPartException) as error:
            raise HttpProblem(400, "not-a-form", "not a valid login form") from error
        next_path = local_path(str(form.get("next", "/")))
        if not self._token.is_required:
            return _redirect(next_path)
        if not self._is_right_token(request, str(form.get("token", ""))):
            return _redirect("/login?wrong=1" + ("" if next_path == "/" else f"&next={quote(next_path, safe='')}"))
        await self._end_session(request)  # the browser's old one
        request.session.update(id=secrets.token_hex(16), token=self._token_mark())
        log.info("logged in from %s", client_address(request.scope))
        return _redirect(next_path)

    async def _log_out(self, request: Request) -> Response:
        """End the request's session, and have the browser delete photos that it stored."""
        await self._end_session(request)
        response = _redirect("/login" if self._token.is_required else "/")
        response.headers["Clear-Site-Data"] = '"cache", "storage"'
        return response

    async def _end_session(self, request: Request) -> None:
        if (session := request.session.get("id")) is not None:
            await run_in_threadpool(self._ended.add, session)
        request.session.clear()


class WrongTokens:
    """Counts wrong tokens by address, in minutes that begin with the first one."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute, self._clock = per_minute, clock
        self._counts, self._end = Counter[str](), 0.0

    def add(self, client: str) -> None:
        """Count one. HttpProblem with 429 and `Retry-After` if there were too many in this minute."""
        now = self._clock()
        if now >= self._end:
            self._counts, self._end = Counter[str](), now + 60
        self._counts[client] += 1
        if self._counts[client] > self._per_minute:
            wait, detail = int(self._end - now) + 1, "too many wrong tokens; wait a moment"
            raise HttpProblem(429, "too-many-requests", detail, wait)


def require_same_origin(headers: Headers) -> None:
    """Refuse a request that a page of another origin sent, as the browser reports; programs send no such headers.

    The scheme is not compared: a proxy that terminates TLS may not tell it.

    Raises:
        HttpProblem: 403.
    """
    host = headers.get("host", "").lower()
    same = (f"http://{host}", f"https://{host}")
    sites, origins = headers.getlist("sec-fetch-site"), headers.getlist("origin")
    if any(site not in TRUSTED_SITES for site in sites) or any(origin.lower() not in same for origin in origins):
        raise HttpProblem(403, "forged-request", "this change was requested by a page of another site")


def local_path(path: str, default: str = "/") -> str:
    """Return `path` if every browser reads it as a path of this server, else `default`.

    >>> local_path("/individuals?tab=unnamed"), local_path("//evil.example"), local_path("/\\\\evil.example")
    ('/individuals?tab=unnamed', '/', '/')
    """
    return path if LOCAL_PATH.fullmatch(path) else default


def _ask_to_log_in(request: Request) -> Response:
    """Redirect to the login page, and from there back to the requested page. HttpProblem with 401 for programs."""
    if request.method not in ("GET", "HEAD") or not wants_page(request.scope):
        detail = "log in at /login, or send the token as Authorization: Bearer TOKEN"
        raise HttpProblem(401, "not-logged-in", detail)
    path = request.scope["raw_path"].partition(b"?")[0]
    query = request.scope.get("query_string", b"")
    next_path = local_path((path + (b"?" + query if query else b"")).decode("latin-1"))
    return _redirect("/login" if next_path == "/" else f"/login?next={quote(next_path, safe='')}")


def _redirect(path: str) -> Response:
    return RedirectResponse(path, HTTPStatus.SEE_OTHER)
