"""Backups and restores: complete, verified, beside a writer or a server, refused when damaged."""

import contextlib
import hashlib
import os
import random
import shutil
import sqlite3
import threading
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from collection.crash_scenarios import contents

from familiar.core.errors import BadGallery, CannotWrite, CorruptGallery, FamiliarError, GalleryBusy
from familiar.core.files import content_sha256
from familiar.gallery.edits.corrections import split
from familiar.gallery.edits.forget import forget_photos
from familiar.gallery.gallery import Gallery
from familiar.gallery.store.automatic_copies import copies
from familiar.gallery.store.connection import DATABASE, LOG
from familiar.gallery.store.drafts import draft_folder
from familiar.gallery.store.external_index import ExternalIndex, read_external_index
from familiar.gallery.store.store import UPLOADED_PHOTOS, Store
from familiar.gallery.transfer.backup import MANIFEST, backup, restore
from familiar.gallery.transfer.check import check
from familiar.neighbors.hnsw import INDEX_FILE, STAMP_FILE
from support.damaged_gallery import damage_table, flip
from support.small_gallery import SPACE, draw_individuals, enroll_vectors


def upload(gallery: Store, content: bytes) -> Path:
    """Store an uploaded photo, and enroll it without a face."""
    sha256 = hashlib.sha256(content)
    path = gallery.folder / UPLOADED_PHOTOS / sha256.hexdigest()[:2] / f"{sha256.hexdigest()}.jpg"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    with gallery.write() as repository:
        repository.photos.insert(path, sha256.digest(), len(content), 1, None)
    return path


@pytest.fixture
def album(gallery: Store) -> Store:
    enroll_vectors(gallery, draw_individuals([2, 1]))
    upload(gallery, b"one photo")
    ExternalIndex("milvus:/nowhere.db", uid="1").save(gallery.folder)
    return gallery


@pytest.fixture
def backup_file(album: Store, tmp_path: Path) -> Path:
    """A backup of the album."""
    backup(album, tmp_path / "backup.zip")
    return tmp_path / "backup.zip"


