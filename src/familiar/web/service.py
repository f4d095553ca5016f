"""The shared parts that request handlers use: made once when the server starts, closed when it stops."""

import logging
from collections.abc import Callable
from typing import Annotated, Concatenate, ParamSpec, TypeVar

from fastapi import Depends, Request

from familiar.core.errors import BadGallery, FamiliarError
from familiar.detection.detector import Detector
from familiar.detection.detectors import WholePhoto
from familiar.embedding.embedder import Embedder
from familiar.embedding.species import FAMILY
from familiar.gallery import Gallery
from familiar.web.allowed_paths import AllowedPaths
from familiar.web.gallery_executor import GalleryExecutor
from familiar.web.inference import Inference
from familiar.web.jobs import JobQueue
from familiar.web.settings import Settings
from familiar.web.thumbnails import Thumbnails

log = logging.getLogger("familiar.serve")
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
        _create_gallery_if_missing(settings)
        limits = settings.limits
        self.executor = GalleryExecutor(settings.gallery, limits.waiting_requests, read_only=settings.read_only)
        with self.executor.connect() as gallery:
            embedder, detector = _open_model(settings, gallery)
            self.allowed_paths = AllowedPaths.for_gallery(gallery, settings.roots)
            reference = gallery.model_reference
            if hidden := self.allowed_paths.hidden_folders(gallery):
                names = " ".join(f"--root {folder}" for folder in hidden)
                log.warning("photos in folders without --root are not shown; to show these too, add: %s", names)
        self.inference = Inference(embedder, detector, limits, reference)
        self.thumbnails = Thumbnails(limits)
        self.jobs = JobQueue(self.executor, self.inference, self.allowed_paths, limits)

    async def read_in_model_space(
        self, function: Callable[Concatenate[Gallery, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call `function(gallery, ...)` while the gallery's embeddings are comparable with the model's.

        Raises:
            SpaceMismatch: the gallery was migrated to another model since the server was started.
        """
        model = self.inference.embedder

        def read(gallery: Gallery) -> T:
            with gallery.read():
                gallery.check_model(model)
                return function(gallery, *args, **kwargs)

        return await self.executor.read(read)

    async def start(self) -> None:
        """Start the threads; to be called in the event loop.

        Photos that were uploaded, but not processed when the server was last stopped, are enrolled now.
        """
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


def _create_gallery_if_missing(settings: Settings) -> None:
    if Gallery.exists(settings.gallery):
        return
    if settings.read_only:
        raise BadGallery(
            f"{settings.gallery}: contains no gallery; leave out --read-only to create one, or enroll photos with: "
            f"familiar gallery enroll {settings.gallery} PHOTOS"
        )
    models = settings.models or FAMILY
    Gallery.create(settings.gallery, models, detector=settings.detector, detector_model=settings.detector_model).close()


def _open_model(settings: Settings, gallery: Gallery) -> tuple[Embedder | None, Detector]:
    """Open the gallery's model and detector. Without a model that can be opened, the gallery can still be viewed."""
    may_write = not settings.read_only
    try:
        model = gallery.open_model(settings.models or None, providers=settings.providers, may_write=may_write)
    except FamiliarError as error:
        if settings.models:
            raise
        log.warning("%s; until then photos can be viewed, but neither added nor searched for", error)
        return None, WholePhoto()
    detector = gallery.detector(settings.detector, settings.detector_model)
    if may_write:
        gallery.remember_detector(settings.detector, settings.detector_model)
    if unsuited := gallery.unsuited_for():
        log.warning("%s: its model is not made for %s, whom it finds too, and mixes them up", gallery.folder, unsuited)
    return model, detector
