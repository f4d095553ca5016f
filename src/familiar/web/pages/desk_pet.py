"""The page of one lost or found pet: who it may be, the decisions about that, its report, and the printable page."""

from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from familiar.core.errors import NotInGallery, UnreadablePhoto
from familiar.core.gallery_types import GalleryFace, GalleryPhoto
from familiar.gallery import Gallery
from familiar.integrations.lost_pets import register
from familiar.integrations.lost_pets.candidates import OPPOSITE, Candidate, PetFilter, compare_pets, rank_candidates
from familiar.integrations.lost_pets.printable_page import PRINTED_SIDE_PX, PageCandidate, printable_page
from familiar.integrations.lost_pets.reports import MAX_CHARACTERS, Pet, find_pet
from familiar.web.errors import HttpProblem
from familiar.web.middleware.access import local_path
from familiar.web.middleware.headers import CSP_HEADER, SANDBOX_POLICY
from familiar.web.pages.assignment_forms import NameField, Number, NumberField
from familiar.web.pages.desk import ContactField, PhotosField, ReportDep, enroll_uploads, shows_contact
from familiar.web.pages.edits import EditDep
from familiar.web.pages.flash import url_after_change, url_with_flash
from familiar.web.pages.render import PageDep
from familiar.web.service import Service, ServiceDep

CANDIDATES = 10  # on a page
MAX_CANDIDATES = 200

router = APIRouter()
TextQuery = Annotated[str, Query(max_length=MAX_CHARACTERS)]


@dataclass(frozen=True)
class DeskFilter:
    """The filter as the query of the page has it. `species` None: that of the pet's report."""

    species: str | None
    location: str
    since: str
    until: str
    possible: bool

    def for_pet(self, pet: Pet) -> PetFilter:
        """Return the filter of the candidates."""
        species = pet.report.species if self.species is None else self.species
        return PetFilter(species, self.location, self.since, self.until, self.possible)

    @property
    def query(self) -> str:
        """The query of a URL with this filter."""
        values = {"place": self.location, "since": self.since, "until": self.until, "possible": "1" * self.possible}
        texts = {key: value for key, value in values.items() if value}
        return urlencode(texts if self.species is None else {"species": self.species} | texts)


async def _filter_of_query(
    species: Annotated[str | None, Query(max_length=MAX_CHARACTERS)] = None,
    location: Annotated[str, Query(alias="place", max_length=MAX_CHARACTERS)] = "",
    since: TextQuery = "",
    until: TextQuery = "",
    possible: bool = False,
) -> DeskFilter:
    return DeskFilter(species, location.strip(), since, until, possible)


FilterDep = Annotated[DeskFilter, Depends(_filter_of_query)]


@router.get("/desk/{identity:int}")
async def pet_page(
    page: PageDep, identity: Number, only: FilterDep, k: Annotated[int, Query(ge=1, le=MAX_CANDIDATES)] = CANDIDATES
) -> Response:
    """Show the pets that this one may be, the most similar first."""

    def read(gallery: Gallery) -> dict[str, Any]:
        pet = find_pet(gallery, identity)
        is_open = pet.report.status in OPPOSITE and pet.faces > 0
        ranking = rank_candidates(gallery, identity, k, only=only.for_pet(pet)) if is_open else None
        others = () if ranking is None else (candidate.pet.identity for candidate in ranking.candidates)
        has_more = ranking is not None and ranking.compared > k < MAX_CANDIDATES
        more = f"/desk/{identity}?{only.query}&k={min(2 * k, MAX_CANDIDATES)}".replace("?&", "?")
        return {
            "pet": pet,
            "ranking": ranking,
            "states": gallery.states((identity, *others)),
            "only": only.for_pet(pet),
            "more": more if has_more else None,
        }

    try:
        shown = {"filter_query": only.query, "shows_contact": shows_contact(page.service)}
        return await page.render("desk_pet.html", read, **shown)
    except NotInGallery:
        if "done" not in page.request.query_params:
            raise
        return RedirectResponse(
            f"/desk?{page.request.url.query}", 303
        )  # the last change, or its undo, removed this pet


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
    await service.executor.read(lambda gallery: find_pet(gallery, identity))  # before anything is stored
    numbers, left_out = await enroll_uploads(service, photos)

    def write(gallery: Gallery) -> int:
        return register.add_photos(gallery, identity, numbers)

    count = await service.executor.write_locked(write)
    url = url_with_flash(f"/desk/{identity}", "photos-added", count=count, left_out=left_out, identity=identity)
    return RedirectResponse(url, 303)


@router.get("/desk/{identity:int}/{candidate:int}/print")
async def printed(
    service: ServiceDep, identity: Number, candidate: Number, only: FilterDep, contact: bool = False
) -> HTMLResponse:
    """Show the printable page of a pet and one candidate, which is a whole file: its pictures are in it."""

    def read(gallery: Gallery) -> tuple[Pet, Candidate, list[tuple[GalleryFace, GalleryPhoto]]]:
        with gallery.read():
            pet = find_pet(gallery, identity)
            compared, faces = compare_pets(gallery, identity, candidate, only=only.for_pet(pet))
            shown = [gallery.face(face) for face in (faces[compared.photo], compared.face)]
            return pet, compared, [(face, gallery.photo(face.photo)) for face in shown]

    pet, compared, shown = await service.executor.read(read)
    pictures = [await _picture(service, *each) for each in shown]
    text = printable_page(
        pet.label,
        pet.report,
        [PageCandidate(compared, *pictures)],
        date.today().isoformat(),
        with_contact=contact and shows_contact(service),
    )
    return HTMLResponse(text, headers={CSP_HEADER: SANDBOX_POLICY})


async def _picture(service: Service, face: GalleryFace, photo: GalleryPhoto) -> bytes | None:
    """Return a face's JPEG, or None if its photo cannot be shown."""
    try:
        path = service.allowed_paths.resolve(Path(photo.path))
        thumbnail = await service.thumbnails.face(path, photo.sha256, face.box_xyxy_px, PRINTED_SIDE_PX)
    except (UnreadablePhoto, HttpProblem):
        return None
    return thumbnail.content
