"""The model at work for many requests at once: what they ask for meanwhile is done together.

Each thread takes a batch from the files to the embeddings, as `embed_photos` does. So one thing is handed to it and one
comes back, and no core waits for another.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from familiar.core.cpu import available_cores
from familiar.core.errors import NoFaceFound, UnreadablePhoto
from familiar.core.types import Crop, Detection, Photo
from familiar.detection.detectors import Detector
from familiar.detection.quality import detect_faces, to_full_resolution
from familiar.embedding.embedder import Embedder, min_decoded_side_px
from familiar.gallery.enrollment.enroll import MIN_SCORE
from familiar.photos.decoding import decode_photo, read_photo_bytes
from familiar.photos.preprocessing import Preprocessing, to_tensor
from familiar.web.errors import HttpProblem, unavailable
from familiar.web.settings import Limits
from familiar.web.uploads import BadUpload, Upload

STOPPING = "the server is stopping"
DEFAULT_BATCH = 8  # photos a batch where there is no network to say it


@dataclass(frozen=True, eq=False)
class DetectedFace:
    """One face, in pixels of the whole upright photo. `embedding` is None where it was not asked for."""

    detection: Detection
    crop: Crop
    quality: float
    embedding: Float32[np.ndarray, " d"] | None


@dataclass(frozen=True, eq=False)
class PhotoResult:
    """(width, height) of the whole upright photo, and its faces, best first."""

    size_px: tuple[int, int]
    faces: tuple[DetectedFace, ...]


@dataclass(eq=False)
class _Request:
    """What one caller waits for: an answer, or an error, to each thing it asked."""

    done: asyncio.Future[list[Any]]
    results: list[Any]
    remaining: int


@dataclass(frozen=True, eq=False)
class _Task:
    """One of a request: a photo, or else crops. `most`: so many of the photo's faces."""

    photo: Path | Upload | None = None
    crops: Sequence[Crop] = ()
    embed: bool = True
    max_faces: int | None = None

    @property
    def weight(self) -> int:
        """In crops; how many a photo shows is not known yet."""
        return len(self.crops) or 1


@dataclass(frozen=True, eq=False)
class _QueuedTask:
    request: _Request
    index: int
    task: _Task


