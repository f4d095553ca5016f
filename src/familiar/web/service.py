"""The shared parts that request handlers use: made once when the server starts, closed when it stops."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Concatenate, ParamSpec, TypeVar

from fastapi import Depends, Request, UploadFile

from familiar.core.errors import BadGallery, FamiliarError
from familiar.core.field_types import Vector
from familiar.core.gallery_types import GalleryPhoto
from familiar.core.types import Box, Face
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
from familiar.web.thumbnails import Thumbnail, Thumbnails
from familiar.web.uploads import to_uploads

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

    async def photo_image(self, photo: int, side_px: int) -> Thumbnail:
        """Return a photo of the gallery, reduced in size. NotInGallery, UnreadablePhoto, HttpProblem."""
        known, path = await self.executor.read(self._locate, photo)
        return await self.thumbnails.photo(path, known.sha256, side_px)

    async def face_image(self, face: int, side_px: int) -> Thumbnail:
        """Return a square around a face of the gallery. NotInGallery, UnreadablePhoto, HttpProblem."""

        def find(gallery: Gallery) -> tuple[Box, GalleryPhoto, Path]:
            with gallery.read():
                known = gallery.face(face)
                return known.box_xyxy_px, *self._locate(gallery, known.photo)

        box, photo, path = await self.executor.read(find)
        return await self.thumbnails.face(path, photo.sha256, box, side_px)

    async def add_face(self, photo: int, box: Box, species: str | None) -> int:
        """Add a face that the detector missed, and return its number."""
        self.inference.require_model()

        def add(gallery: Gallery) -> int:
            return gallery.add_face(photo, box, path=self._locate(gallery, photo)[1], species=species)

        return await self.executor.compute_then_write(add)

    async def set_face_box(self, face: int, box: Box) -> int | None:
        """Give a face another box, and return its identity then."""
        self.inference.require_model()

        def change(gallery: Gallery) -> int | None:
            gallery.set_face_box(face, box, path=self._locate(gallery, gallery.face(face).photo)[1])
            return gallery.face(face).identity

        return await self.executor.compute_then_write(change)

    def _locate(self, gallery: Gallery, photo: int) -> tuple[GalleryPhoto, Path]:
        """Return a photo and its resolved path. HttpProblem if that leads out of the allowed folders."""
        known = gallery.photo(photo)
        return known, self.allowed_paths.resolve(Path(known.path))

    async def best_faces(self, *files: UploadFile) -> tuple[list[Face], list[Vector]]:
        """Return the best face of each photo of a request, and their embeddings.

        Raises:
            NoFaceFound, UnreadablePhoto, HttpProblem: as `Inference.best_faces` and `to_uploads`.
        """
        faces = await self.inference.best_faces(to_uploads(files, self.settings.limits))
        return faces, [face.embedding for face in faces if face.embedding is not None]

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
