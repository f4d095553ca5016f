"""Clusters of the faces of a folder: the same with files as in memory, by species, and by several processes."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from familiar.core.errors import BadDataset, CannotWrite, SpaceMismatch
from familiar.embedding.embedder import Embedder
from familiar.integrations.ray.clusters import NO_CLUSTER, cluster_parts
from familiar.metrics.clustering import contingency
from familiar.neighbors import LargeAlbum
from support.embedded_faces import write_faces


@pytest.fixture
def model() -> Embedder:
    return Embedder("pet-nano")


def read_clusters(output: Path) -> dict[str, int]:
    return {row["photo"]: row["cluster"] for row in pq.read_table(output).to_pylist()}


def agreement(true: dict[str, tuple[str | None, int]], clusters: dict[str, int]) -> float:
    individuals = {individual: number for number, individual in enumerate(dict.fromkeys(true.values()))}
    labels = np.array([individuals[each] for each in true.values()])
    return contingency(labels, np.array([clusters[name] for name in true])).pairwise().f


@pytest.mark.parametrize("in_memory", [True, False])
def test_each_species_is_clustered_by_itself(
    model: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: bool
):
    if not in_memory:
        monkeypatch.setattr("familiar.neighbors.large_album.MAX_IN_MEMORY", 0)
    true = write_faces(tmp_path / "faces", model, species=("cat", "dog"))
    results = cluster_parts(tmp_path / "faces", model, tmp_path / "clusters.parquet")
    assert results is not None
    assert {(each.species, each.faces, each.clusters, each.is_estimated) for each in results} == {
        ("cat", 240, 40, True),
        ("dog", 240, 40, True),
    }
    clusters = read_clusters(tmp_path / "clusters.parquet")
    assert set(clusters) == {*true, "/photos/blurred.jpg"}
    assert clusters["/photos/blurred.jpg"] == NO_CLUSTER
    assert agreement(true, clusters) == 1.0
    assert sorted({*clusters.values()}) == list(range(-1, 80))
    assert not (tmp_path / "clusters.parquet.work").exists()


def test_the_last_share_writes(model: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("familiar.neighbors.large_album.MAX_IN_MEMORY", 0)
    monkeypatch.setattr("familiar.neighbors.large_album.BATCH_ROWS", 50)
    true = write_faces(tmp_path / "faces", model)
    output = tmp_path / "clusters.parquet"
    for share in range(3):
        results = cluster_parts(tmp_path / "faces", model, output, share=share, shares=3)
        assert (results is not None, output.exists()) == (share == 2,) * 2
    assert agreement(true, read_clusters(output)) == 1.0


def test_shares_that_end_at_the_same_time_write_once(model: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("familiar.neighbors.large_album.MAX_IN_MEMORY", 0)
    monkeypatch.setattr("familiar.neighbors.large_album.BATCH_ROWS", 50)
    true = write_faces(tmp_path / "faces", model)
    output, both_done = tmp_path / "clusters.parquet", threading.Barrier(2)
    search = LargeAlbum.search

    def search_until_both_are_done(self: LargeAlbum, share: int, shares: int) -> bool:
        search(self, share, shares)
        both_done.wait(60)
        return search(self, share, shares)

    monkeypatch.setattr(LargeAlbum, "search", search_until_both_are_done)
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(cluster_parts, tmp_path / "faces", model, output, share=k, shares=2) for k in range(2)]
        results = [each.result() for each in running]
    assert sorted(len(each or ()) for each in results) == [0, 1]
    assert agreement(true, read_clusters(output)) == 1.0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clusters.parquet", "faces"]


def test_a_repeated_command_searches_again_only_if_the_faces_have_changed(
    model: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("familiar.neighbors.large_album.MAX_IN_MEMORY", 0)
    monkeypatch.setattr("familiar.neighbors.large_album.BATCH_ROWS", 50)
    faces, output = tmp_path / "faces", tmp_path / "clusters.parquet"
    write_faces(faces, model, people=30)
    assert cluster_parts(faces, model, output, share=0, shares=2) is None
    first = sorted((tmp_path / "clusters.parquet.work").rglob("neighbors-*.npz"))
    times = [path.stat().st_mtime_ns for path in first]
    assert cluster_parts(faces, model, output, share=0, shares=2) is None
    assert [path.stat().st_mtime_ns for path in first] == times
    true = write_faces(faces, model, people=35)
    assert cluster_parts(faces, model, output) is not None
    assert agreement(true, read_clusters(output)) == 1.0


def test_few_faces_are_clustered_at_the_threshold_of_the_model(model: Embedder, tmp_path: Path):
    true = write_faces(tmp_path / "faces", model, people=2, photos=3, noise=0.1)
    results = cluster_parts(tmp_path / "faces", model, tmp_path / "clusters.parquet")
    assert results is not None
    assert [each.is_estimated for each in results] == [False]
    assert agreement(true, read_clusters(tmp_path / "clusters.parquet")) == 1.0


def test_what_cannot_be_clustered_is_named(model: Embedder, mean_color_bundle: Path, tmp_path: Path):
    output = tmp_path / "clusters.parquet"
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadDataset, match="empty: has no Parquet files; write them with familiar embed"):
        cluster_parts(tmp_path / "empty", model, output)
    faces = tmp_path / "faces"
    write_faces(faces, model)
    with pytest.raises(SpaceMismatch, match=r"part-0000\.parquet: embedded by another model$"):
        cluster_parts(faces, Embedder(mean_color_bundle), output)
    with pytest.raises(CannotWrite, match="the folder is that of the embeddings"):
        cluster_parts(faces, model, faces / "clusters.parquet")
    (faces / "part-0050.parquet").write_bytes(b"PAR1")
    with pytest.raises(BadDataset, match=r"part-0050\.parquet: damaged"):
        cluster_parts(faces, model, output)
    assert not output.exists()
