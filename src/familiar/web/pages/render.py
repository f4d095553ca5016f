"""Jinja rendering: the context of the base template, and number formatting."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from familiar.core.errors import CorruptGallery, NotInGallery
from familiar.core.file_names import name_before_upload
from familiar.core.likelihood import likelihood
from familiar.core.plural import plural
from familiar.core.templating import template_environment
from familiar.evaluation.results.labels import format_percent
from familiar.gallery import Gallery
from familiar.web.errors import HttpProblem, kebab, problem_headers
from familiar.web.middleware.root_path import with_root_path
from familiar.web.pages.flash import current_url, display_name, read_flash
from familiar.web.service import Service, ServiceDep, get_service

TEMPLATES = Path(__file__).parents[1] / "templates"
NAV = (
    ("album", "Album", "/album"),
    ("individuals", "Individuals", "/individuals"),
    ("questions", "Questions", "/questions"),
    ("search", "Search", "/search"),
    ("compare", "Compare", "/compare"),
    ("model", "About", "/model"),
)
HAS_DESK = find_spec("familiar.integrations") is not None  # the pages of the core are complete without
DESK = ("desk", "Pets", "/desk")  # only where the register of lost pets is used
# Labels of the undo button, by the kind of the last decision.
UNDO_LABELS = {
    "name": "naming",
    "confirm": "confirming",
    "merge": "merging",
    "split": "splitting",
    "group": "\N{LEFT SINGLE QUOTATION MARK}same individual\N{RIGHT SINGLE QUOTATION MARK}",
    "move": "moving",
    "reject": "\N{LEFT SINGLE QUOTATION MARK}not this one\N{RIGHT SINGLE QUOTATION MARK}",
    "mark different": "\N{LEFT SINGLE QUOTATION MARK}not the same\N{RIGHT SINGLE QUOTATION MARK}",
    "cluster": "grouping",
    "batch": "the answer",
    "import": "importing",
    "add face": "adding a face",
    "move face": "moving a box",
    "delete face": "deleting a face",
    "report": "the entry",
    "reunite": "the reunion",
    "reconsider": "showing it again",
}
PERCENT = "\N{NO-BREAK SPACE}%"


@dataclass(frozen=True)
class Page:
    """A request for a page."""

    request: Request
    service: ServiceDep

    async def render(
        self, template: str, read: Callable[[Gallery], Mapping[str, Any]] = lambda _: {}, **context: Any
    ) -> HTMLResponse:
        """Render a template with the context of the base template, what `read` returns, and `context`.

        Args:
            read: called in one transaction with what the base template shows of the gallery. Its errors are raised.
        """

        def read_all(gallery: Gallery) -> dict[str, Any]:
            with gallery.read():
                return _read_frame(gallery, self.request) | dict(read(gallery))

        values = _frame_context(self.request, self.service) | await self.service.executor.read(read_all) | context
        # A page of 500 individuals takes long enough to delay other requests.
        return await run_in_threadpool(page_response, self.request, template, values)

    async def render_or_leave(
        self, template: str, read: Callable[[Gallery], Mapping[str, Any]], overview: str, **context: Any
    ) -> Response:
        """Like `render`; if the last change, or its undo, removed what the page is about, lead to an overview.

        Args:
            overview: path of the page that reports this change.
        """
        try:
            return await self.render(template, read, **context)
        except NotInGallery:
            if "done" not in self.request.query_params:
                raise
            return RedirectResponse(f"{overview}?{self.request.url.query}", HTTPStatus.SEE_OTHER)


PageDep = Annotated[Page, Depends()]


def page_response(
    request: Request,
    template: str,
    values: Mapping[str, Any],
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> HTMLResponse:
    """Render a template with all the values that it needs."""
    text = _ENVIRONMENT.get_template(template).render(values)
    return HTMLResponse(with_root_path(text, request.scope), status, headers)


def render_error_page(request: Request, error: HttpProblem) -> HTMLResponse:
    """Render an error for a browser. Does not read the gallery, which may be the cause of the error."""
    values = _frame_context(request, get_service(request)) | {
        "undo": None,
        "undo_is_foreign": False,
        "error": error,
        "reload": page_of_form(request.url.path) if error.status == HTTPStatus.CONFLICT else None,
    }
    return page_response(request, "error.html", values, error.status, problem_headers(error))


def page_of_form(path: str) -> str:
    """Return the page that has the form which is sent to a path.

    >>> page_of_form("/desk/12/report"), page_of_form("/individuals/merge")
    ('/desk/12', '/individuals')
    """
    parts = path.split("/")
    return "/".join(parts[:3] if len(parts) > 2 and parts[2].isdecimal() else parts[:2])


def without_hints(request: Request, error: HttpProblem) -> HttpProblem:
    """Return the error without the gallery's folder and command-line hints, which do not help a user of the pages.

    Only of a damaged gallery they stay: there is nothing else to do.
    """
    text = re.sub(r"^has ", "the album has ", str(error).removeprefix(f"{get_service(request).settings.gallery}: "))
    if error.kind != kebab(CorruptGallery.__name__):
        text = re.sub(r"[;:] `?familiar gallery .*", "", text)
    return HttpProblem(error.status, error.kind, text, error.retry_seconds)


def percent(share: float) -> str:
    """Format a share in whole per cents, in tenths where whole ones would read as never or always.

    >>> print(percent(0.934), percent(0.9994), percent(0.99996), percent(0.0004), percent(0.0), sep=", ")
    93 %, 99.9 %, over 99.9 %, under 0.1 %, 0 %
    """
    if 0 < share < 0.001:
        return f"under 0.1{PERCENT}"
    if 0.9995 <= share < 1:
        return f"over 99.9{PERCENT}"
    tenths = 0 < share < 0.01 or 0.99 < share < 1
    return f"{100 * share:.{1 if tenths else 0}f}{PERCENT}"


def format_number(count: object) -> str:
    """Format a number of a file, which may be any value.

    >>> format_number(4978), format_number(None)
    ('4,978', 'not known')
    """
    return f"{count:,}" if isinstance(count, int) else "not known"


def similarity(value: float) -> str:
    """Format a similarity with three decimals.

    >>> similarity(0.43219), similarity(-0.1)
    ('0.432', '−0.100')
    """
    return f"{value:.3f}".replace("-", "\N{MINUS SIGN}")


def undo_label(kind: str) -> str:
    """Return the label of the undo button for a kind of decision.

    >>> undo_label("merge"), undo_label("a kind of a newer version")
    ('merging', 'a kind of a newer version')
    """
    return UNDO_LABELS.get(kind, kind)


def _frame_context(request: Request, service: Service) -> dict[str, Any]:
    path = request.url.path
    current = next((key for key, _, start in (DESK, *NAV) if f"{path}/".startswith(f"{start}/")), "")
    if path == "/" or path.startswith("/photos/"):
        current = "album"
    return {
        "nav": (DESK, *NAV) if current == "desk" or service.settings.desk else NAV,
        "current_section": current,
        "back": path + (f"?{request.url.query}" if request.url.query else ""),
        "read_only": service.settings.read_only,
        "shows_contact": service.settings.knows_visitors,
        "can_log_out": service.settings.requires_token,
        "has_model": service.inference.has_model,
    }


def _read_frame(gallery: Gallery, request: Request) -> dict[str, Any]:
    """Return what every page shows of the gallery: the last decision, counts, and the flash message of the URL.

    Also the navigation, if it has the pets since there are reports.
    """
    last = next(iter(gallery.decisions(1)), None)
    reported = request.query_params.get("decision")  # by this page, if it reports one
    return {
        "undo": last,
        "undo_is_foreign": last is not None and reported not in (None, str(last.number)),
        "counts": gallery.counts(),
        "flash": read_flash(gallery, request.query_params),
        "current_url": current_url(request),
    } | ({"nav": (DESK, *NAV)} if _uses_desk(gallery) else {})


def _uses_desk(gallery: Gallery) -> bool:
    if not HAS_DESK:
        return False
    from familiar.integrations.lost_pets.reports import has_reports

    return has_reports(gallery)


_ENVIRONMENT = template_environment(TEMPLATES)
_ENVIRONMENT.filters |= {
    "percent": percent,
    "fine_percent": format_percent,
    "similarity": similarity,
    "likelihood": likelihood,
    "name_before_upload": name_before_upload,
    "plural": plural,
    "undo_label": undo_label,
}
_ENVIRONMENT.globals |= {"display_name": display_name, "format_number": format_number}
