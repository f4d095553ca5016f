"""What was forgotten is nowhere in the gallery's folder any more, to the byte."""

import os
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest

from familiar.core.errors import CannotWrite, NotInGallery
from familiar.gallery.clustering.assignments import load_assignments
from familiar.gallery.clustering.cluster import cluster
from familiar.gallery.database.connection import UPLOADED_PHOTOS, Gallery
from familiar.gallery.editing import corrections
from familiar.gallery.editing import forget as forget_module
from familiar.gallery.editing.forget import ForgetResult, forget_identity, forget_photos
from familiar.gallery.editing.manual_faces import add_face, delete_face, move_face
from familiar.gallery.editing.undo_log import decisions, undo
from familiar.gallery.integrity.check import check
from familiar.gallery.search import search as search_module
from familiar.gallery.search.search import build_index, search_photos
from support.small_gallery import SPACE, enrolled, groups, identity_of, individuals, looking_like, rows

NAME = "Schnurrhilde"


def holding(folder: Path, *secrets: bytes) -> set[tuple[str, bytes]]:
    """Which files hold any of them, and which."""
    return {
        (file.name, secret)
        for file in folder.rglob("*")
        if file.is_file()
        for secret in secrets
        if secret in file.read_bytes()
    }


def secrets_of(gallery: Gallery, faces: list[int]) -> list[bytes]:
    """The bytes of their embeddings, as they are stored and as any float32 or float16."""
    vectors = gallery.faces().unit_rows(gallery.faces().rows_of(np.array(faces)))
    return [row.astype(kind).tobytes() for row in vectors for kind in (np.float32, np.float16)]


def at_paths(gallery: Gallery) -> list[Path]:
    """Gives the photos absolute paths, as files have."""
    with gallery.writing() as connection:
        connection.execute("UPDATE photos SET path = '/album/' || path")
        return [Path(row[0]) for row in connection.execute("SELECT path FROM photos ORDER BY id").fetchall()]


@pytest.fixture
def indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("usearch")
    monkeypatch.setattr(search_module, "INDEX_FROM", 1)


@pytest.mark.usefixtures("indexed")
@pytest.mark.parametrize("gallery", ["float16", "float32"], indirect=True)
def test_forgotten_identity_leaves_no_bytes_on_disk(gallery: Gallery, folder: Path):
    enrolled(gallery, individuals([30, 2, 40]))
    cluster(gallery)
    corrections.name_identity(gallery, 2, NAME)
    build_index(gallery)
    secrets = [*secrets_of(gallery, [31, 32]), NAME.encode()]
    kept = secrets_of(gallery, [1])
    found = holding(folder, *secrets)
    assert {secret for _, secret in found} >= {
        secrets[0] if gallery.embedding_dtype == "<f4" else secrets[1],
        secrets[-1],
    }
    assert "faces.hnsw" in {name for name, _ in holding(folder, secrets[1])}
    assert forget_identity(gallery, 2) == ForgetResult(photos=0, faces=2, erased=True)
    assert holding(folder, *secrets) == set()
    assert holding(folder, *kept)
    assert groups(gallery) == {frozenset(range(1, 31)), frozenset(range(33, 73))}
    assert check(gallery).problems == ()
    assert 31 not in {hit.face for hit in search_photos(gallery, individuals([0, 1])[0], 99)}
    assert enrolled(gallery, individuals([30, 2, 40])) == []  # their photos stay known
    with pytest.raises(NotInGallery):
        forget_identity(gallery, 2)


