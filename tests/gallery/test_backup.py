"""Backups: complete, verified, restored as they were, refused when damaged, and beside a writer."""

import hashlib
import random
import threading
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from collection.crash_scenarios import contents

from familiar.core.errors import BadGallery, CannotWrite, CorruptGallery, FamiliarError, GalleryBusy
from familiar.core.files import content_sha256, process_lock
from familiar.gallery.database.connection import DATABASE, UPLOADED_PHOTOS, GalleryDatabase
from familiar.gallery.database.copies import BACKUP_DRAFT, DRAFT_LOCK, RESTORE_DRAFT, RESTORED
from familiar.gallery.database.external_index import FILE as EXTERNAL_INDEX_FILE
from familiar.gallery.database.external_index import ExternalIndex, read_external_index
from familiar.gallery.database.switch import exclusive
from familiar.gallery.editing.forget import forget_photos
from familiar.gallery.integrity.backup import MANIFEST, backup, restore
from familiar.gallery.integrity.check import check
from familiar.neighbors.hnsw import INDEX_FILE, STAMP_FILE
from support.small_gallery import draw_individuals, enroll_vectors


def upload(gallery: GalleryDatabase, content: bytes) -> Path:
    """Store an uploaded photo, and enroll it without a face."""
    sha256 = hashlib.sha256(content)
    path = gallery.folder / UPLOADED_PHOTOS / sha256.hexdigest()[:2] / f"{sha256.hexdigest()}.jpg"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    with gallery.writing() as repository:
        repository.photos.insert(path, sha256.digest(), len(content), 1, None)
    return path


@pytest.fixture
def album(gallery: GalleryDatabase) -> GalleryDatabase:
    enroll_vectors(gallery, draw_individuals([2, 1]))
    upload(gallery, b"one photo")
    ExternalIndex("milvus:/nowhere.db", 1).save(gallery.folder)
    return gallery