def rows(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    with Store.open(folder) as gallery:
        return {table: rows for table, rows in contents(gallery).items() if table != "gallery"}


def test_restored_gallery_has_all_rows_and_uploads_elsewhere(album: Store, tmp_path: Path):
    result = backup(album, tmp_path / "backup.zip")
    assert (result.photos, result.faces, result.uploads) == (4, 3, 1)
    assert result.sha256 == hashlib.sha256((tmp_path / "backup.zip").read_bytes()).hexdigest()
    before, uid = rows(album.folder), album._uid
    restored = restore(tmp_path / "elsewhere" / "album", tmp_path / "backup.zip")
    assert (restored.photos, restored.faces, restored.uploads, restored.previous) == (4, 3, 1, None)
    after = rows(tmp_path / "elsewhere" / "album")
    assert {**after, "photos": []} == {**before, "photos": []}
    path = Path(os.fsdecode(after["photos"][-1][2]))
    assert path.is_relative_to(tmp_path / "elsewhere" / "album" / UPLOADED_PHOTOS)
    assert path.read_bytes() == b"one photo"
    with Store.open(tmp_path / "elsewhere" / "album") as gallery:
        assert check(gallery).missing == ()
        assert gallery._uid != uid, "or an index of the other gallery would be taken for one of this"
    external = read_external_index(tmp_path / "elsewhere" / "album")
    assert external is not None
    assert (external.address, external.uid) == ("milvus:/nowhere.db", "")


def test_backup_is_a_zip_file_of_a_gallery(album: Store, backup_file: Path, tmp_path: Path):
    with zipfile.ZipFile(backup_file) as archive:
        archive.extractall(tmp_path / "unpacked")
    assert rows(tmp_path / "unpacked") == rows(album.folder)


def test_open_gallery_goes_on_with_what_was_restored(album: Store, backup_file: Path):
    before, uid = rows(album.folder), album._uid
    later = upload(album, b"a later photo")
    with album.new_connection() as other, album.read() as repository:
        restored = restore(album.folder, backup_file)
        assert repository.photos.count() == 5, "a read that began before goes on with its state"
        with pytest.raises(GalleryBusy, match="was restored from a backup just now"):
            split(other, [3], "of the gallery before")
        assert split(other, [3], "Tom").identity == 1
    assert album.faces().ids.tolist() == [1, 2, 3]
    assert album._uid != uid, "or what was cached of the gallery before would be taken for this one's"
    assert later.read_bytes() == b"a later photo"
    assert restored.previous in copies(album.folder)
    assert rows(album.folder)["photos"] == before["photos"]
    restore(album.folder, restored.previous, fewer_names=True)
    assert len(rows(album.folder)["photos"]) == 5


@pytest.fixture
def killed(album: Store) -> Path:
    """A copy of the open gallery, with its log, as a killed process leaves it. The log has a later photo."""
    enroll_vectors(album, draw_individuals([4]), "later")
    return Path(shutil.copytree(album.folder, album.folder.with_name("killed")))


def test_restore_after_a_kill_replaces_what_is_in_the_log(backup_file: Path, killed: Path):
    assert (killed / LOG).stat().st_size
    restore(killed, backup_file)
    assert [row[0] for row in rows(killed)["faces"]] == [1, 2, 3]


@pytest.mark.parametrize("harm", ["first page", "no database", "forged log"])
def test_restore_moves_aside_a_gallery_that_cannot_be_opened(album: Store, backup_file: Path, killed: Path, harm: str):
    if harm == "no database":
        (killed / DATABASE).write_bytes(b"Dear diary")
    elif harm == "first page":
        (killed / LOG).unlink()
        flip(killed / DATABASE, 8 * 200)
    else:
        (killed / LOG).write_bytes(b"of another gallery" * 999)
        damage_table(killed, "gallery")
    harmed = (killed / DATABASE).read_bytes()
    with Store.open(album.folder):
        previous = restore(killed, backup_file).previous
    assert previous is not None
    assert previous.name.startswith("damaged-")
    content = (previous / DATABASE).read_bytes()
    assert content[96 : len(harmed)] == harmed[96:]  # SQLite counts writes of the file in its header
    assert harm != "no database" or content.startswith(harmed)  # pages of the log may follow
    assert [row[0] for row in rows(killed)["faces"]] == [1, 2, 3]


def test_damaged_gallery_that_a_server_has_open_is_restored_under_it(album: Store, tmp_path: Path):
    backup(album, tmp_path / "backup.zip")
    album._connection.run("PRAGMA wal_checkpoint(TRUNCATE)")
    damage_table(album.folder, "gallery")
    with pytest.raises(CorruptGallery):
        Store.open(album.folder)
    previous = restore(album.folder, tmp_path / "backup.zip").previous
    assert previous is not None
    assert previous.name.startswith("damaged-")
    with contextlib.closing(sqlite3.connect(previous / DATABASE)) as copy:
        assert copy.execute("SELECT count(*) FROM faces").fetchone() == (3,)
    assert album.faces().ids.tolist() == [1, 2, 3]
    split(album, [3], "Tom")
    assert album.damage() == []


@pytest.mark.usefixtures("short_waits")
def test_file_that_another_has_open_is_not_replaced(backup_file: Path, killed: Path):
    with Store.open(killed):
        (killed / DATABASE).write_bytes(b"Dear diary")
        with pytest.raises(GalleryBusy, match="another program has the gallery open"):
            restore(killed, backup_file)
    assert (killed / DATABASE).read_bytes().startswith(b"Dear diary")  # pages of the log may follow


def test_damaged_automatic_copy_is_refused_and_the_one_before_is_named(album: Store):
    with Store.open(album.folder) as opened:
        older, newer = (opened.make_automatic_copy(name) for name in ("a", "b"))
    assert older is not None
    assert newer is not None
    flip(newer, 8 * 9000)
    before = rows(album.folder)
    with pytest.raises(CorruptGallery, match=f"the one before: familiar gallery restore .*{older.name}"):
        restore(album.folder)
    assert rows(album.folder) == before
    assert restore(album.folder, older).faces == 3


def test_restore_erases_the_search_index_of_the_replaced_gallery(album: Store, backup_file: Path):
    """It may have faces that were forgotten but not erased; the mark of that is in the database that is moved aside."""
    for name in (INDEX_FILE, STAMP_FILE, ".familiar.0123456789abcdef"):
        (album.folder / name).write_bytes(b"of a forgotten face")
    restore(album.folder, backup_file)
    assert [path for path in album.folder.iterdir() if path.is_file() and b"of a forgotten" in path.read_bytes()] == []


def test_damaged_backup_is_refused_and_changes_nothing(album: Store, backup_file: Path, tmp_path: Path):
    content, rng = backup_file.read_bytes(), random.Random(0)
    files = [path for path in album.folder.rglob("*") if path.is_file() and path.suffix != ".sqlite-shm"]
    before = [path.read_bytes() for path in files]
    refused = 0
    for number in range(8):
        backup_file.write_bytes(content)
        flip(backup_file, rng.randrange(8 * len(content)))
        try:
            restore(tmp_path / str(number), backup_file)
        except FamiliarError:
            refused += 1
            assert not (tmp_path / str(number) / DATABASE).exists()
        else:  # a bit of the archive that says nothing about its content, such as the time of a file
            assert {**rows(tmp_path / str(number)), "photos": []} == {**rows(album.folder), "photos": []}
    assert refused >= 1
    backup_file.write_bytes(content[: len(content) // 2])
    with pytest.raises(CorruptGallery, match=r"backup\.zip: damaged"):
        restore(album.folder, backup_file)
    assert [path.read_bytes() for path in files] == before


@pytest.mark.parametrize(
    ("forge", "message"),
    [
        (lambda _: b"[" * 100_000, "nested too deeply"),
        (lambda manifest: manifest.replace(b'"files": [', b'"files": ["../../evil",'), "evil"),
    ],
)
def test_archive_of_a_stranger_is_refused(
    backup_file: Path, tmp_path: Path, forge: Callable[[bytes], bytes], message: str
):
    with zipfile.ZipFile(backup_file) as archive, zipfile.ZipFile(tmp_path / "forged.zip", "w") as forged:
        for name in archive.namelist():
            forged.writestr(name, forge(archive.read(name)) if name == MANIFEST else archive.read(name))
        forged.writestr("../../evil", "")
    with pytest.raises(CorruptGallery, match=message):
        restore(tmp_path / "restored", tmp_path / "forged.zip")


def test_backup_refuses_a_damaged_gallery_and_an_existing_file(album: Store, tmp_path: Path):
    (tmp_path / "there.zip").write_text("")
    with pytest.raises(BadGallery, match="exists already"):
        backup(album, tmp_path / "there.zip")
    album._connection.run("PRAGMA foreign_keys = OFF")
    with album.write() as repository:
        repository.connection.run("DELETE FROM photos WHERE id = 1")
    with pytest.raises(CorruptGallery, match="refers to a missing row"):
        backup(album, tmp_path / "new.zip")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gallery", "there.zip"]


def test_backup_beside_a_writer_is_one_moment_of_the_gallery(album: Store, tmp_path: Path):
    stop = threading.Event()

    def write() -> None:
        with album.new_connection() as other:
            while not stop.is_set():
                with other.write() as repository:  # always in pairs
                    for _ in range(2):
                        repository.connection.run("INSERT INTO identities (name) VALUES (NULL)")

    with ThreadPoolExecutor(1) as pool:
        pool.submit(write)
        for number in range(2):
            backup(album, tmp_path / f"{number}.zip")
        stop.set()
    for number in range(2):
        restore(tmp_path / str(number), tmp_path / f"{number}.zip")
        assert len(rows(tmp_path / str(number))["identities"]) % 2 == 0


def test_a_damaged_upload_in_the_folder_is_no_damage_of_the_backup(album: Store, backup_file: Path):
    later = upload(album, b"a later photo")
    later.write_bytes(b"damaged")
    assert restore(album.folder, backup_file).photos
    with Store.open(album.folder) as restored:
        assert "damaged" in " ".join(check(restored).problems)


def test_what_cannot_be_read_is_named(album: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "folder").mkdir()
    with pytest.raises(BadGallery, match=r"/folder: there is no such backup, or it is no file"):
        restore(album.folder, tmp_path / "folder")
    with pytest.raises(BadGallery, match="has no automatic copy; name a backup"):
        restore(tmp_path / "empty")
    photo = upload(album, b"another photo")

    def fails(path: str | Path, mode: str) -> Any:
        if Path(path) == photo:
            raise OSError(5, "Input/output error", str(path))
        return open(path, mode)  # noqa: PTH123 - as zipfile opens it

    monkeypatch.setattr(zipfile, "open", fails, raising=False)
    with pytest.raises(CannotWrite, match=rf"{photo.name}: Input/output error\), so there is no backup"):
        backup(album, tmp_path / "backup.zip")
    assert not (tmp_path / "backup.zip").exists()


def test_uploads_are_restored_onto_another_disk(backup_file: Path, tmp_path: Path, monkeypatch):
    replaced = Path.replace

    def across_disks(path: Path, target: Path) -> Path:
        if UPLOADED_PHOTOS in target.parts and path.parent != target.parent:
            raise OSError(18, "Invalid cross-device link")
        return replaced(path, target)

    monkeypatch.setattr(Path, "replace", across_disks)
    assert restore(tmp_path / "restored", backup_file).uploads == 1
    assert [path.read_bytes() for path in (tmp_path / "restored" / UPLOADED_PHOTOS).glob("*/*")] == [b"one photo"]


def test_upload_with_names_written_into_it_is_intact(gallery: Store, tmp_path: Path):
    path = upload(gallery, b"a photo")
    with gallery.write(faces_change=True) as repository:
        (row,) = repository.photos.at_path(path)
        photo = row.photo
        path.write_bytes(path.read_bytes() + b"<x:xmpmeta/>")  # as `export_xmp` does
        repository.photos.update_content(photo, content_sha256(path), path.stat().st_size, 1)
    assert check(gallery).problems == ()
    backup(gallery, tmp_path / "backup.zip")
    restore(tmp_path / "restored", tmp_path / "backup.zip")
    with Store.open(tmp_path / "restored") as restored:
        assert check(restored).problems == ()
    path.write_bytes(b"damaged")
    assert "damaged" in " ".join(check(gallery).problems)


def test_restoring_twice_does_not_bring_back_what_was_replaced(album: Store):
    album.make_automatic_copy()
    with album.write() as repository:
        identity = repository.identities.create()
    for _ in range(2):
        restore(album.folder)
        with album.read() as repository:
            assert not repository.identities.exists(identity)
    assert len({path.name for path in copies(album.folder)}) >= 3


def test_forget_erases_what_killed_and_finished_restores_have_left(gallery: Store):
    enroll_vectors(gallery, draw_individuals([2, 1]))
    with Store.create(gallery.folder / "damaged-fur", SPACE) as other:  # a name that a user may choose
        enroll_vectors(other, draw_individuals([1]))
    for name in (".familiar-draft-killed", "damaged-20260501-120000-2"):
        shutil.copytree(gallery.folder, gallery.folder / name, ignore=shutil.ignore_patterns(".*", "damaged-*"))
    with draft_folder(gallery.folder):
        assert not forget_photos(gallery, [1]).erased, "while another process is restoring"
    assert gallery.purge_deleted()
    assert not [*gallery.folder.glob(".familiar-draft-*"), *gallery.folder.glob("damaged-2*/*.sqlite*")]
    with Store.open(gallery.folder / "damaged-fur") as other:
        assert len(other.faces().ids) == 1


@pytest.mark.parametrize("is_copied", [False, True])
def test_uploads_are_found_in_the_folder_that_a_gallery_was_moved_or_copied_to(
    album: Store, tmp_path: Path, is_copied: bool
):
    original = upload(album, b"another photo")
    album.close()
    elsewhere = tmp_path / "elsewhere"
    if is_copied:
        shutil.copytree(album.folder, elsewhere)
    else:
        album.folder.rename(elsewhere)
    with Gallery.open(elsewhere) as gallery:
        paths = [Path(path) for path in gallery.photo_paths() if UPLOADED_PHOTOS in Path(path).parts]
        revision = gallery.store.revision
    assert sorted(path.read_bytes() for path in paths) == [b"another photo", b"one photo"]
    assert all(path.is_relative_to(elsewhere) for path in paths)
    with Gallery.open(elsewhere) as gallery:
        assert gallery.store.revision == revision, "nothing is left to change"
    if is_copied:
        with Gallery.open(album.folder) as gallery:
            assert str(original) in gallery.photo_paths()


def test_copy_with_fewer_names_is_refused_and_the_one_with_most_is_named(album: Store):
    album.make_automatic_copy("before-rebuild")
    split(album, [1], "Mia")
    album.make_automatic_copy()
    with_name, without = copies(album.folder)[0], copies(album.folder)[-1]
    split(album, [3], "Tom")
    names = {1: "Mia", 2: "Tom"}
    for source, count in ((without, "0 names"), (with_name, "1 name")):
        with pytest.raises(BadGallery, match=f"has 4 photos and {count}; .* has 2 names now") as error:
            restore(album.folder, source)
        assert str(error.value).endswith(f"restore {album.folder} {source} --yes")
        assert album_names(album) == names
    album.close()
    flip(album.folder / DATABASE, 100)  # in the first page
    with pytest.raises(BadGallery, match=f"cannot be read; {with_name} has 1 name"):
        restore(album.folder, without)
    restored = restore(album.folder, without, fewer_names=True)
    assert (restored.names, restored.names_before) == (0, None)
    assert restore(album.folder, with_name).names == 1


def album_names(album: Store) -> dict[int, str]:
    with album.read() as repository:
        return repository.identities.names()
