"""The way back, from every page."""

from typing import Annotated

from fastapi import APIRouter, Form
from fastapi.responses import RedirectResponse

from familiar.gallery.editing.undo_log import undo as take_back
from familiar.web.middleware.login import local_path
from familiar.web.pages.assignment_forms import Number
from familiar.web.pages.flash import url_with_flash
from familiar.web.service import ServiceDep

router = APIRouter()


@router.post("/undo")
async def undo(
    service: ServiceDep, decision: Annotated[Number, Form()], back: Annotated[str, Form()] = "/"
) -> RedirectResponse:
    """Takes the decision back that the button named, and returns to the page it was asked on."""
    await service.executor.write(take_back, decision)
    return RedirectResponse(url_with_flash(local_path(back), "undone"), 303)
