"""Forgotten photos and identities leave no bytes in the gallery's folder."""

import contextlib
import os
from pathlib import Path
from unittest.mock import Mock, patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from familiar.core.errors import BadGallery, FamiliarError, NotInGallery
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.edits import corrections
from familiar.gallery.edits.forget import ForgetResult, forget_identity, forget_photos
from familiar.gallery.edits.manual_faces import add_face, delete_face, set_face_box
from familiar.gallery.same.assignments import load_assignments
from familiar.gallery.same.decisions import decisions, undo
from familiar.gallery.search import folder_index
from familiar.gallery.search.folder_index import build_index
from familiar.gallery.search.search import search_faces
from familiar.gallery.store import external_index, index_lock
from familiar.gallery.store import store as store_module
from familiar.gallery.store.store import Store
from familiar.gallery.transfer.check import check
from support.property_tests import expensive
from support.small_gallery import SPACE, draw_individuals, embedder_returning, enroll_vectors, groups, identity_of, rows

NAME = "Schnurrhilde"


def files_containing(folder: Path, *secrets: bytes) -> set[tuple[str, bytes]]:
    """Return (file name, secret) of every file that contains one of the secrets."""
    return {
        (file.name, secret)
        for file in folder.rglob("*")
        if file.is_file()
        for secret in secrets
        if secret in file.read_bytes()
    }


def encodings(*vectors: np.ndarray) -> list[bytes]:
    """Return the bytes of embeddings, each as float32 and as float16."""
    return [vector.astype(dtype).tobytes() for vector in vectors for dtype in (np.float32, np.float16)]


def embedding_bytes(gallery: Store, faces: list[int]) -> list[bytes]:
    return encodings(*gallery.faces().unit_rows(gallery.faces().rows_of(np.array(faces))))


def make_paths_absolute(gallery: Store) -> list[Path]:
    """Give the photos absolute paths, as files have."""
    with gallery.write() as repository:
        repository.connection.execute("UPDATE photos SET path = CAST('/album/' || path AS BLOB)")
        paths = repository.connection.rows("SELECT path FROM photos ORDER BY id")
        return [Path(os.fsdecode(path)) for (path,) in paths]


@pytest.fixture
def indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("usearch")
    monkeypatch.setattr(folder_index, "INDEX_FROM", 1)


@pytest.mark.usefixtures("indexed")
@pytest.mark.parametrize("gallery", ["float16", "float32"], indirect=True)
def test_forgotten_identity_leaves_no_bytes_on_disk(gallery: Store, folder: Path):
    enroll_vectors(gallery, draw_individuals([30, 2, 40]))
    cluster(gallery)
    corrections.name_identity(gallery, 2, NAME)
    build_index(gallery)
    secrets, other_secrets = [*embedding_bytes(gallery, [31, 32]), NAME.encode()], embedding_bytes(gallery, [1])
    on_disk = files_containing(folder, *secrets)
    stored = secrets[0 if gallery.embedding_dtype == "float32" else 1]
    assert {stored, NAME.encode()} <= {secret for _, secret in on_disk}
    assert ("faces.hnsw", secrets[1]) in on_disk
    assert forget_identity(gallery, 2) == ForgetResult(photos=0, faces=2, erased=True)
    assert files_containing(folder, *secrets) == set()
    assert files_containing(folder, *other_secrets)
    assert groups(gallery) == {frozenset(range(1, 31)), frozenset(range(33, 73))}
    assert check(gallery).problems == ()
    assert 31 not in {hit.face for hit in search_faces(gallery, draw_individuals([0, 1])[0], 99)}
    assert enroll_vectors(gallery, draw_individuals([30, 2, 40])) == []  # their photos stay known
    with pytest.raises(NotInGallery):
        forget_identity(gallery, 2)


def test_rejects_unknown_path_and_forgets_nothing(gallery: Store):
    enroll_vectors(gallery, draw_individuals([3]))
    paths = make_paths_absolute(gallery)
    before = rows(gallery, ("photos", "faces"))
    with pytest.raises(NotInGallery, match="nothing was forgotten"):
        forget_photos(gallery, [paths[0], Path("/album/other.jpg")])
    assert rows(gallery, ("photos", "faces")) == before


