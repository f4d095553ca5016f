"""Error responses of the middleware: problem details, or a short HTML page in a browser."""

from http import HTTPStatus
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import Scope

from familiar.core.templating import render_template
from familiar.web.errors import MEDIA_TYPE, HttpProblem, problem_details, problem_headers
from familiar.web.middleware.root_path import with_root_path

TEMPLATES = Path(__file__).parents[1] / "templates"


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
        page = render_template(TEMPLATES, "error_outside.html", title=error.status.phrase, detail=str(error))
        return HTMLResponse(with_root_path(page, scope), error.status, extra)
    return JSONResponse(problem_details(error), error.status, extra, media_type=MEDIA_TYPE)
