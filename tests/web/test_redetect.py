"""The server of a gallery that remembers its model and detector, and looks again at its photos."""

import time
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from familiar import Gallery
from familiar.core.errors import Contradiction
from familiar.embedding.embedder import Embedder
from familiar.web.server import make_app
from familiar.web.service import Service
from familiar.web.settings import Settings
from support.color_album import draw_album
from support.colored_squares import use_colored_squares
from support.mean_color_bundle import CALIBRATED, write_mean_color_bundle


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_mean_color_bundle(tmp_path / "model.onnx", CALIBRATED)


@pytest.fixture
def settings(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Two cats and three people, searched for pets."""
    use_colored_squares(monkeypatch)
    with Gallery.create(tmp_path / "album", model, detector="pets") as gallery:
        gallery.enroll(draw_album(tmp_path / "photos", red=2, blue=3))
    return Settings(gallery=tmp_path / "album")


def ended(client: TestClient) -> dict[str, object]:
    """Return the last job when it has ended."""
    while True:
        job = client.get("/api/v1/jobs").json()[0]
        if job["state"] in ("done", "failed"):
            return job
        time.sleep(0.01)


def test_serves_the_remembered_model(settings: Settings):
    assert Service(settings).inference.has_model
    with pytest.raises(Contradiction, match="is pets, not auto"):
        Service(Settings(gallery=settings.gallery, detector="auto"))


def test_gallery_whose_model_is_gone_can_be_viewed(settings: Settings, model: Path, caplog: pytest.LogCaptureFixture):
    model.unlink()
    assert not Service(settings).inference.has_model
    assert f"its model {model} cannot be opened" in caplog.text


def test_looking_again_finds_people_and_changes_the_detector(settings: Settings):
    app = make_app(Service(settings))
    with TestClient(app, base_url="http://127.0.0.1:8000", client=("127.0.0.1", 5000)) as client:
        assert client.post("/api/v1/photos/redetect", json={}).status_code == 202
        job = ended(client)
        assert (job["total"], job["faces"], job["without_face"]) == (3, 0, 3)
        page = client.get("/album").text
        assert "On 3 photos no head of a cat or dog was found. This album is not searched for people:" in page
        assert 'href="/model#searched-for"' in page
        with (settings.gallery.parent / "photos" / "blue1.png").open("rb") as photo:
            problem = client.post("/api/v1/search/photo", files={"photo": photo}).json()
        assert problem["detail"] == "blue1.png: no head of a cat or dog found (this album is not searched for people)"
        with (settings.gallery.parent / "photos" / "blue1.png").open("rb") as photo:
            page = client.post("/search", files={"photo": photo}).text
        assert "No head of a cat or dog was found; this album is not searched for people." in page
        assert "No head of a cat or dog is marked on this photo" in client.get("/photos/3").text
        assert client.post("/api/v1/photos/redetect", json={"detector": "auto"}).status_code == 202
        job = ended(client)
        assert (job["state"], job["total"], job["faces"]) == ("done", 5, 3)
        page = client.get("/album").text
        assert "each head of a cat or dog and each face of a person" in page
        assert 'value="pets"' in page
        assert 'value="auto"' not in page
    with Gallery.open(settings.gallery) as gallery:
        assert gallery.store.model_reference.detector == "auto"


def test_button_adds_the_model_that_an_album_lacks(settings: Settings, caplog: pytest.LogCaptureFixture):
    folder, photos = settings.gallery.parent / "pets", settings.gallery.parent / "photos"
    with Gallery.create(folder, "pet-nano", detector="pets") as gallery:
        gallery.enroll(sorted(photos.iterdir()))
    app = make_app(Service(Settings(gallery=folder, roots=(photos,))))
    with TestClient(app, base_url="http://127.0.0.1:8000", client=("127.0.0.1", 5000)) as client:
        assert 'action="/album/models"' in client.get("/model").text
        assert client.post("/album/models", follow_redirects=False).headers["Location"] == "/album"
        job = ended(client)
        assert (job["state"], job["total"], job["processed"], job["faces"]) == ("done", 5, 5, 3), job
        assert 'action="/album/models"' not in client.get("/model").text
        with (photos / "blue1.png").open("rb") as photo:
            results = client.post("/api/v1/search/photo", files={"photo": photo}).json()
        assert results["photos"][0]["path"] == str(photos / "blue1.png"), "by the new model"
    with Gallery.open(folder) as gallery:
        assert gallery.model_reference.models == ("cat,dog=pet-nano", "person=person-mobile")
    assert "mixes them up" not in caplog.text


def test_server_says_that_its_model_is_not_made_for_people(settings: Settings, caplog: pytest.LogCaptureFixture):
    folder = settings.gallery.parent / "all"
    Gallery.create(folder, "pet-nano", detector="auto").close()
    app = make_app(Service(Settings(gallery=folder)))
    assert "its model is not made for people, whom it finds too, and mixes them up" in caplog.text
    with TestClient(app, base_url="http://127.0.0.1:8000", client=("127.0.0.1", 5000)) as client:
        assert "The model of this album is not made for people, and mixes them up." in client.get("/model").text


def test_model_page_looks_again_for_what_its_model_is_made_for(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    app = make_app(Service(settings))
    with TestClient(app, base_url="http://127.0.0.1:8000", client=("127.0.0.1", 5000)) as client:
        page = client.get("/model").text
        assert 'id="searched-for"' in page
        assert '<option value="auto">cats, dogs and people</option>' in page
        sent = client.post("/album/redetect", data={"detector": "auto"}, follow_redirects=False)
        assert (sent.status_code, ended(client)["faces"]) == (303, 3)
    monkeypatch.setattr(Embedder, "made_for", frozenset({"cat", "dog"}))
    with Gallery.create(settings.gallery.parent / "pets", settings.gallery.parent / "model.onnx", detector="pets"):
        pass
    app = make_app(Service(Settings(gallery=settings.gallery.parent / "pets")))
    with TestClient(app, base_url="http://127.0.0.1:8000", client=("127.0.0.1", 5000)) as client:
        page = client.get("/model").text
        assert "The model of this album is not made for people." in page
        assert 'action="/album/models"' in page
        assert "<option" not in page