DECISIONS = {
    "name": lambda gallery, first, _: corrections.name_identity(gallery, first, NAME),
    "rename": lambda gallery, first, _: corrections.name_identity(gallery, first, "Mia"),
    "merge": lambda gallery, first, second: corrections.merge(gallery, first, [second]),
    "split": lambda gallery, first, _: corrections.split(gallery, range(3 * first - 2, 3 * first + 1)),
    "undo": lambda gallery, _, __: undo(gallery),
}


@given(st.lists(st.tuples(st.sampled_from(list(DECISIONS)), st.integers(1, 2), st.integers(1, 3)), max_size=6))
@example([("name", 1, 1), ("rename", 1, 1)])
@example([("name", 1, 1), ("merge", 2, 1)])
@example([("name", 1, 1), ("rename", 2, 1), ("merge", 2, 1)])
@example([("name", 1, 1), ("split", 1, 1), ("merge", 2, 1)])
@example([("name", 2, 1), ("rename", 2, 1), ("name", 1, 1)])
@example([("name", 1, 1), ("undo", 1, 1)])
@example([("split", 2, 1), ("merge", 1, 3)])
@settings(expensive())
def test_forgotten_names_are_erased_from_the_decision_log(
    tmp_path_factory: pytest.TempPathFactory, chosen: list[tuple[str, int, int]]
):
    folder = tmp_path_factory.mktemp("named") / "gallery"
    with Store.create(folder, SPACE) as gallery:
        enroll_vectors(gallery, draw_individuals([3, 3]))
        cluster(gallery)
        for kind, first, second in chosen:
            with contextlib.suppress(FamiliarError):
                DECISIONS[kind](gallery, first, second)
        identities = rows(gallery)["identities"]
        named = [row for row in identities if row[1] == NAME]  # others may have had the name before
        for number, *_ in named or identities:
            if number in [row[0] for row in rows(gallery)["identities"]]:  # an empty one goes with the first
                assert forget_identity(gallery, number).erased
        assert files_containing(folder, NAME.encode()) == set()
        while decisions(gallery):  # the remaining decisions can still be undone
            undo(gallery)
        assert check(gallery).problems == ()
        assert files_containing(folder, NAME.encode()) == set()


@pytest.mark.usefixtures("short_waits")
def test_erasure_blocked_by_a_reader_completes_on_next_open(folder: Path):
    with Store.create(folder, SPACE) as gallery, Store.open(folder) as reader:
        enroll_vectors(gallery, draw_individuals([3]))
        corrections.split(gallery, [1, 2, 3], NAME)
        secrets = [NAME.encode(), *embedding_bytes(gallery, [1])[1:]]
        with reader.read() as repository:
            assert repository.connection.execute("SELECT count(*) FROM faces").fetchone()[0] == 3
            forgotten = forget_identity(gallery, 1)
            assert forgotten == ForgetResult(photos=0, faces=3, erased=False)
            assert files_containing(folder, *secrets)
            assert gallery.faces().ids.tolist() == []  # no longer visible at once
            assert any("still on the disk" in problem for problem in check(gallery).problems)
    Store.open(folder).close()
    assert files_containing(folder, *secrets) == set()
    with Store.open(folder) as reopened:
        assert check(reopened).problems == ()


@pytest.mark.usefixtures("indexed")
def test_index_built_during_forgetting_is_deleted(gallery: Store, folder: Path, monkeypatch: pytest.MonkeyPatch):
    enroll_vectors(gallery, draw_individuals([3, 2]))
    cluster(gallery)
    build = folder_index.HnswIndex.build

    def build_and_forget(*arguments):
        with Store.open(folder) as other:
            forget_identity(other, 2)
        return build(*arguments)

    monkeypatch.setattr(folder_index.HnswIndex, "build", build_and_forget)
    build_index(gallery)
    assert not list(folder.glob("*.hnsw"))


