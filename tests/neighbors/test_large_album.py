"""Clustering with files: as in memory, continued after an interruption, and divided among processes."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from familiar.core.calibration import Calibration
from familiar.core.errors import CannotWrite
from familiar.core.vectors import normalize
from familiar.metrics.clustering import contingency
from familiar.neighbors import large_album
from familiar.neighbors.comparison import Comparison
from familiar.neighbors.large_album import LargeAlbum


def draw(people: int = 60, photos: int = 10, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    centers = np.repeat(generator.normal(size=(people, 64)), photos, axis=0)
    rows = normalize((centers + 0.5 * generator.normal(size=centers.shape)).astype(np.float32))
    return generator.permutation(rows).astype(np.float16)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_album, "BATCH_ROWS", 100)
    monkeypatch.setattr(large_album, "MAX_IN_MEMORY", 100)


def open_album(
    rows: np.ndarray, folder: Path, on_progress: Callable[[str, int, int], None] = lambda _what, _done, _all: None
) -> LargeAlbum:
    vectors = normalize(rows.astype(np.float32))
    return LargeAlbum(lambda chosen: iter([vectors[chosen]]), len(rows), Calibration.fixed(0.5), folder, on_progress)


def clusters_of(rows: np.ndarray, folder: Path) -> np.ndarray:
    album = open_album(rows, folder)
    assert album.search()
    return album.cluster()


def test_clusters_are_those_of_the_search_in_memory(tmp_path: Path):
    rows = draw()
    clusters = clusters_of(rows, tmp_path)
    vectors = normalize(rows.astype(np.float32))
    table = contingency(Comparison.measure(vectors, Calibration.fixed(0.5)).cluster(vectors), clusters)
    assert table.pairwise().f == 1.0
    assert clusters[0] == 0
    assert clusters.max() == 59


def test_a_search_that_was_interrupted_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rows, expected = draw(), clusters_of(draw(), tmp_path / "whole")

    def interrupt(what: str, done: int, _: int) -> None:
        if (what, done) == ("searching for neighbors", 3):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_album(rows, tmp_path / "part", interrupt).search()
    searched: list[int] = []
    search = large_album.InvertedFile.search

    def count(self: large_album.InvertedFile, queries: np.ndarray, *arguments: int):
        searched.append(int(queries[0]))
        return search(self, queries, *arguments)

    monkeypatch.setattr(large_album.InvertedFile, "search", count)
    album = open_album(rows, tmp_path / "part")
    assert album.search()
    assert searched == [300, 400, 500]
    np.testing.assert_array_equal(album.cluster(), expected)


def test_processes_share_the_search(tmp_path: Path):
    rows, expected = draw(), clusters_of(draw(), tmp_path / "alone")
    shared = [open_album(rows, tmp_path / "shared") for _ in range(3)]
    assert [each.search(share, 3) for share, each in enumerate(shared)] == [False, False, True]
    assert shared[0].search(0, 3)  # finds that the others are done
    np.testing.assert_array_equal(shared[1].cluster(), expected)


def test_parts_that_the_first_search_missed_are_joined_by_their_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(large_album, "NEIGHBORS", 1)
    rows = draw(5, 60)
    assert clusters_of(rows, tmp_path / "again").max() == 4
    monkeypatch.setattr(large_album, "MAX_REPEATS", 0)
    assert clusters_of(rows, tmp_path / "once").max() > 4


def test_too_little_space_is_noticed_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse, raising=False)
    with pytest.raises(CannotWrite, match=r"vectors\.npy: cannot be written \(No space left"):
        open_album(draw(), tmp_path)
