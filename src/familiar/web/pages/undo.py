"""The undo button of every page."""

from typing import Annotated

from fastapi import APIRouter, Form
from fastapi.responses import RedirectResponse

from familiar.gallery import Gallery
from familiar.web.middleware.login import local_path
from familiar.web.pages.assignment_forms import Number
from familiar.web.pages.flash import url_with_flash
from familiar.web.service import ServiceDep

router = APIRouter()


@router.post("/undo")
async def undo(
    service: ServiceDep, decision: Annotated[Number, Form()], back: Annotated[str, Form()] = "/"
) -> RedirectResponse:
    """Undo the decision that the button named, and return to its page."""
    await service.executor.write(Gallery.undo, decision)
    return RedirectResponse(url_with_flash(local_path(back), "undone"), 303)
