"""Session cookies: signature, expiry and revocation."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from familiar.core.errors import CannotWrite
from familiar.web.access_token import AccessToken
from familiar.web.middleware import session_file
from familiar.web.middleware.session import LIFETIME_SECONDS, MAX_CLOCK_ERROR_SECONDS, Sessions, cookie_name
from familiar.web.middleware.session_file import MAX_ENDED, SessionFile
from familiar.web.settings import Settings
from support.middleware import BASE_URL, BROWSER, COOKIE, LOCKED, OPEN, TOKEN, Clock, browser, session_of


def sessions_of(token: str | None, clock: Clock, file: SessionFile | None = None) -> Sessions:
    return Sessions(OPEN.session_name, AccessToken(token, None), file or SessionFile(None), clock)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def logged_in(clock: Clock) -> TestClient:
    client = browser(LOCKED, clock)
    assert client.post("/login", data={"token": TOKEN}).status_code == 303
    return client


def test_cookie_is_strict_and_secure_over_https() -> None:
    for base_url, secure in ((BASE_URL, False), ("https://localhost:8000", True)):
        given_cookies = (
            browser(LOCKED, base_url=base_url).post("/login", data={"token": TOKEN}).headers["Set-Cookie"],
            browser(OPEN, base_url=base_url).get("/", headers=BROWSER).headers["Set-Cookie"],
        )
        for cookie in given_cookies:
            name, *rest = cookie.split("; ")
            assert re.fullmatch(("__Host-" if secure else "") + COOKIE + r"=[0-9a-f]{32}\.\d+\.[0-9a-f]{64}", name)
            assert set(rest) == {"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=2592000"} | (
                {"Secure"} if secure else set()
            )


def test_cookie_of_https_is_bound_to_this_host_and_to_https() -> None:
    client = browser(LOCKED, base_url="https://localhost:8000")
    client.post("/login", data={"token": TOKEN})
    (name,) = client.cookies
    value = client.cookies[name]
    assert name == f"__Host-{COOKIE}"
    client.cookies.clear()
    for sent, scheme, status in (
        (name, "https", 200),
        (COOKIE, "https", 401),  # another host of the domain, or one without TLS, could have planted it
        (name, "http", 401),
    ):
        other = browser(LOCKED, base_url=f"{scheme}://localhost:8000")
        assert other.get("/api/v1/faces", headers={"Cookie": f"{sent}={value}"}).status_code == status


def test_only_pages_start_a_session_and_only_once() -> None:
    client = browser(OPEN)
    for path, headers in (("/api/v1/faces", BROWSER), ("/", {}), ("/static/app.js", {"Accept": "*/*"})):
        assert "Set-Cookie" not in client.get(path, headers=headers).headers
    first = client.get("/", headers=BROWSER)
    assert first.headers["Set-Cookie"]
    assert re.fullmatch("[0-9a-f]{64}", first.text)
    second = client.get("/", headers=BROWSER)
    assert "Set-Cookie" not in second.headers
    assert second.text == first.text
    assert "Set-Cookie" not in browser(LOCKED).get("/login", headers=BROWSER).headers


def test_rejects_tampered_cookie(logged_in: TestClient) -> None:
    good = logged_in.cookies[COOKIE]
    key, ends, mac = good.split(".")
    forged = [
        f"{key}.{int(ends) + 1}.{mac}",
        f"{'0' * 32}.{ends}.{mac}",
        f"{key}.{ends}.{'0' * 64}",
        f"{key}.{ends}.{mac[:-1]}",
        f"{key}.{ends}.{mac.upper()}",
        f"{key}.{ends}",
        f"{good}0",
        f"{key}.0{ends}.{mac}",
        f'"{good}"',
        "",
        "x" * 4_000,
        sessions_of("another token here", Clock())
        .cookie(sessions_of(None, Clock()).begin(), secure=False)
        .partition(";")[0][len(COOKIE) + 1 :],
    ]
    logged_in.cookies.clear()
    for value in forged:
        headers = {"Cookie": f"{COOKIE}={value}"}
        assert logged_in.get("/api/v1/faces", headers=headers).status_code == 401, value
    both = {"Cookie": f"{COOKIE}=planted; theme=dark; {COOKIE}={good}"}
    assert logged_in.get("/api/v1/faces", headers=both).status_code == 200


def test_session_expires(logged_in: TestClient, clock: Clock) -> None:
    cookie = {"Cookie": f"{COOKIE}={logged_in.cookies[COOKIE]}"}
    clock.now += LIFETIME_SECONDS - 1
    assert logged_in.get("/", headers=cookie).status_code == 200
    clock.now += 1
    assert logged_in.get("/", headers=cookie).status_code == 401


def test_logout_invalidates_session_cookie(logged_in: TestClient) -> None:
    cookie = {"Cookie": f"{COOKIE}={logged_in.cookies[COOKIE]}"}
    token = session_of(logged_in)
    assert logged_in.post("/logout").status_code == 403, "another site must not log us out either"
    answer = logged_in.post("/logout", headers={"X-CSRF-Token": token})
    assert (answer.status_code, answer.headers["Location"]) == (303, "/login")
    assert "Max-Age=0" in answer.headers["Set-Cookie"]
    assert COOKIE not in logged_in.cookies
    assert logged_in.get("/", headers=cookie).status_code == 401


def test_sessions_survive_restart_only_with_same_token(clock: Clock) -> None:
    def value(sessions: Sessions) -> str:
        return sessions.cookie(sessions.begin(), secure=False).partition(";")[0]

    def holds(settings: Settings, cookie: str) -> bool:
        answer = browser(settings, clock).get("/", headers={"Cookie": cookie, **BROWSER})
        return "Set-Cookie" not in answer.headers and answer.status_code == 200

    assert holds(LOCKED, value(sessions_of(TOKEN, clock)))
    assert not holds(LOCKED, value(sessions_of(TOKEN + "x", clock)))
    assert not holds(OPEN, value(sessions_of(None, clock))), "without a file the key is new at each start"


def test_ended_sessions_are_remembered_until_expiry(clock: Clock) -> None:
    file = SessionFile(None)
    sessions = sessions_of(TOKEN, clock, file)
    old = sessions.begin()
    sessions.end(old)
    sessions.end(old)
    assert list(file._ended) == [old.key]
    clock.now += LIFETIME_SECONDS
    last = sessions.begin()
    sessions.end(last)
    assert list(file._ended) == [last.key], "the old one would have ended by now"
    file._ended |= {f"{n:032x}": int(clock.now) + n + 1 for n in range(MAX_ENDED)}
    sessions.end(last)
    assert len(file._ended) == MAX_ENDED
    assert file.is_ended(last.key)
    assert not file.is_ended(old.key)
    assert not file.is_ended(f"{0:032x}"), "of those that fit, it would have ended first"


def test_clock_that_is_set_neither_ends_nor_prolongs_sessions(clock: Clock) -> None:
    client = browser(LOCKED, clock)
    client.post("/login", data={"token": TOKEN})
    cookie = {"Cookie": f"{COOKIE}={client.cookies[COOKIE]}", **BROWSER}
    began = clock.now
    for change in (-3_600, -MAX_CLOCK_ERROR_SECONDS, 0, LIFETIME_SECONDS - 1):
        clock.now = began + change
        assert client.get("/", headers=cookie).status_code == 200, change
    for change in (-MAX_CLOCK_ERROR_SECONDS - 1, -10 * LIFETIME_SECONDS):
        clock.now = began + change
        assert client.get("/", headers=cookie).status_code == 303, "from a wrong clock; it would hold for too long"


# --- the file --------------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.json"


@pytest.mark.parametrize("token", [None, TOKEN])
def test_session_and_its_end_survive_restart_with_file(tmp_path: Path, clock: Clock, token: str | None) -> None:
    settings = replace(OPEN, gallery=tmp_path, token=token)
    name = cookie_name(settings.session_name)

    def opens_page(cookie: str) -> bool:
        answer = browser(settings, clock).get("/", headers={"Cookie": f"{name}={cookie}", **BROWSER})
        return answer.status_code == 200 and "Set-Cookie" not in answer.headers

    client = browser(settings, clock)
    client.post("/login", data={"token": TOKEN})
    csrf = client.get("/", headers=BROWSER).text
    cookie = client.cookies[name]
    assert opens_page(cookie)
    write = {"Cookie": f"{name}={cookie}", "X-CSRF-Token": csrf, "Origin": BASE_URL}
    assert browser(settings, clock).post("/api/v1/cluster", headers=write).json() == {"written": True}, "an open page"
    assert browser(settings, clock).post("/logout", headers=write).status_code == 303
    assert not opens_page(cookie), "in another process than it was ended in"


def test_file_is_private_and_ends_sessions_when_it_is_lost(path: Path, clock: Clock) -> None:
    def value(file: SessionFile) -> str:
        return sessions_of(TOKEN, clock, file).cookie(session, secure=False).partition(";")[0]

    session = sessions_of(TOKEN, clock).begin()
    first = SessionFile(path)
    assert path.stat().st_mode & 0o777 == 0o600
    first.end(session.key, session.expires, clock())
    assert path.stat().st_mode & 0o777 == 0o600
    assert SessionFile(path).is_ended(session.key)
    assert value(SessionFile(path)) == value(first)
    path.unlink()
    assert value(SessionFile(path)) != value(first)


@pytest.mark.one_case
@pytest.mark.parametrize(
    "content",
    [
        "",
        "[" * 100_000,
        "[1]",
        '{"format_version": 2}',
        '{"format_version": 1, "secret": "00", "ended": {}}',
        '{"format_version": 1, "secret": 1, "ended": {}}',
        json.dumps({"format_version": 1, "secret": "0" * 64, "ended": {"a": 1}}),
        json.dumps({"format_version": 1, "secret": "0" * 64, "ended": {"0" * 32: "1"}}),
    ],
)
def test_damaged_file_is_replaced(path: Path, content: str, caplog: pytest.LogCaptureFixture) -> None:
    path.write_text(content)
    secret = SessionFile(path).secret
    assert f"{path}: damaged" in caplog.text
    assert secret is not None
    assert secret != bytes(32)
    assert SessionFile(path).secret == secret


def test_sessions_work_without_a_writable_folder(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = SessionFile(path)

    def fails(path: Path, *_: object, **__: object) -> None:
        raise CannotWrite(f"{path}: cannot be written (No space left on device)")

    monkeypatch.setattr(session_file, "write_atomically", fails)
    file.end("0" * 32, 2, 1.0)
    assert file.is_ended("0" * 32)
    assert "No space left on device); a session that was ended just now" in caplog.text
    path.unlink()
    assert SessionFile(path).secret is None
    assert "a restart ends the sessions" in caplog.text
    assert SessionFile(path.parent / "no folder" / "sessions.json").secret is None


def test_sessions_for_two_galleries_coexist(clock: Clock) -> None:
    other = browser(replace(OPEN, gallery=Path("other album")), clock)
    page = other.get("/", headers=BROWSER)
    client = browser(OPEN, clock)
    client.cookies = other.cookies  # to the browser both are localhost
    client.get("/", headers=BROWSER)
    assert len(client.cookies) == 2
    headers = {"Origin": BASE_URL, "X-CSRF-Token": page.text}
    assert other.post("/api/v1/cluster", headers=headers).status_code == 200
