"""A refusal as a response: problem details, or a few words of HTML for a person who opened a page."""

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
    """Whether a browser asks for a page: to open it, or, by htmx, to put its body in the place of this one's."""
    asked = Headers(scope=scope)
    if scope["path"].startswith("/api/"):
        return False
    if "hx-request" in asked:
        return "hx-boosted" in asked
    return "text/html" in asked.get("accept", "")


def opens_page(scope: Scope) -> bool:
    """Whether a refusal is shown as a page. htmx is given problem details, whose `detail` our script shows."""
    return wants_page(scope) and "hx-request" not in Headers(scope=scope)


def error_response(error: HttpProblem, scope: Scope) -> Response:
    """Before the app, whose own error page is larger, was asked."""
    extra = dict(problem_headers(error))
    if error.status is HTTPStatus.UNAUTHORIZED:
        extra["WWW-Authenticate"] = "Bearer"
    if opens_page(scope):
        page = PAGE.format(title=error.status.phrase, detail=escape(str(error)))
        return HTMLResponse(page, error.status, extra)
    return JSONResponse(problem_details(error), error.status, extra, media_type=MEDIA_TYPE)
