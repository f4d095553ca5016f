"""Back up a gallery into one file, and restore it.

A backup is an ordinary ZIP file, whose content is a gallery: `gallery.sqlite`, the uploaded photos, which exist nowhere
else, and the address of an index outside the folder. Search indexes are left out, since they can be built again, and so
are photos outside the gallery's folder. `backup.json` has the SHA-256 of every file.
"""

import contextlib
import hashlib
import json
import os
import secrets
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from familiar.core.errors import BadGallery, CannotWrite, CorruptGallery, GalleryBusy
from familiar.core.files import (
    absolute_path,
    content_sha256,
    fsync_directory,
    make_folder,
    real_path,
    write_atomically,
)
from familiar.core.json_text import parse_json
from familiar.gallery.database.connection import UPLOADED_PHOTOS, GalleryDatabase
from familiar.gallery.database.copies import (
    BACKUP_DRAFT,
    KEPT_REPLACED,
    RESTORE_DRAFT,
    RESTORED,
    RESTORED_INDEX,
    draft,
    erase_unfinished,
)
from familiar.gallery.database.external_index import FILE as EXTERNAL_INDEX_FILE
from familiar.gallery.database.external_index import read_external_index
from familiar.gallery.database.index_lock import index_lock
from familiar.gallery.database.sqlite_file import DATABASE, acknowledged_writes
from familiar.gallery.database.switch import (
    dated_folder,
    exclusive,
    flush_file,
    is_unfinished,
    switch_database,
)
from familiar.gallery.integrity.check import damaged_uploads
from familiar.neighbors.hnsw import erase

MANIFEST = "backup.json"
_FORMAT = 1
_INDEX = "index"  # the name of `EXTERNAL_INDEX_FILE` while a backup is checked
_MAX_ATTEMPTS = 3  # to copy uploaded photos while others are forgotten
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class BackupResult:
    """The outcome of a backup.

    Attributes:
        file: the backup.
        sha256: of the file, in hexadecimal digits, to compare it with after it was copied elsewhere.
        size_bytes: of the file.
        photos: the number of photos that the gallery knows.
        faces: the number of faces.
        uploads: the number of uploaded photos in the backup.
    """

    file: Path
    sha256: str
    size_bytes: int
    photos: int
    faces: int
    uploads: int


@dataclass(frozen=True)
class RestoreResult:
    """The outcome of a restore.

    Attributes:
        photos: the number of photos that the restored gallery knows.
        faces: the number of faces.
        uploads: the number of uploaded photos that were missing in the folder and were restored.
        kept_in: the folder to which the previous database was moved; None if there was none.
    """

    photos: int
    faces: int
    uploads: int
    kept_in: Path | None


def backup(gallery: GalleryDatabase, file: Path) -> BackupResult:
    """Write a gallery into one file, as it is at one moment, while others may go on writing; then verify the file.

    Args:
        gallery: the gallery.
        file: must not exist. Its folder needs room for the gallery's database twice.

    Raises:
        BadGallery: the file exists.
        CorruptGallery: the gallery is damaged: repair it first. No file is written.
        CannotWrite: the file cannot be written.
    """
    if file.exists():
        raise BadGallery(f"{file}: exists already; name a new file for the backup")
    folder = file.absolute().with_name(f"{BACKUP_DRAFT}{secrets.token_hex(8)}")
    try:
        with draft(folder):
            attempts = (_write(gallery, folder, folder / "backup") for _ in range(_MAX_ATTEMPTS))
            uploads = next((uploads for uploads in attempts if uploads is not None), None)
            if uploads is None:
                raise GalleryBusy(f"{gallery.folder}: photos are being forgotten; try again when that is done")
            photos, faces = _verify(folder / "backup", folder / "verified", unpack_uploads=False)
            flush_file(folder / "backup")
            _publish(folder / "backup", file)
        return BackupResult(file, content_sha256(file).hex(), file.stat().st_size, photos, faces, uploads)
    except FileExistsError as error:
        raise BadGallery(f"{file}: exists already; name a new file for the backup") from error
    except OSError as error:
        raise CannotWrite(f"{file}: cannot be written ({error.strerror or error})") from error


def restore(file: Path, folder: Path) -> RestoreResult:
    """Restore a gallery from a backup. A gallery that is in the folder is moved aside, and its uploaded photos stay.

    Other processes may have that gallery open: those that write wait, and then go on with the restored one. After a
    crash at any point, the folder has the old gallery or the restored one.

    Args:
        file: written by `backup`.
        folder: of the gallery, created if missing. It may be another one than that of the backup.

    Raises:
        BadGallery: the file is no backup, or one by a newer version.
        CorruptGallery: the backup is damaged. Nothing was changed.
        CannotWrite: the folder cannot be written to.
        GalleryBusy: other processes have been writing to the gallery for a minute, or one is restoring it.
    """
    unpacked = folder / f"{RESTORE_DRAFT}{secrets.token_hex(8)}"
    try:
        make_folder(folder)
        with contextlib.ExitStack() as stack:
            with exclusive(folder):
                erase_unfinished(folder)
                stack.enter_context(draft(unpacked))
            photos, faces = _verify(file, unpacked, unpack_uploads=True)
            with exclusive(folder):
                uploads, kept_in = _put_in_place(unpacked, folder)
        with GalleryDatabase.open(folder) as gallery:
            _require_intact_database(gallery, folder)
        return RestoreResult(photos, faces, uploads, kept_in)
    except OSError as error:
        raise CannotWrite(f"{folder}: cannot be restored there ({error.strerror or error})") from error


