"""Copies to take along: the photos of one individual, and a backup of the album."""

import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from fastapi import APIRouter
from fastapi.responses import FileResponse, StreamingResponse
from starlette.background import BackgroundTask

from familiar.core.file_names import name_before_upload, unused_name
from familiar.core.terminal_text import printable
from familiar.gallery import Gallery
from familiar.web.allowed_paths import AllowedPaths
from familiar.web.errors import HttpProblem
from familiar.web.pages.assignment_forms import Number
from familiar.web.pages.flash import display_name
from familiar.web.service import ServiceDep

CHUNK_BYTES = 1_000_000
ZIP = "application/zip"

router = APIRouter()


@router.get("/individuals/{identity:int}/photos.zip")
async def photos(service: ServiceDep, identity: Number) -> StreamingResponse:
    """Send the files of an individual's photos as they are, those that this server may read."""

    def read(gallery: Gallery) -> tuple[str, list[str]]:
        with gallery.read():
            shown = gallery.identity_faces(identity)
            paths = {item.face.photo: item.face.path for item in shown}
            return display_name(identity, gallery.names().get(identity)), [paths[number] for number in sorted(paths)]

    name, paths = await service.executor.read(read)
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}.zip"}
    return StreamingResponse(zip_chunks(paths, service.allowed_paths), media_type=ZIP, headers=headers)


@router.get("/model/backup")
async def backup(service: ServiceDep) -> FileResponse:
    """Send the album with its uploaded photos, as `familiar gallery restore` reads it."""
    folder = Path(tempfile.mkdtemp(prefix="familiar-"))
    delete = BackgroundTask(shutil.rmtree, folder, ignore_errors=True)
    file = folder / "backup.zip"
    try:
        await service.executor.read(Gallery.backup, file)
    except BaseException:
        await delete()
        raise
    name = f"{service.settings.gallery.name}-backup.zip"
    return FileResponse(file, media_type=ZIP, filename=name, background=delete)


def zip_chunks(paths: Sequence[str], allowed: AllowedPaths) -> Iterator[bytes]:
    """Yield the pieces of a ZIP file with the files at some paths, uncompressed, as photos are compressed already.

    Args:
        paths: of photos, as the gallery has them. One that is missing, or lies outside, is left out.
        allowed: the folders that may be read.
    """
    pieces, names = _Pieces(), set[str]()
    with zipfile.ZipFile(pieces, "w") as archive:  # pyright: ignore[reportArgumentType, reportCallIssue] - no close()
        for path in paths:
            name = Path(printable(name_before_upload(path)))
            try:
                file = allowed.resolve(Path(path))
                if not file.is_file():
                    continue
                entry = zipfile.ZipInfo.from_file(file, strict_timestamps=False)
                source = file.open("rb")
            except (HttpProblem, OSError):
                continue
            entry.filename = unused_name(name.stem, name.suffix, names)
            with source, archive.open(entry, "w") as target:
                while chunk := source.read(CHUNK_BYTES):
                    target.write(chunk)
                    yield pieces.take()
    yield pieces.take()


class _Pieces(bytearray):
    """A file that only goes forward, whose content is taken away as it is written."""

    def write(self, data: bytes) -> int:
        self.extend(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: everything is written at once."""

    def take(self) -> bytes:
        content = bytes(self)
        self.clear()
        return content
