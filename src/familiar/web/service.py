"""Everything a request may ask for, made once when the server starts and closed when it stops."""

from collections.abc import Callable
from typing import Annotated, Concatenate, ParamSpec, TypeVar

from fastapi import Depends, Request

from familiar.core.errors import BadGallery
from familiar.detection.detectors import build_detector
from familiar.embedding.embedder import Embedder
from familiar.gallery.database.connection import DATABASE, Gallery, Space
from familiar.web.allowed_paths import AllowedPaths
from familiar.web.gallery_executor import GalleryExecutor
from familiar.web.inference import BatchingInference
from familiar.web.jobs import JobQueue
from familiar.web.settings import Settings
from familiar.web.thumbnails import Thumbnails

P = ParamSpec("P")
T = TypeVar("T")


class Service:
    """The gallery's `threads`, the model as `vision`, the `jobs` that take photos in, their `pictures`, and the `roots`
    that none of them leaves."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        embedder = None if settings.model is None else Embedder(settings.model)
        detector = build_detector(settings.detector, settings.detector_model)
        _create_gallery_if_missing(settings, embedder)
        limits = settings.limits
        self.executor = GalleryExecutor(settings.gallery, limits.waiting_requests, read_only=settings.read_only)
        with self.executor.new_connection() as gallery:
            if embedder is not None:
                gallery.check_space(embedder.metadata.space_id, embedder.metadata.embedding_dim)
            self.allowed_paths = AllowedPaths.for_gallery(gallery, settings.roots)
        self.inference = BatchingInference(embedder, detector, limits)
        self.thumbnails = Thumbnails(limits)
        self.jobs = JobQueue(self.executor, self.inference, self.allowed_paths, limits)

    async def read_in_model_space(self, ask: Callable[Concatenate[Gallery, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`ask(gallery, ...)`, at a moment when what the model embeds compares with what the gallery holds.

        SpaceMismatch where the gallery was taken over to another model since the server was started.
        """
        space = Space.from_metadata(self.inference.embedder.metadata)

        def compare(gallery: Gallery) -> T:
            with gallery.reading():
                gallery.check_space(space.space_id, space.embedding_dim)
                return ask(gallery, *args, **kwargs)

        return await self.executor.read(compare)

    async def start(self) -> None:
        """In the event loop. Goes on with photos that were taken in, but not looked at, when it was last stopped."""
        await self.inference.start()
        if not self.settings.read_only:
            await self.jobs.start()

    async def stop(self) -> None:
        """What was acknowledged is written; jobs stop after the batch they are at."""
        await self.jobs.stop()
        await self.inference.stop()
        self.thumbnails.close()
        self.executor.close()


def get_service(request: Request) -> Service:
    return request.app.state.service


async def _service_dependency(request: Request) -> Service:
    """In the event loop: FastAPI asks a plain function in a thread."""
    return get_service(request)


ServiceDep = Annotated[Service, Depends(_service_dependency)]


def _create_gallery_if_missing(settings: Settings, embedder: Embedder | None) -> None:
    if (settings.gallery / DATABASE).exists():
        return
    if embedder is None or settings.read_only:
        raise BadGallery(
            f"{settings.gallery}: holds no gallery; give --model to make one, or enroll photos with: "
            f"familiar gallery enroll {settings.gallery} PHOTOS --model MODEL"
        )
    Gallery.create(settings.gallery, Space.from_metadata(embedder.metadata)).close()
