"""HTML pages, rendered on the server. A form that changes something is answered with a redirect to a page."""

from fastapi import APIRouter

from familiar.web.pages import (
    album,
    compare,
    downloads,
    individual,
    individuals,
    login,
    model,
    photo,
    questions,
    search,
    undo,
)
from familiar.web.pages.render import render_error_page, without_hints

__all__ = ["render_error_page", "router", "without_hints"]

router = APIRouter()
for part in (album, individuals, individual, photo, questions, search, compare, model, downloads, undo, login):
    router.include_router(part.router)
