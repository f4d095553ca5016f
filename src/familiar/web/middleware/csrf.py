"""Writes that another site's page made the browser send are refused."""

import hmac
from http import HTTPStatus

from starlette.datastructures import Headers

from familiar.web.errors import HttpProblem

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
TRUSTED_SITES = frozenset({"same-origin", "none"})  # of Sec-Fetch-Site; none: the person typed it


def require_same_origin(headers: Headers, *, null: bool = False) -> None:
    """Refused with 403 where the browser says that a page of another origin asks. Programs say nothing of it.

    A plain form of our own pages has the Origin "null", since they send no referrer: that is believed where
    Sec-Fetch-Site tells more, which browsers send to this machine and over TLS, or where `null` says so. The scheme is
    not compared: behind a proxy that does TLS we would not know it.
    """
    sites = headers.getlist("sec-fetch-site")
    ours = all(site in TRUSTED_SITES for site in sites)
    for origin in headers.getlist("origin"):
        scheme, _, rest = origin.lower().partition("://")
        same = scheme in ("http", "https") and rest == headers.get("host", "").lower()
        ours = ours and (same or (origin == "null" and (null or bool(sites))))
    if not ours:
        raise _forged_request("another site asked for this change")


def require_token(headers: Headers, right: str | None) -> None:
    """Refused with 403 where X-CSRF-Token is not `right`, that of the request's session; None: it has no session."""
    said = headers.get("x-csrf-token", "").encode("latin-1")
    if right is None or not hmac.compare_digest(said, right.encode()):
        raise _forged_request("this page is out of date; reload it and try again")


def _forged_request(detail: str) -> HttpProblem:
    return HttpProblem(HTTPStatus.FORBIDDEN, "forged-request", detail)
