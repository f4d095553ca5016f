"""Replacing the database: interrupted at any step, beside writers, readers and a server."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from familiar.core.errors import BadGallery, CannotWrite, GalleryBusy
from familiar.gallery.database import index_lock, switch
from familiar.gallery.database.connection import DATABASE, GalleryDatabase
from familiar.gallery.database.copies import REPAIRED
from familiar.gallery.database.external_index import ExternalIndex, read_external_index
from familiar.gallery.database.sqlite_file import ACKNOWLEDGED_FILE
from familiar.gallery.editing.forget import forget_photos
from familiar.gallery.integrity.backup import backup, restore
from familiar.gallery.integrity.check import check
from familiar.gallery.integrity.repair import repair
from support.small_gallery import draw_individuals, enroll_vectors
from support.tiers import small_and_exhaustive

# Names individuals until it is killed, and prints each name when its write is acknowledged.
WRITER = """
import itertools, sys
from pathlib import Path
from familiar.gallery.database.connection import GalleryDatabase
with GalleryDatabase.open(Path(sys.argv[1])) as gallery:
    for number in itertools.count():
        with gallery.writing() as repository:
            repository.connection.execute("INSERT INTO identities (name) VALUES (?)", (f"{sys.argv[2]} {number}",))
        print(f"{sys.argv[2]} {number}", flush=True)
"""

LOCK_FILES = {switch.LOCK_FILE, index_lock.LOCK_FILE}
FILES = {DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", ACKNOWLEDGED_FILE, *LOCK_FILES}  # without any copy


class Interrupted(BaseException):
    """A crash."""


def crash_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Let the step-th change of a folder by `switch`, counted from 0, be the last thing that the process does."""
    done = iter(range(step + 1))

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            if next(done, None) is None:
                raise Interrupted
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(switch, "write_atomically", counted(switch.write_atomically))
    monkeypatch.setattr(switch, "fsync_directory", counted(switch.fsync_directory))
    monkeypatch.setattr(os, "link", counted(os.link))
    monkeypatch.setattr(Path, "replace", counted(Path.replace))
    monkeypatch.setattr(Path, "unlink", counted(Path.unlink))


@pytest.mark.parametrize("how", ["repair", "restore"])
def test_crash_at_any_step_leaves_the_old_gallery_or_the_new_one(
    gallery: GalleryDatabase, folder: Path, tmp_path: Path, how: str
):
    enroll_vectors(gallery, draw_individuals([2]))
    backup(gallery, tmp_path / "backup.zip")
    steps = 0
    while True:
        enroll_vectors(gallery, draw_individuals([1]), f"before step {steps}")  # which is in the log
        faces = gallery.faces().ids.tolist()
        with pytest.MonkeyPatch.context() as monkeypatch:
            crash_at(monkeypatch, steps)
            try:
                repair(folder) if how == "repair" else restore(tmp_path / "backup.zip", folder)
                break
            except Interrupted:
                steps += 1
        with GalleryDatabase.open(folder) as reopened:
            assert reopened.faces().ids.tolist() in ([faces] if how == "repair" else [faces, [1, 2]]), steps
            assert check(reopened).problems == (), steps
        assert not switch.is_unfinished(folder)
        with contextlib.suppress(GalleryBusy):  # restored: what was read before may not be true any more
            enroll_vectors(gallery, draw_individuals([1]), f"after step {steps}")
        enroll_vectors(gallery, draw_individuals([1]), str(folder / "forgotten"))
        faces = gallery.faces().ids.tolist()[:-1]
        with GalleryDatabase(folder, check=False) as reopened:  # which has no page in its memory
            assert forget_photos(reopened, [folder / "forgotten 0.jpg"]).erased
        assert gallery.faces().ids.tolist() == faces, steps
        with GalleryDatabase.open(folder) as reopened:
            assert check(reopened).problems == (), steps
        assert {path.name for path in folder.iterdir()} <= FILES, steps
    assert steps > 8


