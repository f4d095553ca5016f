"""Forgotten photos and identities leave no bytes in the gallery's folder."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from familiar.core.errors import BadGallery, NotInGallery
from familiar.gallery.clustering.assignments import load_assignments
from familiar.gallery.clustering.cluster import cluster
from familiar.gallery.editing import corrections
from familiar.gallery.editing.forget import ForgetResult, forget_identity, forget_photos
from familiar.gallery.editing.manual_faces import add_face, delete_face, set_face_box
from familiar.gallery.editing.undo_log import decisions, undo
from familiar.gallery.integrity.check import check
from familiar.gallery.search import search as search_module
from familiar.gallery.search.search import build_index, search_photos
from familiar.gallery.store import external_index, index_lock
from familiar.gallery.store import store as store_module
from familiar.gallery.store.store import Store
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


def embedding_bytes(gallery: Store, faces: list[int]) -> list[bytes]:
    """Return the bytes of the faces' embeddings, as float32 and as float16."""
    vectors = gallery.faces().unit_rows(gallery.faces().rows_of(np.array(faces)))
    return [row.astype(dtype).tobytes() for row in vectors for dtype in (np.float32, np.float16)]


def make_paths_absolute(gallery: Store) -> list[Path]:
    """Give the photos absolute paths, as files have."""
    with gallery.write() as repository:
        repository.connection.execute("UPDATE photos SET path = CAST('/album/' || path AS BLOB)")
        paths = repository.connection.rows("SELECT path FROM photos ORDER BY id")
        return [Path(os.fsdecode(path)) for (path,) in paths]


@pytest.fixture
def indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("usearch")
    monkeypatch.setattr(search_module, "INDEX_FROM", 1)


@pytest.mark.usefixtures("indexed")
@pytest.mark.parametrize("gallery", ["float16", "float32"], indirect=True)
def test_forgotten_identity_leaves_no_bytes_on_disk(gallery: Store, folder: Path):
    enroll_vectors(gallery, draw_individuals([30, 2, 40]))
    cluster(gallery)
    corrections.name_identity(gallery, 2, NAME)
    build_index(gallery)
    secrets = [*embedding_bytes(gallery, [31, 32]), NAME.encode()]
    other_secrets = embedding_bytes(gallery, [1])
    occurrences = files_containing(folder, *secrets)
    assert {secret for _, secret in occurrences} >= {
        secrets[0] if gallery.embedding_dtype == "<f4" else secrets[1],
        secrets[-1],
    }
    assert "faces.hnsw" in {name for name, _ in files_containing(folder, secrets[1])}
    assert forget_identity(gallery, 2) == ForgetResult(photos=0, faces=2, erased=True)
    assert files_containing(folder, *secrets) == set()
    assert files_containing(folder, *other_secrets)
    assert groups(gallery) == {frozenset(range(1, 31)), frozenset(range(33, 73))}
    assert check(gallery).problems == ()
    assert 31 not in {hit.face for hit in search_photos(gallery, draw_individuals([0, 1])[0], 99)}
    assert enroll_vectors(gallery, draw_individuals([30, 2, 40])) == []  # their photos stay known
    with pytest.raises(NotInGallery):
        forget_identity(gallery, 2)


@pytest.mark.usefixtures("indexed")
@pytest.mark.parametrize("gallery", ["float16", "float32"], indirect=True)
def test_forgotten_photo_leaves_no_bytes_on_disk(gallery: Store, folder: Path):
    enroll_vectors(gallery, draw_individuals([5, 5]), "Garten")
    paths = make_paths_absolute(gallery)
    cluster(gallery)
    corrections.split(gallery, [3], NAME)  # a face that had an identity of its own
    corrections.merge(gallery, 2, [identity_of(gallery, 3)])
    build_index(gallery)
    forgotten = [paths[2], paths[4]]
    secrets = [*embedding_bytes(gallery, [3, 5]), *(os.fsencode(path) for path in forgotten)]
    assert len({secret for _, secret in files_containing(folder, *secrets)}) >= 4
    assert forget_photos(gallery, [*forgotten, forgotten[0]]) == ForgetResult(photos=2, faces=2, erased=True)
    assert files_containing(folder, *secrets) == set()
    assert files_containing(folder, os.fsencode(paths[0]))
    assert check(gallery).problems == ()
    assert len(enroll_vectors(gallery, draw_individuals([5, 5]), "Garten")) == 2  # only these are new again


