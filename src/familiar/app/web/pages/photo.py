"""One photo with the boxes of its faces: whose each is, and boxes that are drawn, moved and deleted by hand."""

from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from familiar.app.web.pages.render import page
from familiar.app.web.pages.said import Said, here, said, told
from familiar.app.web.pages.whose import Name, Number, say_whose
from familiar.app.web.service import Served, Service
from familiar.core.errors import FamiliarError
from familiar.core.text import printable
from familiar.gallery import browse, by_hand, corrections
from familiar.gallery.browse import KnownPhoto
from familiar.gallery.store import Gallery

router = APIRouter()
Pixels = Annotated[float, Form(ge=-1e6, le=1e6, allow_inf_nan=False)]
Box = tuple[float, float, float, float]


def drawn(left: Pixels, top: Pixels, right: Pixels, bottom: Pixels) -> Box:
    """In pixels of the whole upright photo, as the fields of a form say it."""
    return left, top, right, bottom


@router.get("/photos/{photo:int}")
async def photo(request: Request, service: Served, photo: Number, face: Number | None = None) -> HTMLResponse:
    """`face` is the one that is selected."""

    def read(gallery: Gallery) -> tuple[KnownPhoto, list[KnownPhoto], Said | None]:
        with gallery.reading():
            following = browse.photos(gallery, after=photo, limit=1)
            return browse.photo(gallery, photo), following, said(gallery, request.query_params)

    known, following, told_of = await service.threads.read(read)
    missing, size_px = "", None
    try:
        size_px = await service.pictures.size_px(_path(service, known), known.sha256)
    except FamiliarError as error:
        missing = str(error)
    return await page(
        request,
        service,
        "photo.html",
        photo=known,
        faces=sorted(
            enumerate(known.faces, 1), key=lambda one: one[1].face != face
        ),  # the selected one first
        file_name=printable(Path(known.path).name),
        path=printable(known.path),
        size_px=size_px,
        missing=printable(missing),
        selected=face,
        following=following[0].photo if following else None,
        said=told_of,
        here=here(request),
    )


@router.post("/photos/{photo:int}/faces")
async def add(service: Served, photo: Number, box: Annotated[Box, Depends(drawn)]) -> RedirectResponse:
    """A face that the detector missed."""
    embedder = service.vision.embedder

    def write(gallery: Gallery) -> int:
        path = _path(service, browse.photo(gallery, photo))
        return by_hand.add_face(gallery, embedder, photo, box, path=path)

    face = await service.threads.write(write)
    return RedirectResponse(told(f"/photos/{photo}?face={face}", "added"), 303)


@router.post("/photos/{photo:int}/faces/{face:int}/box")
async def move_box(
    service: Served, photo: Number, face: Number, box: Annotated[Box, Depends(drawn)]
) -> RedirectResponse:
    """Its face stands somewhere else."""
    embedder = service.vision.embedder

    def write(gallery: Gallery) -> None:
        path = _path(service, browse.photo(gallery, photo))
        by_hand.move_face(gallery, embedder, face, box, path=path)

    await service.threads.write(write)
    return RedirectResponse(told(f"/photos/{photo}?face={face}", "boxed"), 303)


@router.post("/photos/{photo:int}/faces/{face:int}")
async def say(
    service: Served,
    photo: Number,
    face: Number,
    do: Annotated[Literal["whose", "reject", "confirm", "delete"], Form()],
    called: Annotated[Name, Form()] = "",
) -> RedirectResponse:
    """What a user says of one face."""
    if do == "delete":
        await service.threads.write(by_hand.delete_face, face)
        return RedirectResponse(told(f"/photos/{photo}", "deleted"), 303)

    def write(gallery: Gallery) -> str:
        at = f"/photos/{photo}?face={face}"
        if do == "confirm":
            corrections.confirm(gallery, [face])
            return told(at, "confirmed", faces=1)
        if do == "reject":
            return told(at, "rejected", faces=1, carried=corrections.reject(gallery, [face]).carried)
        corrected = say_whose(gallery, browse.face(gallery, face), called)
        return told(at, "moved", faces=1, carried=corrected.carried, who=corrected.identity)

    return RedirectResponse(await service.threads.write(write), 303)


def _path(service: Service, photo: KnownPhoto) -> Path:
    """Refused where it leads out of the roots."""
    return service.roots.inside(Path(photo.path))