@pytest.mark.usefixtures("indexed")
@pytest.mark.parametrize("gallery", ["float16", "float32"], indirect=True)
def test_forgotten_photo_leaves_no_bytes_on_disk(gallery: Gallery, folder: Path):
    enrolled(gallery, individuals([5, 5]), "Garten")
    paths = at_paths(gallery)
    cluster(gallery)
    corrections.split(gallery, [3], NAME)  # a face that was somebody of its own
    corrections.merge(gallery, 2, [identity_of(gallery, 3)])
    build_index(gallery)
    gone = [paths[2], paths[4]]
    secrets = [*secrets_of(gallery, [3, 5]), *(os.fsencode(path) for path in gone)]
    assert len({secret for _, secret in holding(folder, *secrets)}) >= 4
    assert forget_photos(gallery, [*gone, gone[0]]) == ForgetResult(photos=2, faces=2, erased=True)
    assert holding(folder, *secrets) == set()
    assert holding(folder, os.fsencode(paths[0]))
    assert check(gallery).problems == ()
    assert len(enrolled(gallery, individuals([5, 5]), "Garten")) == 2  # just those are new again


def test_rejects_unknown_path_and_forgets_nothing(gallery: Gallery):
    enrolled(gallery, individuals([3]))
    paths = at_paths(gallery)
    before = rows(gallery, ("photos", "faces"))
    with pytest.raises(NotInGallery, match="nothing was forgotten"):
        forget_photos(gallery, [paths[0], Path("/album/other.jpg")])
    assert rows(gallery, ("photos", "faces")) == before


def _renamed(gallery: Gallery) -> int:
    corrections.name_identity(gallery, 1, NAME)
    corrections.name_identity(gallery, 1, "Mia")
    return 1


def _merged_into_a_nameless_one(gallery: Gallery) -> int:
    corrections.name_identity(gallery, 1, NAME)
    corrections.merge(gallery, 2, [1])
    return 2


def _merged_into_another_name(gallery: Gallery) -> int:
    corrections.name_identity(gallery, 1, NAME)
    corrections.name_identity(gallery, 2, "Mia")
    corrections.merge(gallery, 2, [1])
    return 2


def _merged_when_empty(gallery: Gallery) -> int:
    faces = sorted(next(members for members in groups(gallery) if 1 in members))
    corrections.name_identity(gallery, 1, NAME)
    corrections.split(gallery, faces)
    corrections.merge(gallery, 2, [1])
    return 2


def _named_again_after_another(gallery: Gallery) -> int:
    corrections.name_identity(gallery, 2, NAME)
    corrections.name_identity(gallery, 2, "Mia")
    corrections.name_identity(gallery, 1, NAME)
    return 1


def _taken_back(gallery: Gallery) -> int:
    corrections.name_identity(gallery, 1, NAME)
    undo(gallery)
    return 1


@pytest.mark.parametrize(
    "corrected",
    [
        _renamed,
        _merged_into_a_nameless_one,
        _merged_into_another_name,
        _merged_when_empty,
        _named_again_after_another,
        _taken_back,
    ],
)
def test_forgotten_name_is_erased_from_the_decision_log(gallery: Gallery, folder: Path, corrected):
    enrolled(gallery, individuals([3, 3]))
    cluster(gallery)
    number = corrected(gallery)
    secrets = [*secrets_of(gallery, [1] if number == 1 else [4]), NAME.encode()]
    assert forget_identity(gallery, number).erased
    assert holding(folder, *secrets) == set()
    with gallery.reading() as connection:
        left = connection.execute("SELECT id FROM decisions WHERE id NOT IN (SELECT decision_id FROM changes)")
        assert left.fetchall() == []
    while decisions(gallery):  # what is left of the log can still be taken back
        undo(gallery)
    assert check(gallery).problems == ()
    assert holding(folder, *secrets) == set()


def test_undo_does_not_restore_forgotten_faces(gallery: Gallery):
    enrolled(gallery, individuals([3, 3]))
    cluster(gallery)
    corrections.move(gallery, [1], 2)
    forget_identity(gallery, 1)
    undo(gallery)
    assert [row[0] for row in rows(gallery)["assignments"]] == gallery.faces().ids.tolist()
    assert not {2, 3} & set(gallery.faces().ids.tolist())
    assert check(gallery).problems == ()


