"""The album page: adding photos, the progress of jobs, and all photos."""

from collections import Counter
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Query
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from familiar.core.gallery_types import Progress
from familiar.core.types import LABELS
from familiar.detection.detector import looked_for, not_looked_for
from familiar.detection.heads import PETS
from familiar.gallery import Gallery
from familiar.web.api.requests import DetectorName
from familiar.web.enrollment_job import Work
from familiar.web.pages.assignment_forms import SpeciesQuery
from familiar.web.pages.render import PageDep
from familiar.web.service import Service, ServiceDep

PHOTOS = 120  # on a page: divides by 2, 3, 4, 5, 6 and 8 columns
MAX_COUNTED_PHOTOS = 2_000  # of a job: more take noticeably long, at each view of the page
LARGEST = 2**63 - 1  # number of a photo
DETECTORS_TO_CHOOSE: dict[DetectorName, tuple[str, frozenset[str]]] = {
    "pets": ("cats and dogs", frozenset(PETS)),
    "auto": ("cats, dogs and people", frozenset(LABELS)),
}

router = APIRouter()


@router.get("/")
async def start(page: PageDep) -> Response:
    """Show the album, or lead to the lost pets where these come first."""
    return RedirectResponse("/desk", 303) if page.service.settings.desk else await album(page)


@router.get("/album")
async def album(
    page: PageDep, before: Annotated[int, Query(ge=1, le=LARGEST)] = LARGEST, species: SpeciesQuery = None
) -> HTMLResponse:
    """Show the newest photos, or those that were enrolled before the photo `before`; of one species or of all."""
    paths, jobs = page.service.allowed_paths, page.service.jobs.all()

    def read(gallery: Gallery) -> dict[str, Any]:
        newest_photos = gallery.photos(before=before, species=species, limit=PHOTOS + 1)
        return {
            "photos": newest_photos[:PHOTOS],
            "older": newest_photos[PHOTOS - 1].photo if len(newest_photos) > PHOTOS else None,
            "photos_of": {each: gallery.counts(species=each).photos for each in gallery.species()},
            "new_faces": _count_new_faces(gallery, jobs[0]) if jobs else None,
            "search": describe_search(gallery, page.service),
        }

    return await page.render(
        "album.html",
        read,
        newest=before == LARGEST,
        species=species,
        jobs=jobs,
        roots=[folder for folder in paths.folders if not folder.is_relative_to(paths.uploads)],
        can_add=page.service.inference.has_model and not page.service.settings.read_only,
    )


def _count_new_faces(gallery: Gallery, job: Progress) -> dict[str, Any] | None:
    """Count whom the faces of a job's photos show, as far as it is known now.

    Returns:
        `total`: number of the faces. `named`: (number, name, number of faces) of each named individual, those with most
        first. `unnamed`, `unassigned`: number of faces of individuals without a name, and without an individual. None
        if the job is not done, or there are none, or too many to be read each time.
    """
    if job.state != "done" or not 0 < job.photos <= MAX_COUNTED_PHOTOS:
        return None
    photos = gallery.photos(after=job.after_photo, limit=job.photos)
    faces = [face for photo in photos for face in photo.faces]
    counts = Counter((face.identity, face.name) for face in faces if face.identity is not None)
    named = [(number, name, count) for (number, name), count in counts.most_common() if name is not None]
    if not faces:
        return None
    unnamed = counts.total() - sum(count for _, _, count in named)
    return {"total": len(faces), "named": named, "unnamed": unnamed, "unassigned": len(faces) - counts.total()}


def describe_search(gallery: Gallery, service: Service) -> dict[str, Any] | None:
    """Return what photos are searched for, and the detectors with which they may be searched again; None: no model."""
    if not service.inference.has_model:
        return None
    detector, made_for = service.inference.detector, service.inference.embedder.made_for
    current = service.inference.reference.detector
    return {
        "looked_for": looked_for(detector),
        "not_looked_for": not_looked_for(detector),
        "unsuited": gallery.unsuited_for(),
        "can_add_model": bool(gallery.models_to_find_more()),
        "detectors": {
            name: words
            for name, (words, labels) in DETECTORS_TO_CHOOSE.items()
            if name != current and (made_for is None or labels <= made_for)
        },
    }


@router.post("/album/folder")
async def folder(service: ServiceDep, folder: Annotated[str, Form(max_length=4096)]) -> RedirectResponse:
    """Enroll the photos of a folder on the server."""
    service.jobs.submit(Work([service.allowed_paths.resolve_user_path(folder.strip())]))
    return RedirectResponse("/album", 303)


@router.post("/album/models")
async def add_models(service: ServiceDep) -> RedirectResponse:
    """Add the models that the album lacks for cats, dogs or people, and look again at all photos."""
    service.jobs.submit(Work(models=await service.executor.read(Gallery.models_to_find_more)))
    return RedirectResponse("/album", 303)


@router.post("/album/redetect")
async def redetect(
    service: ServiceDep, detector: Annotated[DetectorName | Literal[""], Form()] = ""
) -> RedirectResponse:
    """Look for faces again in the photos of the album; "": with its own detector."""
    service.jobs.submit_redetection(detector or None)
    return RedirectResponse("/album", 303)