def test_rejects_unknown_path_and_forgets_nothing(gallery: Store):
    enroll_vectors(gallery, draw_individuals([3]))
    paths = make_paths_absolute(gallery)
    before = rows(gallery, ("photos", "faces"))
    with pytest.raises(NotInGallery, match="nothing was forgotten"):
        forget_photos(gallery, [paths[0], Path("/album/other.jpg")])
    assert rows(gallery, ("photos", "faces")) == before


def _renamed(gallery: Store) -> int:
    corrections.name_identity(gallery, 1, NAME)
    corrections.name_identity(gallery, 1, "Mia")
    return 1


def _merged_into_an_unnamed_identity(gallery: Store) -> int:
    corrections.name_identity(gallery, 1, NAME)
    corrections.merge(gallery, 2, [1])
    return 2


def _merged_into_another_name(gallery: Store) -> int:
    corrections.name_identity(gallery, 1, NAME)
    corrections.name_identity(gallery, 2, "Mia")
    corrections.merge(gallery, 2, [1])
    return 2


def _merged_when_empty(gallery: Store) -> int:
    faces = sorted(next(members for members in groups(gallery) if 1 in members))
    corrections.name_identity(gallery, 1, NAME)
    corrections.split(gallery, faces)
    corrections.merge(gallery, 2, [1])
    return 2


def _named_again_after_another(gallery: Store) -> int:
    corrections.name_identity(gallery, 2, NAME)
    corrections.name_identity(gallery, 2, "Mia")
    corrections.name_identity(gallery, 1, NAME)
    return 1


def _name_undone(gallery: Store) -> int:
    corrections.name_identity(gallery, 1, NAME)
    undo(gallery)
    return 1


@pytest.mark.parametrize(
    "correct",
    [
        _renamed,
        _merged_into_an_unnamed_identity,
        _merged_into_another_name,
        _merged_when_empty,
        _named_again_after_another,
        _name_undone,
    ],
)
def test_forgotten_name_is_erased_from_the_decision_log(gallery: Store, folder: Path, correct):
    enroll_vectors(gallery, draw_individuals([3, 3]))
    cluster(gallery)
    number = correct(gallery)
    secrets = [*embedding_bytes(gallery, [1] if number == 1 else [4]), NAME.encode()]
    assert forget_identity(gallery, number).erased
    assert files_containing(folder, *secrets) == set()
    with gallery.read() as repository:
        empty_decisions = repository.connection.execute(
            "SELECT id FROM decisions WHERE id NOT IN (SELECT decision_id FROM changes)"
        )
        assert empty_decisions.fetchall() == []
    while decisions(gallery):  # the remaining decisions can still be undone
        undo(gallery)
    assert check(gallery).problems == ()
    assert files_containing(folder, *secrets) == set()


def test_undo_does_not_restore_forgotten_faces(gallery: Store):
    enroll_vectors(gallery, draw_individuals([3, 3]))
    cluster(gallery)
    corrections.move(gallery, [1], 2)
    forget_identity(gallery, 1)
    undo(gallery)
    assert [row[0] for row in rows(gallery)["assignments"]] == gallery.faces().ids.tolist()
    assert not {2, 3} & set(gallery.faces().ids.tolist())
    assert check(gallery).problems == ()


def test_undo_skips_rejections_of_a_forgotten_identity(gallery: Store):
    enroll_vectors(gallery, draw_individuals([2, 1]))
    paths = make_paths_absolute(gallery)
    corrections.split(gallery, [1, 2])
    corrections.split(gallery, [3])
    corrections.reject(gallery, [1], 2)
    corrections.merge(gallery, 1, [2])
    forget_photos(gallery, [paths[2]])
    undo(gallery)
    assert check(gallery).problems == ()
    assert rows(gallery)["rejections"] == []


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


