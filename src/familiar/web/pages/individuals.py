"""Who is there: every individual as a tile, the faces of nobody, and two that become one."""

from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from familiar.core.errors import Contradiction
from familiar.gallery.clustering.assignments import load_assignments
from familiar.gallery.clustering.cluster import cluster
from familiar.gallery.database.connection import Gallery
from familiar.gallery.editing import corrections
from familiar.gallery.editing.corrections import CorrectionResult
from familiar.gallery.search.listing import (
    BEST,
    Counts,
    IdentitySummary,
    KnownFace,
    counts,
    face_confidences,
    identity_summaries,
    names,
    unassigned_faces,
)
from familiar.web.middleware.login import local_path
from familiar.web.pages.assignment_forms import Name, Number, set_name, assign_faces, require_existing
from familiar.web.pages.flash import FlashMessage, current_url, read_flash, url_with_flash
from familiar.web.pages.render import render_page
from familiar.web.service import ServiceDep

TILES = 500  # on a page
FACES = 300  # of nobody, on a page
MAX_MERGED = 100  # at once

router = APIRouter()
Tab = Literal["named", "unnamed", "unknown"]
Since = Annotated[int, Query(ge=0, lt=2**63)]
Back = Annotated[str, Form()]


@router.get("/individuals")
async def individuals(
    request: Request, service: ServiceDep, tab: Tab | None = None, faces: Since = 0, after: Since = 0
) -> HTMLResponse:
    """One tab of tiles, those with most faces first; `faces` and `after` are of the last one of the page before."""

    def read(gallery: Gallery) -> tuple[Tab, list[IdentitySummary], list[KnownFace], FlashMessage | None]:
        with gallery.reading():
            shown, told_of = tab or _first_tab(counts(gallery)), read_flash(gallery, request.query_params)
            if shown == "unknown":
                return shown, [], unassigned_faces(gallery, after=after, limit=FACES + 1), told_of
            since = (faces, after) if after else None
            return (
                shown,
                identity_summaries(gallery, named=shown == "named", after=since, limit=TILES + 1),
                [],
                told_of,
            )

    shown, known, nobodys, told_of = await service.executor.read(read)
    return await render_page(
        request,
        service,
        "individuals.html",
        tab=shown,
        tiles=known[:TILES],
        faces=nobodys[:FACES],
        more=_next_page_url(shown, known, nobodys),
        first=None if not after else f"/individuals?tab={shown}",
        said=told_of,
        here=current_url(request),
    )


@router.post("/individuals/unknown")
async def assign_unassigned(
    service: ServiceDep,
    face: Annotated[list[Number], Form(max_length=FACES)],
    called: Annotated[Name, Form()] = "",
    back: Back = "/individuals?tab=unknown",
) -> RedirectResponse:
    """These faces are one individual's: whoever is called so, or somebody new."""
    faces = list(dict.fromkeys(face))
    corrected = await service.executor.write_locked(assign_faces, faces, called)
    path = url_with_flash(local_path(back), "moved", count=len(faces), propagated=corrected.propagated_faces, identity=corrected.identity)
    return RedirectResponse(path, 303)


@router.post("/individuals/group")
async def group_faces(service: ServiceDep) -> RedirectResponse:
    """Faces of nobody that are alike become somebody; who is there already stays."""
    grouped = await service.executor.write(cluster)
    if not grouped.changed:
        return RedirectResponse(url_with_flash("/individuals?tab=unknown", "alone"), 303)
    return RedirectResponse(url_with_flash("/individuals?tab=unnamed", "grouped", count=grouped.identities), 303)


@router.get("/individuals/merge")
async def choose_merge(
    request: Request,
    service: ServiceDep,
    identity: Annotated[list[Number], Query(max_length=MAX_MERGED)],
    back: str = "/individuals",
) -> HTMLResponse:
    """Asks whether these are one, and who stays."""
    shown = await service.executor.read(_read_tiles, list(dict.fromkeys(identity)))
    answer = await render_page(request, service, "merge.html", tiles=shown, to=local_path(back))
    answer.headers["HX-Push-Url"] = current_url(request)  # also where a form that replaces its page led here
    return answer


@router.post("/individuals/merge")
async def merge(
    service: ServiceDep,
    identity: Annotated[list[Number], Form(max_length=MAX_MERGED)],
    into: Annotated[Number | None, Form()] = None,
    back: Back = "/individuals",
) -> RedirectResponse:
    """All of these are `into`. Where that is not said, it is asked for."""
    every = list(dict.fromkeys(identity if into is None else [*identity, into]))
    if len(every) < 2:
        raise Contradiction("an individual cannot be merged with itself; select two or more")
    if into is None:
        return RedirectResponse(merge_url(every, back), 303)

    def write(gallery: Gallery) -> CorrectionResult:
        require_existing(gallery, identities=every)
        return corrections.merge(gallery, into, every)

    corrected = await service.executor.write_locked(write)
    left = {f"/individuals/{other}" for other in every}
    back = f"/individuals/{into}" if back.partition("?")[0] in left else local_path(back)
    return RedirectResponse(url_with_flash(back, "merged", propagated=corrected.propagated_faces, identity=into), 303)


@router.get("/individuals/names")
async def names_that_begin(request: Request, service: ServiceDep, called: Annotated[Name, Query()] = "") -> HTMLResponse:
    """To complete a name that is being typed."""
    known = await service.executor.read(names, called)
    return await render_page(request, service, "names.html", names=known)


@router.post("/individuals/{identity:int}/name")
async def rename(
    service: ServiceDep, identity: Number, called: Annotated[Name, Form()] = "", back: Back = "/individuals"
) -> RedirectResponse:
    """Where another has that name already, it is asked whether both are one."""
    other = await service.executor.write_locked(set_name, identity, called)
    if other is not None:
        return RedirectResponse(merge_url([other, identity], back), 303)
    return RedirectResponse(url_with_flash(local_path(back), "named", identity=identity), 303)


def merge_url(identities: list[int], back: str) -> str:
    """Where it is asked which of these stays."""
    every = [("identity", str(number)) for number in identities[:MAX_MERGED]]
    return f"/individuals/merge?{urlencode([*every, ('back', local_path(back))])}"


def _first_tab(known: Counts) -> Tab:
    """Where somebody is."""
    if known.named:
        return "named"
    return "unknown" if known.unassigned and not known.unnamed else "unnamed"


def _next_page_url(tab: Tab, known: list[IdentitySummary], nobodys: list[KnownFace]) -> str | None:
    """The path of the next page, where there is one."""
    if len(known) > TILES:
        last = known[TILES - 1]
        return f"/individuals?tab={tab}&faces={last.faces}&after={last.identity}"
    if len(nobodys) > FACES:
        return f"/individuals?tab={tab}&after={nobodys[FACES - 1].face}"
    return None


def _read_tiles(gallery: Gallery, identities: list[int]) -> list[IdentitySummary]:
    """The named and the large first: who is likeliest to stay."""
    called = load_assignments(gallery).names
    found: list[IdentitySummary] = []
    for number in identities:
        known = face_confidences(gallery, number)
        best = tuple(one.face.face for one in known[:BEST])
        confirmed = sum(one.face.by_user for one in known)
        found.append(IdentitySummary(number, called.get(number), len(known), confirmed, best))
    return sorted(found, key=lambda tile: (tile.name is None, -tile.faces, tile.identity))