class BatchingInference:
    """`embedder` None: faces are found, but not embedded.

    More than `limits.waiting` photos, or batches of crops, that wait are refused with 503. To be used in the event loop
    in which it was started.
    """

    def __init__(self, embedder: Embedder | None, detector: Detector, limits: Limits) -> None:
        self.detector = detector
        self._embedder = embedder
        self._limits = limits
        self._preprocessing = Preprocessing() if embedder is None else embedder.metadata.preprocessing
        self._batch_size = DEFAULT_BATCH if embedder is None else embedder.batch_size
        self._waiting: deque[_QueuedTask] = deque()
        self._ready = threading.Condition()  # guards what waits, and the two that follow
        self._idle = 0
        self._stopping = False
        self._threads: list[threading.Thread] = []

    @property
    def has_model(self) -> bool:
        return self._embedder is not None

    @property
    def embedder(self) -> Embedder:
        """Refused with 409 where the server has none."""
        if self._embedder is None:
            raise HttpProblem(HTTPStatus.CONFLICT, "no-model", "this server embeds nothing; start it with --model MODEL")
        return self._embedder

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        count = available_cores() if self._embedder is None else self._embedder.threads
        self._threads = [
            threading.Thread(target=self._run_worker, name=f"vision-{number}", daemon=True) for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    async def stop(self) -> None:
        """What is under way is finished; what waits is refused with 503."""
        with self._ready:
            self._stopping = True
            left = [*self._waiting]
            self._waiting.clear()
            self._ready.notify_all()
        _deliver([(waiting, unavailable(STOPPING)) for waiting in left])
        for thread in self._threads:
            await asyncio.to_thread(thread.join)
        await asyncio.sleep(0)  # what they handed over last is delivered

    async def detect(self, photo: Path | Upload, *, embed: bool = True) -> PhotoResult:
        """Every face of a photo. BadUpload, UnreadablePhoto."""
        return _result_or_raise(*await self._submit([_Task(photo, embed=embed)]))

    async def detect_all(
        self, photos: Sequence[Path | Upload], *, embed: bool = True
    ) -> list[PhotoResult | BadUpload | UnreadablePhoto]:
        """Every face of each; a bad photo's error in its place. A few at a time, so that others get their turn."""
        at_once = self._batch_size * max(1, len(self._threads))
        looked: list[PhotoResult | BadUpload | UnreadablePhoto] = []
        for start in range(0, len(photos), at_once):
            answers = await self._submit([_Task(photo, embed=embed) for photo in photos[start : start + at_once]])
            looked += [
                answer if isinstance(answer, BadUpload | UnreadablePhoto) else _result_or_raise(answer) for answer in answers
            ]
        return looked

    async def best_face(self, photo: Path | Upload) -> DetectedFace:
        """A photo's best face, embedded. BadUpload, UnreadablePhoto, NoFaceFound."""
        looked: PhotoResult = _result_or_raise(*await self._submit([_Task(photo, max_faces=1)]))
        if not looked.faces:
            raise NoFaceFound(f"{_photo_name(photo)}: no face found")
        return looked.faces[0]

    async def best_faces(self, photos: Sequence[Path | Upload]) -> list[DetectedFace]:
        """`best` of each. Where several have none, the first that is no photo is told, else the first."""
        found = await asyncio.gather(*map(self.best_face, photos), return_exceptions=True)
        errors = [error for error in found if isinstance(error, BaseException)]
        if errors:
            raise min(errors, key=lambda error: not isinstance(error, BadUpload))
        return [seen for seen in found if isinstance(seen, DetectedFace)]

    async def embed(self, crops: Sequence[Crop]) -> Float32[np.ndarray, "n d"]:
        """One unit row per crop, computed together with those of other requests."""
        parts = [crops[start : start + self._batch_size] for start in range(0, len(crops), self._batch_size)]
        rows = [_result_or_raise(answer) for answer in await self._submit([_Task(crops=part) for part in parts])]
        return np.concatenate([self.embedder.empty_embeddings(), *rows])

    async def _submit(self, things: Sequence[_Task]) -> list[Any]:
        if any(asked.embed for asked in things):
            self.embedder  # noqa: B018 - refuses where there is none
        request = _Request(asyncio.get_running_loop().create_future(), [None] * len(things), len(things))
        if not things:
            return []
        with self._ready:
            if self._stopping:
                raise unavailable(STOPPING)
            if len(self._waiting) >= self._limits.waiting_requests:
                self._waiting = deque(waiting for waiting in self._waiting if not waiting.request.done.cancelled())
                if len(self._waiting) >= self._limits.waiting_requests:
                    raise unavailable("too many photos wait for the network; try again in a moment")
            self._waiting.extend(_QueuedTask(request, place, asked) for place, asked in enumerate(things))
            self._ready.notify(len(things))
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
            answers = self._process_batch([waiting.task for waiting in batch])
            self._loop.call_soon_threadsafe(_deliver, list(zip(batch, answers, strict=True)))

    def _take_batch(self) -> list[_QueuedTask]:
        """What waits, at most a batch of it; where other threads are free too, their share is left to them."""
        room = min(self._batch_size, -(-sum(each.task.weight for each in self._waiting) // self._idle))
        batch: list[_QueuedTask] = []
        while self._waiting and (not batch or self._waiting[0].task.weight <= room):
            waiting = self._waiting.popleft()
            if not waiting.request.done.cancelled():
                batch.append(waiting)
                room -= waiting.task.weight
        return batch

    def _process_batch(self, batch: Sequence[_Task]) -> list[Any]:
        """What each asked for, or the error that came instead."""
        answers = [self._detect(asked) for asked in batch]
        wanted = [
            (place, crop)
            for place, (asked, answer) in enumerate(zip(batch, answers, strict=True))
            if asked.embed and not isinstance(answer, Exception)
            for crop in (asked.crops if answer is None else [seen.crop for seen in answer.faces])
        ]
        rows: list[list[np.ndarray]] = [[] for _ in batch]
        for start in range(0, len(wanted), self._batch_size):  # a photo may show many faces
            part = wanted[start : start + self._batch_size]
            try:
                embeddings = self.embedder.run(to_tensor([crop for _, crop in part], self._preprocessing))
            except Exception as error:  # whoever asked is told
                for place, _ in part:
                    answers[place] = error
            else:
                for (place, _), row in zip(part, embeddings, strict=True):
                    rows[place].append(row)
        return [_attach_embeddings(*each) for each in zip(batch, answers, rows, strict=True)]

    def _detect(self, asked: _Task) -> PhotoResult | Exception | None:
        """None where there is nothing to look at."""
        if asked.photo is None:
            return None
        try:
            photo = self._decode(asked.photo)
            faces = detect_faces(photo, self.detector, self._preprocessing, MIN_SCORE)[: asked.max_faces]
        except (BadUpload, UnreadablePhoto) as error:
            # Others of the request may take long, and what led to it holds the photo's bytes.
            error.__cause__ = error.__context__ = None
            return error.with_traceback(None)
        except Exception as error:  # whoever asked is told
            return error
        seen = [DetectedFace(to_full_resolution(face.detection, photo), face.crop, face.quality, None) for face in faces]
        return PhotoResult(photo.source_size_px, tuple(seen))

    def _decode(self, photo: Path | Upload) -> Photo:
        """BadUpload, UnreadablePhoto. Only what cannot be decoded is judged: the header of others is sound."""
        content = photo.read() if isinstance(photo, Upload) else read_photo_bytes(photo)
        try:
            return decode_photo(
                content,
                _photo_name(photo),
                min_side_px=min_decoded_side_px(self.detector, self._preprocessing),
                max_pixels=self._limits.photo_pixels,
            )
        except UnreadablePhoto:
            if isinstance(photo, Upload):
                photo.validate(content, self._limits)
            raise


def _attach_embeddings(asked: _Task, answer: PhotoResult | Exception | None, rows: Sequence[np.ndarray]) -> Any:
    if isinstance(answer, Exception) or not asked.embed:
        return answer
    if answer is None:
        return np.stack(rows)
    faces = [replace(seen, embedding=row) for seen, row in zip(answer.faces, rows, strict=True)]
    return PhotoResult(answer.size_px, tuple(faces))


def _deliver(answers: Sequence[tuple[_QueuedTask, Any]]) -> None:
    for waiting, answer in answers:
        request = waiting.request
        request.results[waiting.index] = answer
        request.remaining -= 1
        if not request.remaining and not request.done.cancelled():
            request.done.set_result(request.results)


def _photo_name(photo: Path | Upload) -> Path | str:
    return photo.name if isinstance(photo, Upload) else photo


def _result_or_raise(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer
