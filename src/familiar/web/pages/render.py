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
from fastapi.responses import HTMLResponse
from jinja2 import Environment

from familiar.core.errors import CorruptGallery
from familiar.core.likelihood import likelihood
from familiar.core.plural import plural
from familiar.core.templating import template_environment
from familiar.gallery import Gallery
from familiar.web.errors import HttpProblem, kebab, problem_headers
from familiar.web.middleware.root_path import with_root_path
from familiar.web.pages.flash import current_url, display_name, read_flash
from familiar.web.service import Service, ServiceDep, get_service
from familiar.web.uploads import photo_name

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
    service: Service

    async def render(
        self, template: str, read: Callable[[Gallery], Mapping[str, Any]] = lambda _: {}, **context: Any
    ) -> HTMLResponse:
        """Render a template with the context of the base template, what `read` returns, and `context`.

        Args:
            read: called in one transaction with what the base template shows of the gallery. Its errors are raised.
        """

        def read_all(gallery: Gallery) -> tuple[bool, dict[str, Any]]:
            with gallery.read():
                return _uses_desk(gallery), _read_frame(gallery, self.request) | dict(read(gallery))

        uses_desk, values = await self.service.executor.read(read_all)
        values = _frame_context(self.request, self.service, uses_desk=uses_desk) | values | context
        # A page of 500 individuals takes long enough to delay other requests.
        text = await run_in_threadpool(_ENVIRONMENT.get_template(template).render, values)
        return HTMLResponse(with_root_path(text, self.request.scope))


async def _page_of_request(request: Request, service: ServiceDep) -> Page:
    return Page(request, service)


PageDep = Annotated[Page, Depends(_page_of_request)]


def render_error_page(request: Request, error: HttpProblem) -> HTMLResponse:
    """Render an error for a browser. Does not read the gallery, which may be the cause of the error."""
    context_values = {
        "undo": None,
        "undo_is_foreign": False,
        "error": error,
        "status": error.status,
        "reload": page_of_form(request.url.path) if error.status == HTTPStatus.CONFLICT else None,
    }
    text = _ENVIRONMENT.get_template("error.html").render(
        _frame_context(request, get_service(request)) | context_values
    )
    return HTMLResponse(with_root_path(text, request.scope), error.status, {**problem_headers(error)})


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


def render_bare_page(request: Request, template: str, **context: Any) -> HTMLResponse:
    """Render a page for a client that is not logged in."""
    text = _ENVIRONMENT.get_template(template).render(current_section="", **context)
    return HTMLResponse(with_root_path(text, request.scope))


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


def fine_percent(share: float) -> str:
    """Format a share that was measured on many samples, with two decimals.

    >>> print(fine_percent(0.96207))
    96.21 %
    """
    return f"{100 * share:.2f}{PERCENT}"


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


def day(taken_at: str | None) -> str:
    """Shorten an ISO 8601 time to its day.

    >>> day("2024-06-01T12:00:00"), day("2024-06"), day(None)
    ('2024-06-01', '2024-06', '')
    """
    return (taken_at or "")[:10]


def _frame_context(request: Request, service: Service, *, uses_desk: bool = False) -> dict[str, Any]:
    path = request.url.path
    is_desk = path == DESK[2] or path.startswith(DESK[2] + "/")
    nav = (DESK, *NAV) if uses_desk or is_desk or service.settings.desk else NAV
    current = next((key for key, _, start in nav if path == start or path.startswith(start + "/")), "")
    if path == "/" or path.startswith("/photos/"):
        current = "album"
    return {
        "nav": nav,
        "current_section": current,
        "back": path + (f"?{request.url.query}" if request.url.query else ""),
        "read_only": service.settings.read_only,
        "can_log_out": service.settings.requires_token,
        "has_model": service.inference.has_model,
    }


def _read_frame(gallery: Gallery, request: Request) -> dict[str, Any]:
    """Return what every page shows of the gallery: the last decision, counts, and the flash message of the URL."""
    last = next(iter(gallery.decisions(1)), None)
    reported = request.query_params.get("decision")  # by this page, if it reports one
    return {
        "undo": last,
        "undo_is_foreign": last is not None and reported not in (None, str(last.number)),
        "counts": gallery.counts(),
        "flash": read_flash(gallery, request.query_params),
        "current_url": current_url(request),
    }


def _uses_desk(gallery: Gallery) -> bool:
    if not HAS_DESK:
        return False
    from familiar.integrations.lost_pets.reports import has_reports

    return has_reports(gallery)


def _make_environment() -> Environment:
    environment = template_environment(TEMPLATES)
    environment.filters |= {
        "percent": percent,
        "fine_percent": fine_percent,
        "similarity": similarity,
        "likelihood": likelihood,
        "day": day,
        "photo_name": photo_name,
        "plural": plural,
        "undo_label": undo_label,
    }
    environment.globals |= {"display_name": display_name, "format_number": format_number}
    return environment


_ENVIRONMENT = _make_environment()
