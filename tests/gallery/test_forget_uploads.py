"""Forgetting photos deletes their uploaded files, and no others."""

import errno
import os
from collections.abc import Collection
from pathlib import Path
from unittest.mock import Mock

import pytest

from familiar.core.errors import CannotWrite, NotInGallery
from familiar.gallery.editing import forget as forget_module
from familiar.gallery.editing.forget import forget_photos
from familiar.gallery.store.settings import Settings
from familiar.gallery.store.store import UPLOADED_PHOTOS, Store
from support.small_gallery import draw_individuals, enroll_vectors


def test_forgetting_deletes_only_uploaded_photo_files(gallery: Store, folder: Path, tmp_path: Path):
    enroll_vectors(gallery, draw_individuals([2]))
    uploaded_file, other_file = upload_path(folder, "ab"), tmp_path / "original.jpg"
    for path in (uploaded_file, other_file):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"photo")
    with gallery.write() as repository:
        repository.connection.execute("UPDATE photos SET path = ? WHERE id = 1", (bytes(uploaded_file),))
        repository.connection.execute("UPDATE photos SET path = ? WHERE id = 2", (bytes(other_file),))
    with pytest.raises(NotInGallery):
        forget_photos(gallery, [uploaded_file, tmp_path / "none.jpg"])
    assert uploaded_file.exists()
    forget_photos(gallery, [uploaded_file, other_file])
    assert not uploaded_file.exists()
    assert other_file.exists()


def upload_path(folder: Path, start: str) -> Path:
    """Return the path of an upload whose hash begins with these two digits."""
    return folder / UPLOADED_PHOTOS / start / f"{start}{'0' * 62}.jpg"


@pytest.mark.parametrize(
    "name",
    [
        "mia.jpg",
        "2024/mia.jpg",
        "ab/mia.jpg",
        f"ab/cd{'0' * 62}.jpg",  # in the folder of other hashes
        f"2024/ab/ab{'0' * 62}.jpg",
        f"ab{'0' * 62}.jpg",
    ],
)
def test_forgetting_keeps_a_photo_that_the_user_put_into_the_folder_of_uploads(name: str, gallery: Store, folder: Path):
    enroll_vectors(gallery, draw_individuals([2]))
    original = folder / UPLOADED_PHOTOS / name
    original.parent.mkdir(parents=True)
    original.write_bytes(b"the only original")
    with gallery.write() as repository:
        repository.connection.execute("UPDATE photos SET path = ? WHERE id = 1", (bytes(original),))
    assert forget_photos(gallery, [original]).photos == 1
    assert original.read_bytes() == b"the only original"


def test_forgetting_deletes_an_upload_whose_content_has_changed_since(gallery: Store, folder: Path):
    # `export_xmp` writes names into it and records the new hash. The next start of a server would enroll it again.
    enroll_vectors(gallery, draw_individuals([2]))
    upload = upload_path(folder, "ab")
    upload.parent.mkdir(parents=True)
    upload.write_bytes(b"with names")
    with gallery.write() as repository:
        (sha256,) = repository.connection.execute("SELECT sha256 FROM photos WHERE id = 1").fetchone()
        repository.connection.execute("UPDATE photos SET path = ? WHERE id = 1", (bytes(upload),))
    assert sha256.hex() != upload.stem
    forget_photos(gallery, [upload])
    assert not upload.exists()


def write_upload(gallery: Store, photo: int, *, enrolled_from: Path | None = None) -> Path:
    """Write the uploaded file of a photo that was enrolled from it, or from `enrolled_from`; return its path."""
    with gallery.write() as repository:
        (sha256,) = repository.connection.execute("SELECT sha256 FROM photos WHERE id = ?", (photo,)).fetchone()
        path = gallery.folder / UPLOADED_PHOTOS / sha256.hex()[:2] / f"{sha256.hex()}.jpg"
        name = str(enrolled_from or path.resolve())
        repository.connection.execute("UPDATE photos SET path = ? WHERE id = ?", (os.fsencode(name), photo))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"photo")
    return path


def test_forgetting_deletes_the_uploaded_copy_of_a_photo(gallery: Store, tmp_path: Path):
    enroll_vectors(gallery, draw_individuals([2]))
    original = tmp_path / "original.jpg"
    original.write_bytes(b"photo")
    uploaded_copy, other_upload = write_upload(gallery, 1, enrolled_from=original), write_upload(gallery, 2)
    forget_photos(gallery, [original])
    assert not uploaded_copy.exists()
    assert original.exists()
    assert other_upload.exists()


def test_forgetting_deletes_uploads_when_opened_through_a_symlink(gallery: Store, folder: Path, tmp_path: Path):
    enroll_vectors(gallery, draw_individuals([2]))
    first, second = write_upload(gallery, 1), write_upload(gallery, 2)
    link = tmp_path / "link"
    link.symlink_to(folder)
    with Store.open(link) as linked:
        forget_photos(linked, [first.resolve(), link / second.relative_to(folder)])
    assert not first.exists()
    assert not second.exists()


def test_photo_is_not_forgotten_when_upload_deletion_fails(gallery: Store, monkeypatch: pytest.MonkeyPatch):
    enroll_vectors(gallery, draw_individuals([2]))
    path = write_upload(gallery, 1)

    def fail(path: Path, **_: bool) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "unlink", fail)
    with pytest.raises(CannotWrite, match=r"jpg: cannot be erased \(Permission denied\); nothing was forgotten"):
        forget_photos(gallery, [path.resolve()])
    assert len(gallery.faces().ids) == 2


def test_forgetting_succeeds_when_repeated_after_a_crash(gallery: Store, monkeypatch: pytest.MonkeyPatch):
    enroll_vectors(gallery, draw_individuals([2]))
    path = write_upload(gallery, 1)
    delete_files = forget_module._delete_files

    def crash(files: Collection[Path]) -> None:
        delete_files(files)
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(forget_module, "_delete_files", crash)
        with pytest.raises(KeyboardInterrupt):
            forget_photos(gallery, [path.resolve()])
    assert not path.exists()
    assert len(gallery.faces().ids) == 2
    assert forget_photos(gallery, [path.resolve()]).photos == 1


@pytest.mark.parametrize("failing", ["commit", "folder"])
def test_error_after_deleting_files_says_so_and_forgetting_again_works(
    failing: str, gallery: Store, monkeypatch: pytest.MonkeyPatch
):
    enroll_vectors(gallery, draw_individuals([2]))
    upload = write_upload(gallery, 1)
    with monkeypatch.context() as patch:
        if failing == "folder":
            patch.setattr(
                "familiar.core.files.fsync_directory", Mock(side_effect=OSError(errno.EIO, "Input/output error"))
            )
        else:
            patch.setattr(Settings, "count_revision", Mock(side_effect=CannotWrite("disk I/O error")))
        with pytest.raises(CannotWrite, match=r"(I/O|Input/output) error.*files of theirs are deleted already"):
            forget_photos(gallery, [upload])
    assert not upload.exists()
    assert forget_photos(gallery, [upload]).photos == 1