def test_undo_skips_rejections_of_a_forgotten_identity(gallery: Gallery):
    enrolled(gallery, individuals([2, 1]))
    paths = at_paths(gallery)
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
    with Gallery.create(folder, SPACE) as gallery, Gallery.open(folder) as reader:
        enrolled(gallery, individuals([3]))
        corrections.split(gallery, [1, 2, 3], NAME)
        secrets = [NAME.encode(), *secrets_of(gallery, [1])[1:]]
        with reader.reading() as connection:
            assert connection.execute("SELECT count(*) FROM faces").fetchone()[0] == 3
            forgotten = forget_identity(gallery, 1)
            assert forgotten == ForgetResult(photos=0, faces=3, erased=False)
            assert holding(folder, *secrets)
            assert gallery.faces().ids.tolist() == []  # gone from sight at once
            assert any("still on the disk" in problem for problem in check(gallery).problems)
    Gallery.open(folder).close()
    assert holding(folder, *secrets) == set()
    with Gallery.open(folder) as again:
        assert check(again).problems == ()


def test_forgets_embeddings_of_an_unfinished_migration(gallery: Gallery, folder: Path):
    enrolled(gallery, individuals([2]))
    other = individuals([0, 0, 2])
    with gallery.writing() as connection:
        connection.execute("INSERT INTO migration VALUES (1, ?)", (SPACE.to_json(),))
        connection.executemany(
            "INSERT INTO next_embeddings VALUES (?, 'photo', ?)", enumerate(gallery.encode_embeddings(other), start=1)
        )
    corrections.split(gallery, [1, 2])
    assert holding(folder, other[0].tobytes())
    assert forget_identity(gallery, 1).erased
    assert holding(folder, other[0].tobytes(), other[1].tobytes()) == set()


