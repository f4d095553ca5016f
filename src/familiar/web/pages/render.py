"""Pages from templates: what every page shows around its own content, and how numbers are written."""

import re
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from familiar.core.terminal_text import printable
from familiar.gallery.database.connection import Gallery
from familiar.gallery.editing.undo_log import Decision, decisions
from familiar.gallery.search.listing import counts
from familiar.web.errors import HttpProblem, problem_headers
from familiar.web.middleware import csrf_token
from familiar.web.service import Service, get_service
from familiar.web.uploads import photo_name

TEMPLATES = Path(__file__).parents[1] / "templates"
NAV = (
    ("album", "Album", "/album"),
    ("individuals", "Individuals", "/individuals"),
    ("questions", "Questions", "/questions"),
    ("search", "Search", "/search"),
    ("compare", "Compare", "/compare"),
    ("model", "Model", "/model"),
)
# Kinds of decision, as they are called on the button that takes them back.
UNDO_LABELS = {
    "name": "naming",
    "confirm": "confirming",
    "merge": "merging",
    "split": "splitting",
    "move": "moving",
    "reject": "\N{LEFT SINGLE QUOTATION MARK}not this one\N{RIGHT SINGLE QUOTATION MARK}",
    "tell apart": "\N{LEFT SINGLE QUOTATION MARK}not the same\N{RIGHT SINGLE QUOTATION MARK}",
    "group": "grouping",
    "import": "importing",
    "add face": "adding a face",
    "move face": "moving a box",
    "delete face": "deleting a face",
}
PERCENT = "\N{NO-BREAK SPACE}%"
# Probabilities from which a person would say so, likeliest first.
LIKELIHOODS = (
    (0.99, "almost certainly"),
    (0.9, "very likely"),
    (0.7, "probably"),
    (0.5, "perhaps"),
    (0.1, "probably not"),
    (0.0, "hardly"),
)


async def render_page(
    request: Request, service: Service, template: str, status: HTTPStatus = HTTPStatus.OK, **context: Any
) -> HTMLResponse:
    """A template in its frame. It finds there what `_frame` gives, `counts` of the gallery, and `context`."""
    undo, counted = await service.executor.read(_read_undo_and_counts)
    known = _frame_context(request, service) | {"undo": undo, "counts": counted, **context}
    # A page of 500 individuals takes so long that others would wait for it.
    text = await run_in_threadpool(_ENVIRONMENT.get_template(template).render, known)
    return HTMLResponse(text, status)


def render_error_page(request: Request, error: HttpProblem) -> HTMLResponse:
    """What went wrong, to a browser that asked for a page. Asks nothing of the gallery: that may be what is wrong."""
    known = {"undo": None, "error": error, "status": error.status}
    text = _ENVIRONMENT.get_template("error.html").render(_frame_context(request, get_service(request)) | known)
    return HTMLResponse(text, error.status, {**problem_headers(error)})


def without_hints(request: Request, error: HttpProblem) -> HttpProblem:
    """As somebody is told who sees pages: without the gallery's folder, and what to do at a command line."""
    text = str(error).removeprefix(f"{get_service(request).settings.gallery}: ")
    text = re.sub(r"[;:] familiar gallery .*", "", re.sub(r"^(has|knows) ", r"the album \1 ", text))
    return HttpProblem(error.status, error.kind, text, error.retry_seconds)


def render_bare_page(request: Request, template: str, **context: Any) -> HTMLResponse:
    """A page for somebody who may not see the gallery yet."""
    return HTMLResponse(_ENVIRONMENT.get_template(template).render(csrf=csrf_token(request), **context))


def percent(share: float) -> str:
    """Whole per cents, and tenths where whole ones would say never or always.

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
    """Of what was measured on many.

    >>> print(fine_percent(0.96207))
    96.21 %
    """
    return f"{100 * share:.2f}{PERCENT}"


def format_number(count: object) -> str:
    """Of what a file says, which may be anything.

    >>> number(4978), number(None)
    ('4,978', 'not known')
    """
    return f"{count:,}" if isinstance(count, int) else "not known"


def similarity(value: float) -> str:
    """
    >>> similarity(0.43219), similarity(-0.1)
    ('0.432', '−0.100')
    """
    return f"{value:.3f}".replace("-", "\N{MINUS SIGN}")


def likelihood(probability: float) -> str:
    """
    >>> likelihood(0.95), likelihood(0.5), likelihood(0.02)
    ('very likely', 'perhaps', 'hardly')
    """
    return next(word for least, word in LIKELIHOODS if probability >= least)


def pluralize(count: int, one: str, many: str | None = None) -> str:
    """
    >>> counted(1, "photo"), counted(1200, "photo"), counted(2, "child", "children")
    ('1 photo', '1,200 photos', '2 children')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def display_name(identity: int, name: str | None) -> str:
    """How an individual is called on a page: by its name, else by its number."""
    return printable(name) if name else f"#{identity}"


def undo_label(kind: str) -> str:
    """
    >>> undoing("merge"), undoing("of a newer version")
    ('merging', 'of a newer version')
    """
    return UNDO_LABELS.get(kind, kind)


def day(taken_at: str | None) -> str:
    """
    >>> day("2024-06-01T12:00:00"), day("2024-06"), day(None)
    ('2024-06-01', '2024-06', '')
    """
    return (taken_at or "")[:10]


def _frame_context(request: Request, service: Service) -> dict[str, Any]:
    path = request.url.path
    where = next((key for key, _, start in NAV if path == start or path.startswith(start + "/")), "")
    if path == "/" or path.startswith("/photos/"):
        where = "album"
    return {
        "nav": NAV,
        "where": where,
        "back": path + (f"?{request.url.query}" if request.url.query else ""),
        "csrf": csrf_token(request),
        "read_only": service.settings.read_only,
        "can_log_out": service.settings.token is not None,
        "has_model": service.inference.has_model,
    }


def _read_undo_and_counts(gallery: Gallery) -> tuple[Decision | None, Any]:
    with gallery.reading():
        return next(iter(decisions(gallery, 1)), None), counts(gallery)


def _make_environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "percent": percent,
        "fine_percent": fine_percent,
        "similarity": similarity,
        "likelihood": likelihood,
        "counted": pluralize,
        "day": day,
        "photo_name": photo_name,
        "undoing": undo_label,
        "printable": printable,
    }
    made.globals |= {"called": display_name, "number": format_number}
    return made


_ENVIRONMENT = _make_environment()
