"""The desk of lost and found pets: found pets with their best candidates, the register, and entering a pet."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, File, Form, UploadFile
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse

from familiar.core.errors import FamiliarError, NoFaceFound
from familiar.core.gallery_types import SkippedPhoto
from familiar.detection.detector import Detector, looked_for
from familiar.detection.faces import DetectedFaces
from familiar.gallery import Gallery
from familiar.integrations.lost_pets.candidates import rank_candidates
from familiar.integrations.lost_pets.register import enter_pet
from familiar.integrations.lost_pets.reports import MAX_CHARACTERS, Pet, Report, Status, list_pets
from familiar.web.enrollment_job import update_index
from familiar.web.pages.assignment_forms import NameField, Position
from familiar.web.pages.flash import url_with_flash
from familiar.web.pages.render import PageDep
from familiar.web.service import Service, ServiceDep
from familiar.web.uploads import BadUpload, store, to_uploads

MAX_RANKED = 100  # found pets on the page; of further ones the candidate is on their own page
PETS = 500  # of the register on a page
MAX_PHOTOS = 50  # of one pet at once, as the answer waits for them

router = APIRouter()
PhotosField = Annotated[list[UploadFile], File(min_length=1, max_length=MAX_PHOTOS)]
TextField = Annotated[str, Form(max_length=MAX_CHARACTERS)]
ContactField = Annotated[str | None, Form(max_length=MAX_CHARACTERS)]


async def report_from_form(
    status: Annotated[Status, Form()],
    species: TextField = "",
    location: Annotated[str, Form(alias="place", max_length=MAX_CHARACTERS)] = "",
    reported_on: Annotated[str, Form(alias="date", max_length=10)] = "",
    contact: ContactField = None,
    note: TextField = "",
) -> Report:
    """Return the report of a form's fields."""
    return Report(status, species, location, reported_on, contact or "", note)


ReportDep = Annotated[Report, Depends(report_from_form)]


@router.get("/desk")
async def desk(page: PageDep) -> HTMLResponse:
    """Show the found pets whose owners are looked for, the latest first."""

    def read(gallery: Gallery) -> dict[str, Any]:
        pets = sorted(list_pets(gallery, "found"), key=lambda pet: (pet.report.reported_on, pet.identity))
        pets.reverse()
        ranked = ((pet.identity, rank_candidates(gallery, pet.identity, 1)) for pet in pets[:MAX_RANKED] if pet.faces)
        candidates = {number: best for number, ranking in ranked for best in ranking.candidates}
        return {"pets": pets, "candidates": candidates, "lost": len(list_pets(gallery, "lost"))}

    return await page.render("desk.html", read)


@router.get("/desk/register")
async def register(page: PageDep, status: Status = "lost", start: Position = 0) -> HTMLResponse:
    """Show the register: the pets of a status, with their fields, and the form for a new one."""

    def read(gallery: Gallery) -> dict[str, Any]:
        pets: dict[Status, list[Pet]] = {each: list_pets(gallery, each) for each in ("lost", "found", "home")}
        return {
            "pets": pets[status][start : start + PETS],
            "numbers": {each: len(listed) for each, listed in pets.items()},
            "more": start + PETS if len(pets[status]) > start + PETS else None,
        }

    return await page.render("desk_register.html", read, tab=status, start=start)


@router.post("/desk/pets")
async def enter(
    service: ServiceDep,
    photos: PhotosField,
    status: Annotated[Literal["lost", "found"], Form()],
    report: ReportDep,
    name: NameField = "",
) -> RedirectResponse:
    """Enter a lost or found pet with its photos, and redirect to its candidates."""
    report = replace(report, status=status)
    photo_numbers, left_out = await enroll_uploads(service, photos)

    identity = await service.executor.write(enter_pet, photo_numbers, name, report)
    url = url_with_flash(f"/desk/{identity}", "entered", left_out=left_out, identity=identity)
    return RedirectResponse(url, 303)


async def enroll_uploads(service: Service, files: list[UploadFile]) -> tuple[list[int], int]:
    """Store and enroll the photos of a pet on which a face is detected; return their numbers, and how many others are.

    Raises:
        NoFaceFound: there is no face on any of them; nothing is stored.
        FamiliarError: none of them can be used, and one is no photo or too large; nothing is stored.
    """
    service.executor.require_writable()
    service.inference.require_model()
    detector, limits = service.inference.detector, service.settings.limits
    too_large: list[SkippedPhoto] = []
    uploads = to_uploads(files, limits, skipped=too_large)
    results = await service.inference.detect_all(uploads, embed=False)
    errors = [result for result in results if isinstance(result, FamiliarError)]
    with_face = [
        upload
        for upload, result in zip(uploads, results, strict=True)
        if isinstance(result, DetectedFaces) and result.faces
    ]
    if not with_face:
        if errors:
            raise errors[0]
        if too_large:
            raise BadUpload(413, "too-large", f"{too_large[0].name}: {too_large[0].reason}")
        raise NoFaceFound(
            f"no {looked_for(detector)} was found on these photos; take some on which it is larger, upright and "
            "turned to the camera"
        )
    paths = await run_in_threadpool(store, with_face, service.allowed_paths.uploads, limits)
    return await service.executor.compute_then_write(_enroll, paths, detector), len(files) - len(with_face)


def _enroll(gallery: Gallery, paths: list[Path], detector: Detector) -> list[int]:
    gallery.enroll(paths, detector)
    update_index(gallery, build=False)  # building one may take minutes, and the answer waits
    return gallery.photos_with_content(paths)
