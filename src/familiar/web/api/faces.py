"""Faces: whom they show, and where they are."""

from pathlib import Path
from typing import Any

from fastapi import APIRouter, Response

from familiar.gallery.database.connection import Gallery
from familiar.gallery.editing import corrections, manual_faces
from familiar.gallery.editing.corrections import CorrectionResult
from familiar.gallery.search import listing
from familiar.gallery.search.listing import KnownFace, KnownPhoto
from familiar.web.api import images, pagination, requests, responses
from familiar.web.api.openapi import WRITE_STATUSES, problems
from familiar.web.service import ServiceDep

router = APIRouter()


@router.get(
    "/faces/unassigned",
    operation_id="list_unknown_faces",
    tags=["faces"],
    response_model=responses.Page[responses.Face],
)
async def list_unassigned(service: ServiceDep, cursor: requests.Cursor = None, limit: requests.Limit = 100) -> dict[str, Any]:
    """Faces of nobody, in the order in which they were taken in."""
    (last,) = pagination.parse_cursor(cursor, "unassigned faces", 1) or (0,)
    found = await service.executor.read(listing.unassigned_faces, after=last, limit=limit + 1)
    return pagination.page(found, limit, "unassigned faces", lambda face: (face.face,))


@router.post(
    "/faces/confirm",
    operation_id="confirm_faces",
    tags=["corrections"],
    status_code=204,
    response_class=Response,
    responses=problems(404, *WRITE_STATUSES),
)
async def confirm(service: ServiceDep, body: requests.FacesRequest) -> None:
    """These faces are rightly where they are."""
    await service.executor.write(corrections.confirm, body.faces)


@router.post(
    "/faces/move",
    operation_id="move_faces",
    tags=["corrections"],
    response_model=responses.CorrectionResult,
    responses=problems(404, *WRITE_STATUSES),
)
async def move(service: ServiceDep, body: requests.MoveRequest) -> CorrectionResult:
    """These faces show that identity."""
    return await service.executor.write(corrections.move, body.faces, body.to)


@router.post(
    "/faces/split",
    operation_id="split_faces",
    tags=["corrections"],
    response_model=responses.CorrectionResult,
    responses=problems(404, *WRITE_STATUSES),
)
async def split(service: ServiceDep, body: requests.SplitRequest) -> CorrectionResult:
    """These faces show somebody of their own, a new identity."""
    return await service.executor.write(corrections.split, body.faces, body.name)


@router.post(
    "/faces/reject",
    operation_id="reject_faces",
    tags=["corrections"],
    response_model=responses.CorrectionResult,
    responses=problems(404, *WRITE_STATUSES),
)
async def reject(service: ServiceDep, body: requests.RejectRequest) -> CorrectionResult:
    """These faces do not show that identity, which is never said again."""
    return await service.executor.write(corrections.reject, body.faces, body.identity)


@router.post(
    "/faces/tell-apart",
    operation_id="tell_faces_apart",
    tags=["corrections"],
    status_code=204,
    response_class=Response,
    responses=problems(404, *WRITE_STATUSES),
)
async def mark_different(service: ServiceDep, body: requests.CannotLinkRequest) -> None:
    """Two faces show two individuals, and so do the identities they are in."""
    await service.executor.write(corrections.mark_different, body.first, body.second)


@router.get(
    "/faces/{face}",
    operation_id="get_face",
    tags=["faces"],
    response_model=responses.Face,
    responses=problems(404),
)
async def face(service: ServiceDep, face: requests.PathNumber) -> KnownFace:
    """One face."""
    return await service.executor.read(listing.face, face)


@router.get(
    "/faces/{face}/image",
    operation_id="get_face_image",
    tags=["faces"],
    response_class=images.Jpeg,
    responses=images.RESPONSES,
)
async def face_image(
    service: ServiceDep, face: requests.PathNumber, side: requests.Side = 160, known: images.IfNoneMatch = None
) -> Response:
    """The face with a little around it, square."""

    def find(gallery: Gallery) -> tuple[KnownFace, KnownPhoto, Path]:
        found, photo = _with_photo(gallery, face)
        return found, photo, service.allowed_paths.resolve(Path(photo.path))

    found, photo, path = await service.executor.read(find)
    return images.image_response(await service.thumbnails.face(path, photo.sha256, found.box_xyxy_px, side), known)


@router.put(
    "/faces/{face}/box",
    operation_id="move_face",
    tags=["by hand"],
    status_code=204,
    response_class=Response,
    responses=problems(404, *WRITE_STATUSES),
)
async def set_face_box(service: ServiceDep, face: requests.PathNumber, body: requests.FaceBoxRequest) -> None:
    """The face is there; whom it shows stays as it is."""
    embedder = service.inference.embedder

    def change(gallery: Gallery) -> None:
        path = service.allowed_paths.resolve(Path(_with_photo(gallery, face)[1].path))
        manual_faces.move_face(gallery, embedder, face, body.box, path=path)

    await service.executor.compute_then_write(change)


@router.delete(
    "/faces/{face}",
    operation_id="delete_face",
    tags=["by hand"],
    status_code=204,
    response_class=Response,
    responses=problems(404, *WRITE_STATUSES),
)
async def delete_face(service: ServiceDep, face: requests.PathNumber) -> None:
    """There is no face. `undo` brings it back."""
    await service.executor.write(manual_faces.delete_face, face)


def _with_photo(gallery: Gallery, face: int) -> tuple[KnownFace, KnownPhoto]:
    with gallery.reading():
        found = listing.face(gallery, face)
        return found, listing.photo(gallery, found.photo)