def start_writer(folder: Path, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
@pytest.mark.parametrize("repairs", small_and_exhaustive(2, 20))
def test_repair_beside_writers_loses_no_acknowledged_name(gallery: GalleryDatabase, folder: Path, repairs: int):
    enroll_vectors(gallery, draw_individuals([2]))
    writers = [start_writer(folder, name) for name in ("Mia", "Tom")]
    acknowledged: list[str] = []
    readers = [threading.Thread(target=lambda lines=writer.stdout: acknowledged.extend(lines)) for writer in writers]
    try:
        for reader in readers:
            reader.start()
        for _ in range(repairs):
            count, deadline = len(acknowledged), time.monotonic() + 60
            while len(acknowledged) < count + 6:  # they have gone on since the last repair
                assert time.monotonic() < deadline
                for writer in writers:
                    assert writer.poll() is None, writer.stderr and writer.stderr.read()
                time.sleep(0.01)
            assert repair(folder).lost == ()
            assert gallery.faces().ids.tolist() == [1, 2]
    finally:
        for writer in writers:
            writer.kill()
            writer.wait(30)
        for reader in readers:
            reader.join(30)
        for writer in writers:
            assert writer.stdout
            assert writer.stderr
            writer.stdout.close()
            writer.stderr.close()
    with GalleryDatabase.open(folder) as reopened, reopened.reading() as repository:
        names = {name for (name,) in repository.connection.execute("SELECT name FROM identities")}
        assert check(reopened).problems == ()
    assert {line.strip() for line in acknowledged} <= names


def test_a_write_waits_while_the_gallery_is_replaced(gallery: GalleryDatabase, folder: Path, monkeypatch):
    enroll_vectors(gallery, draw_individuals([2]))
    order: list[str] = []
    with gallery.new_connection() as other:

        def write() -> None:
            enroll_vectors(other, draw_individuals([1]), "later")
            order.append("written")

        thread = threading.Thread(target=write)
        with switch.exclusive(folder):
            thread.start()
            thread.join(0.2)
            assert gallery.faces().ids.tolist() == [1, 2], "reading goes on"
            order.append("replaced")
        thread.join(30)
        assert order == ["replaced", "written"]
        monkeypatch.setattr("familiar.gallery.database.connection.BUSY_SECONDS", 0.1)
        with switch.exclusive(folder), pytest.raises(GalleryBusy, match="being repaired or restored"):
            enroll_vectors(other, draw_individuals([1]), "never")
    with gallery.writing(), pytest.raises(GalleryBusy, match="is writing"), switch.exclusive(folder, 0.1):
        pass


def test_a_decision_made_on_what_a_restore_has_replaced_is_not_written(
    gallery: GalleryDatabase, folder: Path, tmp_path: Path
):
    enroll_vectors(gallery, draw_individuals([2]))
    backup(gallery, tmp_path / "backup.zip")
    restore(tmp_path / "backup.zip", folder)
    with pytest.raises(GalleryBusy, match="was restored from a backup"), gallery.writing():
        pytest.fail("written to another gallery than was read")
    assert enroll_vectors(gallery, draw_individuals([1]), "again") == [3]
    assert gallery.revision > 2


def test_unreadable_notes_of_a_switch_are_named(gallery: GalleryDatabase, folder: Path):
    (folder / switch.SWITCH_FILE).write_text("{")
    with pytest.raises(CannotWrite, match=f"{switch.SWITCH_FILE}: cannot be read"):
        enroll_vectors(gallery, draw_individuals([1]))
    (folder / switch.SWITCH_FILE).unlink()
    assert enroll_vectors(gallery, draw_individuals([1])) == [1]


def test_nothing_to_repair_is_said(tmp_path: Path):
    with pytest.raises(BadGallery, match="no gallery to repair"):
        repair(tmp_path)
    assert not (tmp_path / DATABASE).exists()


def in_another_process(folder: Path, code: str) -> None:
    subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path; from familiar.gallery.database.connection import GalleryDatabase\n"
            f"with GalleryDatabase.open(Path(sys.argv[1])) as gallery:\n    {code}",
            str(folder),
        ],
        check=True,
    )


