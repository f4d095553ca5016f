"""The work of one background job: find photos, enroll them, cluster their faces, build the search index."""

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from familiar.core.errors import FamiliarError, GalleryBusy, IndexUnavailable, UnreadablePhoto
from familiar.core.file_names import name_before_upload
from familiar.core.gallery_types import Progress, SkippedPhoto
from familiar.detection.detector import Detector, looked_for
from familiar.detection.detectors import CROP_DETECTORS
from familiar.gallery import EnrollResult, Gallery
from familiar.photos.decoding import is_content_broken
from familiar.photos.listing import find_photos
from familiar.web.allowed_paths import AllowedPaths
from familiar.web.errors import HttpProblem
from familiar.web.gallery_executor import GalleryExecutor
from familiar.web.inference import Inference
from familiar.web.uploads import split_error_path

log = logging.getLogger(__name__)

MAX_SHOWN_SKIPPED = 200  # skipped photos of a job
MAX_REBUILT_FACES = 20_000  # more take longer than a few seconds to be clustered
BUSY_RETRY_SECONDS = 1.0  # pause before a busy gallery is tried again, in addition to the ten seconds of each try
OUTSIDE_REASON = "a link that leads out of the folders that this server reads"
DELETED_REASON = "was deleted before it was processed"

T = TypeVar("T")


@dataclass(frozen=True)
class Work:
    """What a job does.

    Attributes:
        paths: files and folders within the allowed folders, to be enrolled.
        redetect: instead, look for faces again in the gallery's photos: with this detector.
        models: instead of both, migrate the gallery to these.
    """

    paths: Sequence[Path] = ()
    redetect: str | None = None
    models: Sequence[str] = ()


def merge_progress(base: Progress, progress: Progress) -> Progress:
    """Add the counts and skipped photos of a previous job to those of the job that continues it."""
    counts = {name: count + getattr(base, name) for name, count in vars(progress).items() if isinstance(count, int)}
    skipped = (*base.skipped, *progress.skipped)[:MAX_SHOWN_SKIPPED]
    return replace(progress, **counts | {"skipped": skipped, "after_photo": base.after_photo})


class StopRequested(Exception):
    """Ends a job because the server stops."""


