"""Photos that a client sent: judged by content before they are decoded or kept, gone when the request ends unless kept.

The form parser has streamed them into memory where they are small, and into temporary files without a name where they
are not: a process that is killed leaves none behind.
"""

import contextlib
import hashlib
import os
import re
import threading
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile

from familiar.core.errors import CannotWrite, FamiliarError, UnreadablePhoto
from familiar.core.files import fsync_directory, remove_unfinished_files, write_atomically
from familiar.core.terminal_text import printable
from familiar.gallery.database.connection import Gallery
from familiar.photos.decoding import detect_format, find_photos, read_header
from familiar.web.errors import HttpProblem
from familiar.web.settings import MB, Limits

MAX_WRITE_SECONDS = 3600  # of one photo
MAX_NAME_SUFFIX_BYTES = 100
MAX_NAME_CHARACTERS = 200  # characters of a client's name that are told back
SUFFIX = {
    "JPEG": ".jpg",
    "PNG": ".png",
    "WEBP": ".webp",
    "BMP": ".bmp",
    "TIFF": ".tif",
    "GIF": ".gif",
    "PPM": ".ppm",
}


class BadUpload(HttpProblem):
    """What was sent is no photo by its content (415), or is too large (413)."""


@dataclass(frozen=True, eq=False)
class Upload:
    """A photo of a request. `name` is the client's, only ever to tell it back."""

    file: UploadFile
    name: str
    size_bytes: int
    _read_lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self) -> bytes:
        """All of it, in a thread that may wait for the disk."""
        with self._read_lock:
            self.file.file.seek(0)
            return self.file.file.read()

    def validate(self, content: bytes, limits: Limits) -> None:
        """BadUpload where what was `read` is no photo, or one of more pixels than are allowed."""
        try:
            width, height = read_header(content, self.name).size_px
        except UnreadablePhoto as error:
            raise BadUpload(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "not-a-photo", str(error)) from error
        if width * height > limits.photo_pixels:
            raise _too_large_error(self.name, f"{width} x {height} px", f"{limits.photo_pixels:,} pixels")


@dataclass(frozen=True)
class SkippedPhoto:
    """A photo that was not taken, by its name or its path within its folder, and why."""

    name: str
    reason: str


@contextlib.asynccontextmanager
async def receive(
    files: Sequence[UploadFile], limits: Limits, *, skipped: list[SkippedPhoto] | None = None
) -> AsyncIterator[list[Upload]]:
    """The photos of a request, which are gone afterwards; their content is for `Upload.judge`.

    Refused with 413 where there are too many, or one is too large in bytes. Where `skipped` is given, such a photo is
    put there instead, and the others are received.
    """
    try:
        if len(files) > limits.photos_per_request:
            raise HttpProblem(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                "too-many",
                f"{len(files):,} photos in one request are more than {limits.photos_per_request:,}; send them in several",
            )
        yield _within_size_limit([Upload(file, printable_name(file.filename), file.size or 0) for file in files], limits, skipped)
    finally:
        for file in files:
            await file.close()


async def store(
    uploads: Sequence[Upload], folder: Path, limits: Limits, *, skipped: list[SkippedPhoto] | None = None
) -> list[Path]:
    """Their places in `folder`, where they are on the disk from now on. One content is one file.

    A BadUpload refuses all of them; where `skipped` is given, it is put there instead. CannotWrite.
    """
    return await run_in_threadpool(_store, uploads, folder, limits, skipped)


def find_unprocessed_uploads(gallery: Gallery, own: Path) -> list[Path]:
    """Photos kept in `own`, which are named by their content, that the gallery does not know.

    Half ones are cleared away, but for those that another server may be writing.
    """
    for folder in own.glob("*"):
        remove_unfinished_files(folder, older_than_seconds=MAX_WRITE_SECONDS)
    try:
        uploaded = find_photos([own])
    except UnreadablePhoto:  # there is none
        return []
    with gallery.reading() as connection:
        known = dict(connection.execute("SELECT hex(sha256), path FROM photos").fetchall())
    return [path for path in uploaded if not os.path.exists(known.get(path.name[:64].upper(), ""))]  # noqa: PTH110


