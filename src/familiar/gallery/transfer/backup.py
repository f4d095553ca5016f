"""Back up a gallery into one file, and restore it.

A backup is an ordinary ZIP file, whose content is a gallery: `gallery.sqlite`, the uploaded photos, which exist nowhere
else, and the address of an index outside the folder. Search indexes are left out, since they can be built again, and so
are photos outside the gallery's folder. `backup.json` lists the files; ZIP has a checksum of each.
"""

import json
import os
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from familiar.core.errors import BadGallery, CannotWrite, CorruptGallery, GalleryBusy
from familiar.core.files import absolute_path, content_sha256, fsync_file, make_folder, real_path, write_atomically
from familiar.core.json_text import parse_json
from familiar.core.plural import pluralize
from familiar.gallery.store import recovery
from familiar.gallery.store.automatic_copies import copies
from familiar.gallery.store.connection import DATABASE, LOG, translate_errors
from familiar.gallery.store.drafts import draft_folder
from familiar.gallery.store.external_index import FILE as EXTERNAL_INDEX_FILE
from familiar.gallery.store.external_index import ExternalIndex, read_external_index
from familiar.gallery.store.index_lock import index_lock
from familiar.gallery.store.store import UPLOADED_PHOTOS, Store, publish
from familiar.gallery.store.uploaded_files import folders_of_uploads
from familiar.gallery.transfer.check import damaged_uploads
from familiar.neighbors.hnsw import erase

MANIFEST = "backup.json"
_FORMAT = "familiar-backup/1"
_BEFORE_RESTORE = "before-restore"  # in the name of the automatic copy of what a restore replaces
_MAX_ATTEMPTS = 3  # to copy uploaded photos while others are forgotten


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
        source: what was restored: the backup, or the automatic copy.
        photos: the number of photos that the restored gallery knows.
        faces: the number of faces.
        names: the number of names.
        names_before: the number of names of the gallery as it was before; None if it could not be read.
        uploads: the number of uploaded photos that were missing in the folder and were restored.
        previous: the copy of the gallery as it was before; a folder with its files if it could not be read; None if
            there was none.
    """

    source: Path
    photos: int
    faces: int
    names: int
    names_before: int | None
    uploads: int
    previous: Path | None


def backup(store: Store, file: Path) -> BackupResult:
    """Write a gallery into one file, as it is at one moment, while others may go on writing; then verify the file.

    Args:
        store: the gallery.
        file: must not exist. Its folder needs room for the gallery's database twice.

    Raises:
        BadGallery: the file exists.
        CorruptGallery: the gallery is damaged: repair it first. No file is written.
        CannotWrite: the file cannot be written.
    """
    if file.exists():
        raise BadGallery(f"{file}: exists already; name a new file for the backup")
    try:
        with draft_folder(file.absolute().parent) as draft:
            for _ in range(_MAX_ATTEMPTS):
                uploads = _write(store, draft, draft / "backup")
                if uploads is not None:
                    break
            else:
                raise GalleryBusy(f"{store.folder}: photos are being forgotten; try again when that is done")
            photos, faces = _unpack(draft / "backup", draft / "verified", unpack_uploads=False)
            fsync_file(draft / "backup")
            publish(draft / "backup", file.absolute())
        return BackupResult(file, content_sha256(file).hex(), file.stat().st_size, photos, faces, uploads)
    except FileExistsError as error:
        raise BadGallery(f"{file}: exists already; name a new file for the backup") from error
    except OSError as error:
        cause = f"{error.filename or file}: {error.strerror or error}"
        raise CannotWrite(f"{file}: cannot be written ({cause}), so there is no backup") from error


def restore(folder: Path, source: Path | None = None, *, fewer_names: bool = False) -> RestoreResult:
    """Restore a gallery from a backup or an automatic copy. Uploaded photos that are there stay.

    Others may have the gallery open: they go on with the restored one. If its file cannot be opened, it is moved aside.

    Args:
        folder: of the gallery, created if missing.
        source: written by `backup`, or a file in `backups/`; None: the newest automatic copy of the folder.
        fewer_names: restore it even if it has fewer names than the gallery as it is now, or, if that cannot be read,
            than one of its automatic copies.

    Raises:
        BadGallery: the file is no backup, or the folder has no automatic copy, or names would be lost. Nothing was
            changed.
        CorruptGallery: the backup is damaged. Nothing was changed.
        CannotWrite: the folder cannot be written to.
        GalleryBusy: others are writing, or have a file open that must be replaced.
    """
    source = _newest_copy(folder) if source is None else source
    try:
        make_folder(folder)
        with draft_folder(folder) as draft:
            if zipfile.is_zipfile(source):
                photos, faces = _unpack(source, draft, unpack_uploads=True)
            else:
                photos, faces = _check_copy(source, draft)
            names, names_before = _count_names(draft) or 0, _count_names(folder)
            if not fewer_names:
                _require_names(folder, source, photos, names, names_before)
            _make_new(draft, folder)
            uploads = _restore_uploads(draft, folder)
            previous = _put_in_place(draft, folder)
        Store.open(folder).close()
        return RestoreResult(source, photos, faces, names, names_before, uploads, previous)
    except OSError as error:
        raise CannotWrite(f"{folder}: cannot be restored there ({error.strerror or error})") from error


def _count_names(folder: Path) -> int | None:
    """Return the number of names in a gallery; None if there is none, or it cannot be read."""
    try:
        with Store(folder) as store, store.read() as repository:
            return len(repository.identities.names())
    except (BadGallery, CorruptGallery):
        return None


def _require_names(folder: Path, source: Path, photos: int, names: int, names_before: int | None) -> None:
    """Check that a restore loses no names.

    Raises:
        BadGallery: it does.
    """
    in_copies = recovery.names_in_copies(folder)
    most = max(in_copies.values(), default=0)
    if names >= (most if names_before is None else names_before):
        return
    best = next(path for path in [*in_copies, None] if path is None or in_copies[path] == most)
    now = "cannot be read" if names_before is None else f"has {pluralize(names_before, 'name')} now"
    better = f"; {best} has {pluralize(most, 'name')}" if best is not None and most > names else ""
    raise BadGallery(
        f"{source}: is of {datetime.fromtimestamp(source.stat().st_mtime):%Y-%m-%d %H:%M}, and has "
        f"{pluralize(photos, 'photo')} and {pluralize(names, 'name')}; {folder} {now}{better}. Nothing was changed; "
        f"name another copy, or restore this all the same: familiar gallery restore {folder} {source} --yes"
    )


def _newest_copy(folder: Path) -> Path:
    """Return the newest automatic copy, but none that a restore has made of what it replaced."""
    newest = next((path for path in copies(folder) if _BEFORE_RESTORE not in path.name), None)
    if newest is None:
        raise BadGallery(f"{folder}: has no automatic copy; name a backup: familiar gallery restore {folder} FILE")
    return newest


def _put_in_place(draft: Path, folder: Path) -> Path | None:
    """Put an unpacked database in place of a folder's; return where the previous one is kept, if there was one."""
    finished = draft / DATABASE
    with translate_errors(folder), index_lock(folder):
        erase(folder)  # nobody would erase faces from it that the previous gallery has forgotten
        _restore_index_address(draft, folder)
        if not (folder / DATABASE).exists():
            if (folder / LOG).exists():
                raise BadGallery(f"{folder}: contains {LOG}, the log of a gallery that is not there; move it away")
            publish(finished, folder / DATABASE)
            return None
        try:
            with Store(folder) as store:
                previous = _copy_before_restore(store)
        except CorruptGallery:
            previous = recovery.copy_damaged(folder)
            if previous is None:
                return recovery.replace(folder, finished)
        except BadGallery:  # another program's database, perhaps with pages of another size
            return recovery.replace(folder, finished)
        recovery.overwrite(folder / DATABASE, finished)
        return previous