@dataclass(eq=False)
class EnrollmentJob:
    """The work of one job, done by `run` in the worker thread.

    Attributes:
        progress: as it was when the job was submitted, then as it was last reported, also after `run` has raised.
        stopping: set when the server stops; the job then ends after its current batch.
        report: called with the progress at each change.
    """

    work: Work
    progress: Progress
    executor: GalleryExecutor
    inference: Inference
    allowed_paths: AllowedPaths
    stopping: threading.Event
    report: Callable[[Progress], None]
    _enrolled_count: int = 0
    _enrolled: EnrollResult = field(default_factory=EnrollResult)

    def __post_init__(self) -> None:
        self._not_enrolled = [*self.progress.skipped]
        self._not_listed = self.progress.skipped_count - len(self.progress.skipped)

    @property
    def _not_enrolled_count(self) -> int:
        return self._not_listed + len(self._not_enrolled)

    def run(self) -> None:
        """Enroll the photos, then cluster the faces and build the search index.

        Raises:
            StopRequested: the server stops.
            FamiliarError: a path cannot be read, or the gallery cannot be written.
        """
        self._raise_if_stopping()
        self._update(state="processing")
        with self.executor.connect() as gallery:
            self.inference.follow(gallery)
            last_photo = gallery.photos(before=2**63 - 1, limit=1)
            self._update(after_photo=last_photo[0].photo if last_photo else 0)
            if self.work.models:
                self._migrate(gallery)
            elif self.work.redetect is None:
                self._enroll(gallery, self._find_photos())
                self._delete_corrupt_uploads()
            else:
                self._look_again(gallery, self.work.redetect)
            if self._enrolled.faces or self._enrolled.edited or gallery.needs_clustering():
                self._update(state="clustering")
                self._update(new_individuals=self._retry_while_busy(lambda: _cluster_and_count_new(gallery)))
            self._retry_while_busy(partial(update_index, gallery))

    def _update(self, **changes: Any) -> None:
        self.progress = replace(self.progress, **changes)
        self.report(self.progress)

    def _raise_if_stopping(self) -> None:
        if self.stopping.is_set():
            raise StopRequested

    def _retry_while_busy(self, work: Callable[[], T]) -> T:
        """Call `work` until no other process writes. Giving up would lose the job's photos."""
        while True:
            try:
                return work()
            except GalleryBusy:
                self.stopping.wait(BUSY_RETRY_SECONDS)
                self._raise_if_stopping()

    # --- photos -----------------------------------------------------------------------------------------------------

    def _find_photos(self) -> list[Path]:
        """List the photos by their resolved paths, each once; collect those that are outside or deleted."""
        photos: dict[Path, None] = {}
        for path in self.work.paths:
            try:
                files = find_photos([path])
            except UnreadablePhoto as error:
                if path.is_relative_to(self.allowed_paths.uploads):  # forgotten, or corrupt and sent twice
                    self._not_enrolled.append(SkippedPhoto(self._display_path(path), DELETED_REASON))
                    continue
                raise UnreadablePhoto(f"{self._display_path(path)}: no photo found") from error
            for file in files:
                self._raise_if_stopping()
                if (resolved := self._resolve(file)) is not None:
                    photos[resolved] = None
        return list(photos)

    def _resolve(self, path: Path) -> Path | None:
        """Return where a photo is; None, and note that, if it lies outside the allowed folders."""
        try:
            return self.allowed_paths.resolve(path)
        except HttpProblem:
            self._not_enrolled.append(SkippedPhoto(self._display_path(path), OUTSIDE_REASON))
            return None

    def _display_path(self, path: Path) -> str:
        """Return a path relative to its root; the root itself by its name."""
        if path.is_relative_to(self.allowed_paths.uploads):
            return name_before_upload(path)
        for root in self.allowed_paths.folders:
            if path.is_relative_to(root):
                return str(path.relative_to(root)) if path != root else root.name
        return path.name

    # --- enrollment -------------------------------------------------------------------------------------------------

    def _enroll(self, gallery: Gallery, photos: Sequence[Path]) -> None:
        """Enroll photos."""
        detector = self.inference.detector
        self._update(total=len(photos) + self._not_enrolled_count)
        self._process(partial(gallery.enroll, detector=detector), photos, map(str, photos), detector)

    def _process(
        self, work: Callable[..., EnrollResult], photos: Sequence[Any], paths: Iterable[str], detector: Detector
    ) -> None:
        """Enroll photos, or look at them again; after the gallery was busy, resume with the next batch.

        Args:
            work: `Gallery.enroll` or `Gallery.redetect`.
            photos: what it takes.
            paths: of these photos.
            detector: finds the faces.
        """
        names = frozenset(paths)

        def process_remaining() -> EnrollResult:
            start, before = self._enrolled_count, self._enrolled

            def on_batch(count: int, result: EnrollResult) -> None:
                self._enrolled_count, self._enrolled = start + count, before + result
                self._report_enrolled(names, detector)

            remaining = photos[start:]  # none if all lie outside, or if the gallery was busy after the last batch
            return before + work(remaining, on_batch=on_batch) if remaining else before

        self._enrolled = self._retry_while_busy(process_remaining)
        self._enrolled_count = len(photos)
        self._report_enrolled(names, detector)  # also if there was no batch

    def _look_again(self, gallery: Gallery, chosen: str) -> None:
        """Look for faces in the gallery's photos again: with another detector in all, else where nothing was found."""
        reference, detector = gallery.model_reference, gallery.other_detector(chosen)
        to_search = gallery.photos_to_search(without_face=chosen == reference.detector)
        photos = [photo for photo in to_search if self._resolve(Path(photo.path))]
        self._update(total=len(photos) + self._not_enrolled_count)
        were_crops = reference.detector in CROP_DETECTORS
        work = partial(gallery.redetect, detector=detector, were_crops=were_crops)
        self._process(work, photos, (str(photo.path) for photo in photos), detector)
        self._retry_while_busy(lambda: gallery.remember_detector(chosen))
        self.inference.follow(gallery)

    def _migrate(self, gallery: Gallery) -> None:
        """Embed all faces with other models, then look in all photos for those that only these are made for."""
        photos = gallery.photo_paths()
        self._update(total=len(photos))

        def on_batch(done: int) -> None:
            self._update(processed=min(done, len(photos)))
            self._raise_if_stopping()

        result = self._retry_while_busy(lambda: gallery.migrate(self.work.models, on_batch=on_batch))
        self._enrolled, self._enrolled_count = result.redetection, len(photos)
        self.inference.follow(gallery)
        self._report_enrolled(frozenset(photos), self.inference.detector)

    def _report_enrolled(self, names: Collection[str], detector: Detector) -> None:
        result = self._enrolled
        errors = (*result.skipped, *result.skipped_faces)
        failed = [self._to_skipped_photo(error, names) for error in errors[:MAX_SHOWN_SKIPPED]]
        self._update(
            processed=self._enrolled_count + self._not_enrolled_count,
            photos=result.photos,
            faces=result.faces,
            without_face=result.without_face,
            without_bundle=result.without_bundle,
            looked_for=looked_for(detector),
            known=result.known + result.edited,
            skipped=(*self._not_enrolled, *failed)[:MAX_SHOWN_SKIPPED],
            skipped_count=self._not_enrolled_count + len(errors),
        )
        self._raise_if_stopping()

    def _to_skipped_photo(self, error: FamiliarError, names: Collection[str]) -> SkippedPhoto:
        path, reason = split_error_path(error, names)
        return SkippedPhoto("a photo" if path is None else self._display_path(path), reason)

    def _delete_corrupt_uploads(self) -> None:
        """Delete uploads that proved to be no photos, or the next start would process them again.

        Not files that users put there themselves, and not those that the disk has damaged, which `check` reports.
        """
        uploads = frozenset(str(path) for path in self.work.paths if path.is_relative_to(self.allowed_paths.uploads))
        for error in filter(is_content_broken, self._enrolled.skipped):
            path, _ = split_error_path(error, uploads)
            if path is not None and Gallery.has_uploaded_content(path):
                with contextlib.suppress(OSError):
                    path.unlink()


def update_index(gallery: Gallery, *, build: bool = True) -> None:
    """Update the search index; if it is out of reach, say so in the log."""
    try:
        gallery.update_index(build=build)
    except IndexUnavailable as error:
        log.warning("%s, so the index is behind the gallery; run: familiar gallery index %s", error, gallery.folder)


def _cluster_and_count_new(gallery: Gallery) -> int:
    """Cluster the gallery's faces and return the number of identities that this created.

    Photos that are added come in parts, and a part tells less than the whole: as long as nobody has corrected anything,
    all faces are clustered again, or the clusters of the first part would stay.
    """
    last_identity = gallery.last_identity()
    gallery.cluster(rebuild=gallery.counts().faces <= MAX_REBUILT_FACES and gallery.is_uncorrected())
    return gallery.count_identities_after(last_identity)
