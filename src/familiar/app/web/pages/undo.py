"""The way back, from every page."""

from typing import Annotated

from fastapi import APIRouter, Form
from fastapi.responses import RedirectResponse

from familiar.app.web.guard.login import local_path
from familiar.app.web.pages.said import told
from familiar.app.web.pages.whose import Number
from familiar.app.web.service import Served
from familiar.gallery.decisions import undo as take_back

router = APIRouter()


@router.post("/undo")
async def undo(
    service: Served, decision: Annotated[Number, Form()], back: Annotated[str, Form()] = "/"
) -> RedirectResponse:
    """Takes the decision back that the button named, and returns to the page it was asked on."""
    await service.threads.write(take_back, decision)
    return RedirectResponse(told(local_path(back), "undone"), 303)
