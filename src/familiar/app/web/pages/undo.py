"""The way back, from every page."""

from typing import Annotated

from fastapi import APIRouter, Form
from fastapi.responses import RedirectResponse

from familiar.app.web.pages.render import local_path
from familiar.app.web.pages.said import told
from familiar.app.web.service import Served
from familiar.gallery.decisions import undo as take_back

router = APIRouter()


@router.post("/undo")
async def undo(service: Served, back: Annotated[str, Form()] = "/") -> RedirectResponse:
    """Takes the last decision back, and returns to the page it was asked on."""
    await service.threads.write(take_back)
    return RedirectResponse(told(local_path(back), "undone"), 303)
