"""Photos: those that the gallery holds, new ones that are taken in, and how far that is."""

from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from fastapi.sse import EventSourceResponse

from familiar.gallery.database.connection import Gallery
from familiar.gallery.editing import manual_faces
from familiar.gallery.search import listing
from familiar.gallery.search.listing import KnownPhoto
from familiar.web.api import images, pagination, requests, responses
from familiar.web.api.openapi import WRITE_STATUSES, UPLOAD_STATUSES, problems
from familiar.web.errors import HttpProblem
from familiar.web.jobs import Progress
from familiar.web.service import ServiceDep
from familiar.web.uploads import SkippedPhoto, store, receive

router = APIRouter()


@router.get("/photos", operation_id="list_photos", tags=["photos"], response_model=responses.Page[responses.Photo])
async def photos(service: ServiceDep, cursor: requests.Cursor = None, limit: requests.Limit = 100) -> dict[str, Any]:
    """Every photo with its faces, in the order in which they were taken in."""
    (last,) = pagination.parse_cursor(cursor, "photos", 1) or (0,)
    found = await service.executor.read(listing.photos, after=last, limit=limit + 1)
    return pagination.page(found, limit, "photos", lambda photo: (photo.photo,))


@router.post(
    "/photos",
    operation_id="enroll_photos",
    tags=["photos"],
    status_code=202,
    response_model=responses.Progress,
    responses=problems(*UPLOAD_STATUSES),
)
async def enroll(
    service: ServiceDep, response: Response, files: requests.Photos, continues: requests.PreviousJob = None
) -> Progress:
    """Takes photos in: they are on the disk when this is answered, and a job finds their faces and groups them.

    Files that are no photos are `skipped`, and told so; where all of them are, the first one is the problem.
    """
    service.jobs.require_room()  # before anything is kept
    skipped: list[SkippedPhoto] = []
    told = None if len(files) == 1 else skipped  # one alone is refused for what it is
    limits = service.settings.limits
    async with receive(files, limits, skipped=told) as uploads:
        kept = await store(uploads, service.allowed_paths.uploads, limits, skipped=told)
    if not kept:
        first = f"{skipped[0].name}: {skipped[0].reason}"
        raise HttpProblem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "not-a-photo", first)
    return _submit(service, response, kept, skipped, continues)


@router.post(
    "/photos/folder",
    operation_id="enroll_folder",
    tags=["photos"],
    status_code=202,
    response_model=responses.Progress,
    responses=problems(404, *WRITE_STATUSES),
)
async def enroll_folder(service: ServiceDep, response: Response, body: requests.EnrollFolderRequest) -> Progress:
    """Takes in every photo of a folder on the server. The photos stay where they are."""
    return _submit(service, response, [service.allowed_paths.resolve_user_path(body.folder)])


@router.get(
    "/photos/{photo}",
    operation_id="get_photo",
    tags=["photos"],
    response_model=responses.Photo,
    responses=problems(404),
)
async def photo(service: ServiceDep, photo: requests.PathNumber) -> KnownPhoto:
    """One photo with its faces."""
    return await service.executor.read(listing.photo, photo)


@router.get(
    "/photos/{photo}/image",
    operation_id="get_photo_image",
    tags=["photos"],
    response_class=images.Jpeg,
    responses=images.RESPONSES,
)
async def photo_image(
    service: ServiceDep, photo: requests.PathNumber, side: requests.Side = 1600, known: images.IfNoneMatch = None
) -> Response:
    """The upright photo, without what its file says of place and time."""

    def find(gallery: Gallery) -> tuple[KnownPhoto, Path]:
        found = listing.photo(gallery, photo)
        return found, service.allowed_paths.resolve(Path(found.path))

    found, path = await service.executor.read(find)
    return images.image_response(await service.thumbnails.photo(path, found.sha256, side), known)


@router.post(
    "/photos/{photo}/faces",
    operation_id="add_face",
    tags=["by hand"],
    status_code=201,
    response_model=responses.NewFace,
    responses=problems(404, *WRITE_STATUSES),
)
async def add_face(
    service: ServiceDep, response: Response, photo: requests.PathNumber, body: requests.FaceBoxRequest
) -> dict[str, int]:
    """A face where the detector saw none."""
    embedder = service.inference.embedder

    def add(gallery: Gallery) -> int:
        path = service.allowed_paths.resolve(Path(listing.photo(gallery, photo).path))
        return manual_faces.add_face(gallery, embedder, photo, body.box, path=path)

    face = await service.executor.compute_then_write(add)
    response.headers["Location"] = f"/api/v1/faces/{face}"
    return {"face": face}


@router.get("/jobs", operation_id="list_jobs", tags=["photos"], response_model=list[responses.Progress])
async def jobs(service: ServiceDep) -> list[Progress]:
    """The last 50, newest first."""
    return service.jobs.all()


async def _job(service: ServiceDep, number: str) -> Progress:
    return service.jobs.progress(number)


Job = Annotated[Progress, Depends(_job)]


@router.get(
    "/jobs/{number}",
    operation_id="get_job",
    tags=["photos"],
    response_model=responses.Progress,
    responses=problems(404),
)
async def job(job: Job) -> Progress:
    """How far photos have been taken in."""
    return job


@router.get(
    "/jobs/{number}/events",
    operation_id="watch_job",
    tags=["photos"],
    response_class=EventSourceResponse,
    responses=problems(404),
)
async def events(service: ServiceDep, job: Job) -> AsyncIterator[responses.Progress]:
    """How far it is at each change, as server-sent events, until it ends."""
    async for progress in service.jobs.watch(job.number):
        yield responses.Progress.model_validate(progress)


def _submit(
    service: ServiceDep,
    response: Response,
    paths: list[Path],
    skipped: Sequence[SkippedPhoto] = (),
    continues: str | None = None,
) -> Progress:
    progress = service.jobs.submit(paths, skipped, continues)
    response.headers["Location"] = f"/api/v1/jobs/{progress.number}"
    return progress