@pytest.mark.usefixtures("gallery")
def test_open_that_fails_to_erase_closes_the_gallery(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Store, "purge_deleted", Mock(side_effect=KeyboardInterrupt))
    closing = patch.object(Store, "close", autospec=True, side_effect=Store.close)
    with closing as close, pytest.raises(KeyboardInterrupt):
        Store.open(folder)
    close.assert_called_once()


@pytest.mark.usefixtures("indexed")
@pytest.mark.parametrize("is_killed", [True, False])
def test_index_saved_during_forgetting_is_erased(
    gallery: Store, folder: Path, monkeypatch: pytest.MonkeyPatch, is_killed: bool
):
    monkeypatch.setattr(index_lock, "WAIT_SECONDS", 0.1)
    enroll_vectors(gallery, draw_individuals([3, 2]))
    cluster(gallery)
    packed = gallery.faces().embeddings[3].astype("<f2").tobytes()
    save = folder_index.HnswIndex.save

    def save_and_forget(*arguments):
        with Store.open(folder) as other:
            assert not forget_identity(other, 2).erased
        save(*arguments)
        assert files_containing(folder, packed)
        if is_killed:
            raise KeyboardInterrupt

    monkeypatch.setattr(folder_index.HnswIndex, "save", save_and_forget)
    with pytest.raises(KeyboardInterrupt) if is_killed else contextlib.nullcontext():
        build_index(gallery)
    Store.open(folder).close()
    assert not files_containing(folder, packed)
    assert check(gallery).problems == ()


