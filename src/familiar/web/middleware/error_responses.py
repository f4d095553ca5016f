"""Error responses of the middleware: problem details, or a short HTML page in a browser."""

from html import escape
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import Scope

from familiar.web.errors import MEDIA_TYPE, HttpProblem, problem_details, problem_headers

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title} - familiar</title>
<h1>{title}</h1>
<p>{detail}</p>
<p><a href="/">To the album</a></p>
</html>
"""


def wants_page(scope: Scope) -> bool:
    """Tell whether a browser requests a page: to open it, or through htmx, to swap the body."""
    request_headers = Headers(scope=scope)
    if scope["path"].startswith("/api/"):
        return False
    if "hx-request" in request_headers:
        return "hx-boosted" in request_headers
    return "text/html" in request_headers.get("accept", "")


def opens_page(scope: Scope) -> bool:
    """Tell whether an error is shown as a page. htmx gets problem details, whose `detail` app.js shows."""
    return wants_page(scope) and "hx-request" not in Headers(scope=scope)


def error_response(error: HttpProblem, scope: Scope) -> Response:
    """Make the response to a request that did not reach the app, whose own error page is larger."""
    extra = dict(problem_headers(error))
    if error.status is HTTPStatus.UNAUTHORIZED:
        extra["WWW-Authenticate"] = "Bearer"
    if opens_page(scope):
        page = PAGE.format(title=error.status.phrase, detail=escape(str(error)))
        return HTMLResponse(page, error.status, extra)
    return JSONResponse(problem_details(error), error.status, extra, media_type=MEDIA_TYPE)