def is_corrupt(error: FamiliarError) -> bool:
    """Whether a photo could not be read for what it holds, and never will be: the disk and the memory did well."""
    cause = error.__cause__
    of_the_system = isinstance(cause, MemoryError) or (isinstance(cause, OSError) and cause.errno is not None)
    return isinstance(error, UnreadablePhoto) and not of_the_system


def split_error_path(error: FamiliarError, known: Collection[str]) -> tuple[Path | None, str]:
    """What `PATH: reason` says, the path being `known` and perhaps holding a colon itself."""
    parts = str(error).split(": ")
    for count in range(1, len(parts)):
        path = ": ".join(parts[:count])
        if path in known:
            return Path(path), ": ".join(parts[count:])
    return None, "cannot be read"


def printable_name(name: str | None) -> str:
    """A client's name for a photo, as it can be told back."""
    return printable((name or "photo")[:MAX_NAME_CHARACTERS])[:MAX_NAME_CHARACTERS]


def photo_name(path: Path | str) -> str:
    """A photo's file name; of an uploaded one, the name that its sender gave it.

    >>> photo_name("/album/photos/aa/" + 64 * "a" + "-tom.jpg"), photo_name("/home/tom.jpg")
    ('tom.jpg', 'tom.jpg')
    """
    name = Path(path).name
    return re.sub("^[0-9a-f]{64}-(?=.)", "", name)


def _name_suffix(name: str) -> str:
    """What of a client's name may stand in a file's."""
    stem = re.sub(r"[^\w -]+", "_", name.replace("\\", "/").rpartition("/")[2].rpartition(".")[0]).strip(" _")
    while len(stem.encode()) > MAX_NAME_SUFFIX_BYTES:
        stem = stem[:-1]
    return f"-{stem}" if stem else ""


def _within_size_limit(uploads: Sequence[Upload], limits: Limits, skipped: list[SkippedPhoto] | None) -> list[Upload]:
    fit: list[Upload] = []
    for upload in uploads:
        with _collect_skipped(upload, skipped):
            if upload.size_bytes > limits.photo_bytes:
                size, most = (f"{count / MB:,.0f} MB" for count in (upload.size_bytes, limits.photo_bytes))
                raise _too_large_error(upload.name, size, most)
            fit.append(upload)
    return fit


@contextlib.contextmanager
def _collect_skipped(upload: Upload, skipped: list[SkippedPhoto] | None) -> Iterator[None]:
    """A bad upload is told in `skipped`, where that is given."""
    try:
        yield
    except BadUpload as error:
        if skipped is None:
            raise
        skipped.append(SkippedPhoto(upload.name, str(error).removeprefix(f"{upload.name}: ")))


def _too_large_error(name: str, size: str, most: str) -> BadUpload:
    return BadUpload(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", f"{name}: {size} is more than {most}; scale it down"
    )


def _store(uploads: Sequence[Upload], folder: Path, limits: Limits, skipped: list[SkippedPhoto] | None) -> list[Path]:
    photos: list[Upload] = []
    for upload in uploads:  # all of them before one is kept
        with _collect_skipped(upload, skipped):
            upload.validate(upload.read(), limits)
            photos.append(upload)
    if not photos:
        return []
    kept: list[Path] = []
    for upload in photos:
        content = upload.read()
        name = hashlib.sha256(content).hexdigest()
        place = folder / name[:2]
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotWrite(f"{place}: cannot be made ({error.strerror})") from error
        new = place / f"{name}{_name_suffix(upload.name)}{SUFFIX[str(detect_format(content))]}"
        path = next(place.glob(f"{name}*"), new)
        if not (path.is_file() and path.stat().st_size == len(content)):
            write_atomically(path, content)
        kept.append(path)
    # Even where a file was there: whoever put it there may not have come so far.
    for place in {folder.parent, folder, *(path.parent for path in kept)}:
        fsync_directory(place)
    return kept
