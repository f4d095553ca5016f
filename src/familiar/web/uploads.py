"""Uploaded photos: validated by content before they are decoded or stored, deleted after the request unless stored.

The form parser streams small ones into memory and large ones into temporary files without a name, so a process that is
killed leaves none behind.
"""

import hashlib
import os
import re
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from starlette.datastructures import UploadFile

from familiar.core.errors import FamiliarError, UnreadablePhoto
from familiar.core.files import fsync_directory, make_folder, remove_unfinished_files, write_atomically
from familiar.core.gallery_types import SkippedPhoto
from familiar.core.terminal_text import printable
from familiar.gallery import Gallery
from familiar.photos.decoding import read_header
from familiar.photos.listing import find_photos
from familiar.photos.opening import detect_format
from familiar.web.errors import HttpProblem
from familiar.web.settings import MB, Limits

MAX_WRITE_SECONDS = 3600  # of one photo
MAX_NAME_SUFFIX_BYTES = 100
MAX_NAME_CHARACTERS = 200  # of a client's name for a photo, as shown to it


class BadUpload(HttpProblem):
    """An upload that is no photo by its content (415), or too large (413)."""


@dataclass(frozen=True, eq=False)
class Upload:
    """A photo of a request. `name` is the client's, used only to show it to that client."""

    file: UploadFile
    name: str
    size_bytes: int
    _read_lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self) -> bytes:
        """Read the whole content; to be called in a thread, since it may wait for the disk."""
        with self._read_lock:
            self.file.file.seek(0)
            return self.file.file.read()

    def require_size(self, limits: Limits) -> None:
        """Check the size of the file. BadUpload if it is too large."""
        if self.size_bytes > limits.photo_bytes:
            size, limit = (f"{count / MB:,.0f} MB" for count in (self.size_bytes, limits.photo_bytes))
            raise _too_large_error(self.name, size, limit)

    def validate(self, content: bytes, limits: Limits) -> None:
        """Check the content that `read` returned. BadUpload if it is no photo, or has too many pixels."""
        try:
            width, height = read_header(content, self.name).size_px
        except UnreadablePhoto as error:
            raise BadUpload(415, "not-a-photo", str(error)) from error
        if width * height > limits.photo_pixels:
            raise _too_large_error(self.name, f"{width} x {height} px", f"{limits.photo_pixels:,} pixels")


def to_uploads(
    files: Sequence[UploadFile], limits: Limits, *, skipped: list[SkippedPhoto] | None = None
) -> list[Upload]:
    """Return the photos of a request, which end with it. Their content is yet to be validated.

    Args:
        skipped: if given, a photo with too many bytes is appended here instead of refusing the request.

    Raises:
        HttpProblem: 413, there are too many photos, or one has too many bytes.
    """
    if len(files) > (most := limits.photos_per_request):
        detail = f"{len(files):,} photos in one request are more than {most:,}; send them in several requests"
        raise HttpProblem(413, "too-many", detail)
    uploads = [Upload(file, printable_name(file.filename), file.size or 0) for file in files]
    return _without_bad(uploads, lambda upload: upload.require_size(limits), skipped)


def store(
    uploads: Sequence[Upload], folder: Path, limits: Limits, skipped: list[SkippedPhoto] | None = None
) -> list[Path]:
    """Validate photos and write them to `folder`, one file for each content; return the files.

    The files are flushed to the disk. To be called in a thread.

    Args:
        skipped: if given, an invalid photo is appended here instead of refusing all of them.

    Raises:
        BadUpload: a file is no photo, or has too many pixels; nothing was written.
        CannotWrite: the disk is full or not writable.
    """
    # All of them are checked before one is written.
    photos = _without_bad(uploads, lambda upload: upload.validate(upload.read(), limits), skipped)
    if not photos:
        return []
    stored: list[Path] = []
    for upload in photos:
        content = upload.read()
        name = hashlib.sha256(content).hexdigest()
        subfolder = folder / name[:2]
        make_folder(subfolder)
        new = subfolder / f"{name}{_name_suffix(upload.name)}{_suffix(content)}"
        path = next((file for file in subfolder.glob(f"{name}*") if Gallery.uploaded_sha256(file)), new)
        if not Gallery.has_uploaded_content(path):  # missing, or damaged since: this may be the only intact copy
            write_atomically(path, content)
        stored.append(path)
    # Even if a file existed before: its writer may not have flushed it yet.
    for subfolder in {folder.parent, folder, *(path.parent for path in stored)}:
        fsync_directory(subfolder)
    return stored


def find_unprocessed_uploads(gallery: Gallery, folder: Path) -> list[Path]:
    """List the photos in the folder of uploads, which are named by their content, that are not in the gallery.

    Unfinished files are deleted, except those that another server may still be writing.
    """
    for subfolder in folder.glob("*"):
        remove_unfinished_files(subfolder, older_than_seconds=MAX_WRITE_SECONDS)
    try:
        uploaded = find_photos([folder])
    except UnreadablePhoto:  # there is none
        return []
    paths = gallery.paths_by_sha256()
    return [path for path in uploaded if not os.path.exists(paths.get(path.name[:64].upper(), ""))]  # noqa: PTH110


def split_error_path(error: FamiliarError, known: Collection[str]) -> tuple[Path | None, str]:
    """Split the message `PATH: reason` of an error. The path must be `known`; it may contain colons itself."""
    parts = str(error).split(": ")
    for count in range(1, len(parts)):
        path = ": ".join(parts[:count])
        if path in known:
            return Path(path), ": ".join(parts[count:])
    return None, "cannot be read"


def printable_name(name: str | None) -> str:
    """Return a client's name for a photo, shortened and printable."""
    return printable((name or "photo")[:MAX_NAME_CHARACTERS])[:MAX_NAME_CHARACTERS]


def _name_suffix(name: str) -> str:
    """Return "-" and the safe characters of an uploaded file's stem, or "" if there are none."""
    stem = re.sub(r"[^\w -]+", "_", name.replace("\\", "/").rpartition("/")[2].rpartition(".")[0]).strip(" _")
    while len(stem.encode()) > MAX_NAME_SUFFIX_BYTES:
        stem = stem[:-1]
    return f"-{stem}" if stem else ""


def _suffix(content: bytes) -> str:
    """Return the suffix of a photo's format, by its content."""
    name = str(detect_format(content))
    return {"JPEG": ".jpg", "TIFF": ".tif"}.get(name, f".{name.lower()}")


def _without_bad(
    uploads: Sequence[Upload], check: Callable[[Upload], None], skipped: list[SkippedPhoto] | None
) -> list[Upload]:
    """Return the uploads that pass a check; append the others to `skipped`, if that is given, instead of raising."""
    good: list[Upload] = []
    for upload in uploads:
        try:
            check(upload)
            good.append(upload)
        except BadUpload as error:
            if skipped is None:
                raise
            skipped.append(SkippedPhoto(upload.name, str(error).removeprefix(f"{upload.name}: ")))
    return good


def _too_large_error(name: str, size: str, limit: str) -> BadUpload:
    return BadUpload(413, "too-large", f"{name}: {size} is more than {limit}; scale it down")
