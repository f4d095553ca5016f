"""Identities: who there is, what they are called, and two that are one."""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from familiar.gallery.editing import corrections
from familiar.gallery.editing.corrections import CorrectionResult
from familiar.gallery.search import listing
from familiar.gallery.search.listing import IdentitySummary
from familiar.web.api import pagination, requests, responses
from familiar.web.api.openapi import WRITE_STATUSES, problems
from familiar.web.service import ServiceDep

router = APIRouter()


@router.get(
    "/identities",
    operation_id="list_identities",
    tags=["identities"],
    response_model=responses.Page[responses.Identity],
)
async def identities(
    service: ServiceDep,
    named: Annotated[bool | None, Query(description="Only those that have a name, or have none.")] = None,
    cursor: requests.Cursor = None,
    limit: requests.Limit = 100,
) -> dict[str, Any]:
    """Those with most faces first."""
    of = f"identities, named {named}"
    last = pagination.parse_cursor(cursor, of, 2)
    found = await service.executor.read(
        listing.identity_summaries, named=named, after=None if last is None else (last[0], last[1]), limit=limit + 1
    )
    return pagination.page(found, limit, of, lambda tile: (tile.faces, tile.identity))


@router.get("/names", operation_id="list_names", tags=["identities"], response_model=list[responses.PrintableText])
async def names(
    service: ServiceDep,
    beginning: Annotated[str, Query(max_length=200, description="In upper or lower case.")] = "",
    limit: requests.Limit = 10,
) -> list[str]:
    """Names that begin so, by alphabet."""
    return await service.executor.read(listing.names, beginning, limit)


@router.get(
    "/identities/{identity}",
    operation_id="get_identity",
    tags=["identities"],
    response_model=responses.Identity,
    responses=problems(404),
)
async def identity(service: ServiceDep, identity: requests.PathNumber) -> IdentitySummary:
    """One identity."""
    return await service.executor.read(listing.identity_summary, identity)


@router.get(
    "/identities/{identity}/faces",
    operation_id="list_faces_of_identity",
    tags=["identities"],
    response_model=responses.Page[responses.FaceConfidence],
    responses=problems(404),
)
async def faces(
    service: ServiceDep, identity: requests.PathNumber, cursor: requests.Cursor = None, limit: requests.Limit = 100
) -> dict[str, Any]:
    """Its faces, the likeliest first. A correction meanwhile may shift what the next part begins with."""
    of = f"faces of {identity}"
    (start,) = pagination.parse_cursor(cursor, of, 1) or (0,)
    found = await service.executor.read(listing.face_confidences, identity)
    return pagination.page(found[start : start + limit + 1], limit, of, lambda _: (start + limit,))


@router.patch(
    "/identities/{identity}",
    operation_id="name_identity",
    tags=["corrections"],
    response_model=responses.CorrectionResult,
    responses=problems(404, *WRITE_STATUSES),
)
async def name(service: ServiceDep, identity: requests.PathNumber, body: requests.NameRequest) -> CorrectionResult:
    """Calls an identity by a name, which it keeps. Two of one name are one: merge them."""
    return await service.executor.write(corrections.name_identity, identity, body.name, confirm=body.confirm)


@router.post(
    "/identities/{identity}/merge",
    operation_id="merge_identities",
    tags=["corrections"],
    response_model=responses.CorrectionResult,
    responses=problems(404, *WRITE_STATUSES),
)
async def merge(service: ServiceDep, identity: requests.PathNumber, body: requests.MergeRequest) -> CorrectionResult:
    """The others are this one, too. It keeps its name, or gets the first that one of them has."""
    return await service.executor.write(corrections.merge, identity, body.others)