def test_closing_waits_while_the_gallery_is_replaced(gallery: GalleryDatabase, folder: Path):
    """The last connection deletes the log by its name, which may be that of the new one."""
    with switch.exclusive(folder):
        closing = threading.Thread(target=gallery.close)
        closing.start()
        closing.join(0.2)
        assert closing.is_alive()
    closing.join(30)
    assert not closing.is_alive()


@pytest.mark.parametrize("how", ["repair", "forget"])
def test_neither_a_failed_repair_nor_an_erased_link_releases_the_locks(
    gallery: GalleryDatabase, folder: Path, monkeypatch: pytest.MonkeyPatch, how: str
):
    """Else another process that closes the gallery takes itself for the last, and deletes the log."""
    enroll_vectors(gallery, draw_individuals([2]), str(folder / "photo"))
    if how == "repair":
        monkeypatch.setattr("familiar.gallery.integrity.repair.dated_folder", Mock(side_effect=OSError(28, "full")))
        with pytest.raises(CannotWrite, match="full"):
            repair(folder)
    else:
        copies = folder / "damaged-20260101-000000"
        copies.mkdir()
        os.link(folder / DATABASE, copies / DATABASE)
        assert forget_photos(gallery, [folder / "photo 0.jpg"]).erased
        assert not copies.exists()
    enroll_vectors(gallery, draw_individuals([1]), "later")
    in_another_process(folder, "pass")
    assert (folder / f"{DATABASE}-wal").stat().st_size > 0
    enroll_vectors(gallery, draw_individuals([1]), "last")
    in_another_process(folder, f"assert len(gallery.faces().ids) == {len(gallery.faces().ids)}")


def test_lost_replacement_is_named_and_the_old_gallery_is_kept(gallery: GalleryDatabase, folder: Path):
    enroll_vectors(gallery, draw_individuals([2]))
    gallery.close()
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(switch, "_move", Mock(side_effect=Interrupted))
        with pytest.raises(Interrupted):
            repair(folder)
    (folder / REPAIRED).unlink()
    for _ in range(2):
        with pytest.raises(CannotWrite, match="repaired is missing"):
            GalleryDatabase.open(folder)
    (copies,) = folder.glob("damaged-*")
    for path in copies.iterdir():
        path.replace(folder / path.name)
    (folder / switch.SWITCH_FILE).unlink()
    with GalleryDatabase.open(folder) as reopened:
        assert len(reopened.faces().ids) == 2


