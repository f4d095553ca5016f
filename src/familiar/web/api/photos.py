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
from familiar.web.api.openapi import CHANGE, UPLOAD, problems
from familiar.web.errors import Refused
from familiar.web.jobs import Progress
from familiar.web.service import Served
from familiar.web.uploads import Skipped, keep, received

router = APIRouter()


@router.get("/photos", operation_id="list_photos", tags=["photos"], response_model=responses.Page[responses.Photo])
async def photos(service: Served, cursor: requests.Cursor = None, limit: requests.Limit = 100) -> dict[str, Any]:
    """Every photo with its faces, in the order in which they were taken in."""
    (last,) = pagination.after(cursor, "photos", 1) or (0,)
    found = await service.threads.read(listing.photos, after=last, limit=limit + 1)
    return pagination.page(found, limit, "photos", lambda photo: (photo.photo,))


@router.post(
    "/photos",
    operation_id="enroll_photos",
    tags=["photos"],
    status_code=202,
    response_model=responses.Progress,
    responses=problems(*UPLOAD),
)
async def enroll(
    service: Served, response: Response, files: requests.Photos, continues: requests.Continues = None
) -> Progress:
    """Takes photos in: they are on the disk when this is answered, and a job finds their faces and groups them.

    Files that are no photos are `skipped`, and told so; where all of them are, the first one is the problem.
    """
    service.jobs.require_room()  # before anything is kept
    skipped: list[Skipped] = []
    told = None if len(files) == 1 else skipped  # one alone is refused for what it is
    limits = service.settings.limits
    async with received(files, limits, skipped=told) as uploads:
        kept = await keep(uploads, service.roots.own, limits, skipped=told)
    if not kept:
        first = f"{skipped[0].name}: {skipped[0].reason}"
        raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "not-a-photo", first)
    return _submitted(service, response, kept, skipped, continues)


@router.post(
    "/photos/folder",
    operation_id="enroll_folder",
    tags=["photos"],
    status_code=202,
    response_model=responses.Progress,
    responses=problems(404, *CHANGE),
)
async def enroll_folder(service: Served, response: Response, body: requests.Folder) -> Progress:
    """Takes in every photo of a folder on the server. The photos stay where they are."""
    return _submitted(service, response, [service.roots.named(body.folder)])


@router.get(
    "/photos/{photo}",
    operation_id="get_photo",
    tags=["photos"],
    response_model=responses.Photo,
    responses=problems(404),
)
async def photo(service: Served, photo: requests.InAddress) -> KnownPhoto:
    """One photo with its faces."""
    return await service.threads.read(listing.photo, photo)


@router.get(
    "/photos/{photo}/image",
    operation_id="get_photo_image",
    tags=["photos"],
    response_class=images.Jpeg,
    responses=images.RESPONSES,
)
async def photo_image(
    service: Served, photo: requests.InAddress, side: requests.Side = 1600, known: images.Known = None
) -> Response:
    """The upright photo, without what its file says of place and time."""

    def find(gallery: Gallery) -> tuple[KnownPhoto, Path]:
        found = listing.photo(gallery, photo)
        return found, service.roots.inside(Path(found.path))

    found, path = await service.threads.read(find)
    return images.sent(await service.pictures.photo(path, found.sha256, side), known)


@router.post(
    "/photos/{photo}/faces",
    operation_id="add_face",
    tags=["by hand"],
    status_code=201,
    response_model=responses.NewFace,
    responses=problems(404, *CHANGE),
)
async def add_face(
    service: Served, response: Response, photo: requests.InAddress, body: requests.ByHand
) -> dict[str, int]:
    """A face where the detector saw none."""
    embedder = service.vision.embedder

    def add(gallery: Gallery) -> int:
        path = service.roots.inside(Path(listing.photo(gallery, photo).path))
        return manual_faces.add_face(gallery, embedder, photo, body.box, path=path)

    face = await service.threads.write_late(add)
    response.headers["Location"] = f"/api/v1/faces/{face}"
    return {"face": face}


@router.get("/jobs", operation_id="list_jobs", tags=["photos"], response_model=list[responses.Progress])
async def jobs(service: Served) -> list[Progress]:
    """The last 50, newest first."""
    return service.jobs.all()


async def _job(service: Served, number: str) -> Progress:
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
async def events(service: Served, job: Job) -> AsyncIterator[responses.Progress]:
    """How far it is at each change, as server-sent events, until it ends."""
    async for progress in service.jobs.watch(job.number):
        yield responses.Progress.model_validate(progress)


def _submitted(
    service: Served,
    response: Response,
    paths: list[Path],
    skipped: Sequence[Skipped] = (),
    continues: str | None = None,
) -> Progress:
    progress = service.jobs.submit(paths, skipped, continues)
    response.headers["Location"] = f"/api/v1/jobs/{progress.number}"
    return progress
