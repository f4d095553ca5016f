"""Login: by the token, or by the session cookie that it was exchanged for."""

import hmac
import logging
import re
from hashlib import sha256
from http import HTTPStatus
from urllib.parse import parse_qs, quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from familiar.web.access_token import AccessToken
from familiar.web.errors import HttpProblem
from familiar.web.middleware.rate import TokenBuckets, client_key
from familiar.web.middleware.session import Sessions

FORM = "application/x-www-form-urlencoded"
FORM_BYTES = 8_192
LOCAL_PATH = re.compile(r"/(?!/)[!-\[\]-~]{0,2047}")  # printable ASCII without spaces and backslashes
log = logging.getLogger("familiar.serve")
OPEN_PATHS = frozenset({"/login", "/healthz", "/ping"})  # /ping: Immich's health check
TOO_MANY_WRONG = "too many wrong tokens; wait a moment"


class Login:
    """Checks the token and answers POST /login and /logout. Without a token no login is needed."""

    def __init__(self, token: AccessToken, sessions: Sessions, wrong: TokenBuckets) -> None:
        self._token, self._sessions, self._wrong = token, sessions, wrong

    def has_bearer_token(self, request: Request) -> bool:
        """Tell whether the Authorization header contains the token.

        Raises:
            HttpProblem: 401, it contains a wrong one; 429, too many wrong ones came from there; 503, the server's token
                cannot be read.
        """
        values = request.headers.getlist("authorization")
        if not self._token.is_required or not any(value.lower().startswith("bearer ") for value in values):
            return False
        if len(values) != 1 or not self._is_right_token(request, values[0][len("bearer ") :].strip()):
            raise HttpProblem(HTTPStatus.UNAUTHORIZED, "wrong-token", "that is not the token of this server")
        return True

    def is_open(self, request: Request) -> bool:
        """Tell whether a request needs no login: the login page, its static files, and the health check."""
        if not self._token.is_required:
            return True
        path = request.scope["path"]  # as the app's router reads it
        return request.method in ("GET", "HEAD") and (path in OPEN_PATHS or path.startswith("/static/"))

    async def log_in(self, request: Request) -> Response:
        """Answer the login form, with a new session if the token is right. HttpProblem: 413, 415, 429, 503."""
        form = await _read_form(request)
        onward = local_path(form.get("next", "/"))
        if not self._token.is_required:
            return _redirect(onward)
        if not self._is_right_token(request, form.get("token", "")):
            return _redirect("/login?wrong=1" + ("" if onward == "/" else f"&next={quote(onward, safe='')}"))
        await self._end_session(request)  # the browser's old one
        log.info("logged in from %s", client_key(request.scope))
        return _redirect(onward, self._sessions.cookie(self._sessions.begin(), secure=is_secure(request.scope)))

    async def log_out(self, request: Request) -> Response:
        """End the request's session."""
        await self._end_session(request)
        response = _redirect(
            "/login" if self._token.is_required else "/",
            self._sessions.clearing_cookie(secure=is_secure(request.scope)),
        )
        response.headers["Clear-Site-Data"] = '"cache", "storage"'  # photos that the browser stored
        return response

    async def _end_session(self, request: Request) -> None:
        session = self._sessions.read(request.headers, secure=is_secure(request.scope))
        if session is not None:
            await run_in_threadpool(self._sessions.end, session)

    def _is_right_token(self, request: Request, token: str) -> bool:
        """Compare a token in constant time.

        The right token is accepted even after too many wrong ones: otherwise a client that shares an address with
        others, behind a proxy or on this machine, could lock them out. Its length is what keeps it from being guessed.

        Raises:
            HttpProblem: 429, it is wrong, and too many from the same address were wrong before; 503, the server's
                cannot be read.
        """
        digests = (sha256(each.encode(errors="replace")).digest() for each in (token, self._token.read()))
        if hmac.compare_digest(*digests):
            return True
        client = client_key(request.scope)
        self._wrong.require(client, TOO_MANY_WRONG)
        self._wrong.take(client)
        log.warning("wrong token from %s", client)
        return False


def is_secure(scope: Scope) -> bool:
    """Tell whether a request came over HTTPS."""
    return scope["scheme"] == "https"


def redirect_to_login(request: Request) -> Response:
    """Redirect to the login page, and from there back to the requested page."""
    path = request.scope["raw_path"].partition(b"?")[0]
    query = request.scope.get("query_string", b"")
    onward = local_path((path + (b"?" + query if query else b"")).decode("latin-1"))
    return _redirect("/login" if onward == "/" else f"/login?next={quote(onward, safe='')}")


def local_path(path: str, default: str = "/") -> str:
    """Return `path` if every browser reads it as a path of this server, else `default`.

    >>> local_path("/individuals?tab=unnamed"), local_path("//evil.example"), local_path("/\\\\evil.example")
    ('/individuals?tab=unnamed', '/', '/')
    """
    return path if LOCAL_PATH.fullmatch(path) else default


async def _read_form(request: Request) -> dict[str, str]:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise HttpProblem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "not-a-form", f"the login form is sent as {FORM}")
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > FORM_BYTES:
            raise HttpProblem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", "that is too large for a login form")
    try:
        fields = parse_qs(body.decode("latin-1"), keep_blank_values=True, max_num_fields=10)
    except ValueError:
        raise HttpProblem(HTTPStatus.BAD_REQUEST, "not-a-form", "not a valid login form") from None
    return {name: values[0] for name, values in fields.items()}


def _redirect(location: str, cookie: str | None = None) -> Response:
    response = Response(status_code=HTTPStatus.SEE_OTHER, headers={"Location": location})
    if cookie is not None:
        response.headers["Set-Cookie"] = cookie
    return response