def _put_in_place(unpacked: Path, folder: Path) -> tuple[int, Path | None]:
    """Replace a folder's gallery by an unpacked one, within `exclusive`.

    Returns:
        The number of uploaded photos that were missing, and the folder with the previous gallery, if there was one.
    """
    # Nobody would erase faces from the search index that the previous gallery has forgotten.
    with index_lock(folder):
        erase(folder)
    replacement, kept_in = folder / RESTORED, dated_folder(folder, KEPT_REPLACED)
    try:
        _make_newer(unpacked, folder, acknowledged_writes(folder))
        uploads = _restore_uploads(unpacked, folder)
        (unpacked / DATABASE).replace(replacement)
        index = _restored_index(unpacked, folder / RESTORED_INDEX)
        switch_database(folder, replacement, kept_in, keeps_index=False, index=index)
    finally:
        if not is_unfinished(folder):
            for path in (replacement, folder / RESTORED_INDEX):
                path.unlink(missing_ok=True)
    if any(kept_in.iterdir()):
        return uploads, kept_in
    kept_in.rmdir()
    return uploads, None


def _publish(finished: Path, file: Path) -> None:
    """Give a backup its name, unlike a rename only if there is no such file. FileExistsError if there is."""
    try:
        os.link(finished, file)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        file.open("xb").close()
        finished.replace(file)
    fsync_directory(file.absolute().parent)


def _write(gallery: GalleryDatabase, folder: Path, file: Path) -> int | None:
    """Write the ZIP file; return the number of uploaded photos in it, or None if some were forgotten meanwhile."""
    copy = folder / DATABASE
    with gallery.reading() as repository:  # one state of the gallery, for both
        gallery.copy_to(copy)
        paths = _uploaded_paths([path for path, _ in repository.photos.paths_and_sizes()], gallery.folder)
    sources = {
        DATABASE: copy,
        **{path.relative_to(gallery.folder).as_posix(): path for path in _uploads(gallery.folder)},
    }
    if (gallery.folder / EXTERNAL_INDEX_FILE).is_file():
        sources[EXTERNAL_INDEX_FILE] = gallery.folder / EXTERNAL_INDEX_FILE
    sha256: dict[str, str] = {}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, source in sources.items():
            try:
                sha256[name] = _add(archive, source, name)
            except FileNotFoundError:
                return None
        manifest = {
            "format": _FORMAT,
            "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "folders": _both_paths(gallery.folder),
            "sha256": sha256,
        }
        archive.writestr(MANIFEST, json.dumps(manifest, indent=1))
    missing = [path for path in paths if not os.path.lexists(path)]
    with gallery.reading() as repository:  # photos that are missing, but not forgotten, are what `check` reports
        if not all(repository.photos.at_path(Path(path)) for path in missing):
            return None
    return len(sources.keys() - {DATABASE, EXTERNAL_INDEX_FILE})


def _uploaded_paths(paths: Iterable[str], folder: Path) -> list[str]:
    """Return those of the paths that are uploaded photos."""
    uploads = tuple(os.path.join(parent, UPLOADED_PHOTOS, "") for parent in _both_paths(folder))  # noqa: PTH118
    return [path for path in paths if path.startswith(uploads)]


def _both_paths(folder: Path) -> list[str]:
    """Return the absolute paths of a folder: as given, and with links resolved."""
    return sorted({str(absolute_path(folder)), str(real_path(folder))})


def _add(archive: zipfile.ZipFile, source: Path, name: str) -> str:
    """Copy a file into the archive; return its SHA-256."""
    try:
        content = source.open("rb")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CannotWrite(f"{source}: cannot be read ({error.strerror}), so no backup was written") from error
    with content:
        info = zipfile.ZipInfo.from_file(source, name)
        with archive.open(info, "w", force_zip64=True) as target:
            return _copy(content.read, target.write)


def _copy(read: Callable[[int], bytes], write: Callable[[bytes], object]) -> str:
    """Copy a stream to another; return its SHA-256."""
    digest = hashlib.sha256()
    while block := read(_BLOCK_BYTES):
        digest.update(block)
        write(block)
    return digest.hexdigest()