@pytest.mark.usefixtures("indexed")
def test_next_open_erases_the_index_after_a_kill(gallery: Gallery, folder: Path, monkeypatch: pytest.MonkeyPatch):
    enrolled(gallery, individuals([30, 2, 40]))
    cluster(gallery)
    build_index(gallery)
    packed = gallery.faces().embeddings[30].astype("<f2").tobytes()  # as the index keeps it
    with monkeypatch.context() as killed:
        killed.setattr(Gallery, "purge_deleted", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            forget_identity(gallery, 2)
    assert holding(folder, packed)
    gallery.close()
    Gallery.open(folder).close()
    assert not holding(folder, packed)


@pytest.mark.usefixtures("indexed")
def test_index_built_during_forgetting_is_deleted(gallery: Gallery, folder: Path, monkeypatch: pytest.MonkeyPatch):
    enrolled(gallery, individuals([3, 2]))
    cluster(gallery)
    built = search_module.HnswIndex.build

    def slowly(*arguments):
        index = built(*arguments)
        with Gallery.open(folder) as other:
            forget_identity(other, 2)
        return index

    monkeypatch.setattr(search_module.HnswIndex, "build", slowly)
    build_index(gallery)
    assert not list(folder.glob("*.hnsw"))


def test_undo_restores_the_name_after_forgetting_one_photo(gallery: Gallery):
    enrolled(gallery, individuals([4, 4]))
    cluster(gallery)
    paths = at_paths(gallery)
    corrections.name_identity(gallery, 2, NAME)
    corrections.merge(gallery, 1, [2])
    forget_photos(gallery, [paths[7]])
    undo(gallery)
    assert load_assignments(gallery).names == {2: NAME}


BOX = (0.0, 0.0, 50.0, 50.0)


def looks(seed: int) -> np.ndarray:
    """Like nobody in particular."""
    return individuals([0, 0, 0, 1], seed, 0.5)[0]


def bytes_of(*vectors: np.ndarray) -> list[bytes]:
    return [vector.astype(kind).tobytes() for vector in vectors for kind in (np.float32, np.float16)]


@pytest.mark.parametrize("gallery", ["float16", "float32"], indirect=True)
def test_forgotten_photos_leave_no_bytes_of_hand_edited_faces(gallery: Gallery, folder: Path):
    enrolled(gallery, individuals([3, 3]))
    paths = at_paths(gallery)
    cluster(gallery)
    before = secrets_of(gallery, [1, 2, 3])
    with looking_like(looks(1)) as embedder:
        move_face(gallery, embedder, 1, BOX)
    with looking_like(looks(2)) as embedder:
        delete_face(gallery, add_face(gallery, embedder, 2, BOX))
    for face in (2, 3, 4):
        delete_face(gallery, face)
    secrets = [*before, *bytes_of(looks(1), looks(2))]
    assert len(holding(folder, *secrets)) >= 5
    assert forget_photos(gallery, paths[:2]) == ForgetResult(photos=2, faces=1, erased=True)
    assert {secret for _, secret in holding(folder, *secrets)} < set(before[4:])  # of face 3
    assert [undo(gallery).kind for _ in decisions(gallery)] == ["delete face", "delete face", "group"]
    assert gallery.faces().ids.tolist() == [3, 4, 5, 6]
    assert check(gallery).problems == ()


@pytest.mark.parametrize("gallery", ["float16", "float32"], indirect=True)
def test_forgetting_an_identity_includes_its_deleted_faces(gallery: Gallery, folder: Path):
    enrolled(gallery, individuals([3, 3, 3]))
    cluster(gallery)
    secrets = secrets_of(gallery, [1, 2, 3, 4, 5, 6])
    corrections.name_identity(gallery, 2, NAME)
    delete_face(gallery, 4)  # of somebody who is merged into the one that is forgotten
    corrections.name_identity(gallery, 1, "Mia")
    corrections.merge(gallery, 1, [2])
    delete_face(gallery, 1)
    delete_face(gallery, 7)
    assert len(holding(folder, *secrets)) >= 6
    assert forget_identity(gallery, 1) == ForgetResult(photos=0, faces=4, erased=True)
    assert holding(folder, *secrets, NAME.encode()) == set()
    while decisions(gallery):
        undo(gallery)
    assert gallery.faces().ids.tolist() == [7, 8, 9]
    assert check(gallery).problems == ()


def test_undo_restores_a_deleted_face_of_a_remaining_identity(gallery: Gallery):
    enrolled(gallery, individuals([3, 3]))
    cluster(gallery)
    corrections.move(gallery, [1], 2)
    delete_face(gallery, 1)
    forget_identity(gallery, 1)
    undo(gallery)
    assert gallery.faces().ids.tolist() == [1, 4, 5, 6]
    assert identity_of(gallery, 1) == 2


@pytest.mark.parametrize("said", [False, True])
def test_forgotten_identity_leaves_no_bytes_of_moved_faces(gallery: Gallery, folder: Path, said: bool):
    enrolled(gallery, individuals([3, 3]))
    cluster(gallery)
    corrections.name_identity(gallery, 2, "Tom")
    secrets = secrets_of(gallery, [1])
    if said:
        corrections.confirm(gallery, [1])
    with looking_like(individuals([0, 1])[0]) as embedder:
        move_face(gallery, embedder, 1, BOX)
    if said:
        corrections.move(gallery, [1], 2)
    corrections.name_identity(gallery, 2, "Lia")
    assert identity_of(gallery, 1) == 2
    forget_identity(gallery, 1)
    assert holding(folder, *secrets) == set()
    assert [made.kind for made in decisions(gallery)] == ["name", "move"][: 1 + said]
    assert undo(gallery).kind == "name"
    assert load_assignments(gallery).names == {2: "Tom"}
    assert gallery.faces().ids.tolist() == [1, 4, 5, 6]
    assert check(gallery).problems == ()


def test_forgetting_keeps_decisions_about_other_identities(gallery: Gallery):
    enrolled(gallery, individuals([3, 3]))
    cluster(gallery)
    with looking_like(individuals([0, 1])[0]) as embedder:
        move_face(gallery, embedder, 4, BOX)
    forget_identity(gallery, 1)
    assert [made.kind for made in decisions(gallery)] == ["move face", "group"]


def test_forgetting_deletes_only_uploaded_photo_files(gallery: Gallery, folder: Path, tmp_path: Path):
    enrolled(gallery, individuals([2]))
    own, others = folder / UPLOADED_PHOTOS / "ab" / "abc.jpg", tmp_path / "theirs.jpg"
    for path in (own, others):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"photo")
    with gallery.writing() as connection:
        connection.execute("UPDATE photos SET path = ? WHERE id = 1", (str(own),))
        connection.execute("UPDATE photos SET path = ? WHERE id = 2", (str(others),))
    with pytest.raises(NotInGallery):
        forget_photos(gallery, [own, tmp_path / "none.jpg"])
    assert own.exists()
    forget_photos(gallery, [own, others])
    assert not own.exists()
    assert others.exists()


