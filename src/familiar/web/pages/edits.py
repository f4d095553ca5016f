"""Forms that change the gallery: what each of them has, and the question whether a photo shows one individual twice."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Form, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import Field

from familiar.core.errors import SharedPhoto
from familiar.gallery import STATE_PATTERN, Gallery, IdentityState
from familiar.web.middleware.access import local_path
from familiar.web.middleware.error_responses import wants_page
from familiar.web.pages.render import Page, page_of_form
from familiar.web.service import Service, ServiceDep

StateText = Annotated[str, Field(pattern=STATE_PATTERN)]
MAX_STATES = 600  # of a page: more than it has tiles
MAX_PAIRS = 12  # of faces that the page shows


@dataclass(frozen=True)
class Edit:
    """A form.

    Attributes:
        states: what its page showed of the individuals; empty if a program without a page sent the form.
        back: the page to return to; empty: the one that is usual.
        same_photo: whether a photo may show one individual twice.
    """

    request: Request
    service: Service
    states: list[IdentityState]
    back: str
    same_photo: bool

    async def write(self, write: Callable[[Gallery], str]) -> Response:
        """Write what the form says, and redirect; if a photo would show one individual twice, ask first.

        The page that asks sends the form again, with `same_photo`.

        Args:
            write: returns the URL of the next page.
        """
        try:
            return RedirectResponse(await self.service.executor.write_locked(write), 303)
        except SharedPhoto as error:
            if self.same_photo or not wants_page(self.request.scope):
                raise
            return await self._ask(error)

    async def _ask(self, error: SharedPhoto) -> Response:
        fields = [(key, value) for key, value in (await self.request.form()).multi_items() if isinstance(value, str)]
        path = self.request.url.path
        shown = {"path": path, "fields": fields, "count": len(error.faces), "name": error.name}
        shown |= {"pairs": error.faces[:MAX_PAIRS], "to": local_path(self.back, page_of_form(path))}
        response = await Page(self.request, self.service).render("shared_photo.html", **shown)
        response.headers["HX-Replace-Url"] = "false"  # nothing can be read at the address of a form
        return response


async def _edit_of_form(
    request: Request,
    service: ServiceDep,
    state: Annotated[list[StateText] | None, Form(max_length=MAX_STATES)] = None,
    back: Annotated[str, Form()] = "",
    same_photo: Annotated[bool, Form()] = False,
) -> Edit:
    return Edit(request, service, [IdentityState.parse(text) for text in state or ()], back, same_photo)


EditDep = Annotated[Edit, Depends(_edit_of_form)]
