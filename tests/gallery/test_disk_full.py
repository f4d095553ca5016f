"""A disk without room: said in one clear line, nothing lost, and the same work is done when there is room again."""

import contextlib
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from collection.crash_scenarios import WALKS, broken, contents, draw_photos, in_the_end

from familiar.core.errors import CannotWrite
from familiar.gallery.database.connection import DATABASE, Gallery
from familiar.gallery.editing.forget import forget_identity
from familiar.gallery.integrity.check import repair


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn") / "photos"
    draw_photos(folder)
    return folder


@contextlib.contextmanager
def no_file_beyond(size_bytes: int) -> Iterator[None]:
    """Whoever writes further is refused by the system (EFBIG), as where a quota ends."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize("room_kb", [2, 60])
@pytest.mark.parametrize("walk", [walk for walk in WALKS if walk != "forget"])
def test_full_disk_raises_cannot_write_and_loses_nothing(walk: str, room_kb: int, photos: Path, tmp_path: Path):
    work, left, whole = WALKS[walk].work, tmp_path / "left", tmp_path / "whole"
    WALKS[walk].prepare(left, photos)
    shutil.copytree(left, whole)
    with Gallery.open(whole) as gallery:
        work(gallery, photos)
        expected = in_the_end(contents(gallery))
    with Gallery.open(left) as gallery:
        with no_file_beyond(room_kb * 1024), pytest.raises(CannotWrite, match="disk is full"):
            work(gallery, photos)
        assert broken(WALKS[walk], gallery) == []  # without being opened anew
        seen = contents(gallery)
    with Gallery.open(left) as gallery:
        assert contents(gallery) == seen
        work(gallery, photos)
        assert in_the_end(contents(gallery)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("walk", ["enroll", "group"])
def test_database_page_limit_is_reported_as_a_full_disk(walk: str, photos: Path, tmp_path: Path):
    # SQLITE_FULL rather than an error of writing: the other half of what a system may say.
    work = WALKS[walk].work
    WALKS[walk].prepare(tmp_path / "gallery", photos)
    with Gallery.open(tmp_path / "gallery") as gallery:
        (pages,) = gallery._connection.execute("PRAGMA page_count").fetchone()
        gallery._connection.execute(f"PRAGMA max_page_count = {pages + 3}")
        with pytest.raises(CannotWrite, match="disk is full"):
            work(gallery, photos)
        assert broken(WALKS[walk], gallery) == []
        gallery._connection.execute("PRAGMA max_page_count = 1000000")
        work(gallery, photos)
        assert broken(WALKS[walk], gallery) == []


def test_erasure_without_disk_space_completes_on_next_open(photos: Path, tmp_path: Path):
    folder = tmp_path / "gallery"
    WALKS["forget"].prepare(folder, photos)
    with Gallery.open(folder) as gallery:
        gone = [row[-1] for row in contents(gallery)["faces"] if row[0] <= 5]
        gallery._truncate_log()
        with no_file_beyond(120 * 1024):  # enough to forget, too little to write the whole file anew
            forgotten = forget_identity(gallery, 1)
        assert (forgotten.faces, forgotten.erased) == (5, False)
        assert len(contents(gallery)["faces"]) == 115
    Gallery.open(folder).close()
    on_disk = (folder / DATABASE).read_bytes()
    assert not any(embedding in on_disk for embedding in gone)


def test_repair_without_disk_space_changes_nothing(photos: Path, tmp_path: Path):
    folder = tmp_path / "gallery"
    WALKS["forget"].prepare(folder, photos)
    before = (folder / DATABASE).read_bytes()
    for room in (30 * 1024, len(before) - 30 * 1024):
        with no_file_beyond(room), pytest.raises(CannotWrite):
            repair(folder)
        assert [file.name for file in folder.iterdir() if "repaired" in file.name] == []
        assert (folder / DATABASE).read_bytes() == before
    repair(folder)
