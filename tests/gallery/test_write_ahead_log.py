"""Galleries with a write-ahead log that is complete, deleted or damaged."""

import shutil
from pathlib import Path

import pytest
from collection.crash_scenarios import draw_individuals, embedder

from familiar.core.errors import CorruptGallery
from familiar.gallery.database.connection import DATABASE, GalleryDatabase, Space
from familiar.gallery.enrollment.enroll import enroll_embeddings
from familiar.gallery.integrity.repair import repair

SPACE = Space.from_metadata(embedder().metadata)


@pytest.fixture
def with_log(tmp_path: Path) -> Path:
    """A gallery as a killed process leaves it: its last rows are only in the write-ahead log."""
    folder, alive = tmp_path / "gallery", tmp_path / "alive"
    with GalleryDatabase.create(alive, SPACE) as gallery:
        enroll_embeddings(gallery, draw_individuals()[0], list("vwxyz"), "old")
    with GalleryDatabase.open(alive) as gallery:
        enroll_embeddings(gallery, draw_individuals()[1], list("abcde"), "old")
        shutil.copytree(alive, folder)
    assert (folder / f"{DATABASE}-wal").stat().st_size
    return folder


def test_opening_recovers_rows_from_the_write_ahead_log(with_log: Path):
    with GalleryDatabase.open(with_log) as gallery:
        assert len(gallery.faces().ids) == 10


def test_repair_recovers_rows_from_the_write_ahead_log(with_log: Path):
    assert repair(with_log).saved["faces"] == 10


def test_rejects_a_deleted_write_ahead_log(with_log: Path):
    (with_log / f"{DATABASE}-wal").unlink()
    with pytest.raises(CorruptGallery, match=r"contains 1 of 2 acknowledged writes.*-wal was deleted"):
        GalleryDatabase.open(with_log)
    repair(with_log)
    with GalleryDatabase.open(with_log) as gallery:
        assert len(gallery.faces().ids) == 5


def test_rejects_a_damaged_write_ahead_log(with_log: Path):
    log = with_log / f"{DATABASE}-wal"
    content = bytearray(log.read_bytes())
    content[len(content) // 3] ^= 1
    log.write_bytes(content)
    with pytest.raises(CorruptGallery):
        GalleryDatabase.open(with_log)
    assert repair(with_log).saved["faces"] >= 5