def test_forgetting_during_the_erasure_of_another_is_erased_too(
    gallery: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    enroll_vectors(gallery, draw_individuals([2]))
    paths = make_paths_absolute(gallery)
    erase_forgotten, index = store_module.erase_forgotten, folder / "faces.hnsw"

    def forget_meanwhile(*arguments):
        monkeypatch.setattr(store_module, "erase_forgotten", erase_forgotten)
        index.write_bytes(b"of the second photo, too")
        with pytest.MonkeyPatch.context() as patch, Store(folder) as other:
            patch.setattr(Store, "purge_deleted", lambda _: False)  # is killed before it erases anything
            forget_photos(other, [paths[1]])
        erase_forgotten(*arguments)

    monkeypatch.setattr(store_module, "erase_forgotten", forget_meanwhile)
    assert forget_photos(gallery, [paths[0]]).erased
    assert not index.exists()
    assert check(gallery).problems == ()


@pytest.mark.parametrize("reason", ["damaged", "nothing opens it"])
def test_unusable_external_index_does_not_keep_a_gallery_from_opening(gallery: Store, folder: Path, reason: str):
    enroll_vectors(gallery, draw_individuals([2]))
    (path, _) = make_paths_absolute(gallery)
    file = folder / external_index.FILE
    external_index.ExternalIndex("milvus:http://host:19530").save(folder)
    if reason == "damaged":
        file.write_text("{")
    assert forget_photos(gallery, [path]) == ForgetResult(photos=1, faces=1, erased=False)
    with Store.open(folder) as reopened:
        if reason == "damaged":
            with pytest.raises(BadGallery, match="name the index again"):
                check(reopened)
        else:
            assert "what opens its index" in " ".join(check(reopened).problems)
    file.unlink()
    assert gallery.purge_deleted()


def test_undo_restores_the_name_after_forgetting_one_photo(gallery: Store):
    enroll_vectors(gallery, draw_individuals([4, 4]))
    cluster(gallery)
    paths = make_paths_absolute(gallery)
    corrections.name_identity(gallery, 2, NAME)
    corrections.merge(gallery, 1, [2])
    forget_photos(gallery, [paths[7]])
    undo(gallery)
    assert load_assignments(gallery).names == {2: NAME}


BOX = (0.0, 0.0, 50.0, 50.0)


@pytest.mark.parametrize("gallery", ["float16", "float32"], indirect=True)
def test_forgotten_photos_leave_no_bytes_of_hand_edited_faces(gallery: Store, folder: Path):
    enroll_vectors(gallery, draw_individuals([3, 3]))
    paths = make_paths_absolute(gallery)
    cluster(gallery)
    before = embedding_bytes(gallery, [1, 2, 3])
    moved, added = (draw_individuals([0, 0, 0, 1], seed, 0.5)[0] for seed in (1, 2))
    with embedder_returning(moved) as embedder:
        set_face_box(gallery, embedder, 1, BOX)
    with embedder_returning(added) as embedder:
        delete_face(gallery, add_face(gallery, embedder, 2, BOX))
    for face in (2, 3, 4):
        delete_face(gallery, face)
    secrets = [*before, *encodings(moved, added)]
    assert len(files_containing(folder, *secrets)) >= 5
    assert forget_photos(gallery, paths[:2]) == ForgetResult(photos=2, faces=1, erased=True)
    assert {secret for _, secret in files_containing(folder, *secrets)} < set(before[4:])  # of face 3
    assert [undo(gallery).kind for _ in decisions(gallery)] == ["delete face", "delete face", "cluster"]
    assert gallery.faces().ids.tolist() == [3, 4, 5, 6]
    assert check(gallery).problems == ()
    assert len(enroll_vectors(gallery, draw_individuals([3, 3]))) == 2, "only these are new again"


@pytest.mark.parametrize("gallery", ["float16", "float32"], indirect=True)
def test_forgetting_an_identity_includes_its_deleted_faces(gallery: Store, folder: Path):
    enroll_vectors(gallery, draw_individuals([3, 3, 3]))
    cluster(gallery)
    secrets = embedding_bytes(gallery, [1, 2, 3, 4, 5, 6])
    corrections.name_identity(gallery, 2, NAME)
    delete_face(gallery, 4)  # of an identity that is merged into the forgotten one
    corrections.name_identity(gallery, 1, "Mia")
    corrections.merge(gallery, 1, [2])
    delete_face(gallery, 1)
    delete_face(gallery, 7)
    assert len(files_containing(folder, *secrets)) >= 6
    assert forget_identity(gallery, 1) == ForgetResult(photos=0, faces=4, erased=True)
    assert files_containing(folder, *secrets, NAME.encode()) == set()
    while decisions(gallery):
        undo(gallery)
    assert gallery.faces().ids.tolist() == [7, 8, 9]
    assert check(gallery).problems == ()


def test_undo_restores_a_deleted_face_of_a_remaining_identity(gallery: Store):
    enroll_vectors(gallery, draw_individuals([3, 3]))
    cluster(gallery)
    corrections.move(gallery, [1], 2)
    delete_face(gallery, 1)
    forget_identity(gallery, 1)
    undo(gallery)
    assert gallery.faces().ids.tolist() == [1, 4, 5, 6]
    assert identity_of(gallery, 1) == 2


@pytest.mark.parametrize("confirmed", [False, True])
def test_forgotten_identity_leaves_no_bytes_of_moved_faces(gallery: Store, folder: Path, confirmed: bool):
    enroll_vectors(gallery, draw_individuals([3, 3]))
    cluster(gallery)
    corrections.name_identity(gallery, 2, "Tom")
    secrets = embedding_bytes(gallery, [1])
    if confirmed:
        corrections.confirm(gallery, [1])
    with embedder_returning(draw_individuals([0, 1])[0]) as embedder:
        set_face_box(gallery, embedder, 1, BOX)
    if confirmed:
        corrections.move(gallery, [1], 2)
    corrections.name_identity(gallery, 2, "Lia")
    assert identity_of(gallery, 1) == 2
    forget_identity(gallery, 1)
    assert files_containing(folder, *secrets) == set()
    assert [entry.kind for entry in decisions(gallery)] == ["name", "move"][: 1 + confirmed]
    undo(gallery)
    assert load_assignments(gallery).names == {2: "Tom"}
    assert gallery.faces().ids.tolist() == [1, 4, 5, 6]


def test_forgetting_keeps_decisions_about_other_identities(gallery: Store):
    enroll_vectors(gallery, draw_individuals([3, 3]))
    cluster(gallery)
    with embedder_returning(draw_individuals([0, 1])[0]) as embedder:
        set_face_box(gallery, embedder, 4, BOX)
    forget_identity(gallery, 1)
    assert [entry.kind for entry in decisions(gallery)] == ["move face", "cluster"]
