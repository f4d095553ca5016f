"""The web server behind nginx and Caddy, as the page on deploying it says, with the real programs."""

import asyncio
import contextlib
import resource
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from serving.proxies import Certificate, NotInstalled, caddy_before, nginx_before

from familiar.web.settings import Settings
from support.middleware import CERTIFICATE, KEY, TOKEN
from support.server import running_server
from support.tiers import small_and_exhaustive

pytestmark = pytest.mark.slow

NAME = "album.example"
USERS_REQUESTS = 30


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    files = tmp_path / "certificate.pem", tmp_path / "key.pem"
    for file, content in zip(files, (CERTIFICATE, KEY), strict=True):
        file.write_text(content)
    return files


@contextlib.contextmanager
def behind(
    proxy: Callable[..., contextlib.AbstractContextManager[str]], url: str, folder: Path, certificate: Certificate
) -> Iterator[str]:
    """Run a proxy with TLS and provide its URL; skip the test if it is not installed."""
    try:
        with proxy(url, folder, certificate) as proxied:
            yield proxied
    except NotInstalled as error:
        pytest.skip(str(error))


@pytest.fixture(params=[nginx_before, caddy_before], ids=["nginx", "caddy"])
def proxied(
    request: pytest.FixtureRequest, settings: Settings, tmp_path: Path, certificate: Certificate
) -> Iterator[str]:
    with served(settings) as url, behind(request.param, url, tmp_path / "proxy", certificate) as proxied:
        yield proxied


def served(settings: Settings) -> contextlib.AbstractContextManager[str]:
    return running_server(replace(settings, token=TOKEN, hosts=(NAME,)))


def browser(url: str) -> httpx2.Client:
    """Return a browser that knows the proxy by its name, and trusts it."""
    headers = {"Host": f"{NAME}:{urlsplit(url).port}", "Accept": "text/html"}
    return httpx2.Client(base_url=url, headers=headers, verify=trusting(), trust_env=False, follow_redirects=False)


def trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def test_pages_and_uploads_work_behind_a_proxy(proxied: str, photos: list[Path]):
    with browser(proxied) as client:
        assert client.get("/album").headers["location"] == "/login?next=%2Falbum"
        done = client.post("/login", data={"token": TOKEN}, headers={"Origin": f"https://{client.headers['Host']}"})
        assert (done.status_code, done.headers["location"]) == (303, "/")
        assert done.headers["set-cookie"].startswith("__Host-")
        client.headers["Cookie"] = done.headers["set-cookie"].partition(";")[0]
        assert client.get("/album").status_code == 200
        forged = client.post("/undo", data={"decision": "1"}, headers={"Origin": "https://evil.example"})
        assert forged.status_code == 403
        job = client.post("/api/v1/photos", files={"files": ("new.png", photos[0].read_bytes())})
        assert job.status_code == 202
        with client.stream("GET", f"/api/v1/jobs/{job.json()['number']}/events") as events:
            assert '"state":"done"' in "".join(events.iter_text())
        too_large = client.post("/api/v1/cluster", content=b" " * 5_000_000)
        assert too_large.status_code == 413


def test_name_that_the_server_does_not_have_is_refused(settings: Settings, tmp_path: Path, certificate: Certificate):
    with (
        running_server(replace(settings, token=TOKEN)) as url,
        behind(nginx_before, url, tmp_path / "proxy", certificate) as proxied,
        browser(proxied) as client,
    ):
        assert client.get("/album").status_code == 421


# --- slow clients ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", small_and_exhaustive(120, 1_000))
def test_slow_clients_do_not_keep_users_out(settings: Settings, tmp_path: Path, certificate: Certificate, count: int):
    """Without the proxy, a thousand of them exceed the connections of the server, which answers users with 503."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if soft < 4_096 <= hard else soft, hard))
    try:
        with served(settings) as url, behind(nginx_before, url, tmp_path / "proxy", certificate) as proxied:
            statuses = asyncio.run(request_among_slow_clients(proxied, count))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert statuses == [200] * USERS_REQUESTS


async def request_among_slow_clients(url: str, count: int) -> list[int]:
    """Return the statuses of users' requests while so many clients are slow."""
    opened: list[Any] = []
    slow = [asyncio.create_task(be_slow(url, number, opened)) for number in range(count)]
    end = time.monotonic() + 60
    while len(opened) < count and time.monotonic() < end:
        await asyncio.sleep(0.05)
    assert len(opened) == count
    statuses = await asyncio.to_thread(ask, url)
    for task in slow:
        task.cancel()
    await asyncio.gather(*slow, return_exceptions=True)
    return statuses


def ask(url: str) -> list[int]:
    paths = ("/individuals", "/api/v1/faces/1/image?side=128", "/api/v1/identities")
    with browser(url) as client:
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        return [client.get(paths[number % len(paths)], timeout=60).status_code for number in range(USERS_REQUESTS)]


async def be_slow(url: str, number: int, opened: list[Any]) -> None:
    """Connect, and send a head or a body a byte at a time, read no response, or say nothing; again when cut off."""
    port, kind = urlsplit(url).port, ("silent", "head", "body", "reader")[number % 4]
    head = f"Host: {NAME}\r\nAuthorization: Bearer {TOKEN}\r\n"
    first = {
        "silent": "",
        "head": "GET /album HTTP/1.1\r\nX: ",
        "body": f"POST /api/v1/search HTTP/1.1\r\n{head}Content-Length: 9999\r\n\r\n{{",
        "reader": f"GET /static/htmx.min.js HTTP/1.1\r\n{head}\r\n" * 20,
    }[kind]
    counted = False
    while True:
        security = None if kind == "silent" else trusting()
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=security, limit=1_024)
        except OSError:
            continue
        try:
            writer.write(first.encode())
            if not counted:
                opened.append(writer)
                counted = True
            while not writer.is_closing():
                await asyncio.sleep(1)
                writer.write(b" " if kind in ("head", "body") else b"")
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        await asyncio.sleep(0.5)
