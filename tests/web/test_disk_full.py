"""A disk that is full: a clear answer, nothing lost, and work that goes on when there is room."""

import io
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from familiar.gallery.store.store import Store
from familiar.gallery.transfer.check import check
from familiar.web.server import make_app
from familiar.web.service import Service
from familiar.web.settings import Settings
from support.small_disk import fill, small_disk

pytestmark = pytest.mark.slow

PROGRAM = {"base_url": "http://127.0.0.1:8000", "client": ("127.0.0.1", 5000)}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 4) as folder:
        yield folder


@pytest.fixture
def settings(disk: Path, folder: Path, mean_color_bundle: Path) -> Settings:
    shutil.copytree(folder, disk / "album")
    return Settings(gallery=disk / "album", models=(mean_color_bundle,))


def photo(seed: int, side_px: int = 150) -> bytes:
    """Return a PNG of noise, which does not compress: 3 bytes a pixel."""
    content = io.BytesIO()
    noise = np.random.default_rng(seed).integers(0, 256, (side_px, side_px, 3), np.uint8)
    Image.fromarray(noise).save(content, "PNG")
    return content.getvalue()


def enroll(client: TestClient, content: bytes) -> dict[str, Any]:
    """Upload a photo, and return its job when it has ended, or the problem."""
    answer = client.post("/api/v1/photos", files={"files": ("a.png", content)}).json()
    while answer.get("state") in ("waiting", "processing", "clustering"):
        time.sleep(0.02)
        answer = client.get(f"/api/v1/jobs/{answer['number']}").json()
    return answer


def uploads(settings: Settings) -> set[str]:
    return {path.name for path in (settings.gallery / "photos").rglob("*") if path.is_file()}


def test_upload_and_edit_on_full_disk_change_nothing_and_work_again_with_room(disk: Path, settings: Settings) -> None:
    with TestClient(make_app(Service(settings)), **PROGRAM) as client:
        assert enroll(client, photo(0))["state"] == "done"
        before, listed = uploads(settings), client.get("/api/v1/photos").json()
        filler = fill(disk)
        problem = enroll(client, photo(1))
        assert (problem["status"], problem["title"]) == (507, "Insufficient Storage")
        assert problem["type"] == "urn:familiar:problem:cannot-write"
        assert "No space left on device" in problem["detail"]
        assert uploads(settings) == before, "no part of it, and no temporary file"
        edits = [client.patch("/api/v1/identities/1", json={"name": f"Mia {n}"}) for n in range(100)]
        refused = [edit for edit in edits if edit.status_code != 200]
        assert {edit.status_code for edit in refused} == {507}
        assert "the disk is full" in refused[0].json()["detail"]
        assert client.get("/api/v1/photos").json()["items"][-1] == listed["items"][-1], "it can be read"
        filler.unlink()
        assert client.patch("/api/v1/identities/1", json={"name": "Mia"}).status_code == 200
        assert enroll(client, photo(1))["photos"] == 1
    with Store.open(settings.gallery) as gallery:
        assert not check(gallery).problems


def test_photo_whose_row_finds_no_room_is_enrolled_after_restart(disk: Path, settings: Settings) -> None:
    with TestClient(make_app(Service(settings)), **PROGRAM) as client:
        filler, job = fill(disk), {}
        for seed in range(50):  # the database's log has some room of its own
            os.truncate(filler, filler.stat().st_size - 68 * 1024)  # room for the file
            job = enroll(client, photo(seed))
            if job["state"] == "failed":
                break
        assert "the disk is full" in job["error"]
        listed = {each["sha256"] for each in client.get("/api/v1/photos?limit=500").json()["items"]}
    files = uploads(settings)
    (unlisted,) = {name for name in files if name[:64] not in {sha256.lower() for sha256 in listed}}
    filler.unlink()
    with TestClient(make_app(Service(settings)), **PROGRAM) as client:
        while client.get("/api/v1/jobs").json()[0]["state"] != "done":
            time.sleep(0.02)
        listed = {each["sha256"].lower() for each in client.get("/api/v1/photos?limit=500").json()["items"]}
        assert unlisted[:64] in listed
    with Store.open(settings.gallery) as gallery:
        assert not check(gallery).problems


def test_full_folder_of_temporary_files_is_named(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "temporary", 2) as temporary:
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        large = photo(0, 900)  # 2.4 MB
        for path, field in (("/api/v1/detect", "files"), ("/api/v1/photos", "files"), ("/search", "photo")):
            answer = client.post(path, files={field: ("a.png", large)})
            assert answer.status_code == 507, path
            assert "temporary files cannot be written (No space left on device)" in answer.text
        assert list(temporary.iterdir()) == []
        assert client.post("/api/v1/detect", files={"files": ("a.png", photo(0, 600))}).status_code == 200