def _verify(file: Path, folder: Path, *, unpack_uploads: bool) -> tuple[int, int]:
    """Unpack a backup into a folder, and check every file and the gallery; return its numbers of photos and faces.

    Raises:
        BadGallery: the file is no backup.
        CorruptGallery: it is damaged.
    """
    folder.mkdir(exist_ok=True)
    try:
        with _open(file) as stream, zipfile.ZipFile(stream) as archive:
            manifest = _read_manifest(archive, file)
            for name, sha256 in manifest["sha256"].items():
                target = folder / _safe(name)
                if not unpack_uploads and target.parent != folder:
                    target = Path(os.devnull)
                make_folder(target.parent)
                with archive.open(name) as source, target.open("wb") as content:
                    if _copy(source.read, content.write) != sha256:
                        raise CorruptGallery(_damaged(file, f"the checksum of {name} is another"))
            (folder / MANIFEST).write_text(json.dumps(manifest))
    except (zipfile.BadZipFile, NotImplementedError, KeyError, ValueError, TypeError, EOFError, RuntimeError) as error:
        raise CorruptGallery(_damaged(file, error)) from error
    if (folder / EXTERNAL_INDEX_FILE).exists():  # not to be compared with the gallery: the backup may be older
        (folder / EXTERNAL_INDEX_FILE).replace(folder / _INDEX)
    with GalleryDatabase.open(folder) as gallery:
        _require_intact(gallery, file)
        with gallery.reading() as repository:
            return repository.photos.count(), repository.faces.count()


def _open(file: Path) -> BinaryIO:
    try:
        return file.open("rb")
    except FileNotFoundError as error:
        raise BadGallery(f"{file}: there is no such backup") from error
    except OSError as error:
        raise BadGallery(f"{file}: cannot be read ({error.strerror})") from error


def _require_intact(gallery: GalleryDatabase, source: Path) -> None:
    """Check database, embeddings and uploaded photos, but not an index outside the folder, which is compared later."""
    _require_intact_database(gallery, source)
    if problems := damaged_uploads(gallery):
        raise CorruptGallery(_damaged(source, "; ".join(problems[:3])))


def _require_intact_database(gallery: GalleryDatabase, source: Path) -> None:
    gallery.faces()
    if problems := gallery.integrity_problems():
        raise CorruptGallery(_damaged(source, "; ".join(problems[:3])))


def _damaged(file: Path, reason: object) -> str:
    return f"{file}: damaged, or no backup of a gallery ({reason}); use another copy of it"


def _read_manifest(archive: zipfile.ZipFile, file: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = parse_json(archive.read(MANIFEST))
    if manifest["format"] != _FORMAT:
        raise BadGallery(f"{file}: was written by a newer version of familiar; update it to restore this backup")
    if DATABASE not in manifest["sha256"] or not all(isinstance(each, str) for each in manifest["folders"]):
        raise ValueError(MANIFEST)
    return manifest


def _safe(name: str) -> Path:
    """Return the path of a member of the archive. ValueError if it is not of a gallery."""
    parts = PurePosixPath(name).parts
    is_upload = len(parts) == 3 and parts[0] == UPLOADED_PHOTOS
    if ".." in parts or "\\" in name or not (name in (DATABASE, EXTERNAL_INDEX_FILE) or is_upload):
        raise ValueError(f"contains {name}")
    return Path(*parts)


def _make_newer(unpacked: Path, folder: Path, acknowledged: int) -> None:
    """Give a restored gallery a uid of its own and numbers that the previous one never had, and the folder's paths.

    So nothing that was cached or indexed of the previous gallery, or of another restored from the same backup, is
    mistaken for it.
    """
    manifest = json.loads((unpacked / MANIFEST).read_text())
    with GalleryDatabase.open(unpacked) as gallery, gallery.writing(faces_change=True) as repository:
        repository.settings.become_new(acknowledged)
        for old in manifest["folders"]:
            repository.photos.move_folder(
                os.path.join(old, UPLOADED_PHOTOS, ""),  # noqa: PTH118
                os.path.join(absolute_path(folder), UPLOADED_PHOTOS, ""),  # noqa: PTH118
            )
    assert not (unpacked / f"{DATABASE}-wal").exists(), "the last connection has written the log back"


def _restore_uploads(unpacked: Path, folder: Path) -> int:
    """Move the uploaded photos that are missing in the folder into it; return their number."""
    restored = 0
    for path in _uploads(unpacked):
        target = folder / path.relative_to(unpacked)
        if target.is_file() and content_sha256(target) == content_sha256(path):
            continue
        make_folder(target.parent)
        write_atomically(target, path.read_bytes())  # not moved: the folder of uploads may be on another disk
        path.unlink()
        restored += 1
    return restored


def _uploads(folder: Path) -> Iterator[Path]:
    """Iterate over the uploaded photos in a gallery's folder, also those that are not enrolled yet."""
    paths = sorted((folder / UPLOADED_PHOTOS).glob("*/*"))
    return (path for path in paths if path.is_file() and not path.name.startswith("."))


def _restored_index(unpacked: Path, to: Path) -> Path | None:
    """Move the address of the index outside the folder; it is compared with the gallery before it is used.

    Returns:
        `to`, or None if the gallery has no such index.
    """
    if not (unpacked / _INDEX).exists():
        return None
    (unpacked / _INDEX).replace(unpacked / EXTERNAL_INDEX_FILE)
    external = read_external_index(unpacked)
    assert external is not None
    replace(external, faces_revision=None).save(unpacked)
    (unpacked / EXTERNAL_INDEX_FILE).replace(to)
    return to
