"""Forgetting photos deletes their uploaded files, and no others."""

import errno
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from familiar.core import files
from familiar.core.errors import CannotWrite, NotInGallery
from familiar.gallery.edits.forget import forget_photos
from familiar.gallery.enroll.enroll import enroll_embeddings
from familiar.gallery.store.settings import Settings
from familiar.gallery.store.store import UPLOADED_PHOTOS, Store
from support.small_gallery import draw_individuals, enroll_vectors


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
    original = folder / UPLOADED_PHOTOS / name
    original.parent.mkdir(parents=True)
    original.write_bytes(b"the only original")
    enroll_embeddings(gallery, draw_individuals([1]), [str(original)], gallery.space.space_id)
    assert forget_photos(gallery, [original]).photos == 1
    assert original.read_bytes() == b"the only original"


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


def test_forgetting_deletes_uploads_and_their_copies_and_no_other_file(gallery: Store, tmp_path: Path):
    enroll_vectors(gallery, draw_individuals([3]))
    original = tmp_path / "original.jpg"
    original.write_bytes(b"photo")
    copy = write_upload(gallery, 1, enrolled_from=original)
    other, upload = write_upload(gallery, 2), write_upload(gallery, 3)
    upload.write_bytes(b"with names")  # as `export_xmp` does. The next start of a server would enroll it again
    with pytest.raises(NotInGallery):
        forget_photos(gallery, [upload, tmp_path / "none.jpg"])
    assert upload.exists()
    forget_photos(gallery, [original, upload])
    assert [path.exists() for path in (copy, upload, original, other)] == [False, False, True, True]


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


FAILURES = {
    "commit": (Settings, "count_revision", CannotWrite("disk I/O error")),
    "folder": (files, "fsync_directory", OSError(errno.EIO, "Input/output error")),
}


@pytest.mark.parametrize("failing", FAILURES)
def test_error_after_deleting_files_says_so_and_forgetting_again_works(
    failing: str, gallery: Store, monkeypatch: pytest.MonkeyPatch
):
    enroll_vectors(gallery, draw_individuals([2]))
    upload = write_upload(gallery, 1)
    with monkeypatch.context() as patch:
        where, name, error = FAILURES[failing]
        patch.setattr(where, name, Mock(side_effect=error))
        with pytest.raises(CannotWrite, match=r"(I/O|Input/output) error.*files of theirs are deleted already"):
            forget_photos(gallery, [upload])
    assert not upload.exists()
    assert len(gallery.faces().ids) == 2
    assert forget_photos(gallery, [upload]).photos == 1