def uploaded(gallery: Gallery, photo: int, *, known_by: Path | None = None) -> Path:
    """Where that photo's upload lies; it is known by its path, or by another."""
    with gallery.writing() as connection:
        (sha256,) = connection.execute("SELECT sha256 FROM photos WHERE id = ?", (photo,)).fetchone()
        path = gallery.folder / UPLOADED_PHOTOS / sha256.hex()[:2] / f"{sha256.hex()}.jpg"
        name = str(known_by or path.resolve())
        connection.execute("UPDATE photos SET path = ? WHERE id = ?", (name, photo))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"photo")
    return path


def test_forgetting_deletes_the_uploaded_copy_of_a_photo(gallery: Gallery, tmp_path: Path):
    enrolled(gallery, individuals([2]))
    theirs = tmp_path / "theirs.jpg"
    theirs.write_bytes(b"photo")
    copy, other = uploaded(gallery, 1, known_by=theirs), uploaded(gallery, 2)
    forget_photos(gallery, [theirs])
    assert not copy.exists()
    assert theirs.exists()
    assert other.exists()


def test_forgetting_deletes_uploads_when_opened_through_a_symlink(gallery: Gallery, folder: Path, tmp_path: Path):
    enrolled(gallery, individuals([2]))
    first, second = uploaded(gallery, 1), uploaded(gallery, 2)
    link = tmp_path / "link"
    link.symlink_to(folder)
    with Gallery.open(link) as linked:
        forget_photos(linked, [first.resolve(), link / second.relative_to(folder)])
    assert not first.exists()
    assert not second.exists()


def test_photo_is_not_forgotten_when_upload_deletion_fails(gallery: Gallery, monkeypatch: pytest.MonkeyPatch):
    enrolled(gallery, individuals([2]))
    path = uploaded(gallery, 1)

    def refused(path: Path, **_: bool) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(CannotWrite, match=r"jpg: cannot be deleted \(Permission denied\); nothing was forgotten"):
        forget_photos(gallery, [path.resolve()])
    assert len(gallery.faces().ids) == 2


def test_forgetting_succeeds_when_repeated_after_a_crash(gallery: Gallery, monkeypatch: pytest.MonkeyPatch):
    enrolled(gallery, individuals([2]))
    path = uploaded(gallery, 1)
    deleted = forget_module._delete_files

    def crash(files: Collection[Path]) -> None:
        deleted(files)
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(forget_module, "_delete_files", crash)
        with pytest.raises(KeyboardInterrupt):
            forget_photos(gallery, [path.resolve()])
    assert not path.exists()
    assert len(gallery.faces().ids) == 2
    assert forget_photos(gallery, [path.resolve()]).photos == 1
