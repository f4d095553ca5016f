"""Detection and embedding of the photos of requests, in threads."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path

from familiar.core.cpu import available_cores
from familiar.core.errors import FamiliarError, NoFaceFound, NothingDetected, UnreadablePhoto
from familiar.core.types import Face, Photo
from familiar.detection.alignment import align
from familiar.detection.detector import Detector, looked_for, not_looked_for
from familiar.detection.faces import Choice, DetectedFaces, find_faces, min_decoded_side_px
from familiar.embedding.embedder import Embedder, without_tracebacks
from familiar.gallery import Gallery, ModelReference
from familiar.photos.decoding import decode_photo, read_photo_bytes
from familiar.photos.preprocessing import Preprocessing
from familiar.web.errors import HttpProblem, unavailable
from familiar.web.settings import Limits
from familiar.web.uploads import BadUpload, Upload

STOPPING = "the server is stopping"
THREADS_PER_RUN = 2  # while one embeds, the other decodes
WORKS_AT_ONCE = 16  # of a request


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
        self, embedder: Embedder | None, detector: Detector, limits: Limits, reference: ModelReference | None = None
    ) -> None:
        self.detector, self.reference = detector, reference or ModelReference()
        self._embedder = embedder
        self._limits = limits
        cores = available_cores() if embedder is None else embedder.threads
        self._pool = ThreadPoolExecutor(THREADS_PER_RUN * cores, "inference")
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
            raise HttpProblem(409, "no-model", "no model is loaded; start the server with --model MODEL")
        return self._embedder

    def require_model(self) -> None:
        """Raise an HttpProblem with 409 if the server has no model."""
        _ = self.embedder

    def follow(self, gallery: Gallery) -> None:
        """Use what the gallery has now: its models may have been added to, or all photos searched for others."""
        reference = gallery.model_reference
        if reference != self.reference:
            self._embedder = gallery.embedder
            self.detector = gallery.detector()
            self.reference = reference

    async def stop(self) -> None:
        """Finish the photos that are being processed; refuse the waiting ones with 503."""
        self._is_stopping = True
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)

    async def detect(self, photo: Path | Upload, *, embed: bool = True) -> DetectedFaces:
        """Detect every face of a photo.

        Raises:
            BadUpload, UnreadablePhoto: it is no photo, or a damaged one.
        """
        (result,) = await self.detect_all([photo], embed=embed)
        if isinstance(result, FamiliarError):
            raise result
        return result

    async def detect_all(
        self, photos: Sequence[Path | Upload], *, embed: bool = True, choice: Choice = "all"
    ) -> list[DetectedFaces | FamiliarError]:
        """Detect every face of each photo, or the best one; for a bad photo its error."""
        if embed:
            # Alone, a request is split over all threads; beside others it takes one, which costs less altogether.
            sources = iter(photos) if self._waiting else photos
            faces = partial(self.embedder.faces, sources, self.detector, open_photo=self._open, choice=choice)
            return await self._run(len(photos), [lambda: list(faces())])
        return await self._run(len(photos), [partial(self._find, photo) for photo in photos])

    async def best_faces(self, photos: Sequence[Path | Upload]) -> list[Face]:
        """Return the best face of each photo, embedded.

        Raises:
            BadUpload, UnreadablePhoto, NoFaceFound: of the first file that is no photo, else of the first photo
                without a face.
        """
        results = await self.detect_all(photos, choice="best")
        errors: list[FamiliarError] = []
        for result, photo in zip(results, photos, strict=True):
            if isinstance(result, NothingDetected):  # its advice is for commands
                others = not_looked_for(self.detector)
                only = f" (this album is not searched for {others})" if others else ""
                errors.append(NoFaceFound(f"{_photo_name(photo)}: no {looked_for(self.detector)} found{only}"))
            elif isinstance(result, FamiliarError):
                errors.append(result)
        if errors:
            raise min(errors, key=lambda error: not isinstance(error, BadUpload))
        return [result.faces[0] for result in results if isinstance(result, DetectedFaces)]

    async def _run(
        self, photos: int, works: Sequence[Callable[[], list[DetectedFaces | FamiliarError]]]
    ) -> list[DetectedFaces | FamiliarError]:
        """Work in threads, a few works at a time, so that other requests get their turn."""
        if self._is_stopping:
            raise unavailable(STOPPING)
        if self._waiting >= self._limits.waiting_requests:
            raise unavailable("too many photos are waiting to be embedded; try again in a moment")
        self._waiting += photos
        run = partial(asyncio.get_running_loop().run_in_executor, self._pool)
        results: list[DetectedFaces | FamiliarError] = []
        try:
            for start in range(0, len(works), WORKS_AT_ONCE):
                done = await asyncio.gather(*map(run, works[start : start + WORKS_AT_ONCE]))
                results += chain.from_iterable(done)
            return results
        except asyncio.CancelledError:
            if self._is_stopping:
                raise unavailable(STOPPING) from None
            raise
        finally:
            self._waiting -= photos

    # --- in the threads ---------------------------------------------------------------------------------------------

    def _find(self, photo: Path | Upload) -> list[DetectedFaces | FamiliarError]:
        """Find the faces of a photo without embedding them, also if no bundle could."""
        bundles = [] if self._embedder is None else self._embedder.all_bundles
        preprocessing = bundles[0].metadata.preprocessing if bundles else Preprocessing()
        try:
            decoded = self._open(photo, min_side_px=min_decoded_side_px(self.detector, [preprocessing]))
        except FamiliarError as error:
            return [without_tracebacks(error)]
        return [find_faces(decoded, self.detector, lambda photo, face: (align(photo, face, preprocessing), face.label))]

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
