"""The shared parts that request handlers use: made once when the server starts, closed when it stops."""

from collections.abc import Callable
from typing import Annotated, Concatenate, ParamSpec, TypeVar

from fastapi import Depends, Request

from familiar.core.errors import BadGallery
from familiar.detection.detectors import WholePhoto
from familiar.embedding.model import Model
from familiar.embedding.species.router_file import open_model
from familiar.gallery.database.connection import DATABASE, GalleryDatabase, Space
from familiar.web.allowed_paths import AllowedPaths
from familiar.web.gallery_executor import GalleryExecutor
from familiar.web.inference import BatchingInference
from familiar.web.jobs import JobQueue
from familiar.web.settings import Settings
from familiar.web.thumbnails import Thumbnails

P = ParamSpec("P")
T = TypeVar("T")


class Service:
    """The server's parts.

    Attributes:
        executor: runs functions on the gallery in threads.
        inference: runs the detector and the model.
        jobs: enrolls photos in the background.
        thumbnails: makes JPEGs of photos and faces.
        allowed_paths: the folders that none of them leaves.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        embedder = None if settings.model is None else open_model(settings.model, providers=settings.providers)
        detector = WholePhoto() if embedder is None else embedder.detector(settings.detector, settings.detector_model)
        _create_gallery_if_missing(settings, embedder)
        limits = settings.limits
        self.executor = GalleryExecutor(settings.gallery, limits.waiting_requests, read_only=settings.read_only)
        with self.executor.new_connection() as gallery:
            if embedder is not None:
                gallery.check_comparable(*embedder.space)
            self.allowed_paths = AllowedPaths.for_gallery(gallery, settings.roots)
        self.inference = BatchingInference(embedder, detector, limits)
        self.thumbnails = Thumbnails(limits)
        self.jobs = JobQueue(self.executor, self.inference, self.allowed_paths, limits)

    async def read_in_model_space(
        self, function: Callable[Concatenate[GalleryDatabase, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call `function(gallery, ...)` while the gallery's embeddings are comparable with the model's.

        Raises:
            SpaceMismatch: the gallery was migrated to another model since the server was started.
        """
        space = self.inference.embedder.space

        def read(gallery: GalleryDatabase) -> T:
            with gallery.reading():
                gallery.check_comparable(*space)
                return function(gallery, *args, **kwargs)

        return await self.executor.read(read)

    async def start(self) -> None:
        """Start the threads; to be called in the event loop.

        Photos that were uploaded, but not processed when the server was last stopped, are enrolled now.
        """
        await self.inference.start()
        if not self.settings.read_only:
            await self.jobs.start()

    async def stop(self) -> None:
        """Stop the threads. Acknowledged changes are written; jobs stop after their current batch."""
        await self.jobs.stop()
        await self.inference.stop()
        self.thumbnails.close()
        self.executor.close()


def get_service(request: Request) -> Service:
    """Return the service of the app that handles `request`."""
    return request.app.state.service


async def _service_dependency(request: Request) -> Service:
    """Return the service. Async, since FastAPI calls a plain function in a thread."""
    return get_service(request)


ServiceDep = Annotated[Service, Depends(_service_dependency)]


def _create_gallery_if_missing(settings: Settings, embedder: Model | None) -> None:
    if (settings.gallery / DATABASE).exists():
        return
    if embedder is None or settings.read_only:
        raise BadGallery(
            f"{settings.gallery}: contains no gallery; give --model to create one, or enroll photos with: "
            f"familiar gallery enroll {settings.gallery} PHOTOS --model MODEL"
        )
    GalleryDatabase.create(settings.gallery, Space.from_model(embedder)).close()
