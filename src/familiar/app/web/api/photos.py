"""Photos: those that the gallery holds, new ones that are taken in, and how far that is."""

from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from fastapi.sse import EventSourceResponse

from familiar.app.web.api import asked, cursors, images, shapes
from familiar.app.web.api.documented import CHANGE, UPLOAD, problems
from familiar.app.web.jobs import Progress
from familiar.app.web.problems import Refused
from familiar.app.web.service import Served
from familiar.app.web.uploads import Skipped, keep, received
from familiar.gallery import browse, by_hand
from familiar.gallery.browse import KnownPhoto
from familiar.gallery.store import Gallery

router = APIRouter()


@router.get("/photos", operation_id="list_photos", tags=["photos"], response_model=shapes.Page[shapes.Photo])
async def photos(service: Served, cursor: asked.Cursor = None, limit: asked.Limit = 100) -> dict[str, Any]:
    """Every photo with its faces, in the order in which they were taken in."""
    (last,) = cursors.after(cursor, "photos", 1) or (0,)
    found = await service.threads.read(browse.photos, after=last, limit=limit + 1)
    return cursors.page(found, limit, "photos", lambda photo: (photo.photo,))


@router.post(
    "/photos",
    operation_id="enrol_photos",
    tags=["photos"],
    status_code=202,
    response_model=shapes.Progress,
    responses=problems(*UPLOAD),
)
async def enrol(
    service: Served, response: Response, files: asked.Photos, continues: asked.Continues = None
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
    operation_id="enrol_folder",
    tags=["photos"],
    status_code=202,
    response_model=shapes.Progress,
    responses=problems(404, *CHANGE),
)
async def enrol_folder(service: Served, response: Response, body: asked.Folder) -> Progress:
    """Takes in every photo of a folder on the server. The photos stay where they are."""
    return _submitted(service, response, [service.roots.named(body.folder)])


@router.get(
    "/photos/{photo}",
    operation_id="get_photo",
    tags=["photos"],
    response_model=shapes.Photo,
    responses=problems(404),
)
async def photo(service: Served, photo: asked.InAddress) -> KnownPhoto:
    """One photo with its faces."""
    return await service.threads.read(browse.photo, photo)


@router.get(
    "/photos/{photo}/image",
    operation_id="get_photo_image",
    tags=["photos"],
    response_class=images.Jpeg,
    responses=images.RESPONSES,
)
async def photo_image(
    service: Served, photo: asked.InAddress, side: asked.Side = 1600, known: images.Known = None
) -> Response:
    """The upright photo, without what its file says of place and time."""

    def find(gallery: Gallery) -> tuple[KnownPhoto, Path]:
        found = browse.photo(gallery, photo)
        return found, service.roots.inside(Path(found.path))

    found, path = await service.threads.read(find)
    return images.sent(await service.pictures.photo(path, found.sha256, side), known)


@router.post(
    "/photos/{photo}/faces",
    operation_id="add_face",
    tags=["by hand"],
    status_code=201,
    response_model=shapes.NewFace,
    responses=problems(404, *CHANGE),
)
async def add_face(
    service: Served, response: Response, photo: asked.InAddress, body: asked.ByHand
) -> dict[str, int]:
    """A face where the detector saw none."""
    embedder = service.vision.embedder

    def add(gallery: Gallery) -> int:
        path = service.roots.inside(Path(browse.photo(gallery, photo).path))
        return by_hand.add_face(gallery, embedder, photo, body.box, path=path)

    face = await service.threads.write_late(add)
    response.headers["Location"] = f"/api/v1/faces/{face}"
    return {"face": face}


@router.get("/jobs", operation_id="list_jobs", tags=["photos"], response_model=list[shapes.Progress])
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
    response_model=shapes.Progress,
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
async def events(service: Served, job: Job) -> AsyncIterator[shapes.Progress]:
    """How far it is at each change, as server-sent events, until it ends."""
    async for progress in service.jobs.watch(job.number):
        yield shapes.Progress.model_validate(progress)


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
