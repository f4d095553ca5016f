"""Forms that change the gallery: what each of them has, and the corrections that several pages offer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Depends, Form, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import Field

from familiar.core.errors import SharedPhoto
from familiar.core.gallery_types import CorrectionResult
from familiar.core.names import unify_spelling
from familiar.gallery import STATE_PATTERN, Gallery, IdentityState
from familiar.web.middleware.access import local_path
from familiar.web.middleware.error_responses import wants_page
from familiar.web.pages.assignment_forms import find_by_name, require_existing, require_name
from familiar.web.pages.flash import url_after_change
from familiar.web.pages.render import Page, page_of_form
from familiar.web.service import ServiceDep

StateText = Annotated[str, Field(pattern=STATE_PATTERN)]
MAX_STATES = 600  # of a page: more than it has tiles
MAX_PAIRS = 12  # of faces that the page shows


@dataclass(frozen=True)
class Edit:
    """A form.

    Attributes:
        state: what its page showed of the individuals, as text; none if a program without a page sent the form.
        back: the page to return to; empty: the one that is usual.
        same_photo: whether a photo may show one individual twice.
    """

    request: Request
    service: ServiceDep
    state: Annotated[list[StateText] | None, Form(max_length=MAX_STATES)] = None
    back: Annotated[str, Form()] = ""
    same_photo: Annotated[bool, Form()] = False

    @property
    def states(self) -> list[IdentityState]:
        """What the page showed of the individuals."""
        return [IdentityState.parse(text) for text in self.state or ()]

    async def write(self, write: Callable[[Gallery], str]) -> Response:
        """Write what the form says, and redirect; if a photo would show one individual twice, ask first.

        The page that asks sends the form again, with `same_photo`.

        Args:
            write: returns the URL of the next page.
        """
        try:
            return RedirectResponse(await self.service.executor.write(write), 303)
        except SharedPhoto as error:
            if self.same_photo or not wants_page(self.request.scope):
                raise
            return await self._ask(error)

    def correct(
        self,
        gallery: Gallery,
        faces: list[int],
        operation: Literal["name", "move", "split", "reject", "confirm"],
        name: str,
        path: str,
        identity: int | None = None,
    ) -> str:
        """Correct faces, unless they were deleted or assigned differently since the page was loaded.

        Args:
            gallery: to write to.
            faces: their numbers.
            operation: "name": as "move", but the new name of a face of an unnamed group names the group.
            name: of the individual that they show; if none has it, they become a new one.
            path: of the next page.
            identity: that they do not show, to "reject"; None: the one that each is in.

        Returns:
            `path` with a flash message.
        """
        require_existing(gallery, faces=faces)
        for state in self.states:
            gallery.check_identity_of_faces(faces, state)
        first = gallery.face(faces[0])
        if operation == "name":
            require_name(name)
            if first.identity is not None and first.name is None and find_by_name(gallery, name) is None:
                gallery.confirm(faces)  # so that the face keeps the name if its box is changed
                gallery.name(first.identity, name)  # last, so that it is undone first
                return url_after_change(gallery, path, "named", identity=first.identity)
        if operation == "confirm":
            gallery.confirm(faces)
            return url_after_change(gallery, path, "confirmed", count=len(faces))
        result = gallery.reject(faces, identity) if operation == "reject" else self._assign(gallery, faces, name)
        values = {"count": len(faces), "propagated": result.propagated_faces}
        if operation != "reject" and result.identity == first.identity:  # the name is that of this individual
            return url_after_change(gallery, path, "confirmed", **values)
        done = {"reject": "rejected", "split": "split"}.get(operation, "moved")
        return url_after_change(gallery, path, done, **values, identity=result.identity)

    def _assign(self, gallery: Gallery, faces: list[int], name: str) -> CorrectionResult:
        """Assign faces to the individual with this name, or to a new one; without a name, to a new unnamed one."""
        target, new_name = find_by_name(gallery, name), unify_spelling(name)
        if new_name:
            require_name(name)
        if any(gallery.face(face).identity is not None for face in faces):
            kind = "split" if target is None else "move"
        else:
            kind = "name" if new_name else "group"
        with gallery.decision(kind):
            if target is not None:
                return gallery.move(faces, target, same_photo=self.same_photo)
            return gallery.split(faces, name if new_name else None, same_photo=self.same_photo)

    async def _ask(self, error: SharedPhoto) -> Response:
        fields = [(key, value) for key, value in (await self.request.form()).multi_items() if isinstance(value, str)]
        path = self.request.url.path
        shown = {"path": path, "fields": fields, "count": len(error.faces), "name": error.name}
        shown |= {"pairs": error.faces[:MAX_PAIRS], "to": local_path(self.back, page_of_form(path))}
        response = await Page(self.request, self.service).render("shared_photo.html", **shown)
        response.headers["HX-Replace-Url"] = "false"  # nothing can be read at the address of a form
        return response


EditDep = Annotated[Edit, Depends()]
