"""Requests that need the model and the gallery."""

from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from familiar.gallery.store.store import Store
from familiar.web.service import Service
from familiar.web.settings import Settings


def test_says_which_photos_the_roots_leave_out(
    folder: Path, photos: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "card").mkdir()
    Service(Settings(gallery=folder, roots=(tmp_path / "card",)))
    assert f"photos in folders without --root are not shown; to show these too, add: --root {photos[0].parent}" in (
        caplog.text
    )
    caplog.clear()
    Service(Settings(gallery=folder, roots=(tmp_path,)))
    assert "not shown" not in caplog.text


def test_rejects_photo_queries_after_gallery_migration(client: TestClient, folder: Path, photos: list[Path]):
    with Store.open(folder) as gallery, gallery.write(faces_change=True) as repository:
        space = replace(gallery.space, space_id="another").to_json()
        repository.connection.execute("UPDATE gallery SET space = ?", (space,))
    photo = ("photo.png", photos[0].read_bytes())
    for path, files in (
        ("/api/v1/search/photo", {"photo": photo}),
        ("/api/v1/identities/1/verify", {"photo": photo}),
        ("/api/v1/verify", {"first": photo, "second": photo}),
        ("/search", {"photo": photo}),
        ("/compare", {"first": photo, "second": photo}),
    ):
        answer = client.post(path, files=files)
        assert answer.status_code == 409, path
        assert "familiar gallery migrate" in answer.text
    assert client.post("/api/v1/search", json={"face": 1}).status_code == 200  # the gallery's own are of one space
