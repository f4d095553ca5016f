"""Replacing the database: interrupted at any step, beside writers, readers and a server."""

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from familiar.core.errors import BadGallery, CannotWrite, GalleryBusy
from familiar.gallery.database import index_lock, switch
from familiar.gallery.database.connection import DATABASE, GalleryDatabase
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
