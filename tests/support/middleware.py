"""A tiny app behind the middleware, and browsers and bare requests that use it."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from familiar.web.middleware import wrap_app
from familiar.web.middleware.sessions import cookie_name
from familiar.web.settings import Settings

TOKEN = "the-token-of-this-album"
BASE_URL = "http://localhost:8000"
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
CROSS = "http://evil.example"
PATIENCE = 10.0  # seconds after which a test gives up
OPEN = Settings(gallery=Path("album"))
COOKIE = cookie_name(OPEN.session_name)
LOCKED = replace(OPEN, token=TOKEN)
SHARED = replace(LOCKED, address="192.168.1.5", hosts=("album.example",))

# For "localhost", valid for a hundred years; made for these tests, and public.
CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBmzCCAUGgAwIBAgIUUfAJi4BFYDZIZoOmybZJ9Zn+QwMwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMjExMDI0NVoYDzIxMjYxMDI5
MTEwMjQ1WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAATHaVtuJ7Bd8P/mLJH2UufvFLQntVMdwEBSG+0sEV3xj1Ck35qBXHNQ
BFkYFrJJ1J+KU+8tzValNP9hI0StHUwxo28wbTAdBgNVHQ4EFgQUf9d93GLOviLi
AUZ7sJIqFIhVfEQwHwYDVR0jBBgwFoAUf9d93GLOviLiAUZ7sJIqFIhVfEQwDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDSAAwRQIhAMaGoUg+82Q1VA61XRyigpZFxhSavJQZmivyMUq0x2mwAiBQ
N80DNQICjt+tZ4lV2kWa3EML6StWEA4KF9ApkKHwOQ==
-----END CERTIFICATE-----
"""
KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgTOBIQhB091S8eiHY
ovDvXRKzUuOX+NP9+Qw6QzvgkPuhRANCAATHaVtuJ7Bd8P/mLJH2UufvFLQntVMd
wEBSG+0sEV3xj1Ck35qBXHNQBFkYFrJJ1J+KU+8tzValNP9hI0StHUwx
-----END PRIVATE KEY-----
"""


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; fail if it does not."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with a page; a write with JSON; /unchanged with 304."""
    request = Request(scope, receive)
    await request.body()
    headers = {"Server": "familiar/1", "X-Frame-Options": "ALLOWALL"}
    answer: Response = HTMLResponse("a page", headers=headers)
    if scope["path"] == "/unchanged":
        answer = Response(status_code=304, headers={"Cache-Control": "max-age=60", "ETag": '"1"'})
    elif request.method not in ("GET", "HEAD"):
        answer = JSONResponse({"written": True})
    await answer(scope, receive, send)


def browser(settings: Settings, base_url: str = BASE_URL, address: str = "127.0.0.1") -> TestClient:
    return TestClient(wrap_app(app, settings), base_url=base_url, client=(address, 5000), follow_redirects=False)


def logged_in(settings: Settings, base_url: str = BASE_URL) -> TestClient:
    """Return a browser with the session of a login."""
    client = browser(settings, base_url)
    assert client.post("/login", data={"token": TOKEN}).status_code == 303
    return client


def scope_of(method: str, path: str, headers: Sequence[tuple[str, str]] = (), **more: Any) -> Scope:
    """Make the scope of a request as uvicorn does. `headers`: all of them."""
    raw_path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": raw_path,
        "raw_path": raw_path.encode(),
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers],
        "client": ("127.0.0.1", 5000),
        "server": ("127.0.0.1", 8000),
        "state": {},
    }
    return scope | more


def messages_of(chain: ASGIApp, scope: Scope) -> list[Message]:
    """Return all messages of the response to a request without a body."""
    messages: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        messages.append(message)

    async def ask() -> None:
        await chain(scope, receive, send)

    asyncio.run(ask())
    return messages


def status_of(chain: ASGIApp, scope: Scope) -> int:
    return messages_of(chain, scope)[0]["status"]
