"""Downloads: the photos of one individual, and a backup of the album."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from familiar.gallery import Gallery
from familiar.gallery.edits.corrections import name_identity
from familiar.gallery.store.store import Store
from familiar.web.allowed_paths import AllowedPaths
from familiar.web.pages.downloads import zip_chunks

pytestmark = pytest.mark.slow


def unzip(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_photos_of_an_individual_are_sent_as_they_are(
    serving: Callable[..., TestClient], folder: Path, photos: list[Path]
):
    with Store.open(folder) as store:
        name_identity(store, 1, "Müsli / 1")
    photos[1].unlink()
    client = serving(read_only=True)
    assert 'href="/individuals/1/photos.zip" hx-boost="false" download' in client.get("/individuals/1").text
    answer = client.get("/individuals/1/photos.zip")
    assert answer.headers["content-type"] == "application/zip"
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''M%C3%BCsli%20%2F%201.zip"
    assert unzip(answer.content) == {photo.name: photo.read_bytes() for photo in photos[:4] if photo != photos[1]}
    assert client.get("/individuals/99/photos.zip").status_code == 404


def test_downloads_need_the_token(serving: Callable[..., TestClient]):
    client = serving(token="t" * 32)
    for path in ("/individuals/1/photos.zip", "/model/backup"):
        assert client.get(path).status_code == 401
        assert client.get(path, headers={"Authorization": "Bearer " + "t" * 32}).status_code == 200


def test_zip_has_names_without_hashes_and_nothing_from_outside(tmp_path: Path):
    uploads, other = tmp_path / "uploads", tmp_path / "other"
    files = [
        uploads / ("a" * 64 + "-tom.jpg"),
        uploads / ("b" * 64 + "-Tom.JPG"),
        other / "tom.jpg",
        other / "secret.jpg",
    ]
    for number, file in enumerate(files):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(bytes([number]) * 10)
    (uploads / "link.jpg").symlink_to(other / "secret.jpg")
    paths = [str(path) for path in (*files[:3], uploads / "link.jpg", uploads, uploads / "gone.jpg")]
    chunks = [*zip_chunks(paths, AllowedPaths((), uploads))]
    assert unzip(b"".join(chunks)) == {"tom.jpg": b"\0" * 10, "Tom-2.JPG": b"\1" * 10}
    assert len(chunks) > 2, "streamed"


def test_backup_can_be_restored(serving: Callable[..., TestClient], folder: Path, tmp_path: Path):
    with Store.open(folder) as store:
        name_identity(store, 1, "Luna")
    client = serving(read_only=True)
    assert 'href="/model/backup" hx-boost="false" download' in client.get("/model").text
    answer = client.get("/model/backup")
    assert answer.headers["content-disposition"] == 'attachment; filename="album-backup.zip"'
    (tmp_path / "backup.zip").write_bytes(answer.content)
    Gallery.restore(tmp_path / "restored", tmp_path / "backup.zip")
    with Gallery.open(tmp_path / "restored") as gallery:
        assert gallery.names() == {1: "Luna"}


def test_no_file_of_a_backup_stays(serving: Callable[..., TestClient], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    client = serving()
    assert client.get("/model/backup").status_code == 200
    monkeypatch.setattr(Gallery, "backup", lambda *_: 1 / 0)
    assert client.get("/model/backup").status_code == 500
    assert [*temporary.iterdir()] == []
