"""One photo with the boxes of its faces: whose each is, and boxes that are drawn, moved and deleted by hand."""

from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from familiar.core.errors import FamiliarError
from familiar.core.terminal_text import printable
from familiar.detection.quality import box_intersection_px
from familiar.gallery.database.connection import Gallery
from familiar.gallery.editing import corrections, manual_faces
from familiar.gallery.search import listing
from familiar.gallery.search.listing import KnownFace, KnownPhoto
from familiar.web.pages.assignment_forms import Name, Number, names_unnamed_group, assign_faces, require_existing, require_name
from familiar.web.pages.flash import FlashMessage, current_url, read_flash, url_with_flash
from familiar.web.pages.render import render_page
from familiar.web.service import ServiceDep, Service
from familiar.web.uploads import photo_name

router = APIRouter()
Pixels = Annotated[float, Form(ge=-1e6, le=1e6, allow_inf_nan=False)]
Box = tuple[float, float, float, float]
MIN_FILLED = 0.95  # of a photo by one face: beside it there is no room


async def box_from_form(left: Pixels, top: Pixels, right: Pixels, bottom: Pixels) -> Box:
    """In pixels of the whole upright photo, as the fields of a form say it."""
    return left, top, right, bottom


@router.get("/photos/{photo:int}")
async def photo(request: Request, service: ServiceDep, photo: Number, face: Number | None = None) -> HTMLResponse:
    """`face` is the one that is selected."""

    def read(gallery: Gallery) -> tuple[KnownPhoto, list[KnownPhoto], FlashMessage | None]:
        with gallery.reading():
            following = listing.photos(gallery, after=photo, limit=1)
            return listing.photo(gallery, photo), following, read_flash(gallery, request.query_params)

    known, following, told_of = await service.executor.read(read)
    missing, size_px = "", None
    try:
        size_px = await service.thumbnails.size_px(_path(service, known), known.sha256)
    except FamiliarError as error:
        missing = str(error)
    return await render_page(
        request,
        service,
        "photo.html",
        photo=known,
        faces=sorted(enumerate(known.faces, 1), key=lambda one: one[1].face != face),  # the selected one first
        file_name=printable(photo_name(known.path)),
        path=printable(known.path),
        size_px=size_px,
        filled=size_px is not None and _is_filled(known, size_px),
        missing=printable(missing),
        selected=face,
        following=following[0].photo if following else None,
        said=told_of,
        here=current_url(request),
    )


@router.post("/photos/{photo:int}/faces")
async def add(service: ServiceDep, photo: Number, box: Annotated[Box, Depends(box_from_form)]) -> RedirectResponse:
    """A face that the detector missed."""
    embedder = service.inference.embedder

    def write(gallery: Gallery) -> int:
        path = _path(service, listing.photo(gallery, photo))
        return manual_faces.add_face(gallery, embedder, photo, box, path=path)

    face = await service.executor.compute_then_write(write)
    return RedirectResponse(url_with_flash(f"/photos/{photo}?face={face}", "added"), 303)


@router.post("/photos/{photo:int}/faces/{face:int}/box")
async def move_box(
    service: ServiceDep, photo: Number, face: Number, box: Annotated[Box, Depends(box_from_form)]
) -> RedirectResponse:
    """Its face stands somewhere else."""
    embedder = service.inference.embedder

    def write(gallery: Gallery) -> int | None:
        path = _path(service, listing.photo(gallery, photo))
        require_existing(gallery, faces=[face])
        manual_faces.move_face(gallery, embedder, face, box, path=path)
        return listing.face(gallery, face).identity

    who = await service.executor.compute_then_write(write)
    done = "boxed-nobody" if who is None else "boxed"
    return RedirectResponse(url_with_flash(f"/photos/{photo}?face={face}", done, identity=who), 303)


@router.post("/photos/{photo:int}/faces/{face:int}")
async def correct(
    service: ServiceDep,
    photo: Number,
    face: Number,
    do: Annotated[Literal["whose", "reject", "confirm", "delete"], Form()],
    called: Annotated[Name, Form()] = "",
) -> RedirectResponse:
    """What a user says of one face."""

    def write(gallery: Gallery) -> str:
        require_existing(gallery, faces=[face])
        at = f"/photos/{photo}?face={face}"
        if do == "delete":
            manual_faces.delete_face(gallery, face)
            return url_with_flash(f"/photos/{photo}", "deleted")
        if do == "confirm":
            corrections.confirm(gallery, [face])
            return url_with_flash(at, "confirmed", count=1)
        if do == "reject":
            return url_with_flash(at, "rejected", count=1, propagated=corrections.reject(gallery, [face]).propagated_faces)
        return _assign_by_name(gallery, listing.face(gallery, face), called, at)

    return RedirectResponse(await service.executor.write_locked(write), 303)


def _assign_by_name(gallery: Gallery, face: KnownFace, called: str, at: str) -> str:
    """Whose the face is, by a name; a new one said of a face in a group that has none is the group's."""
    require_name(called)
    if face.identity is not None and names_unnamed_group(gallery, face, called):
        corrections.confirm(gallery, [face.face])  # whatever becomes of its box, it keeps the name
        corrections.name_identity(gallery, face.identity, called)  # last, so that it is what is undone first
        return url_with_flash(at, "named", identity=face.identity)
    corrected = assign_faces(gallery, [face.face], called)
    if corrected.identity == face.identity:
        return url_with_flash(at, "confirmed", count=1, propagated=corrected.propagated_faces)
    return url_with_flash(at, "moved", count=1, propagated=corrected.propagated_faces, identity=corrected.identity)


def _is_filled(photo: KnownPhoto, size_px: tuple[int, int]) -> bool:
    """Whether a face takes up so much of the photo that any other box would lie in it."""
    width, height = size_px
    whole = (0.0, 0.0, float(width), float(height))
    return any(box_intersection_px(face.box_xyxy_px, whole) >= MIN_FILLED * width * height for face in photo.faces)


def _path(service: Service, photo: KnownPhoto) -> Path:
    """Refused where it leads out of the roots."""
    return service.allowed_paths.resolve(Path(photo.path))
