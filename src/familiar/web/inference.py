"""Dynamic batching of detection and embedding across concurrent requests.

Each thread takes a batch all the way from the files to the embeddings, as `embed_photos` does. So there is one handover
to a thread and one back, and no core waits for another.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from familiar.core.cpu import available_cores
from familiar.core.errors import FamiliarError, NoBundleForSpecies, NoFaceFound, UnreadablePhoto
from familiar.core.types import Crop, Face, Photo
from familiar.detection.alignment import align
from familiar.detection.detector import Detector, looked_for
from familiar.detection.quality import detect_faces, to_full_resolution
from familiar.embedding.all_faces import MIN_SCORE
from familiar.embedding.model import Model
from familiar.gallery.gallery_model import build_gallery_detector
from familiar.gallery.store.model_reference import NO_REFERENCE, ModelReference
from familiar.gallery.store.store import Store
from familiar.photos.decoding import decode_photo, read_photo_bytes
from familiar.photos.preprocessing import Preprocessing
from familiar.web.errors import HttpProblem, unavailable
from familiar.web.settings import Limits
from familiar.web.uploads import BadUpload, Upload

STOPPING = "the server is stopping"
_Embedded = tuple[np.ndarray, str | None] | FamiliarError
DEFAULT_BATCH = 8  # photos, if there is no network that determines the batch size


@dataclass(frozen=True, eq=False)
class PhotoResult:
    """(width, height) of the whole upright photo, and its faces, best first."""

    size_px: tuple[int, int]
    faces: tuple[Face, ...]


@dataclass(eq=False)
class _Request:
    """A caller's tasks: `done` is given a result, or an error, for each when none is `remaining`."""

    done: asyncio.Future[list[Any]]
    results: list[Any]
    remaining: int


@dataclass(frozen=True, eq=False)
class _Task:
    """A photo, or else crops. Of a photo, at most `max_faces` faces are returned."""

    photo: Path | Upload | None = None
    crops: Sequence[Crop] = ()
    embed: bool = True
    max_faces: int | None = None

    @property
    def weight(self) -> int:
        """Number of crops; a photo counts as one, since its number of faces is not known yet."""
        return len(self.crops) or 1


@dataclass(frozen=True, eq=False)
class _QueuedTask:
    """A task and the `index` of its result in the request."""

    request: _Request
    index: int
    task: _Task


