"""Detection and embedding of the photos of requests, in threads. What is embedded at once goes in common batches."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar

from familiar.core.cpu import available_cores
from familiar.core.errors import FamiliarError, NoFaceFound, UnreadablePhoto
from familiar.core.types import Face, Photo
from familiar.detection.detector import Detector, looked_for
from familiar.detection.faces import Choice, FoundFaces, find_faces, min_decoded_side_px, with_crop
from familiar.embedding.embedder import Embedder
from familiar.gallery.gallery_model import build_gallery_detector
from familiar.gallery.store.model_reference import NO_REFERENCE, ModelReference
from familiar.gallery.store.store import Store
from familiar.photos.decoding import decode_photo, read_photo_bytes
from familiar.photos.preprocessing import Preprocessing
from familiar.web.errors import HttpProblem, unavailable
from familiar.web.settings import Limits
from familiar.web.uploads import BadUpload, Upload

STOPPING = "the server is stopping"
THREADS_PER_RUN = 2  # while one embeds, the other decodes
Result = TypeVar("Result")


class Inference:
    """Finds and embeds the faces of photos, in threads.

    Args:
        embedder: None: faces can be detected, but not embedded.
        detector: finds the faces.
        limits: more than `limits.waiting_requests` waiting photos are refused with 503.
        reference: of the gallery whose detector it is.

    Attributes:
        detector: finds the faces.
        reference: of the gallery when it was last read.
    """

    def __init__(
        self, embedder: Embedder | None, detector: Detector, limits: Limits, reference: ModelReference = NO_REFERENCE
    ) -> None:
        self.detector, self.reference = detector, reference
        self._embedder = embedder
        self._limits = limits
        self._threads = THREADS_PER_RUN * (available_cores() if embedder is None else embedder.threads)
        self._pool = ThreadPoolExecutor(self._threads, "inference")
        self._waiting = 0
        self._is_stopping = False

    @property
    def has_model(self) -> bool:
        return self._embedder is not None

    @property
    def embedder(self) -> Embedder:
        """The model.

        Raises:
            HttpProblem: 409, the server has none.
        """
        if self._embedder is None:
            raise HttpProblem(
                HTTPStatus.CONFLICT, "no-model", "no model is loaded; start the server with --model MODEL"
            )
        return self._embedder

    def follow(self, gallery: Store) -> None:
        """Use the detector that the gallery has now: another process may have searched all photos with another one."""
        reference = gallery.model_reference
        if reference != self.reference:
            self.detector = build_gallery_detector(self.embedder, reference)
            self.reference = reference

    async def stop(self) -> None:
        """Finish the photos that are being processed; refuse the waiting ones with 503."""
        self._is_stopping = True
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)

    async def detect(self, photo: Path | Upload, *, embed: bool = True) -> FoundFaces:
        """Detect every face of a photo.

        Raises:
            BadUpload, UnreadablePhoto: it is no photo, or a damaged one.
        """
        if not embed:
            return await self._run(lambda: self._find(photo))
        embedder = self.embedder
        return await self._run(lambda: self._embed(embedder, photo, "all"))

    async def detect_all(
        self, photos: Sequence[Path | Upload], *, embed: bool = True
    ) -> list[FoundFaces | BadUpload | UnreadablePhoto]:
        """Detect every face of each photo; for a bad one its error.

        The photos are submitted a few at a time, so that other requests get their turn.
        """
        results: list[FoundFaces | BadUpload | UnreadablePhoto] = []
        for start in range(0, len(photos), self._threads):
            part = photos[start : start + self._threads]
            detected = (self.detect(photo, embed=embed) for photo in part)
            for result in await asyncio.gather(*detected, return_exceptions=True):
                if not isinstance(result, FoundFaces | BadUpload | UnreadablePhoto):
                    raise result
                if isinstance(result, Exception):  # its cause refers to the photo's bytes
                    result.__cause__ = result.__context__ = None
                    result = result.with_traceback(None)
                results.append(result)
        return results

    async def best_face(self, photo: Path | Upload) -> Face:
        """Return a photo's best face, embedded.

        Raises:
            BadUpload, UnreadablePhoto, NoFaceFound: there is none.
        """
        embedder = self.embedder
        try:
            return (await self._run(lambda: self._embed(embedder, photo, "best"))).faces[0]
        except NoFaceFound as error:
            raise NoFaceFound(f"{_photo_name(photo)}: no {looked_for(self.detector)} found") from error

    async def best_faces(self, photos: Sequence[Path | Upload]) -> list[Face]:
        """Return the best face of each photo, embedded.

        Raises:
            BadUpload, UnreadablePhoto, NoFaceFound: of the first file that is no photo, else of the first photo
                without a face.
        """
        results = await asyncio.gather(*map(self.best_face, photos), return_exceptions=True)
        errors = [error for error in results if isinstance(error, BaseException)]
        if errors:
            raise min(errors, key=lambda error: not isinstance(error, BadUpload))
        return [face for face in results if isinstance(face, Face)]

    async def _run(self, work: Callable[[], Result]) -> Result:
        if self._is_stopping:
            raise unavailable(STOPPING)
        if self._waiting >= self._limits.waiting_requests:
            raise unavailable("too many photos are waiting to be embedded; try again in a moment")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except asyncio.CancelledError:
            if self._is_stopping:
                raise unavailable(STOPPING) from None
            raise
        finally:
            self._waiting -= 1

    # --- in the threads ---------------------------------------------------------------------------------------------

    def _embed(self, embedder: Embedder, photo: Path | Upload, choice: Choice) -> FoundFaces:
        (detected,) = embedder.faces([photo], self.detector, open_photo=self._open, choice=choice)
        if isinstance(detected, FamiliarError):
            raise detected
        return detected

    def _find(self, photo: Path | Upload) -> FoundFaces:
        bundles = [] if self._embedder is None else self._embedder.all_bundles
        preprocessing = bundles[0].metadata.preprocessing if bundles else Preprocessing()
        decoded = self._open(photo, min_side_px=min_decoded_side_px(self.detector, preprocessing))
        return find_faces(
            decoded,
            self.detector,
            lambda photo, face: with_crop(photo, replace(face, species=face.label), preprocessing),
        )

    def _open(self, photo: Path | Upload, *, min_side_px: int | None = None) -> Photo:
        """Decode a photo at the size that detector and network need.

        An upload is validated only if it cannot be decoded: the header of all others is sound. Raises BadUpload,
        UnreadablePhoto.
        """
        content = photo.read() if isinstance(photo, Upload) else read_photo_bytes(photo)
        try:
            return decode_photo(
                content, _photo_name(photo), min_side_px=min_side_px, max_pixels=self._limits.photo_pixels
            )
        except UnreadablePhoto:
            if isinstance(photo, Upload):
                photo.validate(content, self._limits)
            raise


def _photo_name(photo: Path | Upload) -> Path | str:
    return photo.name if isinstance(photo, Upload) else photo