def rows(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    with GalleryDatabase.open(folder) as gallery:
        return {table: rows for table, rows in contents(gallery).items() if table != "gallery"}


def test_restored_gallery_has_all_rows_and_uploads_elsewhere(album: GalleryDatabase, tmp_path: Path):
    result = backup(album, tmp_path / "backup.zip")
    assert (result.photos, result.faces, result.uploads) == (4, 3, 1)
    assert result.sha256 == hashlib.sha256((tmp_path / "backup.zip").read_bytes()).hexdigest()
    before, uid = rows(album.folder), album._uid
    restored = restore(tmp_path / "backup.zip", tmp_path / "elsewhere" / "album")
    assert (restored.photos, restored.faces, restored.uploads, restored.kept_in) == (4, 3, 1, None)
    after = rows(tmp_path / "elsewhere" / "album")
    assert {**after, "photos": []} == {**before, "photos": []}
    path = Path(str(after["photos"][-1][2]))
    assert path.is_relative_to(tmp_path / "elsewhere" / "album" / UPLOADED_PHOTOS)
    assert path.read_bytes() == b"one photo"
    with GalleryDatabase.open(tmp_path / "elsewhere" / "album") as gallery:
        assert check(gallery).missing == ()
        assert gallery._uid != uid, "or an index of the other gallery would be taken for one of this"
    external = read_external_index(tmp_path / "elsewhere" / "album")
    assert external == ExternalIndex("milvus:/nowhere.db", None)


def test_backup_is_a_zip_file_of_a_gallery(album: GalleryDatabase, tmp_path: Path):
    backup(album, tmp_path / "backup.zip")
    with zipfile.ZipFile(tmp_path / "backup.zip") as archive:
        archive.extractall(tmp_path / "unpacked")
    assert rows(tmp_path / "unpacked") == rows(album.folder)


def test_restore_moves_the_present_gallery_aside_and_keeps_later_uploads(album: GalleryDatabase, tmp_path: Path):
    before = rows(album.folder)
    backup(album, tmp_path / "backup.zip")
    later = upload(album, b"a later photo")
    result = restore(tmp_path / "backup.zip", album.folder)
    assert rows(album.folder) == before
    assert later.read_bytes() == b"a later photo"
    assert result.kept_in is not None
    assert len(rows(result.kept_in)["photos"]) == 5
    assert album.faces().ids.tolist() == [1, 2, 3], "an open connection reads the restored gallery"


def test_restore_erases_the_search_index_of_the_replaced_gallery(album: GalleryDatabase, tmp_path: Path):
    """It may have faces that were forgotten but not erased; the mark of that is in the database that is moved aside."""
    backup(album, tmp_path / "backup.zip")
    for name in (INDEX_FILE, STAMP_FILE, ".familiar.0123456789abcdef"):
        (album.folder / name).write_bytes(b"of a forgotten face")
    restore(tmp_path / "backup.zip", album.folder)
    assert [path for path in album.folder.iterdir() if path.is_file() and b"of a forgotten" in path.read_bytes()] == []


def test_damaged_backup_is_refused_and_changes_nothing(album: GalleryDatabase, tmp_path: Path):
    backup(album, tmp_path / "backup.zip")
    content, rng = (tmp_path / "backup.zip").read_bytes(), random.Random(0)
    before = {path: path.read_bytes() for path in album.folder.rglob("*") if path.is_file()}
    refused = 0
    for _ in range(8):
        damaged = bytearray(content)
        damaged[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        (tmp_path / "damaged.zip").write_bytes(damaged)
        try:
            restore(tmp_path / "damaged.zip", tmp_path / f"restored {refused}")
        except FamiliarError:
            refused += 1
            assert not (tmp_path / f"restored {refused - 1}" / DATABASE).exists()
        else:  # a bit of the archive that says nothing about its content, such as the time of a file
            assert {**rows(tmp_path / f"restored {refused}"), "photos": []} == {**rows(album.folder), "photos": []}
            break
    assert refused >= 1
    (tmp_path / "short.zip").write_bytes(content[: len(content) // 2])
    with pytest.raises(CorruptGallery, match=r"short\.zip: damaged"):
        restore(tmp_path / "short.zip", album.folder)
    with pytest.raises(BadGallery, match="there is no such backup"):
        restore(tmp_path / "none.zip", album.folder)
    after = {path: path.read_bytes() for path in before}
    assert {path.name for path in before if before[path] != after[path]} <= {f"{DATABASE}-shm"}


@pytest.mark.parametrize("prefix", [BACKUP_DRAFT, RESTORE_DRAFT])
def test_only_what_a_killed_process_has_left_is_erased(album: GalleryDatabase, tmp_path: Path, prefix: str):
    backup(album, tmp_path / "backup.zip")
    (album.folder / EXTERNAL_INDEX_FILE).unlink()  # which cannot be reached
    killed, alive = (album.folder / f"{prefix}{name}" for name in ("killed", "alive"))
    for draft in (killed, alive):
        (draft / UPLOADED_PHOTOS / "ab").mkdir(parents=True)
        (draft / UPLOADED_PHOTOS / "ab" / "cd.jpg").write_bytes(b"a face")
    (path,) = (album.folder / UPLOADED_PHOTOS).glob("*/*")
    with process_lock(alive / DRAFT_LOCK), pytest.raises(GalleryBusy, match="is restoring or backing up"):
        restore(tmp_path / "backup.zip", album.folder)
    with process_lock(alive / DRAFT_LOCK):
        assert not forget_photos(album, [path]).erased
    assert (alive / UPLOADED_PHOTOS / "ab" / "cd.jpg").read_bytes() == b"a face"
    with GalleryDatabase.open(album.folder):  # tries again
        assert not killed.exists()
        assert not alive.exists()


def test_archive_of_a_stranger_is_refused(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "backup.zip", "w") as archive:
        archive.writestr(MANIFEST, "[" * 100_000)
    with pytest.raises(CorruptGallery, match="nested too deeply"):
        restore(tmp_path / "backup.zip", tmp_path / "restored")


def test_archive_with_a_path_outside_the_gallery_is_refused(album: GalleryDatabase, tmp_path: Path):
    backup(album, tmp_path / "backup.zip")
    with zipfile.ZipFile(tmp_path / "backup.zip") as archive, zipfile.ZipFile(tmp_path / "evil.zip", "w") as evil:
        for name in archive.namelist():
            content = archive.read(name)
            if name == "backup.json":
                content = content.replace(b'"sha256": {', b'"sha256": {"../../evil": "00",')
            evil.writestr(name, content)
    with pytest.raises(CorruptGallery, match="evil"):
        restore(tmp_path / "evil.zip", tmp_path / "restored")


def test_backup_refuses_a_damaged_gallery_and_an_existing_file(album: GalleryDatabase, tmp_path: Path):
    (tmp_path / "there.zip").write_text("")
    with pytest.raises(BadGallery, match="exists already"):
        backup(album, tmp_path / "there.zip")
    album._connection.execute("PRAGMA foreign_keys = OFF")
    with album.writing() as repository:
        repository.connection.execute("DELETE FROM photos WHERE id = 1")
    with pytest.raises(CorruptGallery, match="refers to a missing row"):
        backup(album, tmp_path / "new.zip")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gallery", "there.zip"]


def test_backup_beside_a_writer_is_one_moment_of_the_gallery(album: GalleryDatabase, tmp_path: Path):
    stop = threading.Event()

    def write() -> None:
        with album.new_connection() as other:
            while not stop.is_set():
                with other.writing() as repository:  # always in pairs
                    for _ in range(2):
                        repository.connection.execute("INSERT INTO identities (name) VALUES (NULL)")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for number in range(2):
            backup(album, tmp_path / f"{number}.zip")
    finally:
        stop.set()
        thread.join(30)
    for number in range(2):
        restore(tmp_path / f"{number}.zip", tmp_path / str(number))
        assert len(rows(tmp_path / str(number))["identities"]) % 2 == 0


def test_a_refused_restore_leaves_that_of_another_process_alone(album: GalleryDatabase, tmp_path: Path, monkeypatch):
    backup(album, tmp_path / "backup.zip")
    monkeypatch.setattr("familiar.gallery.integrity.backup.exclusive", partial(exclusive, wait_seconds=0.05))
    with exclusive(album.folder):
        (album.folder / RESTORED).write_bytes(b"of the other")
        with pytest.raises(GalleryBusy, match="another process is writing"):
            restore(tmp_path / "backup.zip", album.folder)
        assert (album.folder / RESTORED).read_bytes() == b"of the other"


def test_a_damaged_upload_in_the_folder_is_no_damage_of_the_backup(album: GalleryDatabase, tmp_path: Path):
    backup(album, tmp_path / "backup.zip")
    later = upload(album, b"a later photo")
    later.write_bytes(b"damaged")
    assert restore(tmp_path / "backup.zip", album.folder).photos
    with GalleryDatabase.open(album.folder) as restored:
        assert "damaged" in " ".join(check(restored).problems)


def test_what_cannot_be_read_is_named(album: GalleryDatabase, tmp_path: Path, monkeypatch):
    (tmp_path / "folder").mkdir()
    with pytest.raises(BadGallery, match=r"/folder: cannot be read"):
        restore(tmp_path / "folder", album.folder)
    photo = upload(album, b"another photo")
    opened = Path.open

    def fails(path: Path, *args: Any, **kwargs: Any) -> Any:
        if path == photo:
            raise OSError(5, "Input/output error")
        return opened(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", fails)
    with pytest.raises(CannotWrite, match=rf"{photo.name}: cannot be read \(Input/output error\), so no backup"):
        backup(album, tmp_path / "backup.zip")
    assert not (tmp_path / "backup.zip").exists()


def test_uploads_are_restored_onto_another_disk(album: GalleryDatabase, tmp_path: Path, monkeypatch):
    backup(album, tmp_path / "backup.zip")
    replaced = Path.replace

    def across_disks(path: Path, target: Path) -> Path:
        if UPLOADED_PHOTOS in target.parts and path.parent != target.parent:
            raise OSError(18, "Invalid cross-device link")
        return replaced(path, target)

    monkeypatch.setattr(Path, "replace", across_disks)
    assert restore(tmp_path / "backup.zip", tmp_path / "restored").uploads == 1
    assert [path.read_bytes() for path in (tmp_path / "restored" / UPLOADED_PHOTOS).glob("*/*")] == [b"one photo"]


def test_upload_with_names_written_into_it_is_intact(gallery: GalleryDatabase, tmp_path: Path):
    path = upload(gallery, b"a photo")
    with gallery.writing(faces_change=True) as repository:
        ((photo, _, _),) = repository.photos.at_path(path)
        path.write_bytes(path.read_bytes() + b"<x:xmpmeta/>")  # as `export_xmp` does
        repository.photos.update_content(photo, content_sha256(path), path.stat().st_size, 1)
    assert check(gallery).problems == ()
    backup(gallery, tmp_path / "backup.zip")
    restore(tmp_path / "backup.zip", tmp_path / "restored")
    with GalleryDatabase.open(tmp_path / "restored") as restored:
        assert check(restored).problems == ()
    path.write_bytes(b"damaged")
    assert "damaged" in " ".join(check(gallery).problems)
