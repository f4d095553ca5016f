"""The page of one individual: its faces, the least fitting first, and their corrections."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Query
from fastapi.responses import JSONResponse, Response

from familiar.core.errors import Contradiction
from familiar.core.gallery_types import AssignmentConfidence
from familiar.core.names import unify_spelling
from familiar.gallery import Gallery
from familiar.web.middleware.access import local_path
from familiar.web.pages.assignment_forms import (
    FacesField,
    NameField,
    Number,
    NumberField,
    Position,
    require_existing,
)
from familiar.web.pages.edits import EditDep
from familiar.web.pages.flash import url_after_change
from familiar.web.pages.render import PageDep
from familiar.web.service import ServiceDep

FACES = 300  # on a page
DOUBTFUL = 0.5  # below this probability an unconfirmed face probably shows another individual

router = APIRouter()
Operation = Annotated[Literal["move", "split", "reject", "confirm"], Form()]


@router.get("/individuals/{identity:int}")
async def individual(
    page: PageDep, identity: Number, order: Literal["likely", "doubtful"] = "doubtful", start: Position = 0
) -> Response:
    """Show the individual's faces, the most doubtful or the most likely first."""

    def read(gallery: Gallery) -> dict[str, Any]:
        faces = gallery.identity_faces(identity)
        if order == "doubtful":
            faces.reverse()
            faces.sort(key=lambda item: item.face.by_user)  # confirmed faces are not doubtful
        stop = start + FACES
        return {
            "name": gallery.names().get(identity),
            "state": gallery.states([identity])[identity],
            "faces": faces[start:stop],
            "total": len(faces),
            "confirmed": sum(item.face.by_user for item in faces),
            "doubtful": sum(is_doubtful(item) for item in faces),
            "more": f"?order={order}&start={stop}" if len(faces) > stop else None,
        }

    shown = {"identity": identity, "order": order, "start": start, "is_doubtful": is_doubtful}
    return await page.render_or_leave("individual.html", read, "/individuals", **shown)


@router.get("/individuals/{identity:int}/similar")
async def similar(
    service: ServiceDep, identity: Number, face: Annotated[list[Number], Query(max_length=FACES)]
) -> JSONResponse:
    """List the faces of the individual that are nearer to the selected ones than to its others."""

    def read(gallery: Gallery) -> list[int]:
        with gallery.read():
            require_existing(gallery, faces=face)
            return gallery.similar_faces(identity, face)

    return JSONResponse(await service.executor.read(read))


@router.post("/individuals/{identity:int}/faces")
async def correct(
    edit: EditDep, identity: Number, face: FacesField, operation: Operation, name: NameField = ""
) -> Response:
    """Correct the selected faces of an individual."""
    if operation == "move" and not unify_spelling(name):
        raise Contradiction("enter whom these faces show; to make them a new individual, split them off")
    path = local_path(edit.back, f"/individuals/{identity}")
    return await edit.write(lambda gallery: edit.correct(gallery, face, operation, name, path, identity))


@router.post("/individuals/{identity:int}/confirm")
async def confirm(edit: EditDep, identity: Number, faces: NumberField) -> Response:
    """Confirm all faces of an individual. Contradiction if their number is not `faces`, as the page showed it."""

    def confirm_all(gallery: Gallery) -> str:
        gallery.check_states(edit.states)
        all_faces = gallery.identity_faces(identity)
        if len(all_faces) != faces:
            raise Contradiction(f"there are {len(all_faces)} faces now, not {faces}; reload the page to check them")
        unconfirmed = [item.face.face for item in all_faces if not item.face.by_user]
        if unconfirmed:
            gallery.confirm(unconfirmed)
        path = local_path(edit.back, f"/individuals/{identity}")
        return url_after_change(gallery, path, "confirmed", count=len(unconfirmed))

    return await edit.write(confirm_all)


def is_doubtful(item: AssignmentConfidence) -> bool:
    """Tell whether a face is unconfirmed and probably shows another individual."""
    return not item.face.by_user and item.probability is not None and item.probability < DOUBTFUL
