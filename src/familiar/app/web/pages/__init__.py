"""The pages that a person opens, made on the server. What changes something answers with a redirect to a page."""

from fastapi import APIRouter

from familiar.app.web.pages import (
    album,
    compare,
    door,
    individual,
    individuals,
    model,
    photo,
    questions,
    search,
    undo,
)
from familiar.app.web.pages.render import error_page, without_hints

__all__ = ["error_page", "router", "without_hints"]

router = APIRouter()
for part in (album, individuals, individual, photo, questions, search, compare, model, undo, door):
    router.include_router(part.router)
