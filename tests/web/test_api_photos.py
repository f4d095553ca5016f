"""Photos over the API: listing, enrollment, detection, and manual faces."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from starlette.testclient import TestClient

from familiar.detection.faces import crop_photo
from familiar.embedding.embedder import Embedder
from familiar.web.server import make_app
from familiar.web.service import Service
from familiar.web.settings import Settings
from support import color_album

PROGRAM = {"base_url": "http://127.0.0.1:8000", "client": ("127.0.0.1", 5000)}
RED, GREEN, BLUE = 1, 2, 3


def sent(*paths: Path, field: str = "files") -> list[tuple[str, tuple[str, bytes]]]:
    return [(field, (path.name, path.read_bytes())) for path in paths]


def events(client: TestClient, job: str) -> list[dict[str, Any]]:
    """Return all events of a job."""
    answer = client.get(f"/api/v1/jobs/{job}/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = answer.text.splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


def pixels(content: bytes) -> np.ndarray:
    image = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
    assert image is not None
    return image


@pytest.mark.parametrize("path", ["photos/1/image", "faces/1/image"])
def test_image_returns_304_for_known_etag(client: TestClient, path: str):
    first = client.get(f"/api/v1/{path}")
    assert (first.status_code, first.headers["content-type"]) == (200, "image/jpeg")
    assert first.headers["cache-control"] == "no-store"
    blue, _, red = pixels(first.content).mean(axis=(0, 1))
    assert red > 150 > blue
    tag = first.headers["etag"]
    for known in (tag, f'"other", W/{tag}'):
        again = client.get(f"/api/v1/{path}", headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert client.get(f"/api/v1/{path}", headers={"If-None-Match": '"other"'}).content == first.content
    assert client.get(f"/api/v1/{path}", params={"side": 64}).headers["etag"] != tag
    for side in (0, 15, 4097, "wide"):
        assert client.get(f"/api/v1/{path}", params={"side": side}).status_code == 422


def test_face_image_changes_with_its_box(client: TestClient):
    before = client.get("/api/v1/faces/1/image").headers["etag"]
    moved = client.put("/api/v1/faces/1/box", json={"box_xyxy_px": [0, 0, 16, 16]})
    assert (moved.status_code, moved.content) == (204, b"")
    assert client.get("/api/v1/faces/1/image", headers={"If-None-Match": before}).status_code == 200


def test_rejects_photo_missing_or_outside_roots(settings: Settings, photos: list[Path], tmp_path: Path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    photos[0].unlink()
    photos[1].unlink()
    photos[1].symlink_to(color_album.draw_photo(elsewhere / "secret.png", "blue"))
    with TestClient(make_app(Service(settings)), **PROGRAM) as client:
        assert client.get("/api/v1/photos/1/image").status_code == 422
        box = {"box_xyxy_px": [0, 0, 16, 16]}
        for method, path, body in [
            ("GET", "photos/2/image", None),
            ("GET", "faces/2/image", None),
            ("POST", "photos/2/faces", box),
            ("PUT", "faces/2/box", box),
        ]:
            answer = client.request(method, f"/api/v1/{path}", json=body)
            assert (answer.status_code, answer.json()["type"][-13:]) == (403, "outside-roots"), path


def test_non_utf8_file_name_is_escaped(settings: Settings, photos: list[Path]):
    odd = Path(os.fsdecode(os.fsencode(photos[0].parent) + b"/\xff\n.png"))
    color_album.draw_photo(photos[0].parent / "new.png", "green", shade=9).rename(odd)
    with TestClient(make_app(Service(settings)), **PROGRAM) as client:
        answer = client.post("/api/v1/photos/folder", json={"folder": str(photos[0].parent)})
        events(client, answer.json()["number"])
        paths = [photo["path"] for photo in client.get("/api/v1/photos").json()["items"]]
        assert any(path.endswith("\\xff\\n.png") for path in paths)


def test_detect_and_embed_match_embedder_and_skip_bad_files(
    client: TestClient, photos: list[Path], mean_color_bundle: Path, tmp_path: Path
):
    text = tmp_path / "notes.jpg"
    text.write_bytes(b"no photo")
    truncated = tmp_path / "half.png"
    truncated.write_bytes(photos[1].read_bytes()[:60])
    files = [photos[0], text, photos[5], truncated]
    embedder = Embedder(mean_color_bundle)
    for path in ("detect", "embed"):
        answer = client.post(f"/api/v1/{path}", files=sent(*files)).json()
        assert [photo["name"] for photo in answer["photos"]] == ["red1.png", "green2.png"]
        assert [reason.split(":")[0] for reason in answer["skipped"]] == ["notes.jpg", "half.png"]
        assert "familiar-" not in json.dumps(answer), "nothing of the server's own temporary files"
        for photo, source in zip(answer["photos"], (photos[0], photos[5]), strict=True):
            assert photo["size_px"] == [32, 32]
            (face,) = photo["faces"]
            assert face["box_xyxy_px"] == [0, 0, 32, 32]
            crop = crop_photo(source, embedder.metadata.preprocessing)
            embedding = face.get("embedding", [])
            expected = embedder.embed([crop])[0] if path == "embed" else np.empty(0)
            np.testing.assert_allclose(embedding, expected, atol=1e-6)


def test_rejects_upload_without_photo(client: TestClient):
    for path in ("detect", "embed", "photos"):
        assert client.post(f"/api/v1/{path}").status_code == 422
        assert client.post(f"/api/v1/{path}", data={"files": "text"}).status_code == 422
        assert client.post(f"/api/v1/{path}", json={"files": []}).status_code == 422
    bad = client.post("/api/v1/photos", files=[("files", ("a.jpg", b"<html>"))])
    assert (bad.status_code, bad.json()["type"]) == (415, "urn:familiar:problem:not-a-photo")
    assert client.get("/api/v1/jobs").json() == []


def test_photo_search_returns_known_identity(client: TestClient, tmp_path: Path):
    green = sent(color_album.draw_photo(tmp_path / "new.png", "green", shade=12), field="photo")
    answers = client.post("/api/v1/search/photo", files=green, params={"k": 3}).json()
    assert answers["known"]["identity"] == GREEN
    assert [hit["identity"] for hit in answers["photos"]] == [GREEN] * 3
    only = client.post("/api/v1/search/photo", files=green, params={"by": "photo"}).json()
    assert (only["identities"], len(only["photos"])) == ([], 9)
    assert client.post("/api/v1/search/photo", files=green, params={"by": "color"}).status_code == 422


def test_verify_compares_photos_and_identities(client: TestClient, photos: list[Path]):
    def verdict(first: Path, second: Path) -> dict[str, Any]:
        both = [*sent(first, field="first"), *sent(second, field="second")]
        return client.post("/api/v1/verify", files=both).json()

    same = verdict(photos[0], photos[1])
    assert (same["same"], same["threshold"]) == (True, 0.9)
    assert same["similarity"] > 0.99
    assert same["probability"] > 0.5
    assert same["first"]["box_xyxy_px"] == [0, 0, 32, 32]
    assert "embedding" not in same["first"]
    assert verdict(photos[0], photos[-1])["same"] is False
    for identity, same in ((RED, True), (BLUE, False)):
        answer = client.post(f"/api/v1/identities/{identity}/verify", files=sent(photos[0], field="photo"))
        assert answer.json()["same"] is same
    assert client.post("/api/v1/identities/99/verify", files=sent(photos[0], field="photo")).status_code == 404


def test_no_face_error_names_uploaded_file(settings: Settings, photos: list[Path]):
    app = make_app(Service(dataclasses.replace(settings, detector="auto")))
    with TestClient(app, **PROGRAM) as client:
        answer = client.post("/api/v1/search/photo", files=sent(photos[0], field="photo"))
        assert (answer.status_code, answer.json()["type"]) == (422, "urn:familiar:problem:no-face-found")
        assert answer.json()["detail"].startswith("red1.png: ")


def test_rejected_upload_stores_no_photo(settings: Settings, folder: Path, photos: list[Path]):
    for refuses in ({"read_only": True}, {"models": ()}):
        with TestClient(make_app(Service(dataclasses.replace(settings, **refuses))), **PROGRAM) as client:
            assert client.post("/api/v1/photos", files=sent(photos[0])).status_code in (403, 409)
    assert not (folder / "photos").exists()


@pytest.mark.slow
def test_uploaded_photos_are_stored_and_enrolled(client: TestClient, folder: Path, tmp_path: Path):
    new = color_album.draw_photo(tmp_path / "new.png", "blue", shade=14)
    answer = client.post("/api/v1/photos", files=sent(new))
    assert answer.status_code == 202
    (stored,) = (path for path in (folder / "photos").rglob("*") if path.is_file())
    assert stored.read_bytes() == new.read_bytes(), "acknowledged, so it is on the disk"
    job = answer.json()["number"]
    assert answer.headers["location"] == f"/api/v1/jobs/{job}"
    updates = events(client, job)
    assert updates[-1] == client.get(f"/api/v1/jobs/{job}").json()
    assert (updates[-1]["state"], updates[-1]["photos"], updates[-1]["faces"]) == ("done", 1, 1)
    assert client.get("/api/v1/jobs").json()[0]["number"] == job
    assert client.get("/api/v1/identities/3").json()["faces"] == 3
    again = client.post("/api/v1/photos", files=sent(new)).json()["number"]
    assert events(client, again)[-1]["known"] == 1
    for path in ("jobs/nine", "jobs/nine/events"):
        assert client.get(f"/api/v1/{path}").status_code == 404


@pytest.mark.slow
def test_enrolls_folder_and_rejects_paths_outside_roots(client: TestClient, photos: list[Path]):
    color_album.draw_photo(photos[0].parent / "holiday.png", "red", shade=15)
    answer = client.post("/api/v1/photos/folder", json={"folder": str(photos[0].parent)})
    assert answer.status_code == 202
    last = events(client, answer.json()["number"])[-1]
    assert (last["photos"], last["known"]) == (1, 9)
    for text, status in [("/etc", 403), ("../album", 403), ("a\0b", 403), ("no such folder", 404), ("", 422)]:
        assert client.post("/api/v1/photos/folder", json={"folder": text}).status_code == status, text


def test_manual_face_edits_can_be_undone(client: TestClient):
    assert client.delete("/api/v1/faces/1").status_code == 204
    assert client.get("/api/v1/faces/1").status_code == 404
    new = client.post("/api/v1/photos/1/faces", json={"box_xyxy_px": [0, 0, 31.5, 32]})
    assert new.status_code == 201
    face = new.json()["face"]
    assert new.headers["location"] == f"/api/v1/faces/{face}"
    assert client.get(f"/api/v1/faces/{face}").json()["box_xyxy_px"] == [0, 0, 31.5, 32]
    assert client.put(f"/api/v1/faces/{face}/box", json={"box_xyxy_px": [1, 1, 31, 31]}).status_code == 204
    assert client.get(f"/api/v1/faces/{face}").json()["box_xyxy_px"] == [1, 1, 31, 31]
    for _ in range(3):
        client.post("/api/v1/undo")
    assert client.get("/api/v1/faces/1").json()["box_xyxy_px"] == [0, 0, 32, 32]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("box", "status"),
    [
        ([0, 0, 0, 0], 422),
        ([5, 5, 1, 9], 422),
        ([0, 0, 1e7, 5], 422),
        ([0, 0, 16], 422),
        ([0, 0, "16", 16], 422),
        ([100, 100, 140, 140], 409),  # beside the photo
        ([0, 0, 1e-250, 1e-250], 409),
        ([0, 0, 32, 32], 409),  # a face is there
    ],
)
def test_rejects_invalid_face_box(client: TestClient, box: list[Any], status: int):
    assert client.post("/api/v1/photos/1/faces", json={"box_xyxy_px": box}).status_code == status
    assert client.post("/api/v1/photos/99/faces", json={"box_xyxy_px": [0, 0, 9, 9]}).status_code == 404