class BatchingInference:
    """Detects and embeds faces in threads, in batches made of the tasks of all requests.

    Use it in the event loop in which it was started.

    Args:
        embedder: None: faces can be detected, but not embedded.
        detector: finds the faces.
        limits: more than `limits.waiting_requests` waiting photos, or batches of crops, are refused with 503.
        reference: of the gallery whose detector it is.

    Attributes:
        detector: finds the faces.
        reference: of the gallery when it was last read.
    """

    def __init__(
        self, embedder: Model | None, detector: Detector, limits: Limits, reference: ModelReference = NO_REFERENCE
    ) -> None:
        self.detector, self.reference = detector, reference
        self._embedder = embedder
        self._limits = limits
        self._align = partial(align, preprocessing=Preprocessing()) if embedder is None else embedder.align
        self._min_side_px = None if embedder is None else embedder.min_decoded_side_px(detector)
        self._batch_size = DEFAULT_BATCH if embedder is None else embedder.batch_size
        self._waiting: deque[_QueuedTask] = deque()
        self._ready = threading.Condition()  # guards `_waiting`, `_idle` and `_stopping`
        self._idle = 0
        self._stopping = False
        self._threads: list[threading.Thread] = []

    @property
    def has_model(self) -> bool:
        return self._embedder is not None

    @property
    def embedder(self) -> Model:
        """The model. Raises as `require_model`."""
        return self.require_model()

    def require_model(self) -> Model:
        """Return the model.

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
            self._min_side_px = self.embedder.min_decoded_side_px(self.detector)
            self.reference = reference

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        count = available_cores() if self._embedder is None else self._embedder.threads
        self._threads = [
            threading.Thread(target=self._run_worker, name=f"inference-{number}", daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    async def stop(self) -> None:
        """Finish the current batches; refuse the waiting tasks with 503."""
        with self._ready:
            self._stopping = True
            waiting = [*self._waiting]
            self._waiting.clear()
            self._ready.notify_all()
        _deliver([(queued, unavailable(STOPPING)) for queued in waiting])
        for thread in self._threads:
            await asyncio.to_thread(thread.join)
        await asyncio.sleep(0)  # delivers the threads' last results

    async def detect(self, photo: Path | Upload, *, embed: bool = True) -> PhotoResult:
        """Detect every face of a photo. Raises BadUpload, UnreadablePhoto."""
        return _result_or_raise(*await self._submit([_Task(photo, embed=embed)]))

    async def detect_all(
        self, photos: Sequence[Path | Upload], *, embed: bool = True
    ) -> list[PhotoResult | BadUpload | UnreadablePhoto | NoBundleForSpecies]:
        """Detect every face of each photo; for a bad photo, or one without a face that can be embedded, its error.

        The photos are submitted a few at a time, so that other requests get their turn.
        """
        step = self._batch_size * max(1, len(self._threads))
        results: list[PhotoResult | BadUpload | UnreadablePhoto | NoBundleForSpecies] = []
        for start in range(0, len(photos), step):
            part = await self._submit([_Task(photo, embed=embed) for photo in photos[start : start + step]])
            results += [
                result
                if isinstance(result, BadUpload | UnreadablePhoto | NoBundleForSpecies)
                else _result_or_raise(result)
                for result in part
            ]
        return results

    async def best_face(self, photo: Path | Upload) -> Face:
        """Return a photo's best face, embedded. Raises BadUpload, UnreadablePhoto, NoFaceFound."""
        result: PhotoResult = _result_or_raise(*await self._submit([_Task(photo, max_faces=1)]))
        if not result.faces:
            raise NoFaceFound(f"{_photo_name(photo)}: no {looked_for(self.detector)} found")
        return result.faces[0]

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

    async def embed(self, crops: Sequence[Crop]) -> Float32[np.ndarray, "n d"]:
        """Embed crops, one unit row per crop, in batches with those of other requests."""
        parts = [crops[start : start + self._batch_size] for start in range(0, len(crops), self._batch_size)]
        rows = [_result_or_raise(result) for result in await self._submit([_Task(crops=part) for part in parts])]
        return np.concatenate([self.embedder.embed_faces([]).embeddings, *rows])

    async def _submit(self, tasks: Sequence[_Task]) -> list[Any]:
        """Queue tasks and wait for their results, which may be exceptions."""
        if any(task.embed for task in tasks):
            self.require_model()
        request = _Request(asyncio.get_running_loop().create_future(), [None] * len(tasks), len(tasks))
        if not tasks:
            return []
        with self._ready:
            if self._stopping:
                raise unavailable(STOPPING)
            if len(self._waiting) >= self._limits.waiting_requests:
                self._waiting = deque(queued for queued in self._waiting if not queued.request.done.cancelled())
                if len(self._waiting) >= self._limits.waiting_requests:
                    raise unavailable("too many photos are waiting to be embedded; try again in a moment")
            self._waiting.extend(_QueuedTask(request, index, task) for index, task in enumerate(tasks))
            self._ready.notify(len(tasks))
        return await request.done

    # --- in the threads ---------------------------------------------------------------------------------------------

    def _run_worker(self) -> None:
        while True:
            with self._ready:
                self._idle += 1
                self._ready.wait_for(lambda: self._waiting or self._stopping)
                if self._stopping:
                    return
                batch = self._take_batch()
                self._idle -= 1
            results = self._process_batch([queued.task for queued in batch])
            self._loop.call_soon_threadsafe(_deliver, list(zip(batch, results, strict=True)))

    def _take_batch(self) -> list[_QueuedTask]:
        """Take waiting tasks, at most a batch; leave the other idle threads their share."""
        room = min(self._batch_size, -(-sum(queued.task.weight for queued in self._waiting) // self._idle))
        batch: list[_QueuedTask] = []
        while self._waiting and (not batch or self._waiting[0].task.weight <= room):
            queued = self._waiting.popleft()
            if not queued.request.done.cancelled():
                batch.append(queued)
                room -= queued.task.weight
        return batch

    def _process_batch(self, batch: Sequence[_Task]) -> list[Any]:
        """Return for each task its result, or the exception that was raised."""
        results = [self._detect(task) for task in batch]
        crops = [
            (index, crop)
            for index, (task, result) in enumerate(zip(batch, results, strict=True))
            if task.embed and not isinstance(result, Exception)
            for crop in (task.crops if result is None else [face.crop for face in result.faces])
            if crop is not None
        ]
        embedded: list[list[_Embedded]] = [[] for _ in batch]
        for start in range(0, len(crops), self._batch_size):  # a photo may show many faces
            part = crops[start : start + self._batch_size]
            try:
                outcomes = _embed(self.embedder, [crop for _, crop in part])
            except Exception as error:  # raised in the callers
                for index, _ in part:
                    results[index] = error
            else:
                for (index, _), outcome in zip(part, outcomes, strict=True):
                    embedded[index].append(outcome)
        return [_attach_embeddings(*columns) for columns in zip(batch, results, embedded, strict=True)]

    def _detect(self, task: _Task) -> PhotoResult | Exception | None:
        """Detect the faces of a task's photo. None if it has none, but crops."""
        if task.photo is None:
            return None
        try:
            photo = self._decode(task.photo)
            faces = detect_faces(photo, self.detector, self._align, MIN_SCORE)[: task.max_faces]
        except (BadUpload, UnreadablePhoto) as error:
            # The error may wait long for the request's other tasks, and its cause refers to the photo's bytes.
            error.__cause__ = error.__context__ = None
            return error.with_traceback(None)
        except Exception as error:  # raised in the caller
            return error
        return PhotoResult(photo.source_size_px, tuple(to_full_resolution(face, photo) for face in faces))

    def _decode(self, photo: Path | Upload) -> Photo:
        """Decode a photo at the size that detector and network need.

        An upload is validated only if it cannot be decoded: the header of all others is sound. Raises BadUpload,
        UnreadablePhoto.
        """
        content = photo.read() if isinstance(photo, Upload) else read_photo_bytes(photo)
        try:
            return decode_photo(
                content,
                _photo_name(photo),
                min_side_px=self._min_side_px,
                max_pixels=self._limits.photo_pixels,
            )
        except UnreadablePhoto:
            if isinstance(photo, Upload):
                photo.validate(content, self._limits)
            raise


def _embed(model: Model, crops: Sequence[Crop]) -> list[_Embedded]:
    """Return the embedding and species of each crop, or the error of one that no bundle of a router can embed."""
    result = model.embed_faces(crops)
    outcomes: list[_Embedded] = [(row, species) for row, species in zip(result.embeddings, result.species, strict=True)]
    for index, error in result.skipped_by_row().items():
        outcomes.insert(index, error)
    return outcomes


def _attach_embeddings(task: _Task, result: PhotoResult | Exception | None, outcomes: Sequence[_Embedded]) -> Any:
    """Return a task's result with its embeddings. Faces that cannot be embedded are left out; if none can, an error."""
    if isinstance(result, Exception) or not task.embed:
        return result
    errors = [outcome for outcome in outcomes if isinstance(outcome, FamiliarError)]
    if errors and (result is None or len(errors) == len(outcomes)):
        return errors[0]
    if result is None:
        return np.stack([outcome[0] for outcome in outcomes if not isinstance(outcome, FamiliarError)])
    faces = [
        replace(face, embedding=outcome[0], species=outcome[1])
        for face, outcome in zip(result.faces, outcomes, strict=True)
        if not isinstance(outcome, FamiliarError)
    ]
    return PhotoResult(result.size_px, tuple(faces))


def _deliver(results: Sequence[tuple[_QueuedTask, Any]]) -> None:
    for queued, result in results:
        request = queued.request
        request.results[queued.index] = result
        request.remaining -= 1
        if not request.remaining and not request.done.cancelled():
            request.done.set_result(request.results)


def _photo_name(photo: Path | Upload) -> Path | str:
    return photo.name if isinstance(photo, Upload) else photo


def _result_or_raise(result: Any) -> Any:
    if isinstance(result, Exception):
        raise result
    return result
