"""Routes of identities: listing, naming and merging."""

from typing import Annotated

from fastapi import APIRouter, Query

from familiar.core.gallery_types import AssignmentConfidence, CorrectionResult, IdentitySummary, Page
from familiar.gallery import Gallery
from familiar.web.api import pagination, requests
from familiar.web.api.openapi import EDIT, MISSING
from familiar.web.api.shared_types import ApiRoute
from familiar.web.service import ServiceDep

router = APIRouter(route_class=ApiRoute)


@router.get("/identities", tags=["identities"])
async def list_identities(
    service: ServiceDep,
    named: Annotated[
        bool | None, Query(description="Only identities with a name (true) or without one (false).")
    ] = None,
    species: requests.Species = None,
    cursor: requests.Cursor = None,
    limit: requests.Limit = 100,
) -> Page[IdentitySummary]:
    """List identities, those with most faces first."""
    list_name = f"identities, named {named}, species {species}"
    last = pagination.parse_cursor(cursor, list_name, 2)
    results = await service.executor.read(
        Gallery.identities,
        named=named,
        species=species,
        after=None if last is None else (last[0], last[1]),
        limit=limit + 1,
    )
    return pagination.page(results, limit, list_name, lambda tile: (tile.faces, tile.identity))


@router.get("/names", tags=["identities"], response_model=list[str])
async def list_names(
    service: ServiceDep,
    prefix: Annotated[str, Query(max_length=200, description="Case-insensitive.")] = "",
    limit: requests.Limit = 10,
) -> list[str]:
    """List names that start with a prefix, in alphabetical order."""
    return await service.executor.read(Gallery.names_beginning, prefix, limit)


@router.get("/identities/{identity}", tags=["identities"], responses=MISSING)
async def get_identity(service: ServiceDep, identity: requests.PathNumber) -> IdentitySummary:
    """Get an identity."""
    return await service.executor.read(Gallery.identity, identity)


@router.get("/identities/{identity}/faces", tags=["identities"], responses=MISSING)
async def list_faces_of_identity(
    service: ServiceDep, identity: requests.PathNumber, cursor: requests.Cursor = None, limit: requests.Limit = 100
) -> Page[AssignmentConfidence]:
    """List an identity's faces, the most likely first. A correction between two pages may shift the second one."""
    list_name = f"faces of identity {identity}"
    (start,) = pagination.parse_cursor(cursor, list_name, 1) or (0,)
    results = await service.executor.read(Gallery.identity_faces, identity)
    return pagination.page(results[start : start + limit + 1], limit, list_name, lambda _: (start + limit,))


@router.patch("/identities/{identity}", tags=["corrections"], responses=EDIT)
async def name_identity(
    service: ServiceDep, identity: requests.PathNumber, body: requests.NameRequest
) -> CorrectionResult:
    """Name an identity. Conflict if another one has the name: merge both if they are the same."""
    return await service.executor.write(Gallery.name, identity, body.name, confirm=body.confirm)


@router.post("/identities/{identity}/merge", tags=["corrections"], responses=EDIT)
async def merge_identities(
    service: ServiceDep, identity: requests.PathNumber, body: requests.MergeRequest
) -> CorrectionResult:
    """Merge identities into this one. It keeps its name, or gets the first name that one of them has.

    Conflict if a photo shows two of them, unless `same_photo` accepts that.
    """
    return await service.executor.write(Gallery.merge, identity, body.identities, same_photo=body.same_photo)
