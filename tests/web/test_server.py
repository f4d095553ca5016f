"""The application and its process: errors, start and shutdown."""

import contextlib
import http.client
import ipaddress
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner
from fastapi import FastAPI
from starlette.testclient import TestClient

from familiar.cli.commands.serve import serve
from familiar.core.errors import BadGallery, FamiliarError, SpaceMismatch
from familiar.gallery.same.assignments import load_assignments
from familiar.gallery.store.store import Store
from familiar.photos.preprocessing import Preprocessing
from familiar.web import server
from familiar.web.access_token import MIN_TOKEN_CHARACTERS
from familiar.web.service import Service
from familiar.web.settings import ServerSettings, Settings
from support.middleware import CERTIFICATE, KEY, TOKEN
from support.random_bundle import random_bundle

pytestmark = pytest.mark.slow

SECRET = "the neighbor's cat.jpg"


@pytest.fixture
def broken(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """An app that raises an unexpected exception."""
    make = server._application

    def with_failing_route(service: Service) -> FastAPI:
        app = make(service)

        async def fails() -> None:
            raise RuntimeError(SECRET)

        app.add_api_route("/api/v1/fails", fails)
        app.add_api_route("/fails", fails)
        return app

    monkeypatch.setattr(server, "_application", with_failing_route)
    with TestClient(server.make_app(service), base_url="http://127.0.0.1:8000", client=("127.0.0.1", 5)) as client:
        yield client


@pytest.mark.parametrize("path", ["/api/v1/fails", "/fails"])
def test_internal_error_hides_exception_message(broken: TestClient, path: str, caplog: pytest.LogCaptureFixture):
    answer = broken.get(path, headers={"Accept": "text/html"})
    assert answer.status_code == 500
    assert SECRET not in answer.text + caplog.text
    assert "RuntimeError" in caplog.text
    assert "in fails" in caplog.text  # where it happened
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-type"].startswith("application/problem+json" if "api" in path else "text/html")


def test_missing_path_returns_json_to_programs_html_to_browsers(client: TestClient):
    program = client.get("/api/v1/identities/99")
    assert program.status_code == 404
    assert program.headers["content-type"] == "application/problem+json"
    assert program.json()["type"] == "urn:familiar:problem:not-in-gallery"
    assert client.get("/api/v1/nothing").json()["status"] == 404
    person = client.get("/nothing", headers={"Accept": "text/html"})
    assert person.status_code == 404
    assert "<h1" in person.text


def test_validation_error_names_field_without_its_value(client: TestClient):
    answer = client.post("/api/v1/search", json={"face": SECRET})
    assert answer.status_code == 422
    assert "body/face" in answer.json()["detail"]
    assert SECRET not in answer.text


def test_healthz_returns_ok(client: TestClient):
    assert client.get("/healthz").text == "ok"


def test_public_address_requires_token(folder: Path):
    for address in ("0.0.0.0", "::", "192.168.0.7", "example.org"):
        with pytest.raises(FamiliarError, match="token"):
            Settings(gallery=folder, address=address)
        Settings(gallery=folder, address=address, token="t" * MIN_TOKEN_CHARACTERS)
    for address in ("127.0.0.1", "localhost", "::1", "127.8.8.8"):
        Settings(gallery=folder, address=address)
    with pytest.raises(FamiliarError, match=f"{MIN_TOKEN_CHARACTERS} ASCII"):
        Settings(gallery=folder, token="short")


def test_new_gallery_is_for_pets_and_people_unless_a_model_is_named(tmp_path: Path, mean_color_bundle: Path):
    for models, expected in (
        ((), ("cat,dog=pet-mobile", "person=person-mobile")),
        ((mean_color_bundle,), (str(mean_color_bundle),)),
    ):
        service = Service(Settings(gallery=tmp_path / str(len(models)), models=models))
        with service.executor.connect() as gallery:
            assert gallery.model_reference.models == expected
        service.executor.close()
        service.thumbnails.close()


def test_new_gallery_requires_write_access(tmp_path: Path):
    with pytest.raises(BadGallery, match="no gallery; leave out --read-only"):
        Service(Settings(gallery=tmp_path / "none", read_only=True))


def test_rejects_model_from_another_space(folder: Path, random_other: Path):
    with pytest.raises(SpaceMismatch, match="migrate"):
        Service(Settings(gallery=folder, models=(random_other,)))


@pytest.fixture
def random_other(tmp_path: Path, photos: list[Path]) -> Path:
    return random_bundle(tmp_path / "other.onnx", photos, Preprocessing(size_px=32, resize_px=32))


# --- the process -----------------------------------------------------------------------------------------------------


@pytest.fixture
def process(folder: Path, mean_color_bundle: Path) -> Iterator["subprocess.Popen[str]"]:
    command = [
        sys.executable,
        "-m",
        "familiar",
        "serve",
        folder,
        "--model",
        mean_color_bundle,
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
        if match := re.search(r"open https?://127\.0\.0\.1:(\d+)/ in a browser", line):
            return int(match[1])
    raise AssertionError("it did not start")


def test_sigterm_ends_event_streams_and_exits(process: "subprocess.Popen[str]", photos: list[Path]):
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


@pytest.mark.exhaustive
def test_sigint_exits_cleanly(process: "subprocess.Popen[str]"):
    assert process.stderr is not None
    for line in process.stderr:
        if "startup complete" in line:
            break
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    assert "Aborted" not in process.stderr.read()


@pytest.mark.exhaustive
def test_rejects_port_in_use(folder: Path):
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


STUCK = """
import sys, time
from pathlib import Path
from familiar.web.jobs import JobQueue
from familiar.web.server import serve
from familiar.web.settings import Limits, Settings

async def start(self):
    self._pool.submit(time.sleep, 60)

JobQueue.start = start
limits = Limits(stop_seconds=float(sys.argv[2]))
settings = Settings(gallery=Path(sys.argv[1]), port=0, limits=limits)
serve(settings, lambda url: print(f"open {url} in a browser", file=sys.stderr))
"""


@pytest.mark.exhaustive
@pytest.mark.one_case
@pytest.mark.parametrize(("stop_seconds", "signals"), [(0.5, [signal.SIGTERM]), (50.0, [signal.SIGINT] * 2)])
def test_stop_does_not_wait_for_stuck_job(folder: Path, stop_seconds: float, signals: list[signal.Signals]):
    command = [sys.executable, "-c", STUCK, str(folder), str(stop_seconds)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as stuck:
        try:
            address = ("127.0.0.1", port_of(stuck))
            with contextlib.closing(http.client.HTTPConnection(*address, timeout=30)) as asking:
                asking.request("GET", "/healthz")
                assert asking.getresponse().status == 200
            for received_signal in signals:
                stuck.send_signal(received_signal)
                time.sleep(0.5)
            assert stuck.wait(20) == 1
            assert stuck.stderr is not None
            assert "in the middle of a job" in stuck.stderr.read()
        finally:
            stuck.kill()


@pytest.mark.exhaustive
def test_malformed_form_is_not_logged(process: "subprocess.Popen[str]"):
    port = port_of(process)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        form = {"Content-Type": "multipart/form-data; boundary=x"}
        connection.request("POST", "/api/v1/detect", b"--x\r\nA b: c\r\n\r\n\r\n--x--", form)
        assert connection.getresponse().status in (400, 422)
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    assert process.stderr is not None
    assert "WARNING" not in process.stderr.read()


def refused(*arguments: str | Path) -> str:
    """Return the last line that `familiar serve` prints if it does not start."""
    done = subprocess.run(
        [sys.executable, "-m", "familiar", "serve", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"FAMILIAR_TOKEN": "t" * MIN_TOKEN_CHARACTERS},
    )
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr.splitlines()[-1]


@pytest.mark.one_case
@pytest.mark.parametrize(("content", "reason"), [(b"\xff\xfe" * 20, "not a text file"), (b" \n", "empty")])
def test_rejects_token_file_without_token(folder: Path, tmp_path: Path, content: bytes, reason: str):
    (tmp_path / "token").write_bytes(content)
    arguments = refused(folder, "--port", "0", "--token-file", tmp_path / "token")
    assert f"{tmp_path / 'token'}: {reason}; write the token to it" in arguments


def test_refuses_token_file_together_with_no_token(folder: Path, tmp_path: Path):
    (tmp_path / "token").write_text("t" * MIN_TOKEN_CHARACTERS)
    done = CliRunner().invoke(serve, [str(folder), "--no-token", "--token-file", str(tmp_path / "token")])
    assert done.exit_code == 2
    assert "give --token-file or --no-token, not both" in done.output


def test_refuses_old_versions_of_tls(folder: Path, tmp_path: Path):
    (tmp_path / "both.pem").write_text(CERTIFICATE + KEY)
    both = tmp_path / "both.pem"
    context = server._tls(Settings(gallery=folder, certificate=both, certificate_key=both))
    assert context is not None
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert all(int(cipher["strength_bits"]) >= 128 for cipher in context.get_ciphers())


def test_lists_no_folder(client: TestClient):
    for path in ("/static", "/static/", "/static/%2e%2e/server.py", "/.git/config", "/static/.git/"):
        assert client.get(path).status_code in (404, 405), path


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "OPTIONS", "PROPFIND"])
def test_refuses_methods_that_are_not_used(client: TestClient, method: str):
    answer = client.request(method, "/api/v1/photos")
    assert answer.status_code == 405
    assert "Authorization" not in answer.text
    assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.exhaustive
@pytest.mark.one_case
@pytest.mark.parametrize("address", ["a..b", "x.invalid"])
def test_rejects_unknown_address(folder: Path, address: str):
    arguments = refused(folder, "--port", "0", "--address", address)
    assert f"{address}: unknown address" in arguments


OTHER_KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgC3rTm8IhPuFKegLV
g/lbpU8zMMVzco6R+zhjzvgJeAShRANCAAQy39tv8pqR2jpXNXxTQ2IhJ/yycITa
Ym6xlsnafYQP4d+2VTbO0fCauDJV217ZJZjM71YXgOB8jeeASf6aHxUj
-----END PRIVATE KEY-----
"""


@pytest.mark.parametrize(
    ("certificate", "key", "reason"),
    [
        (None, KEY, "certificate.pem: No such file"),
        (CERTIFICATE, None, "key.pem: No such file"),
        (CERTIFICATE, OTHER_KEY, "key.pem: does not belong to"),
        (CERTIFICATE, CERTIFICATE, "are not a certificate chain and its key"),
        ("nonsense", KEY, "are not a certificate chain and its key"),
        (CERTIFICATE, "", "are not a certificate chain and its key"),
    ],
)
def test_rejects_invalid_certificate_before_start(
    folder: Path, tmp_path: Path, certificate: str | None, key: str | None, reason: str
):
    files = tmp_path / "certificate.pem", tmp_path / "key.pem"
    for file, content in zip(files, (certificate, key), strict=True):
        if content is not None:
            file.write_text(content)
    settings = Settings(gallery=folder, port=0, certificate=files[0], certificate_key=files[1])
    urls: list[str] = []
    with pytest.raises(FamiliarError, match=reason):
        server.serve(settings, urls.append)
    assert urls == []


@pytest.mark.exhaustive
def test_https_sets_secure_cookie(folder: Path, tmp_path: Path):
    (tmp_path / "certificate.pem").write_text(CERTIFICATE)
    (tmp_path / "key.pem").write_text(KEY)
    command = [sys.executable, "-m", "familiar", "serve", folder, "--port", "0"]
    command += ["--certificate", tmp_path / "certificate.pem", "--certificate-key", tmp_path / "key.pem"]
    environment = os.environ | {"FAMILIAR_TOKEN": TOKEN}
    with subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            port = port_of(process)
            trusting = ssl.create_default_context(cafile=tmp_path / "certificate.pem")
            trusting.verify_flags &= ~ssl.VERIFY_X509_STRICT
            asking = http.client.HTTPSConnection("localhost", port, timeout=30, context=trusting)
            with contextlib.closing(asking):
                form = {"Content-Type": "application/x-www-form-urlencoded"}
                asking.request("POST", "/login", f"token={TOKEN}", form)
                answer = asking.getresponse()
                assert answer.status == 303
                assert "secure" in answer.headers["Set-Cookie"]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def test_log_omits_request_content(client: TestClient, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO")
    client.patch("/api/v1/identities/1", json={"name": "Mia Muster"})
    client.get("/api/v1/names?prefix=Mia")
    client.get("/api/v1/faces/1/image?side=64")
    ours = [record.getMessage() for record in caplog.records if record.name == "familiar.serve"]
    assert [line.split()[:2] for line in ours] == [["PATCH", "/api/v1/*"], *[["GET", "/api/v1/*"]] * 2]
    for word in ("Mia", "red1", "side=64"):
        assert word not in " ".join(ours)


def test_concurrent_writes_persist_after_stop(service: Service, folder: Path):
    with TestClient(server.make_app(service), base_url="http://127.0.0.1:8000", client=("127.0.0.1", 5)) as client:
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
    with Store.open(folder) as gallery:
        assert set(load_assignments(gallery).names.values()) == {"N1", "N2", "N3"}


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_address_to_open_is_one_that_others_reach(address: str) -> None:
    url = urlsplit(server._url(ServerSettings(address=address, token=16 * "t"), 8000))
    assert url.port == 8000
    assert url.hostname not in ("0.0.0.0", "::", None)
    assert ipaddress.ip_address(url.hostname)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this system has no sockets of both families")
def test_double_colon_serves_both_families() -> None:
    with server._listen(ServerSettings(address="::", token=16 * "t", port=0)) as listening:
        port = listening.getsockname()[1]
        for address in ("127.0.0.1", "::1"):
            socket.create_connection((address, port), timeout=5).close()
