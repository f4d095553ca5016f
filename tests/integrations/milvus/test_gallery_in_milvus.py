"""Galleries searched with Milvus: found is what comparing every face finds, and the database remains the truth."""

import contextlib
import importlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from familiar.core.errors import BadGallery, FamiliarError, GalleryBusy, IndexUnavailable
from familiar.core.species_means import SpeciesMeans
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.edits.forget import forget_photos
from familiar.gallery.gallery import Gallery
from familiar.gallery.search import external_search
from familiar.gallery.search.external_search import (
    SyncResult,
    drop_external_index,
    external_candidates,
    sync_external_index,
    use_external_index,
)
from familiar.gallery.search.filters import NO_FILTER, Filter
from familiar.gallery.search.index_update import IndexUpdate
from familiar.gallery.search.search import search_faces
from familiar.gallery.store import index_lock
from familiar.gallery.store.external_index import FILE, IndexRow, read_external_index
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store
from familiar.gallery.transfer.backup import backup, restore
from familiar.gallery.transfer.check import check
from familiar.gallery.transfer.repair import repair
from familiar.integrations.milvus import MilvusIndex, open_index
from support.damaged_gallery import damage_table
from support.small_gallery import DIM, SPACE, close_together, draw_individuals, enroll_vectors

pytest.importorskip("milvus_lite", reason="milvus-lite is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of gRPC and FAISS

VECTORS = draw_individuals([20, 20, 20, 20])
QUERY = draw_individuals([1], seed=5)[0]
CATS = close_together([6, 6, 6, 6])
CENTERED_SPACE = replace(
    SPACE, species_means=SpeciesMeans({"cat": tuple((0.8 * np.eye(DIM)[DIM - 1]).tolist())}, SPACE.calibration)
)


@pytest.fixture(autouse=True)
def _waits_for_no_index(monkeypatch: pytest.MonkeyPatch):
    """A client sleeps half a second before it asks whether the index of an empty collection is there: it is."""
    handler = importlib.import_module("pymilvus.client.grpc_handler").GrpcHandler
    monkeypatch.setattr(handler, "wait_for_creating_index", lambda *_, **__: (True, ""))


def created(folder: Path, space: Space) -> Store:
    Store.create(folder, space, embedding_dtype="float32").close()
    return Store.open(folder, open_index)


@pytest.fixture
def gallery(folder: Path, tmp_path: Path) -> Iterator[Store]:
    with created(folder, SPACE) as gallery:
        enroll_vectors(gallery, VECTORS, prefix=str(tmp_path / "photo"))
        use_external_index(gallery, f"milvus:{tmp_path / 'faces.db'}")
        assert sync_external_index(gallery) == SyncResult(80, 80, 0)
        yield gallery


def exact_hits(gallery: Store, only: Filter = NO_FILTER, k: int = 10, query: np.ndarray = QUERY) -> list[int]:
    """Check that the index finds what comparing every face finds; return the faces."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "faces_at", lambda *_: pytest.fail("every face was read"))
        hits = search_faces(gallery, query, k, only=only)
    content = (gallery.folder / FILE).read_bytes()
    (gallery.folder / FILE).unlink()
    expected = search_faces(gallery, query, k, only=only)
    (gallery.folder / FILE).write_bytes(content)
    assert [hit.face for hit in hits] == [hit.face for hit in expected]
    assert [hit.similarity for hit in hits] == pytest.approx([hit.similarity for hit in expected], abs=1e-5)
    return [hit.face for hit in hits]


def test_hits_are_those_of_exact_search(gallery: Store, monkeypatch: pytest.MonkeyPatch):
    cluster(gallery)
    exact_hits(gallery)
    identity = search_faces(gallery, QUERY, 1)[0].identity
    assert identity is not None
    same_identity = Filter(identities=(identity,))
    assert len(exact_hits(gallery, same_identity, k=80)) == 20
    with gallery.write(faces_change=True) as repository:
        repository.connection.execute("UPDATE faces SET species = 'cat' WHERE id % 2")
    assert sync_external_index(gallery) == SyncResult(80, 40, 0)
    cats = Filter(species="cat")
    assert {face % 2 for face in exact_hits(gallery, cats)} == {1}
    monkeypatch.setattr(external_search, "MAX_RANKED", 10)  # too many to compare one by one: Milvus has the species
    exact_hits(gallery, cats)
    assert external_candidates(gallery, QUERY, 5, Filter(since="2020")) is not None  # none of these photos has a time
    assert external_candidates(gallery, QUERY, 5, same_identity) is None


def test_index_behind_the_gallery_is_not_used(gallery: Store, caplog: pytest.LogCaptureFixture):
    faces = enroll_vectors(gallery, QUERY[None], prefix="new")
    assert search_faces(gallery, QUERY, 1)[0].face == faces[0]
    assert "is behind the gallery, so every face is compared; run: familiar gallery index" in caplog.text


def test_forgotten_faces_are_gone(gallery: Store, tmp_path: Path):
    (hit,) = search_faces(gallery, QUERY, 1)
    with gallery.read() as repository:
        ((_, vector),) = repository.faces.embeddings([hit.face])

    def on_disk() -> bool:
        return any(vector in file.read_bytes() for file in tmp_path.rglob("*.parquet"))

    assert on_disk()
    assert forget_photos(gallery, [Path(hit.path)]).erased
    assert not on_disk()
    assert sync_external_index(gallery) == SyncResult(79, 79, 0)  # of the file, which had to be removed
    assert hit.face not in exact_hits(gallery, k=80)


def unreachable(*_: object) -> MilvusIndex:
    raise IndexUnavailable("milvus:http://far:19530: no answer")


def test_unreachable_index_loses_nothing(
    gallery: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    expected = exact_hits(gallery)
    gallery._cache.clear()
    with monkeypatch.context() as patch:
        patch.setattr(gallery, "open_index", unreachable)
        assert [hit.face for hit in search_faces(gallery, QUERY, 10)] == expected
        assert "milvus:http://far:19530: no answer, so every face is compared" in caplog.text
        enroll_vectors(gallery, draw_individuals([2], seed=9), prefix="new")
        with pytest.raises(IndexUnavailable, match="no answer"):
            sync_external_index(gallery)
        assert check(gallery).problems == (
            "the index cannot be compared with the gallery: milvus:http://far:19530: no answer",
        )
    assert sync_external_index(gallery) == SyncResult(82, 2, 0)


def test_drift_is_found_and_mended(gallery: Store):
    with opened_index(gallery) as index:
        index.remove([1, 2, 3])
        changed = IndexRow(4, VECTORS[5], 1, "")
        index.write([changed, changed._replace(key=999)])
    problems = " ".join(check(gallery).problems)
    for expected in ("3 faces are missing", "1 faces are no longer in the gallery", "1 faces have changed"):
        assert expected in problems
    assert sync_external_index(gallery) == SyncResult(80, 4, 1)
    assert check(gallery).problems == ()


def test_damaged_file_and_wrong_address_say_what_to_do(gallery: Store):
    with pytest.raises(FamiliarError, match=r"milvus:http://HOST:19530 or milvus:FILE\.db, got 'faiss:x'"):
        use_external_index(gallery, "faiss:x")
    (gallery.folder / FILE).write_text("{")
    with pytest.raises(BadGallery, match=r"damaged .*familiar gallery index .* --index milvus:URI"):
        search_faces(gallery, QUERY, 1)


def test_means_of_species_are_subtracted(folder: Path, tmp_path: Path):
    """They change with each photo; the index has embeddings as they are, so nothing in it changes."""
    with created(folder, CENTERED_SPACE) as gallery:
        enroll_vectors(gallery, CATS, prefix=str(tmp_path / "photo"))
        use_external_index(gallery, f"milvus:{tmp_path / 'faces.db'}")
        assert sync_external_index(gallery) == SyncResult(24, 24, 0)
        query = close_together([1], seed=7)[0]
        exact_hits(gallery, query=query)
        enroll_vectors(gallery, -CATS[:20], prefix="far")
        assert sync_external_index(gallery) == SyncResult(44, 20, 0)
        exact_hits(gallery, query=query)


def test_forgetting_deletes_the_means(folder: Path, tmp_path: Path):
    """The mean of one photo of a species is largely its embedding."""
    with created(folder, CENTERED_SPACE) as gallery:
        enroll_vectors(gallery, CATS[:2], prefix=str(tmp_path / "photo"))
        with gallery.write(faces_change=True) as repository:
            repository.connection.execute("UPDATE faces SET species = 'cat'")
        use_external_index(gallery, f"milvus:{tmp_path / 'faces.db'}")
        sync_external_index(gallery)
        before = read_external_index(folder)
        assert before is not None
        assert any(before.means)
        forget_photos(gallery, [tmp_path / "photo 0.jpg"])
        after = read_external_index(folder)
        assert after is not None
        assert (after.address, after.uid, after.means) == (before.address, "", ())
        assert sync_external_index(gallery) == SyncResult(1, 1, 0)


def opened_index(gallery: Store) -> contextlib.closing[MilvusIndex]:
    external = read_external_index(gallery.folder)
    assert external is not None
    return contextlib.closing(open_index(external.address, external.collection, DIM))


def collections(database: Path) -> set[str]:
    from pymilvus import MilvusClient

    with contextlib.closing(MilvusClient(str(database))) as client:
        return set(client.list_collections())


def replace_gallery(gallery: Store, how: str, tmp_path: Path) -> None:
    if how == "restore":
        backup(gallery, tmp_path / "backup.zip")
    gallery.close()
    if how == "restore":
        restore(gallery.folder, tmp_path / "backup.zip")
    else:
        damage_table(gallery.folder, "changes")
        repair(gallery.folder)


@pytest.mark.parametrize("how", ["repair", "restore"])
def test_replaced_gallery_goes_on_with_its_collection(gallery: Store, tmp_path: Path, how: str):
    """The gallery before may have other faces of the same numbers, so it is compared before it is searched."""
    collection = collections(tmp_path / "faces.db")
    replace_gallery(gallery, how, tmp_path)
    with Store.open(gallery.folder, open_index) as replaced:
        assert external_candidates(replaced, QUERY, 5, NO_FILTER) is None
        assert sync_external_index(replaced) == SyncResult(80, 0, 0)
        exact_hits(replaced)
        assert collections(tmp_path / "faces.db") == collection
        assert forget_photos(replaced, [tmp_path / "photo 0.jpg"]).erased
    assert collections(tmp_path / "faces.db") == set()


def test_forgetting_waits_for_the_index(gallery: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        patch.setattr(gallery, "open_index", unreachable)
        assert not forget_photos(gallery, [tmp_path / "photo 0.jpg"]).erased
    gallery.close()
    with Store.open(gallery.folder) as without:  # whoever opens it so has nothing that opens the index
        assert "open the gallery with what opens its index" in " ".join(check(without).problems)
    assert collections(tmp_path / "faces.db")
    Store.open(gallery.folder, open_index).close()
    assert not collections(tmp_path / "faces.db")


def test_gallery_restored_elsewhere_has_a_collection_of_its_own(gallery: Store, tmp_path: Path):
    before = collections(tmp_path / "faces.db")
    backup(gallery, tmp_path / "backup.zip")
    restore(tmp_path / "elsewhere", tmp_path / "backup.zip")
    with Store.open(tmp_path / "elsewhere", open_index) as restored:
        assert sync_external_index(restored) == SyncResult(80, 80, 0)
        assert len(collections(tmp_path / "faces.db") - before) == 1
        assert forget_photos(restored, [tmp_path / "photo 0.jpg"]).erased
    assert collections(tmp_path / "faces.db") == before
    assert check(gallery).problems == ()


def test_collection_at_the_previous_address_is_removed(gallery: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert Gallery(gallery).update_index(f"milvus:{tmp_path / 'other.db'}") == IndexUpdate(SyncResult(80, 80, 0))
    assert (len(collections(tmp_path / "faces.db")), len(collections(tmp_path / "other.db"))) == (0, 1)
    with monkeypatch.context() as patch:
        patch.setattr(gallery, "open_index", unreachable)
        with pytest.raises(IndexUnavailable, match=r"no answer; if it is gone for good, delete .*external_index\.json"):
            drop_external_index(gallery)
    drop_external_index(gallery)
    assert collections(tmp_path / "other.db") == set()


def change_during_sync(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Let something happen once while faces are prepared for the index."""

    def change_and_prepare(*values: Any) -> IndexRow:
        monkeypatch.setattr(external_search, "IndexRow", IndexRow)
        change()
        return IndexRow(*values)

    monkeypatch.setattr(external_search, "IndexRow", change_and_prepare)


def test_faces_forgotten_while_they_are_written_are_not_written(
    gallery: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(MilvusIndex, "is_file", False)
    new = enroll_vectors(gallery, draw_individuals([2], seed=9), prefix=str(tmp_path / "new"))
    written, write = [], MilvusIndex.write

    def record(index: MilvusIndex, entries: list[IndexRow]) -> None:
        written.extend(entry.key for entry in entries)
        write(index, entries)

    monkeypatch.setattr(MilvusIndex, "write", record)
    with Store.open(gallery.folder, open_index) as other:
        change_during_sync(monkeypatch, lambda: forget_photos(other, [tmp_path / "new 0.jpg"]))
        assert sync_external_index(gallery) == SyncResult(81, 0, 0)  # again, after the first
    assert written == new[1:]
    assert check(gallery).problems == ()


def test_faces_written_while_they_are_forgotten_are_erased_after_a_kill(
    gallery: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(MilvusIndex, "is_file", False)
    monkeypatch.setattr(index_lock, "WAIT_SECONDS", 0.1)
    new = enroll_vectors(gallery, draw_individuals([2], seed=9), prefix=str(tmp_path / "new"))
    write = MilvusIndex.write

    def write_and_be_killed(index: MilvusIndex, entries: list[IndexRow]) -> None:
        with Store.open(gallery.folder, open_index) as other:
            assert not forget_photos(other, [tmp_path / "new 0.jpg"]).erased
        write(index, entries)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(MilvusIndex, "write", write_and_be_killed)
        with pytest.raises(KeyboardInterrupt):
            sync_external_index(gallery)
    gallery.close()
    with Store.open(gallery.folder, open_index) as reopened, opened_index(reopened) as index:
        assert index.versions().keys() == {*range(1, 81), new[1]}


def test_gallery_restored_while_it_is_synced_is_reported(
    gallery: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    enroll_vectors(gallery, draw_individuals([2], seed=9), prefix=str(tmp_path / "new"))
    backup(gallery, tmp_path / "backup.zip")
    change_during_sync(monkeypatch, lambda: restore(gallery.folder, tmp_path / "backup.zip"))
    with pytest.raises(GalleryBusy, match="repaired or restored just now; try again"):
        sync_external_index(gallery)
    assert sync_external_index(gallery) == SyncResult(82, 2, 0)
    assert len(collections(tmp_path / "faces.db")) == 1
