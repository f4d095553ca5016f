"""The page of one lost or found pet: who it may be, the decisions about that, its report, and the printable page."""

from dataclasses import replace
from datetime import date
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import BaseModel, Field, StringConstraints

from familiar.core.errors import UnreadablePhoto
from familiar.gallery import Gallery
from familiar.integrations.lost_pets import register
from familiar.integrations.lost_pets.candidates import OPPOSITE, Candidate, PetFilter, compare_pets, rank_candidates
from familiar.integrations.lost_pets.printable_page import PRINTED_SIDE_PX, PageCandidate, printable_page
from familiar.integrations.lost_pets.reports import MAX_CHARACTERS, Pet, find_pet
from familiar.web.errors import HttpProblem
from familiar.web.middleware.access import local_path
from familiar.web.middleware.headers import CSP_HEADER, SANDBOX_POLICY
from familiar.web.pages.assignment_forms import NameField, Number, NumberField
from familiar.web.pages.desk import ContactField, PhotosField, ReportDep, enroll_uploads
from familiar.web.pages.edits import EditDep
from familiar.web.pages.flash import url_after_change, url_with_flash
from familiar.web.pages.render import PageDep
from familiar.web.service import Service, ServiceDep

CANDIDATES = 10  # on a page
MAX_CANDIDATES = 200

router = APIRouter()
TextQuery = Annotated[str, StringConstraints(strip_whitespace=True, max_length=MAX_CHARACTERS)]


class DeskQuery(BaseModel):
    """The query of a pet's page: the filter, the number of candidates, and whether to print the contact.

    `species` None: that of the pet's report.
    """

    species: TextQuery | None = None
    location: TextQuery = Field("", alias="place")
    since: TextQuery = ""
    until: TextQuery = ""
    possible: bool = False
    k: int = Field(CANDIDATES, ge=1, le=MAX_CANDIDATES)
    contact: bool = False

    def only(self, pet: Pet) -> PetFilter:
        """Return the filter of the candidates."""
        species = pet.report.species if self.species is None else self.species
        return PetFilter(species, self.location, self.since, self.until, self.possible)


@router.get("/desk/{identity:int}")
async def pet_page(page: PageDep, identity: Number, query: Annotated[DeskQuery, Query()]) -> Response:
    """Show the pets that this one may be, the most similar first."""

    def read(gallery: Gallery) -> dict[str, Any]:
        pet = find_pet(gallery, identity)
        is_open = pet.report.status in OPPOSITE and pet.faces > 0
        ranking = rank_candidates(gallery, identity, query.k, only=query.only(pet)) if is_open else None
        others = () if ranking is None else (candidate.pet.identity for candidate in ranking.candidates)
        has_more = ranking is not None and ranking.compared > query.k < MAX_CANDIDATES
        more = query.model_dump(by_alias=True, exclude_defaults=True) | {"k": min(2 * query.k, MAX_CANDIDATES)}
        return {
            "pet": pet,
            "ranking": ranking,
            "states": gallery.states((identity, *others)),
            "only": query.only(pet),
            "more": f"/desk/{identity}?{urlencode(more)}" if has_more else None,
        }

    return await page.render_or_leave("desk_pet.html", read, "/desk")


@router.post("/desk/{identity:int}/not")
async def dismiss(edit: EditDep, identity: Number, candidate: NumberField) -> Response:
    """Remember that the pet is not this candidate."""

    def write(gallery: Gallery) -> str:
        gallery.check_states(edit.states)
        register.dismiss(gallery, identity, candidate)
        return url_after_change(gallery, local_path(edit.back, f"/desk/{identity}"), "dismissed", identity=candidate)

    return await edit.write(write)


@router.post("/desk/{identity:int}/again")
async def reconsider(edit: EditDep, identity: Number, candidate: NumberField) -> Response:
    """Show a candidate again that was marked as not the pet."""

    def write(gallery: Gallery) -> str:
        register.reconsider(gallery, identity, candidate)
        return url_after_change(gallery, local_path(edit.back, f"/desk/{identity}"), "shown-again", identity=candidate)

    return await edit.write(write)


@router.post("/desk/{identity:int}/reunite")
async def reunite(edit: EditDep, identity: Number, candidate: NumberField) -> Response:
    """Record that the pet is this candidate: both become one, which is home."""

    def write(gallery: Gallery) -> str:
        gallery.check_states(edit.states, attributes=True)
        is_found = find_pet(gallery, identity).report.status == "found"
        lost, found_pet = (candidate, identity) if is_found else (identity, candidate)
        register.reunite(gallery, lost, found_pet, same_photo=edit.same_photo)
        return url_after_change(gallery, "/desk", "reunited", identity=lost)

    return await edit.write(write)


@router.post("/desk/{identity:int}/report")
async def edit_report(
    edit: EditDep, identity: Number, report: ReportDep, name: NameField = "", contact: ContactField = None
) -> Response:
    """Change the pet's report and name. A contact that the form does not show stays."""

    def write(gallery: Gallery) -> str:
        gallery.check_states(edit.states, faces=False, attributes=True)  # or it would replace an entry that nobody saw
        previous = find_pet(gallery, identity).report
        changed = replace(report, contact=previous.contact) if contact is None else report
        register.edit_pet(gallery, identity, name, changed)
        return url_after_change(gallery, f"/desk/{identity}", "report-saved", identity=identity)

    return await edit.write(write)


@router.post("/desk/{identity:int}/photos")
async def add_photos(service: ServiceDep, identity: Number, photos: PhotosField) -> RedirectResponse:
    """Add photos to the pet."""
    await service.executor.read(find_pet, identity)  # before anything is stored
    numbers, left_out = await enroll_uploads(service, photos)

    count = await service.executor.write(register.add_photos, identity, numbers)
    url = url_with_flash(f"/desk/{identity}", "photos-added", count=count, left_out=left_out, identity=identity)
    return RedirectResponse(url, 303)


@router.get("/desk/{identity:int}/{candidate:int}/print")
async def printed(
    service: ServiceDep, identity: Number, candidate: Number, query: Annotated[DeskQuery, Query()]
) -> HTMLResponse:
    """Show the printable page of a pet and one candidate, which is a whole file: its pictures are in it."""

    def read(gallery: Gallery) -> tuple[Pet, Candidate, tuple[int, int]]:
        with gallery.read():
            pet = find_pet(gallery, identity)
            compared, faces = compare_pets(gallery, identity, candidate, only=query.only(pet))
            return pet, compared, (faces[compared.photo], compared.face)

    pet, compared, faces = await service.executor.read(read)
    pictures = [await _picture(service, face) for face in faces]
    text = printable_page(
        pet.label,
        pet.report,
        [PageCandidate(compared, *pictures)],
        date.today().isoformat(),
        with_contact=query.contact and service.settings.knows_visitors,
    )
    return HTMLResponse(text, headers={CSP_HEADER: SANDBOX_POLICY})


async def _picture(service: Service, face: int) -> bytes | None:
    """Return a face's JPEG, or None if its photo cannot be shown."""
    try:
        return (await service.face_image(face, PRINTED_SIDE_PX)).content
    except (UnreadablePhoto, HttpProblem):
        return None
