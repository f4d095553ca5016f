"""Ask whether a photo does show one individual twice, before a correction by which it would."""

from collections.abc import Callable
from typing import Annotated

from fastapi import Form, Request
from fastapi.responses import RedirectResponse, Response

from familiar.core.errors import SharedPhoto
from familiar.gallery import Gallery
from familiar.web.middleware.access import local_path
from familiar.web.middleware.error_responses import wants_page
from familiar.web.pages.render import page_of_form, render_page
from familiar.web.service import Service, ServiceDep

SamePhoto = Annotated[bool, Form()]
MAX_PAIRS = 12  # of faces that the page shows


async def write_or_ask(request: Request, service: ServiceDep, write: Callable[[Gallery], str]) -> Response:
    """Write what a form says, and redirect; if a photo would show one individual twice, ask first.

    The page that asks sends the form again, with `same_photo`.

    Args:
        request: of the form.
        service: with the gallery.
        write: returns the URL of the next page.
    """
    try:
        return RedirectResponse(await service.executor.write_locked(write), 303)
    except SharedPhoto as error:
        if not wants_page(request.scope):
            raise
        return await _ask(request, service, error)


async def _ask(request: Request, service: Service, error: SharedPhoto) -> Response:
    fields = [(key, value) for key, value in (await request.form()).multi_items() if isinstance(value, str)]
    path = request.url.path
    response = await render_page(
        request,
        service,
        "shared_photo.html",
        path=path,
        fields=fields,
        pairs=error.faces[:MAX_PAIRS],
        count=len(error.faces),
        name=error.name,
        to=local_path(dict(fields).get("back", ""), page_of_form(path)),
    )
    response.headers["HX-Replace-Url"] = "false"  # nothing can be read at the address of a form
    return response
