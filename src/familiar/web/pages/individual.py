"""One individual: its faces, the likeliest first, and what a user says of them."""

from typing import Annotated, Literal

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import RedirectResponse, Response

from familiar.core.errors import Contradiction, NotInGallery
from familiar.gallery.clustering.assignments import load_assignments
from familiar.gallery.database.connection import Gallery
from familiar.gallery.editing import corrections
from familiar.gallery.search.listing import FaceConfidence, face_confidences
from familiar.web.middleware.login import local_path
from familiar.web.pages.assignment_forms import Name, Number, assign_faces, require_existing
from familiar.web.pages.flash import FlashMessage, current_url, read_flash, url_with_flash
from familiar.web.pages.render import render_page
from familiar.web.service import ServiceDep

FACES = 300  # on a page
DOUBTFUL = 0.5  # less probable than this, and nobody said so: rather somebody else

router = APIRouter()
Back = Annotated[str | None, Form()]


@router.get("/individuals/{identity:int}")
async def individual(
    request: Request,
    service: ServiceDep,
    identity: Number,
    order: Literal["likely", "doubtful"] = "likely",
    start: Annotated[int, Query(ge=0, lt=2**63)] = 0,
) -> Response:
    """A page of its faces, `order` by likelihood or the other way round."""

    def read(gallery: Gallery) -> tuple[str | None, list[FaceConfidence], FlashMessage | None]:
        with gallery.reading():
            known = face_confidences(gallery, identity)
            return load_assignments(gallery).names.get(identity), known, read_flash(gallery, request.query_params)

    try:
        called, known, told_of = await service.executor.read(read)
    except NotInGallery:
        if "done" not in request.query_params:
            raise
        # What was done here, or taken back, left nobody of this number.
        return RedirectResponse(f"/individuals?{request.url.query}", 303)
    if order == "doubtful":
        known.reverse()
        known.sort(key=lambda one: one.face.by_user)  # nobody doubts what was confirmed
    stop = start + FACES
    return await render_page(
        request,
        service,
        "individual.html",
        identity=identity,
        name=called,
        faces=known[start:stop],
        total=len(known),
        confirmed=sum(one.face.by_user for one in known),
        doubtful=sum(is_doubtful(one) for one in known),
        is_doubtful=is_doubtful,
        order=order,
        start=start,
        more=f"?order={order}&start={stop}" if len(known) > stop else None,
        said=told_of,
        here=current_url(request),
    )


@router.post("/individuals/{identity:int}/faces")
async def correct(
    service: ServiceDep,
    identity: Number,
    face: Annotated[list[Number], Form(max_length=FACES)],
    do: Annotated[Literal["move", "split", "reject", "confirm"], Form()],
    called: Annotated[Name, Form()] = "",
    back: Back = None,
) -> RedirectResponse:
    """What a user says of the selected faces of an individual."""
    if do == "move" and not called.strip():
        raise Contradiction("give the name of whom these faces show; to make them somebody new, split them off")
    faces = list(dict.fromkeys(face))
    path = local_path(back or "", f"/individuals/{identity}")

    def write(gallery: Gallery) -> str:
        require_existing(gallery, faces=faces)
        if do == "confirm":
            corrections.confirm(gallery, faces)
            return url_with_flash(path, "confirmed", count=len(faces))
        if do == "reject":
            carried = corrections.reject(gallery, faces, identity).propagated_faces
            return url_with_flash(path, "rejected", count=len(faces), propagated=carried)
        corrected = assign_faces(gallery, faces, called)
        if corrected.identity == identity:  # where they were already
            return url_with_flash(path, "confirmed", count=len(faces), propagated=corrected.propagated_faces)
        done = "moved" if do == "move" else "split"
        return url_with_flash(path, done, count=len(faces), propagated=corrected.propagated_faces, identity=corrected.identity)

    return RedirectResponse(await service.executor.write_locked(write), 303)


@router.post("/individuals/{identity:int}/confirm")
async def confirm(
    service: ServiceDep, identity: Number, faces: Annotated[int, Form(ge=1)], back: Back = None
) -> RedirectResponse:
    """Every one of its so many `faces` is rightly there. Contradiction where there are others by now."""

    def confirm_all(gallery: Gallery) -> int:
        every = face_confidences(gallery, identity)
        if len(every) != faces:
            raise Contradiction(f"there are {len(every)} faces by now, not {faces}; look at them first")
        faces_left = [one.face.face for one in every if not one.face.by_user]
        corrections.confirm(gallery, faces_left)
        return len(faces_left)

    count = await service.executor.write_locked(confirm_all)
    path = local_path(back or "", f"/individuals/{identity}")
    return RedirectResponse(url_with_flash(path, "confirmed", count=count), 303)


def is_doubtful(one: FaceConfidence) -> bool:
    """Rather somebody else, and nobody said otherwise."""
    return not one.face.by_user and one.probability is not None and one.probability < DOUBTFUL
