"""The page of one photo: its faces as boxes, which can be named, added, moved and deleted."""

from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Form
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from familiar.core.errors import FamiliarError
from familiar.core.file_names import name_before_upload
from familiar.core.gallery_types import GalleryPhoto
from familiar.core.terminal_text import printable
from familiar.core.types import Box
from familiar.detection.detector import looked_for
from familiar.gallery import Gallery
from familiar.web.pages.assignment_forms import NameField, Number, require_existing
from familiar.web.pages.edits import EditDep
from familiar.web.pages.flash import url_after_change, url_with_flash
from familiar.web.pages.render import PageDep
from familiar.web.service import ServiceDep

router = APIRouter()
Pixels = Annotated[float, Form(ge=-1e6, le=1e6, allow_inf_nan=False)]
Operation = Annotated[Literal["name", "reject", "confirm", "delete"], Form()]
MIN_FILLED = 0.95  # share of a photo from which a face leaves no room for another one


async def box_from_form(left: Pixels, top: Pixels, right: Pixels, bottom: Pixels) -> Box:
    """Return the box of a form's fields, in pixels of the whole upright photo."""
    return Box(left, top, right, bottom)


BoxDep = Annotated[Box, Depends(box_from_form)]


@router.get("/photos/{photo:int}")
async def photo(page: PageDep, photo: Number, face: Number | None = None) -> HTMLResponse:
    """Show a photo; `face` is the selected one."""
    known_photo = await page.service.executor.read(Gallery.photo, photo)
    error_message, size_px = "", None
    try:
        path = page.service.allowed_paths.resolve(Path(known_photo.path))
        size_px = await page.service.thumbnails.size_px(path, known_photo.sha256)
    except FamiliarError as error:
        error_message = str(error)

    def read(gallery: Gallery) -> dict[str, Any]:
        shown, next_photos = gallery.photo(photo), gallery.photos(after=photo, limit=1)
        return {
            "photo": shown,
            "states": gallery.states(face.identity for face in shown.faces),
            "faces": sorted(enumerate(shown.faces, 1), key=lambda item: item[1].face != face),  # the selected one first
            "filled": size_px is not None and _is_filled(shown, size_px),
            "next_photo": next_photos[0].photo if next_photos else None,
        }

    return await page.render(
        "photo.html",
        read,
        file_name=printable(name_before_upload(known_photo.path)),
        path=printable(known_photo.path),
        size_px=size_px,
        error_message=printable(error_message),
        selected=face,
        looked_for=looked_for(page.service.inference.detector),
        species=page.service.inference.embedder.species if page.service.inference.has_model else None,
    )


@router.post("/photos/{photo:int}/faces")
async def add(
    service: ServiceDep, photo: Number, box: BoxDep, species: Annotated[str | None, Form()] = None
) -> RedirectResponse:
    """Add a face that the detector missed."""
    face = await service.add_face(photo, box, species or None)
    return RedirectResponse(url_with_flash(f"/photos/{photo}?face={face}", "added"), 303)


@router.post("/photos/{photo:int}/faces/{face:int}/box")
async def move_box(service: ServiceDep, photo: Number, face: Number, box: BoxDep) -> RedirectResponse:
    """Change a face's box."""
    await service.executor.read(require_existing, faces=[face])
    identity = await service.set_face_box(face, box)
    done = "boxed-unassigned" if identity is None else "boxed"
    return RedirectResponse(url_with_flash(f"/photos/{photo}?face={face}", done, identity=identity), 303)


@router.post("/photos/{photo:int}/faces/{face:int}")
async def correct(edit: EditDep, photo: Number, face: Number, operation: Operation, name: NameField = "") -> Response:
    """Correct one face."""

    def write(gallery: Gallery) -> str:
        if operation != "delete":
            return edit.correct(gallery, [face], operation, name, f"/photos/{photo}?face={face}")
        require_existing(gallery, faces=[face])
        gallery.delete_face(face)
        return url_after_change(gallery, f"/photos/{photo}", "deleted")

    return await edit.write(write)


def _is_filled(photo: GalleryPhoto, size_px: tuple[int, int]) -> bool:
    """Tell whether a face takes up so much of the photo that any other box would lie within it."""
    width, height = size_px
    whole = Box(0.0, 0.0, float(width), float(height))
    return any(face.box_xyxy_px.intersection(whole) >= MIN_FILLED * width * height for face in photo.faces)