def _copy_before_restore(store: Store) -> Path | None:
    """Copy the gallery as it is; return None if it has no photo, or its automatic copies are switched off."""
    previous = store.make_automatic_copy(_BEFORE_RESTORE)
    with store.read() as repository:
        is_due = repository.photos.count() and repository.settings.retention()
    if previous is None and is_due:
        raise CannotWrite(
            f"{store.folder}: the gallery as it is could not be copied before the restore; nothing was changed. Make "
            "room on the disk, and try again"
        )
    return previous


def _check_copy(source: Path, draft: Path) -> tuple[int, int]:
    """Copy an automatic copy, and check it; return its numbers of photos and faces."""
    if not source.is_file():
        raise BadGallery(f"{source}: there is no such backup, or it is no file")
    shutil.copyfile(source, draft / DATABASE)
    try:
        return _check(draft, source)
    except CorruptGallery as error:
        older = [path for path in copies(source.parent.parent) if path.name < source.name]
        if older:
            folder = source.parent.parent
            raise CorruptGallery(f"{error}; the one before: familiar gallery restore {folder} {older[0]}") from error
        raise


def _write(store: Store, folder: Path, file: Path) -> int | None:
    """Write the ZIP file; return the number of uploaded photos in it, or None if some were forgotten meanwhile."""
    store.copy_to(folder / DATABASE)
    with Store(folder) as copied, copied.read() as repository:
        uploaded = tuple(folders_of_uploads(store.folder))
        paths = [path for path in repository.photos.paths() if path.startswith(uploaded)]
    uploads = {path.relative_to(store.folder).as_posix(): path for path in _uploads(store.folder)}
    sources = {DATABASE: folder / DATABASE, **uploads}
    if (store.folder / EXTERNAL_INDEX_FILE).is_file():
        sources[EXTERNAL_INDEX_FILE] = store.folder / EXTERNAL_INDEX_FILE
    manifest = {
        "format": _FORMAT,
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "folders": _both_paths(store.folder),
        "files": list(sources),
    }
    with zipfile.ZipFile(file, "w", strict_timestamps=False) as archive:
        for name, source in sources.items():
            try:
                archive.write(source, name)
            except FileNotFoundError:
                return None
        archive.writestr(MANIFEST, json.dumps(manifest, indent=1))
    missing = [path for path in paths if not os.path.lexists(path)]
    with store.read() as repository:  # photos that are missing, but not forgotten, are what `check` reports
        if not all(repository.photos.at_path(path) for path in missing):
            return None
    return len(uploads)


