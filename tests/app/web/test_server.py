"""The application as one, and the process that serves it: what it says when things go wrong, and how it stops."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from familiar.app.web import server
from familiar.app.web.service import Service
from familiar.app.web.settings import SHORTEST_TOKEN, Settings
from familiar.core.errors import BadGallery, FamiliarError, SpaceMismatch
from familiar.faces.tensor import Preprocessing
from familiar.gallery.store import Gallery
from familiar.gallery.who import who_is_who
from random_bundle import random_bundle

SECRET = "the neighbour's cat.jpg"


@pytest.fixture
def broken(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """An app with a mistake in it."""
    make = server._application

    def with_a_mistake(service: Service) -> FastAPI:
        app = make(service)

        async def fails() -> None:
            raise RuntimeError(SECRET)

        app.add_api_route("/api/v1/fails", fails)
        app.add_api_route("/fails", fails)
        return app

    monkeypatch.setattr(server, "_application", with_a_mistake)
    with TestClient(
        server.make_app(service), base_url="http://127.0.0.1:8000", client=("127.0.0.1", 5)
    ) as client:
        yield client


@pytest.mark.parametrize("path", ["/api/v1/fails", "/fails"])
def test_a_mistake_of_ours_tells_nobody_what_it_was_about(
    broken: TestClient, path: str, caplog: pytest.LogCaptureFixture
):
    answer = broken.get(path, headers={"Accept": "text/html"})
    assert answer.status_code == 500
    assert SECRET not in answer.text + caplog.text
    assert "RuntimeError" in caplog.text
    assert "in fails" in caplog.text  # where it happened
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-type"].startswith(
        "application/problem+json" if "api" in path else "text/html"
    )


def test_what_is_not_there_is_a_problem_for_programs_and_a_page_for_people(client: TestClient):
    program = client.get("/api/v1/identities/99")
    assert program.status_code == 404
    assert program.headers["content-type"] == "application/problem+json"
    assert program.json()["type"] == "urn:familiar:problem:not-in-gallery"
    assert client.get("/api/v1/nothing").json()["status"] == 404
    person = client.get("/nothing", headers={"Accept": "text/html"})
    assert person.status_code == 404
    assert "<h1" in person.text


def test_a_wrong_request_is_told_what_is_wrong_and_not_what_it_sent(client: TestClient):
    answer = client.post("/api/v1/search", json={"face": SECRET})
    assert answer.status_code == 422
    assert "body/face" in answer.json()["detail"]
    assert SECRET not in answer.text


def test_healthy(client: TestClient):
    assert client.get("/healthz").text == "ok"


def test_others_may_not_reach_it_without_a_token(folder: Path):
    for address in ("0.0.0.0", "::", "192.168.0.7", "example.org"):
        with pytest.raises(FamiliarError, match="token"):
            Settings(gallery=folder, address=address)
        Settings(gallery=folder, address=address, token="t" * SHORTEST_TOKEN)
    for address in ("127.0.0.1", "localhost", "::1", "127.8.8.8"):
        Settings(gallery=folder, address=address)
    with pytest.raises(FamiliarError, match=f"{SHORTEST_TOKEN} ASCII"):
        Settings(gallery=folder, token="short")


def test_a_gallery_is_made_where_there_is_none_and_a_model_says_of_what(
    tmp_path: Path, mean_colour_bundle: Path
):
    with pytest.raises(BadGallery, match="--model"):
        Service(Settings(gallery=tmp_path / "none"))
    with pytest.raises(BadGallery, match="holds no gallery"):
        Service(Settings(gallery=tmp_path / "none", model=mean_colour_bundle, read_only=True))
    service = Service(Settings(gallery=tmp_path / "new", model=mean_colour_bundle))
    with service.threads.beside() as gallery:
        assert gallery.space.space_id == "mean-colour"
    service.threads.close()
    service.pictures.close()


def test_another_model_is_refused(folder: Path, random_other: Path):
    with pytest.raises(SpaceMismatch, match="migrate"):
        Service(Settings(gallery=folder, model=random_other))


@pytest.fixture
def random_other(tmp_path: Path, photos: list[Path]) -> Path:
    return random_bundle(tmp_path / "other.onnx", photos, Preprocessing(size_px=32, resize_px=32))


# --- the process -----------------------------------------------------------------------------------------------------


@pytest.fixture
def process(folder: Path, mean_colour_bundle: Path) -> Iterator["subprocess.Popen[str]"]:
    command = [
        sys.executable,
        "-m",
        "familiar",
        "serve",
        folder,
        "--model",
        mean_colour_bundle,
        "--port",
        "0",
    ]
    started = subprocess.Popen(
        list(map(str, command)), stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    yield started
    started.kill()
    started.wait()
    assert started.stderr is not None
    started.stderr.close()


def port_of(process: "subprocess.Popen[str]") -> int:
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"open http://127\.0\.0\.1:(\d+)/ in a browser", line):
            return int(found[1])
    raise AssertionError("it did not start")


@pytest.mark.slow
def test_stopping_finishes_what_is_under_way_and_ends_streams(
    process: "subprocess.Popen[str]", photos: list[Path]
):
    port = port_of(process)
    with (
        contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection,
        contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as watching,
    ):
        body = json.dumps({"folder": str(photos[0].parent)})
        connection.request("POST", "/api/v1/photos/folder", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 202
        job = json.loads(answer.read())["number"]
        watching.request("GET", f"/api/v1/jobs/{job}/events")
        stream = watching.getresponse()
        process.send_signal(signal.SIGTERM)
        assert b'"state"' in stream.read()  # to its end
        assert process.wait(60) in (0, -signal.SIGTERM)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=1)


@pytest.mark.slow
def test_a_port_that_is_taken(folder: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-m", "familiar", "serve", str(folder), "--port", port],
            capture_output=True,
            text=True,
        )
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1, port {port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_a_request_is_about_is_not_logged(client: TestClient, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO")
    client.patch("/api/v1/identities/1", json={"name": "Mia Muster"})
    client.get("/api/v1/names?beginning=Mia")
    client.get("/api/v1/faces/1/image?side=64")
    ours = [record.getMessage() for record in caplog.records if record.name == "familiar.serve"]
    assert [line.split()[:2] for line in ours] == [["PATCH", "/api/v1/*"], *[["GET", "/api/v1/*"]] * 2]
    for word in ("Mia", "red1", "side=64"):
        assert word not in " ".join(ours)


def test_what_was_written_is_there_when_it_stopped(service: Service, folder: Path):
    with TestClient(
        server.make_app(service), base_url="http://127.0.0.1:8000", client=("127.0.0.1", 5)
    ) as client:
        threads = [
            threading.Thread(
                target=client.patch,
                args=(f"/api/v1/identities/{number}",),
                kwargs={"json": {"name": f"N{number}"}},
            )
            for number in (1, 2, 3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with Gallery.open(folder) as gallery:
        assert set(who_is_who(gallery).names.values()) == {"N1", "N2", "N3"}
