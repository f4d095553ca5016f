"""Routes of photos and enrollment jobs."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import EventSourceResponse

from familiar.core.gallery_types import AdditionResult, GalleryPhoto, Page, Progress, SkippedPhoto
from familiar.core.types import Box
from familiar.gallery import Gallery
from familiar.web.api import images, pagination, requests
from familiar.web.api.openapi import EDIT, MISSING, UPLOAD, WRITE
from familiar.web.api.shared_types import ApiRoute
from familiar.web.enrollment_job import Work
from familiar.web.errors import HttpProblem
from familiar.web.service import ServiceDep
from familiar.web.uploads import store, to_uploads

router = APIRouter(route_class=ApiRoute)


@router.get("/photos", tags=["photos"])
async def list_photos(
    service: ServiceDep, cursor: requests.Cursor = None, limit: requests.Limit = 100
) -> Page[GalleryPhoto]:
    """List all photos with their faces, in the order of enrollment."""
    (last,) = pagination.parse_cursor(cursor, "photos", 1) or (0,)
    results = await service.executor.read(Gallery.photos, after=last, limit=limit + 1)
    return pagination.page(results, limit, "photos", lambda photo: (photo.photo,))


@router.post("/photos", tags=["photos"], status_code=202, responses=UPLOAD)
async def enroll_photos(
    service: ServiceDep, response: Response, files: requests.Photos, previous_job: requests.PreviousJob = None
) -> Progress:
    """Enroll photos. They are stored on disk when this returns; a job then detects, embeds and clusters their faces.

    Files that are no photos are listed in `skipped`; if no file is a photo, the response is a problem with the first.
    """
    skipped: list[SkippedPhoto] = []
    collected = None if len(files) == 1 else skipped  # a single file is refused with its own problem
    limits = service.settings.limits
    uploads = to_uploads(files, limits, skipped=collected)
    with service.jobs.reserved():  # before anything is stored
        paths = await run_in_threadpool(store, uploads, service.allowed_paths.uploads, limits, collected)
        if not paths:
            first = f"{skipped[0].name}: {skipped[0].reason}"
            raise HttpProblem(415, "not-a-photo", first)
        return _accepted(response, service.jobs.begin(Work(paths), skipped, previous_job))


@router.post("/photos/folder", tags=["photos"], status_code=202, responses=EDIT)
async def enroll_folder(service: ServiceDep, response: Response, body: requests.EnrollFolderRequest) -> Progress:
    """Enroll all photos of a folder on the server. They stay in their folder."""
    folder = service.allowed_paths.resolve_user_path(body.folder)
    return _accepted(response, service.jobs.submit(Work([folder])))


@router.post("/photos/redetect", tags=["photos"], status_code=202, responses=WRITE)
async def redetect(service: ServiceDep, response: Response, body: requests.RedetectRequest) -> Progress:
    """Look again at the photos in which no face was found; with another detector at all photos.

    The gallery remembers the detector. All faces, names and decisions stay; deleted faces do not come back.
    """
    return _accepted(response, service.jobs.submit_redetection(body.detector))


@router.get("/photos/{photo}", tags=["photos"], responses=MISSING)
async def get_photo(service: ServiceDep, photo: requests.PathNumber) -> GalleryPhoto:
    """Get a photo with its faces."""
    return await service.executor.read(Gallery.photo, photo)


@router.get("/photos/{photo}/image", tags=["photos"], response_class=images.Jpeg, responses=images.RESPONSES)
async def get_photo_image(
    service: ServiceDep, photo: requests.PathNumber, side: requests.Side = 1600, known: images.IfNoneMatch = None
) -> Response:
    """Get the upright photo without its metadata, such as place and time."""
    return images.image_response(await service.photo_image(photo, side), known)


@router.post("/photos/{photo}/faces", tags=["manual faces"], status_code=201, responses=EDIT)
async def add_face(
    service: ServiceDep, response: Response, photo: requests.PathNumber, body: requests.NewFaceRequest
) -> AdditionResult:
    """Add a face that the detector missed."""
    face = await service.add_face(photo, Box(*body.box_xyxy_px), body.species)
    response.headers["Location"] = f"/api/v1/faces/{face}"
    return AdditionResult(face)


@router.get("/jobs", tags=["photos"])
async def list_jobs(service: ServiceDep) -> list[Progress]:
    """List the last 50 jobs, newest first."""
    return service.jobs.all()


async def _job(service: ServiceDep, number: str) -> Progress:
    return service.jobs.progress(number)


Job = Annotated[Progress, Depends(_job)]


@router.get("/jobs/{number}", tags=["photos"], responses=MISSING)
async def get_job(job: Job) -> Progress:
    """Get the progress of a job."""
    return job


@router.get("/jobs/{number}/events", tags=["photos"], response_class=EventSourceResponse, responses=MISSING)
async def watch_job(service: ServiceDep, job: Job) -> AsyncIterator[Progress]:
    """Watch a job: its progress at each change, as server-sent events, until it ends."""
    async for progress in service.jobs.watch(job.number):
        yield progress


def _accepted(response: Response, progress: Progress) -> Progress:
    response.headers["Location"] = f"/api/v1/jobs/{progress.number}"
    return progress
