"""CSRF protection: refuse writes that a page of another site made the browser send."""

import hmac
from http import HTTPStatus

from starlette.datastructures import Headers

from familiar.web.errors import HttpProblem

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
TRUSTED_SITES = frozenset({"same-origin", "none"})  # values of Sec-Fetch-Site; none: the user typed the address


def require_same_origin(headers: Headers, *, null: bool = False) -> None:
    """Refuse a request that a page of another origin sent, as the browser reports; programs send no such headers.

    A plain form on a page of this server has the Origin "null", since the pages send no referrer. It is accepted if
    Sec-Fetch-Site is there too, which browsers send to this machine and over TLS, or if `null` is True. The scheme is
    not compared: behind a proxy that terminates TLS it is not known.

    Raises:
        HttpProblem: 403.
    """
    sites = headers.getlist("sec-fetch-site")
    trusted = all(site in TRUSTED_SITES for site in sites)
    for origin in headers.getlist("origin"):
        scheme, _, rest = origin.lower().partition("://")
        same = scheme in ("http", "https") and rest == headers.get("host", "").lower()
        trusted = trusted and (same or (origin == "null" and (null or bool(sites))))
    if not trusted:
        raise _forged_request("this change was requested by a page of another site")


def require_token(headers: Headers, expected: str | None, query: str = "") -> None:
    """Check X-CSRF-Token against that of the request's session; None: it has no session.

    A form that is sent without JavaScript has no such header, and the token in its address: `query`. The answer is a
    redirect, pages send no referrer, and the log has no queries, so it stays between the browser and this server.

    Raises:
        HttpProblem: 403, the token is missing or wrong.
    """
    token = (headers.get("x-csrf-token") or query).encode("latin-1", "replace")
    if expected is None or not hmac.compare_digest(token, expected.encode()):
        raise _forged_request("this page is out of date; reload it and try again")


def _forged_request(detail: str) -> HttpProblem:
    return HttpProblem(HTTPStatus.FORBIDDEN, "forged-request", detail)
