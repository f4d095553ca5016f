"""A full disk raises a clear error and loses nothing; the work succeeds once there is space again."""

import contextlib
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from collection.crash_scenarios import SCENARIOS, comparable_contents, contents, draw_photos, violated_invariants

from familiar.core.errors import CannotWrite
from familiar.gallery.database.connection import DATABASE, GalleryDatabase
from familiar.gallery.editing.forget import forget_identity
from familiar.gallery.integrity.repair import repair


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn") / "photos"
    draw_photos(folder)
    return folder


@contextlib.contextmanager
def limited_file_size(size_bytes: int) -> Iterator[None]:
    """Make the system refuse writes beyond a file size (EFBIG), as at the end of a quota."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize("free_kb", [2, 60])
@pytest.mark.parametrize("task", [task for task in SCENARIOS if task != "forget"])
def test_full_disk_raises_cannot_write_and_loses_nothing(task: str, free_kb: int, photos: Path, tmp_path: Path):
    run, folder, unlimited = SCENARIOS[task].run, tmp_path / "limited", tmp_path / "unlimited"
    SCENARIOS[task].prepare(folder, photos)
    shutil.copytree(folder, unlimited)
    with GalleryDatabase.open(unlimited) as gallery:
        run(gallery, photos)
        expected = comparable_contents(contents(gallery))
    with GalleryDatabase.open(folder) as gallery:
        with limited_file_size(free_kb * 1024), pytest.raises(CannotWrite, match="disk is full"):
            run(gallery, photos)
        assert violated_invariants(SCENARIOS[task], gallery) == []  # without reopening it
        seen = contents(gallery)
    with GalleryDatabase.open(folder) as gallery:
        assert contents(gallery) == seen
        run(gallery, photos)
        assert comparable_contents(contents(gallery)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("task", ["enroll", "cluster"])
def test_database_page_limit_is_reported_as_a_full_disk(task: str, photos: Path, tmp_path: Path):
    # SQLITE_FULL; in the test above it is a failing write call.
    run = SCENARIOS[task].run
    SCENARIOS[task].prepare(tmp_path / "gallery", photos)
    with GalleryDatabase.open(tmp_path / "gallery") as gallery:
        (pages,) = gallery._connection.execute("PRAGMA page_count").fetchone()
        gallery._connection.execute(f"PRAGMA max_page_count = {pages + 3}")
        with pytest.raises(CannotWrite, match="disk is full"):
            run(gallery, photos)
        assert violated_invariants(SCENARIOS[task], gallery) == []
        gallery._connection.execute("PRAGMA max_page_count = 1000000")
        run(gallery, photos)
        assert violated_invariants(SCENARIOS[task], gallery) == []


def test_erasure_without_disk_space_completes_on_next_open(photos: Path, tmp_path: Path):
    folder = tmp_path / "gallery"
    SCENARIOS["forget"].prepare(folder, photos)
    with GalleryDatabase.open(folder) as gallery:
        forgotten_embeddings = [row[-1] for row in contents(gallery)["faces"] if row[0] <= 5]
        gallery._truncate_log()
        with limited_file_size(120 * 1024):  # enough to forget, too little to rewrite the whole file
            forgotten = forget_identity(gallery, 1)
        assert (forgotten.faces, forgotten.erased) == (5, False)
        assert len(contents(gallery)["faces"]) == 115
    GalleryDatabase.open(folder).close()
    on_disk = (folder / DATABASE).read_bytes()
    assert not any(embedding in on_disk for embedding in forgotten_embeddings)


def test_repair_without_disk_space_changes_nothing(photos: Path, tmp_path: Path):
    folder = tmp_path / "gallery"
    SCENARIOS["forget"].prepare(folder, photos)
    before = (folder / DATABASE).read_bytes()
    for room in (30 * 1024, len(before) - 30 * 1024):
        with limited_file_size(room), pytest.raises(CannotWrite):
            repair(folder)
        assert [file.name for file in folder.iterdir() if "repaired" in file.name] == []
        assert (folder / DATABASE).read_bytes() == before
    repair(folder)
