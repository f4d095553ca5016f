"""Routes of faces: listing, corrections and boxes."""

from fastapi import APIRouter, Response

from familiar.core.gallery_types import CorrectionResult, GalleryFace, Page
from familiar.core.types import Box
from familiar.gallery import Gallery
from familiar.web.api import images, pagination, requests
from familiar.web.api.openapi import EDIT, MISSING
from familiar.web.api.shared_types import ApiRoute
from familiar.web.service import ServiceDep

router = APIRouter(route_class=ApiRoute)


@router.get("/faces/unassigned", tags=["faces"])
async def list_unassigned_faces(
    service: ServiceDep, species: requests.Species = None, cursor: requests.Cursor = None, limit: requests.Limit = 100
) -> Page[GalleryFace]:
    """List faces without an identity, in the order of enrollment."""
    list_name = f"unassigned faces, species {species}"
    (last,) = pagination.parse_cursor(cursor, list_name, 1) or (0,)
    results = await service.executor.read(Gallery.unassigned_faces, species=species, after=last, limit=limit + 1)
    return pagination.page(results, limit, list_name, lambda face: (face.face,))


@router.post("/faces/confirm", tags=["corrections"], status_code=204, response_class=Response, responses=EDIT)
async def confirm_faces(service: ServiceDep, body: requests.FacesRequest) -> None:
    """Mark faces as confirmed in their current identity."""
    await service.executor.write(Gallery.confirm, body.faces)


@router.post("/faces/move", tags=["corrections"], responses=EDIT)
async def move_faces(service: ServiceDep, body: requests.MoveRequest) -> CorrectionResult:
    """Assign faces to an identity. Conflict if a photo would show it twice, unless `same_photo` accepts that."""
    return await service.executor.write(Gallery.move, body.faces, body.identity, same_photo=body.same_photo)


@router.post("/faces/split", tags=["corrections"], responses=EDIT)
async def split_faces(service: ServiceDep, body: requests.SplitRequest) -> CorrectionResult:
    """Move faces to a new identity. Conflict if two are in one photo, unless `same_photo` accepts that."""
    return await service.executor.write(Gallery.split, body.faces, body.name, same_photo=body.same_photo)


@router.post("/faces/reject", tags=["corrections"], responses=EDIT)
async def reject_faces(service: ServiceDep, body: requests.RejectRequest) -> CorrectionResult:
    """Remove faces from an identity, permanently (cannot-link)."""
    return await service.executor.write(Gallery.reject, body.faces, body.identity)


@router.post("/faces/mark-different", tags=["corrections"], status_code=204, response_class=Response, responses=EDIT)
async def mark_faces_different(service: ServiceDep, body: requests.CannotLinkRequest) -> None:
    """Record that two faces show different individuals (cannot-link), and so do their identities."""
    await service.executor.write(Gallery.mark_different, body.first_face, body.second_face)


@router.get("/faces/{face}", tags=["faces"], responses=MISSING)
async def get_face(service: ServiceDep, face: requests.PathNumber) -> GalleryFace:
    """Get a face."""
    return await service.executor.read(Gallery.face, face)


@router.get("/faces/{face}/image", tags=["faces"], response_class=images.Jpeg, responses=images.RESPONSES)
async def get_face_image(
    service: ServiceDep, face: requests.PathNumber, side: requests.Side = 160, known: images.IfNoneMatch = None
) -> Response:
    """Get a square image of a face with some margin."""
    return images.image_response(await service.face_image(face, side), known)


@router.put("/faces/{face}/box", tags=["manual faces"], status_code=204, response_class=Response, responses=EDIT)
async def set_face_box(service: ServiceDep, face: requests.PathNumber, body: requests.FaceBoxRequest) -> None:
    """Change a face's box; a confirmed face keeps its identity, another is clustered again."""
    await service.set_face_box(face, Box(*body.box_xyxy_px))


@router.delete("/faces/{face}", tags=["manual faces"], status_code=204, response_class=Response, responses=EDIT)
async def delete_face(service: ServiceDep, face: requests.PathNumber) -> None:
    """Delete a detection that is not a face. `undo` restores it."""
    await service.executor.write(Gallery.delete_face, face)
