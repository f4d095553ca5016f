"""A photo's path is used only while its file has the content that was enrolled; cameras reuse names."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from familiar.core.errors import Contradiction, FamiliarError, NotInGallery
from familiar.embedding.embedder import Embedder
from familiar.gallery import Gallery
from familiar.gallery.edits import corrections
from familiar.gallery.edits.forget import forget_photos
from familiar.gallery.enroll.enroll import EnrollResult, enroll, enroll_embeddings
from familiar.gallery.same.assignments import load_assignments, resolve_face
from familiar.gallery.store.store import Store
from familiar.gallery.transfer.check import check
from familiar.gallery.transfer.import_export import export_csv, export_folders, import_csv, import_folders
from support.color_album import SquareDetector, create_gallery, draw_photo


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """A red photo: face 1 of photo 1, named Rosa."""
    folder = tmp_path / "card" / "DCIM"
    folder.mkdir(parents=True)
    return draw_photo(folder / "IMG_0001.png", "red")


@pytest.fixture
def gallery(tmp_path: Path, mean_color_bundle: Path, photo: Path) -> Iterator[Store]:
    with create_gallery(tmp_path / "gallery", mean_color_bundle, [photo]) as gallery:
        corrections.split(gallery, [1], "Rosa")
        yield gallery


@pytest.fixture
def overwritten(gallery: Store, photo: Path) -> Store:
    """The photo was overwritten with a green one, and the gallery does not know it yet."""
    draw_photo(photo, "green")
    return gallery


@pytest.fixture
def replaced(overwritten: Store, mean_color_bundle: Path, photo: Path) -> Store:
    """And then enrolled: the green face is face 2 of photo 2, named Gerd."""
    enroll_again(overwritten, mean_color_bundle, photo)
    corrections.split(overwritten, [2], "Gerd")
    return overwritten


def enroll_again(gallery: Store, bundle: Path, *paths: Path) -> EnrollResult:
    return enroll(gallery, Embedder(bundle, threads=1), list(paths), SquareDetector())


def names(gallery: Store) -> dict[int, str]:
    """Return the name of each face that has one."""
    assignments = load_assignments(gallery)
    return {
        int(face): assignments.names[number]
        for face, number in zip(assignments.faces.ids, assignments.identity.tolist(), strict=True)
        if number in assignments.names
    }


def table_paths(gallery: Store) -> list[str]:
    """Return the path of each face in the table that users see."""
    return Gallery(gallery, None).table()["path"].tolist()


def overwrite_unnoticed(path: Path) -> None:
    """Overwrite a photo by another one of the same size and modification time."""
    status = path.stat()
    path.write_bytes(draw_photo(path.with_name("other.png"), "green").read_bytes().ljust(status.st_size, b"\0"))
    path.with_name("other.png").unlink()
    assert path.stat().st_size == status.st_size
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


# --- the file was replaced, and enrolled again -----------------------------------------------------------------------


def test_path_belongs_to_the_photo_whose_content_is_there(replaced: Store, photo: Path):
    assert table_paths(replaced) == [f"{photo} (replaced, photo 1)", str(photo)]
    assert resolve_face(replaced, str(photo)) == 2
    assert check(replaced).missing == (f"{photo} (replaced, photo 1)",)


def test_folders_have_no_photo_of_another_individual(replaced: Store, photo: Path, tmp_path: Path):
    result = export_folders(replaced, tmp_path / "out")
    assert [str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.png")] == [
        "Gerd/" + photo.name
    ]
    assert (result.photos, result.missing, result.skipped) == (1, (f"{photo} (replaced, photo 1)",), ())


def test_exported_table_is_imported_again(replaced: Store, tmp_path: Path):
    before = names(replaced)
    export_csv(replaced, tmp_path / "names.csv")
    corrections.reject(replaced, [1])
    corrections.reject(replaced, [2])
    assert names(replaced) == {}
    result = import_csv(replaced, tmp_path / "names.csv")
    assert (result.faces, result.skipped, names(replaced)) == (2, (), before)


def test_forgetting_by_path_or_number_erases_one_photo(replaced: Store, photo: Path):
    assert forget_photos(replaced, [photo]).photos == 1
    assert names(replaced) == {1: "Rosa"}
    assert Gallery(replaced, None).forget(photos=1).faces == 1
    assert names(replaced) == {}
    with pytest.raises(NotInGallery, match="has no photo 1; nothing was forgotten"):
        forget_photos(replaced, [1])


def test_replaced_photo_takes_its_path_back_when_it_is_restored(replaced: Store, mean_color_bundle: Path, photo: Path):
    draw_photo(photo, "red")
    result = enroll_again(replaced, mean_color_bundle, photo)
    assert (result.known, result.moved, result.photos) == (1, 0, 0)
    assert table_paths(replaced) == [str(photo), f"{photo} (replaced, photo 2)"]


def test_replaced_photo_is_found_elsewhere(replaced: Store, mean_color_bundle: Path, photo: Path):
    archived = draw_photo(photo.with_name("archived.png"), "red")
    assert enroll_again(replaced, mean_color_bundle, archived).moved == 1
    assert table_paths(replaced) == [str(archived), str(photo)]


def test_path_is_lost_to_a_copy_of_another_photo(gallery: Store, mean_color_bundle: Path, photo: Path):
    other = draw_photo(photo.with_name("other.png"), "green")
    enroll_again(gallery, mean_color_bundle, other)
    shutil.copy(other, photo)
    assert enroll_again(gallery, mean_color_bundle, photo).copies == 1
    assert table_paths(gallery) == [f"{photo} (replaced, photo 1)", str(other)]


def test_edit_of_a_replaced_photo_keeps_its_faces(replaced: Store, mean_color_bundle: Path, photo: Path):
    draw_photo(photo, "red", shade=3)
    assert enroll_again(replaced, mean_color_bundle, photo).edited == 1
    assert names(replaced) == {1: "Rosa", 2: "Gerd"}
    assert table_paths(replaced) == [str(photo), f"{photo} (replaced, photo 2)"]


# --- the file was replaced, and the gallery does not know yet --------------------------------------------------------


@pytest.mark.parametrize("link", [True, False])
@pytest.mark.parametrize("unnoticed", [False, True])
def test_changed_file_is_not_exported(link: bool, unnoticed: bool, gallery: Store, photo: Path, tmp_path: Path):
    overwrite_unnoticed(photo) if unnoticed else draw_photo(photo, "green")
    result = export_folders(gallery, tmp_path / "out", link=link)
    assert not list((tmp_path / "out").iterdir())
    assert (result.photos, result.missing) == (0, ())
    assert result.skipped[0].startswith(f"{photo}: has changed since it was enrolled; ")


@pytest.mark.parametrize("unnoticed", [False, True])
def test_path_of_a_changed_file_means_no_face_and_is_not_forgotten(unnoticed: bool, gallery: Store, photo: Path):
    overwrite_unnoticed(photo) if unnoticed else draw_photo(photo, "green")
    message = "has changed since it was enrolled.*or give a number: photo 1 with face 1"
    with pytest.raises(Contradiction, match=message):
        resolve_face(gallery, str(photo))
    with pytest.raises(Contradiction, match=message):
        forget_photos(gallery, [photo])
    assert names(gallery) == {1: "Rosa"}
    assert forget_photos(gallery, [1]).faces == 1


def test_labels_are_not_imported_for_a_changed_file(overwritten: Store, photo: Path, tmp_path: Path):
    (tmp_path / "names.csv").write_text(f"path,name\n{photo},Gerd\n")
    result = import_csv(overwritten, tmp_path / "names.csv")
    assert result.faces == 0
    assert f"line 2: {photo}: has changed since it was enrolled" in result.skipped[0]
    result = import_folders(overwritten, photo.parent.parent)
    assert (result.faces, names(overwritten)) == (0, {1: "Rosa"})
    assert result.skipped[0].startswith(f"{photo}: has changed since it was enrolled")


def test_table_of_another_content_names_no_face(
    overwritten: Store, mean_color_bundle: Path, photo: Path, tmp_path: Path
):
    export_csv(overwritten, tmp_path / "names.csv")
    with create_gallery(tmp_path / "fresh", mean_color_bundle, [photo]) as fresh:
        result = import_csv(fresh, tmp_path / "names.csv")
        assert (result.faces, names(fresh)) == (0, {})
        assert "no photo of the gallery has the content" in result.skipped[0]


def test_check_lists_a_file_of_the_same_size_as_changed(gallery: Store, photo: Path):
    overwrite_unnoticed(photo)
    os.utime(photo)
    assert check(gallery).changed == (str(photo),)
    draw_photo(photo, "red")
    assert check(gallery).changed == (), "only its time is another"


# --- other things in the file's place --------------------------------------------------------------------------------


def test_path_means_its_photo_while_the_file_is_gone_or_a_folder(gallery: Store, photo: Path, tmp_path: Path):
    photo.unlink()
    assert resolve_face(gallery, str(photo)) == 1
    photo.mkdir()
    assert resolve_face(gallery, str(photo)) == 1
    result = export_folders(gallery, tmp_path / "out")
    assert (result.photos, result.missing) == (0, (str(photo),))
    assert check(gallery).missing == (str(photo),)
    assert forget_photos(gallery, [photo]).faces == 1


def test_unreadable_file_is_not_used_and_can_be_forgotten_by_number(
    gallery: Store, photo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fail(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("familiar.gallery.store.photo_paths.content_sha256", fail)
    assert export_folders(gallery, tmp_path / "out").skipped == (f"{photo}: cannot be read (Permission denied)",)
    with pytest.raises(FamiliarError, match="cannot be read"):
        forget_photos(gallery, [photo])
    assert forget_photos(gallery, [1]).faces == 1


def test_photo_behind_a_link_is_compared_by_content(gallery: Store, photo: Path, tmp_path: Path):
    (tmp_path / "link").symlink_to(photo.parent)
    assert resolve_face(gallery, str(tmp_path / "link" / photo.name)) == 1
    draw_photo(photo, "green")
    with pytest.raises(Contradiction):
        resolve_face(gallery, str(tmp_path / "link" / photo.name))


def test_table_of_embeddings_of_one_name_is_imported_again(tmp_path: Path, gallery: Store):
    space = gallery.space
    vectors = np.eye(space.embedding_dim, dtype=np.float32)[:2]
    first, second = enroll_embeddings(gallery, vectors, ["same name", "same name"], space.space_id)
    corrections.split(gallery, [first], "Mia")
    corrections.split(gallery, [second], "Leo")
    before = names(gallery)
    export_csv(gallery, tmp_path / "names.csv")
    corrections.reject(gallery, [first])
    corrections.reject(gallery, [second])
    assert import_csv(gallery, tmp_path / "names.csv").skipped == ()
    assert names(gallery) == before
    with pytest.raises(NotInGallery, match=f"shows the faces {first}, {second}"):
        resolve_face(gallery, "same name")
    assert forget_photos(gallery, [Path("same name")]).photos == 2
