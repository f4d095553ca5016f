"""Session cookies: signature, expiry, and an end that outlasts a restart."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import itsdangerous
import pytest
from starlette.testclient import TestClient

from familiar.core.errors import CannotWrite
from familiar.web.middleware import sessions
from familiar.web.middleware.sessions import LIFETIME_SECONDS, EndedSessions, cookie_name
from familiar.web.settings import Settings
from support.middleware import BASE_URL, BROWSER, COOKIE, LOCKED, OPEN, TOKEN, browser, logged_in


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Of a server that has a folder for its file."""
    return replace(LOCKED, gallery=tmp_path)


def opens_page(settings: Settings, cookies: dict[str, str]) -> bool:
    """Tell whether a server that was just started takes a cookie."""
    client = browser(settings)
    client.cookies.update(cookies)
    return client.get("/", headers=BROWSER).status_code == 200


def test_cookie_is_strict_and_secure_over_https() -> None:
    for base_url, prefix, secure in ((BASE_URL, "", set()), ("https://localhost:8000", "__Host-", {"secure"})):
        answer = browser(LOCKED, base_url).post("/login", data={"token": TOKEN})
        name, *rest = answer.headers["Set-Cookie"].split("; ")
        assert name.startswith(f"{prefix}{COOKIE}=")
        assert set(rest) == {"httponly", "samesite=strict", "path=/", f"Max-Age={LIFETIME_SECONDS}"} | secure


def test_cookie_of_a_proxy_that_terminates_tls_is_secure_too() -> None:
    headers = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "192.168.1.7"}
    for address, secure in (("127.0.0.1", True), ("192.168.1.9", False)):  # who is not on this machine may say anything
        answer = browser(LOCKED, address=address).post("/login", data={"token": TOKEN}, headers=headers)
        assert ("secure" in answer.headers["Set-Cookie"]) == secure


def test_cookie_of_https_is_bound_to_this_host_and_to_https() -> None:
    client = logged_in(LOCKED, "https://localhost:8000")
    ((name, value),) = client.cookies.items()
    assert name == f"__Host-{COOKIE}"
    client.cookies.clear()
    for sent, scheme, status in (
        (name, "https", 401),  # another server: without a folder, each has a secret of its own
        (COOKIE, "https", 401),
        (name, "http", 401),
    ):
        other = browser(LOCKED, base_url=f"{scheme}://localhost:8000")
        assert other.get("/api/v1/faces", headers={"Cookie": f"{sent}={value}"}).status_code == status
    assert client.get("/api/v1/faces", headers={"Cookie": f"{name}={value}"}).status_code == 200
    assert client.get("/api/v1/faces", headers={"Cookie": f"{COOKIE}={value}"}).status_code == 401


def test_only_a_login_starts_a_session() -> None:
    for settings, path in ((OPEN, "/"), (OPEN, "/login"), (LOCKED, "/login"), (LOCKED, "/")):
        assert "Set-Cookie" not in browser(settings).get(path, headers=BROWSER).headers


def test_rejects_tampered_cookie(settings: Settings) -> None:
    good = logged_in(settings).cookies[cookie_name(settings.session_name)]
    content, time, signature = good.split(".")
    other_key = itsdangerous.TimestampSigner("another secret").sign(content).decode()
    forged = [f"{content}.{time}.{signature[:-1]}", f"{content}.{time}", content, other_key, "", "x" * 4_000, "null"]
    assert opens_page(settings, {cookie_name(settings.session_name): good})
    for value in forged:
        assert not opens_page(settings, {cookie_name(settings.session_name): value}), value


def test_session_expires(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    cookies = dict(logged_in(settings).cookies)
    began = sessions.time.time()
    for seconds, holds in ((LIFETIME_SECONDS - 5, True), (LIFETIME_SECONDS + 5, False)):
        now = int(began + seconds)
        monkeypatch.setattr(itsdangerous.TimestampSigner, "get_timestamp", lambda _, now=now: now)
        assert opens_page(settings, cookies) == holds


def test_log_out_ends_the_session_also_after_a_restart(settings: Settings) -> None:
    client, other = logged_in(settings), logged_in(settings)
    cookies = dict(client.cookies)
    assert opens_page(settings, cookies)
    assert client.post("/logout", headers={"Origin": "http://evil.example"}).status_code == 403
    answer = client.post("/logout")
    assert (answer.status_code, answer.headers["Location"]) == (303, "/login")
    assert not client.cookies
    client.cookies.update(cookies)
    assert client.get("/api/v1/faces").status_code == 401, "a copy of the cookie"
    assert not opens_page(settings, cookies)
    assert opens_page(settings, dict(other.cookies)), "another browser's"


def test_new_token_ends_all_sessions_also_after_a_restart(settings: Settings) -> None:
    cookies = dict(logged_in(settings).cookies)
    assert not opens_page(replace(settings, token="another token of this album"), cookies)
    assert opens_page(settings, cookies)


def test_new_login_ends_the_old_session_of_the_browser(settings: Settings) -> None:
    client = logged_in(settings)
    old = dict(client.cookies)
    client.post("/login", data={"token": TOKEN})
    assert opens_page(settings, dict(client.cookies))
    assert not opens_page(settings, old)


# --- the file --------------------------------------------------------------------------------------------------------


def test_ended_sessions_are_remembered_until_they_would_expire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = EndedSessions(tmp_path / "sessions.json")
    ended.add("first")
    now = sessions.time.time()
    monkeypatch.setattr(sessions.time, "time", lambda: now + LIFETIME_SECONDS + 1)
    ended.add("second")
    for known in (ended, EndedSessions(tmp_path / "sessions.json")):
        assert "second" in known
        assert "first" not in known


def test_file_is_private_and_sessions_end_when_it_is_lost(settings: Settings) -> None:
    cookies = dict(logged_in(settings).cookies)
    path = settings.session_file
    assert path.stat().st_mode & 0o777 == 0o600
    assert opens_page(settings, cookies)
    path.unlink()
    assert not opens_page(settings, cookies)


@pytest.mark.one_case
@pytest.mark.parametrize(
    "content",
    [
        "",
        "[" * 100_000,
        "[1]",
        '{"format": "familiar-sessions/2", "secret": "00", "ended": {}}',
        '{"format": "familiar-sessions/1", "secret": 1, "ended": {}}',
        json.dumps({"format": "familiar-sessions/1", "secret": "0" * 64, "ended": {"a": "1"}}),
    ],
)
def test_damaged_file_is_replaced(tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "sessions.json"
    path.write_text(content)
    secret = EndedSessions(path).secret
    assert EndedSessions(path).secret == secret
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: damaged, and made anew; all browsers have to log in again"
    ]


def test_folder_that_cannot_be_written_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise CannotWrite("the disk is full")

    monkeypatch.setattr(sessions, "write_atomically", fail)
    caplog.set_level(logging.WARNING)
    ended = EndedSessions(tmp_path / "sessions.json")
    ended.add("a")
    assert "a" in ended
    assert len(caplog.records) == 2
    assert "the disk is full; a restart ends the sessions" in caplog.text


def test_two_galleries_of_one_machine_have_different_cookies() -> None:
    assert len({cookie_name(name) for name in ("/a/album", "/b/album", "familiar")}) == 3


def test_server_without_a_folder_starts(tmp_path: Path) -> None:
    client: TestClient = logged_in(replace(LOCKED, gallery=tmp_path / "missing"))
    assert client.get("/", headers=BROWSER).status_code == 200
    assert not (tmp_path / "missing").exists()
