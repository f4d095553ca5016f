"""Killed writers leave an intact gallery; concurrent writers wait, or raise GalleryBusy."""

import random
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from collection.crash_runs import run_and_kill, run_uninterrupted
from collection.crash_scenarios import SCENARIOS, draw_photos, embedder

from familiar.core.errors import GalleryBusy
from familiar.gallery.database import connection as connection_module
from familiar.gallery.database.connection import GalleryDatabase, Space
from support.tiers import small_and_exhaustive

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn") / "photos"
    draw_photos(folder)
    return folder


@pytest.mark.parametrize("kills", small_and_exhaustive(1, 4))  # benchmarks/crash.py does 200 of all tasks
@pytest.mark.parametrize("task", SCENARIOS)
def test_kill_keeps_acknowledged_writes_and_no_partial_write(task: str, kills: int, photos: Path, tmp_path: Path):
    start, scratch = tmp_path / "start", tmp_path / "scratch"
    rehearsal = run_uninterrupted(task, start, photos, scratch)
    rng = random.Random()  # unseeded: another moment in every run
    for _ in range(kills):
        after = rng.uniform(0, rehearsal.seconds)
        outcome = run_and_kill(task, rehearsal, start, photos, scratch, after)
        assert not outcome.problems, f"killed after {after:.4f} of {rehearsal.seconds:.4f} s, {outcome}"


@pytest.fixture
def gallery(tmp_path: Path) -> Path:
    GalleryDatabase.create(tmp_path / "gallery", Space.from_metadata(embedder().metadata)).close()
    return tmp_path / "gallery"


def hold_write(folder: Path, sender: Connection, seconds: float) -> None:
    """Hold a write open for some seconds."""
    with GalleryDatabase.open(folder) as gallery, gallery.writing() as repository:
        repository.connection.execute("INSERT INTO identities (name) VALUES ('first')")
        sender.send("writing")
        time.sleep(seconds)


def start_writing_process(folder: Path, seconds: float):
    context = get_context("forkserver")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=hold_write, args=(folder, sender, seconds))
    process.start()
    sender.close()
    assert receiver.poll(60)
    assert receiver.recv() == "writing"
    receiver.close()
    return process


def test_a_second_writer_waits_and_readers_do_not(gallery: Path):
    with GalleryDatabase.open(gallery) as opened:
        process = start_writing_process(gallery, 0.5)
        try:
            assert opened.revision == 0  # reads neither see nor wait for an uncommitted write
            with opened.writing() as repository:
                seen = repository.connection.execute("SELECT name FROM identities").fetchall()
                repository.connection.execute("INSERT INTO identities (name) VALUES ('second')")
        finally:
            process.join(60)
        assert process.exitcode == 0
        assert seen == [("first",)]  # it waited for the other write to end
        assert opened.revision == 2


def test_writer_raises_gallery_busy_after_timeout(gallery: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connection_module, "BUSY_SECONDS", 0.1)
    with GalleryDatabase.open(gallery) as opened:
        process = start_writing_process(gallery, 60)
        try:
            with pytest.raises(GalleryBusy, match="another process is writing"), opened.writing():
                pytest.fail("there are two writers")
        finally:
            process.kill()
            process.join(60)
        with opened.writing() as repository:  # a killed process holds no lock, and its uncommitted write is gone
            assert repository.connection.execute("SELECT count(*) FROM identities").fetchone() == (0,)