def test_forgets_embeddings_of_an_unfinished_migration(gallery: Store, folder: Path):
    enroll_vectors(gallery, draw_individuals([2]))
    other = draw_individuals([0, 0, 2])
    with gallery.write() as repository:
        repository.migration.begin(SPACE)
        repository.connection.executemany(
            "INSERT INTO next_embeddings VALUES (?, 'photo', ?)", enumerate(gallery.encode_embeddings(other), start=1)
        )
    corrections.split(gallery, [1, 2])
    assert files_containing(folder, other[0].tobytes())
    assert forget_identity(gallery, 1).erased
    assert files_containing(folder, other[0].tobytes(), other[1].tobytes()) == set()


@pytest.mark.usefixtures("indexed")
def test_next_open_erases_the_index_after_a_kill(gallery: Store, folder: Path, monkeypatch: pytest.MonkeyPatch):
    enroll_vectors(gallery, draw_individuals([30, 2, 40]))
    cluster(gallery)
    build_index(gallery)
    packed = gallery.faces().embeddings[30].astype("<f2").tobytes()  # as the index stores it
    with monkeypatch.context() as killed:
        killed.setattr(Store, "purge_deleted", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            forget_identity(gallery, 2)
    assert files_containing(folder, packed)
    gallery.close()
    Store.open(folder).close()
    assert not files_containing(folder, packed)


@pytest.mark.usefixtures("indexed")
def test_index_built_during_forgetting_is_deleted(gallery: Store, folder: Path, monkeypatch: pytest.MonkeyPatch):
    enroll_vectors(gallery, draw_individuals([3, 2]))
    cluster(gallery)
    build = search_module.HnswIndex.build

    def build_and_forget(*arguments):
        index = build(*arguments)
        with Store.open(folder) as other:
            forget_identity(other, 2)
        return index

    monkeypatch.setattr(search_module.HnswIndex, "build", build_and_forget)
    build_index(gallery)
    assert not list(folder.glob("*.hnsw"))


@pytest.mark.usefixtures("indexed")
@pytest.mark.parametrize("is_killed", [True, False])
def test_index_saved_during_forgetting_is_erased(
    gallery: Store, folder: Path, monkeypatch: pytest.MonkeyPatch, is_killed: bool
):
    monkeypatch.setattr(index_lock, "WAIT_SECONDS", 0.1)
    enroll_vectors(gallery, draw_individuals([3, 2]))
    cluster(gallery)
    packed = gallery.faces().embeddings[3].astype("<f2").tobytes()
    save = search_module.HnswIndex.save

    def save_and_forget(*arguments):
        with Store.open(folder) as other:
            assert not forget_identity(other, 2).erased
        save(*arguments)
        assert files_containing(folder, packed)
        if is_killed:
            raise KeyboardInterrupt

    monkeypatch.setattr(search_module.HnswIndex, "save", save_and_forget)
    if is_killed:
        with pytest.raises(KeyboardInterrupt):
            build_index(gallery)
        Store.open(folder).close()
    else:
        build_index(gallery)
    assert not files_containing(folder, packed)
    assert check(gallery).problems == ()


def forget_and_be_killed(folder: Path, path: Path) -> None:
    """Forget a photo, but erase nothing."""
    with pytest.MonkeyPatch.context() as patch, Store(folder) as other:
        patch.setattr(Store, "purge_deleted", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            forget_photos(other, [path])


def test_forgetting_during_the_erasure_of_another_is_erased_too(
    gallery: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    enroll_vectors(gallery, draw_individuals([2]))
    paths = make_paths_absolute(gallery)
    erase_forgotten, index = store_module.erase_forgotten, folder / "faces.hnsw"

    def forget_meanwhile(*arguments):
        monkeypatch.setattr(store_module, "erase_forgotten", erase_forgotten)
        index.write_bytes(b"of the second photo, too")
        forget_and_be_killed(folder, paths[1])
        erase_forgotten(*arguments)

    monkeypatch.setattr(store_module, "erase_forgotten", forget_meanwhile)
    assert forget_photos(gallery, [paths[0]]).erased
    assert not index.exists()
    assert check(gallery).problems == ()


@pytest.mark.usefixtures("short_waits")
def test_reader_after_the_erasure_does_not_matter(folder: Path, monkeypatch: pytest.MonkeyPatch):
    with Store.create(folder, SPACE) as gallery, Store.open(folder) as reader:
        enroll_vectors(gallery, draw_individuals([2]))
        (path, _) = make_paths_absolute(gallery)
        secrets = embedding_bytes(gallery, [1])
        compact = Store._compact

        def compact_and_read(compacted: Store) -> None:
            compact(compacted)
            reader._connection.execute("BEGIN")
            reader._connection.execute("SELECT * FROM gallery").fetchall()

        monkeypatch.setattr(Store, "_compact", compact_and_read)
        assert forget_photos(gallery, [path]).erased
        assert not files_containing(folder, *secrets)
        assert check(gallery).problems == ()


@pytest.mark.parametrize("reason", ["damaged", "no pymilvus"])
def test_unusable_external_index_does_not_keep_a_gallery_from_opening(
    gallery: Store, folder: Path, monkeypatch: pytest.MonkeyPatch, reason: str
):
    enroll_vectors(gallery, draw_individuals([2]))
    (path, _) = make_paths_absolute(gallery)
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    file = folder / external_index.FILE
    if reason == "damaged":
        file.write_text("{")
    else:
        external_index.ExternalIndex("milvus:http://host:19530").save(folder)
    assert forget_photos(gallery, [path]) == ForgetResult(photos=1, faces=1, erased=False)
    with Store.open(folder) as reopened:
        if reason == "damaged":
            with pytest.raises(BadGallery, match="name the index again"):
                check(reopened)
        else:
            assert "needs pymilvus" in " ".join(check(reopened).problems)
    file.unlink()
    assert gallery.purge_deleted()


@pytest.mark.usefixtures("gallery")
def test_open_that_fails_to_erase_closes_the_gallery(folder: Path, monkeypatch: pytest.MonkeyPatch):
    closed: list[Path] = []
    close = Store.close
    monkeypatch.setattr(Store, "close", lambda opened: (closed.append(opened.folder), close(opened)))
    monkeypatch.setattr(Store, "purge_deleted", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        Store.open(folder)
    assert closed == [folder]


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


def random_face(seed: int) -> np.ndarray:
    """Return an embedding that is similar to no individual."""
    return draw_individuals([0, 0, 0, 1], seed, 0.5)[0]


def encodings(*vectors: np.ndarray) -> list[bytes]:
    return [vector.astype(dtype).tobytes() for vector in vectors for dtype in (np.float32, np.float16)]


@pytest.mark.parametrize("gallery", ["float16", "float32"], indirect=True)
def test_forgotten_photos_leave_no_bytes_of_hand_edited_faces(gallery: Store, folder: Path):
    enroll_vectors(gallery, draw_individuals([3, 3]))
    paths = make_paths_absolute(gallery)
    cluster(gallery)
    before = embedding_bytes(gallery, [1, 2, 3])
    with embedder_returning(random_face(1)) as embedder:
        set_face_box(gallery, embedder, 1, BOX)
    with embedder_returning(random_face(2)) as embedder:
        delete_face(gallery, add_face(gallery, embedder, 2, BOX))
    for face in (2, 3, 4):
        delete_face(gallery, face)
    secrets = [*before, *encodings(random_face(1), random_face(2))]
    assert len(files_containing(folder, *secrets)) >= 5
    assert forget_photos(gallery, paths[:2]) == ForgetResult(photos=2, faces=1, erased=True)
    assert {secret for _, secret in files_containing(folder, *secrets)} < set(before[4:])  # of face 3
    assert [undo(gallery).kind for _ in decisions(gallery)] == ["delete face", "delete face", "cluster"]
    assert gallery.faces().ids.tolist() == [3, 4, 5, 6]
    assert check(gallery).problems == ()


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
    assert undo(gallery).kind == "name"
    assert load_assignments(gallery).names == {2: "Tom"}
    assert gallery.faces().ids.tolist() == [1, 4, 5, 6]
    assert check(gallery).problems == ()


def test_forgetting_keeps_decisions_about_other_identities(gallery: Store):
    enroll_vectors(gallery, draw_individuals([3, 3]))
    cluster(gallery)
    with embedder_returning(draw_individuals([0, 1])[0]) as embedder:
        set_face_box(gallery, embedder, 4, BOX)
    forget_identity(gallery, 1)
    assert [entry.kind for entry in decisions(gallery)] == ["move face", "cluster"]