def _both_paths(folder: Path) -> list[str]:
    """Return the absolute paths of a folder: as given, and with links resolved."""
    return sorted({str(absolute_path(folder)), str(real_path(folder))})


def _unpack(file: Path, folder: Path, *, unpack_uploads: bool) -> tuple[int, int]:
    """Unpack a backup into a folder, and check every file and the gallery; return its numbers of photos and faces.

    Raises:
        BadGallery: the file is no backup.
        CorruptGallery: it is damaged.
    """
    folder.mkdir(exist_ok=True)
    try:
        with zipfile.ZipFile(file) as archive:
            names = _read_names(archive, file)
            if not unpack_uploads:
                if damaged := archive.testzip():
                    raise CorruptGallery(_damaged(file, f"{damaged} is not what was written"))
                names = [name for name in names if "/" not in name]
            archive.extractall(folder, names)
    except (zipfile.BadZipFile, NotImplementedError, KeyError, ValueError, TypeError, EOFError, RuntimeError) as error:
        raise CorruptGallery(_damaged(file, error)) from error
    return _check(folder, file)


def _check(folder: Path, source: Path) -> tuple[int, int]:
    """Check an unpacked database, its embeddings and uploaded photos; return its numbers of photos and faces."""
    try:
        with Store.open(folder) as store:
            store.faces()
            if problems := [*store.damage(), *damaged_uploads(store)]:
                raise CorruptGallery("; ".join(problems[:3]))
            with store.read() as repository:
                return repository.photos.count(), repository.faces.count()
    except CorruptGallery as error:
        raise CorruptGallery(_damaged(source, error)) from error


def _damaged(file: Path, reason: object) -> str:
    return f"{file}: damaged, or no backup of a gallery ({reason}); use another copy of it"


def _read_names(archive: zipfile.ZipFile, file: Path) -> list[str]:
    """Return the names of a backup's files. ValueError if it lacks one, or has one that is not of a gallery."""
    manifest: dict[str, Any] = parse_json(archive.read(MANIFEST))
    if manifest["format"] != _FORMAT:
        raise BadGallery(f"{file}: was written by another version of familiar (format {manifest['format']!r})")
    names = archive.namelist()
    is_complete = DATABASE in names and {*names} == {*manifest["files"], MANIFEST}
    if not is_complete or not all(isinstance(each, str) for each in manifest["folders"]):
        raise ValueError(MANIFEST)
    for name in names:
        parts = PurePosixPath(name).parts
        is_upload = len(parts) == 3 and parts[0] == UPLOADED_PHOTOS
        if ".." in parts or "\\" in name or not (name in (DATABASE, EXTERNAL_INDEX_FILE, MANIFEST) or is_upload):
            raise ValueError(f"contains {name}")
    return names


def _make_new(draft: Path, folder: Path) -> None:
    """Give an unpacked gallery a uid of its own, and the paths of the folder that it goes to."""
    manifest = draft / MANIFEST
    folders: list[str] = json.loads(manifest.read_text())["folders"] if manifest.exists() else []
    with Store.open(draft) as store, store.write(faces_change=True) as repository:
        repository.settings.become_new()
        for old in folders:
            repository.photos.move_folder(
                os.path.join(old, UPLOADED_PHOTOS, ""),  # noqa: PTH118
                os.path.join(absolute_path(folder), UPLOADED_PHOTOS, ""),  # noqa: PTH118
            )
    assert not (draft / LOG).exists(), "the last connection has written the log back"


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


def _restore_index_address(draft: Path, folder: Path) -> None:
    """Let a gallery that is restored elsewhere have a collection in the same index; it has to be filled first.

    A gallery that is replaced keeps the index that it has: it is compared with the gallery before it is used.
    """
    external = read_external_index(draft)
    if external is not None and not (folder / EXTERNAL_INDEX_FILE).exists():
        ExternalIndex(external.address).save(folder)
