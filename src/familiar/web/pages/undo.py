"""The way back, from every page."""

from typing import Annotated

from fastapi import APIRouter, Form
from fastapi.responses import RedirectResponse

from familiar.gallery.editing.undo_log import undo as take_back
from familiar.web.middleware.login import local_path
from familiar.web.pages.assignment_forms import Number
from familiar.web.pages.flash import told
from familiar.web.service import Served

router = APIRouter()


@router.post("/undo")
async def undo(
    service: Served, decision: Annotated[Number, Form()], back: Annotated[str, Form()] = "/"
) -> RedirectResponse:
    """Takes the decision back that the button named, and returns to the page it was asked on."""
    await service.threads.write(take_back, decision)
    return RedirectResponse(told(local_path(back), "undone"), 303)