def test_file_system_without_hard_links(gallery: GalleryDatabase, folder: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(os, "link", Mock(side_effect=PermissionError(1, "not permitted")))
    enroll_vectors(gallery, draw_individuals([2]))
    backup(gallery, tmp_path / "backup.zip")
    for replace in (lambda: repair(folder), lambda: restore(tmp_path / "backup.zip", folder)):
        replace()
        with GalleryDatabase.open(folder) as reopened:
            assert len(reopened.faces().ids) == 2
    first, is_there = tmp_path / "backup.zip", Path.exists
    content = first.read_bytes()
    monkeypatch.setattr(Path, "exists", lambda path: path != first and is_there(path))  # written a moment later
    with GalleryDatabase.open(folder) as reopened, pytest.raises(BadGallery, match="exists already"):
        backup(reopened, first)
    assert first.read_bytes() == content
    reopened, count = GalleryDatabase.open(folder), 0

    def exists(path: Path) -> bool:  # not yet, when it is asked for first
        nonlocal count
        count += path == folder / DATABASE
        return is_there(path) and not (path == folder / DATABASE and count == 1)

    monkeypatch.setattr(Path, "exists", exists)
    (folder / f"{DATABASE}-wal").unlink(missing_ok=True)
    with pytest.raises(BadGallery, match="just created"):
        GalleryDatabase.create(folder, reopened.space)
    reopened.close()


def test_crash_of_a_restore_keeps_the_address_of_an_index(gallery: GalleryDatabase, tmp_path: Path, folder: Path):
    ExternalIndex("milvus:/backup.db", 1).save(folder)
    backup(gallery, tmp_path / "backup.zip")
    ExternalIndex("milvus:/present.db", 1).save(folder)
    gallery.close()
    steps = 0
    while True:
        with pytest.MonkeyPatch.context() as monkeypatch:
            crash_at(monkeypatch, steps)
            try:
                restore(tmp_path / "backup.zip", folder)
                break
            except Interrupted:
                steps += 1
        with GalleryDatabase.open(folder) as reopened:
            external = read_external_index(folder)
            assert external is not None
            is_restored = bool(list(folder.glob("replaced-*")))
            assert external.address == ("milvus:/backup.db" if is_restored else "milvus:/present.db"), steps
            assert not check(reopened).missing
        for path in folder.glob("replaced-*/*"):
            path.unlink()
        for path in folder.glob("replaced-*"):
            path.rmdir()
        ExternalIndex("milvus:/present.db", 1).save(folder)
    assert steps > 8


def test_what_leads_elsewhere_is_refused(gallery: GalleryDatabase, folder: Path, tmp_path: Path):
    backup(gallery, tmp_path / "backup.zip")
    gallery.close()
    (folder / switch.SWITCH_FILE).symlink_to("nowhere")
    with pytest.raises(CannotWrite, match="cannot be read"):
        GalleryDatabase.open(folder)
    (folder / switch.SWITCH_FILE).unlink()
    (folder / DATABASE).rename(tmp_path / "large disk.sqlite")
    (folder / DATABASE).symlink_to(tmp_path / "large disk.sqlite")
    for use in (
        lambda: GalleryDatabase.open(folder),
        lambda: repair(folder),
        lambda: restore(tmp_path / "backup.zip", folder),
    ):
        with pytest.raises(BadGallery, match=r"is a link to .*large disk"):
            use()


def test_log_without_its_gallery_is_not_taken_for_that_of_a_new_one(gallery: GalleryDatabase, folder: Path):
    enroll_vectors(gallery, draw_individuals([2]))
    space = gallery.space
    (folder / DATABASE).unlink()
    with pytest.raises(BadGallery, match=r"the log of a gallery that is not there"):
        GalleryDatabase.create(folder, space)
    assert (folder / f"{DATABASE}-wal").exists()


def test_forget_erases_copies_of_this_gallery_only(gallery: GalleryDatabase, folder: Path):
    enroll_vectors(gallery, draw_individuals([2]), str(folder / "photo"))
    with GalleryDatabase.create(folder / "damaged-fur cats", gallery.space) as other:
        enroll_vectors(other, draw_individuals([2]))
    os.link(folder / DATABASE, folder / f".{DATABASE}.123")  # by a `create` that was killed
    repair(folder)
    (copies,) = folder.glob("damaged-2*")
    with (copies / DATABASE).open("rb") as old:
        assert forget_photos(gallery, [folder / "photo 0.jpg"]).erased
        assert not old.read().strip(b"\0")
    assert not copies.exists()
    assert not (folder / f".{DATABASE}.123").exists()
    with GalleryDatabase.open(folder / "damaged-fur cats") as other:
        assert len(other.faces().ids) == 2


@pytest.mark.usefixtures("short_waits")
def test_repair_keeps_the_damaged_file_though_an_erasure_is_due(gallery: GalleryDatabase, folder: Path):
    gallery.close()
    gallery = GalleryDatabase.open(folder)  # with the short wait
    enroll_vectors(gallery, draw_individuals([2]), str(folder / "photo"))
    with GalleryDatabase.open(folder) as reader, reader.reading() as repository:
        assert repository.faces.count() == 2
        assert not forget_photos(gallery, [folder / "photo 0.jpg"]).erased
    copies = repair(folder).kept_in
    with GalleryDatabase.open(folder):
        assert (copies / DATABASE).exists()
