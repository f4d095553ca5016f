"""A process that is killed while it writes leaves a whole gallery; one that finds another writing waits, or says so."""

import random
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from collection.crash_scenarios import WALKS, draw_photos, embedder, killed, rehearse

from familiar.core.errors import GalleryBusy
from familiar.gallery.database import connection as connection_module
from familiar.gallery.database.connection import Gallery, Space
from support.tiers import small_and_exhaustive

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn") / "photos"
    draw_photos(folder)
    return folder


@pytest.mark.parametrize("kills", small_and_exhaustive(1, 4))  # benchmarks/crash.py does 200 of all works
@pytest.mark.parametrize("walk", WALKS)
def test_kill_keeps_acknowledged_writes_and_no_partial_write(walk: str, kills: int, photos: Path, tmp_path: Path):
    start, scratch = tmp_path / "start", tmp_path / "scratch"
    alone = rehearse(walk, start, photos, scratch)
    rng = random.Random()  # another moment in every run
    for _ in range(kills):
        after = rng.uniform(0, alone.seconds)
        left = killed(walk, alone, start, photos, scratch, after)
        assert not left.wrong, f"killed after {after:.4f} of {alone.seconds:.4f} s, {left}"


@pytest.fixture
def gallery(tmp_path: Path) -> Path:
    Gallery.create(tmp_path / "gallery", Space.from_metadata(embedder().metadata)).close()
    return tmp_path / "gallery"


def hold(folder: Path, tells: Connection, seconds: float) -> None:
    """Writes for so long."""
    with Gallery.open(folder) as gallery, gallery.writing() as connection:
        connection.execute("INSERT INTO identities (name) VALUES ('theirs')")
        tells.send("writing")
        time.sleep(seconds)


def writing_elsewhere(folder: Path, seconds: float):
    context = get_context("forkserver")
    heard, tells = context.Pipe(duplex=False)
    process = context.Process(target=hold, args=(folder, tells, seconds))
    process.start()
    tells.close()
    assert heard.poll(60)
    assert heard.recv() == "writing"
    heard.close()
    return process


def test_a_second_writer_waits_and_readers_do_not(gallery: Path):
    with Gallery.open(gallery) as ours:
        other = writing_elsewhere(gallery, 0.5)
        try:
            assert ours.revision == 0  # what is not committed is not seen, nor waited for
            with ours.writing() as connection:
                seen = connection.execute("SELECT name FROM identities").fetchall()
                connection.execute("INSERT INTO identities (name) VALUES ('ours')")
        finally:
            other.join(60)
        assert other.exitcode == 0
        assert seen == [("theirs",)]  # it waited for the other's end
        assert ours.revision == 2


def test_writer_raises_gallery_busy_after_timeout(gallery: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connection_module, "BUSY_SECONDS", 0.1)
    with Gallery.open(gallery) as ours:
        other = writing_elsewhere(gallery, 60)
        try:
            with pytest.raises(GalleryBusy, match="another process is writing"), ours.writing():
                pytest.fail("there are two writers")
        finally:
            other.kill()
            other.join(60)
        with ours.writing() as connection:  # the dead hold no lock, and what they did not finish is gone
            assert connection.execute("SELECT count(*) FROM identities").fetchone() == (0,)
