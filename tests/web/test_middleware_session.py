"""Session cookies: signature, expiry and revocation."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from familiar.web.middleware.session import LIFETIME_SECONDS, MAX_REVOKED, Sessions
from familiar.web.settings import Settings
from support.middleware import BASE_URL, BROWSER, COOKIE, LOCKED, OPEN, TOKEN, Clock, browser, session_of


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
            assert re.fullmatch(COOKIE + r"=[0-9a-f]{32}\.\d+\.[0-9a-f]{64}", name)
            assert set(rest) == {"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=2592000"} | (
                {"Secure"} if secure else set()
            )


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
        Sessions(OPEN.session_name, "another token here", Clock())
        .cookie(Sessions(OPEN.session_name, None, Clock()).begin(), secure=False)
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

    assert holds(LOCKED, value(Sessions(OPEN.session_name, TOKEN, clock)))
    assert not holds(LOCKED, value(Sessions(OPEN.session_name, TOKEN + "x", clock)))
    assert not holds(OPEN, value(Sessions(OPEN.session_name, None, clock))), (
        "without a token the key is new at each start"
    )


def test_ended_sessions_are_remembered_until_expiry(clock: Clock) -> None:
    sessions = Sessions(OPEN.session_name, TOKEN, clock)
    old = sessions.begin()
    sessions.end(old)
    sessions.end(old)
    assert len(sessions._revoked) == 1
    clock.now += LIFETIME_SECONDS
    last = sessions.begin()
    sessions.end(last)
    assert list(sessions._revoked) == [last.key], "the old one would have ended by now"
    sessions._revoked |= {f"{n:032x}": int(clock.now) + n + 1 for n in range(MAX_REVOKED)}
    sessions.end(last)
    assert len(sessions._revoked) == MAX_REVOKED
    assert old.key not in sessions._revoked
    assert last.key in sessions._revoked
    assert f"{0:032x}" not in sessions._revoked, "of those that fit, it would have ended first"


def test_sessions_for_two_galleries_coexist(clock: Clock) -> None:
    other = browser(replace(OPEN, gallery=Path("other album")), clock)
    page = other.get("/", headers=BROWSER)
    client = browser(OPEN, clock)
    client.cookies = other.cookies  # to the browser both are localhost
    client.get("/", headers=BROWSER)
    assert len(client.cookies) == 2
    headers = {"Origin": BASE_URL, "X-CSRF-Token": page.text}
    assert other.post("/api/v1/cluster", headers=headers).status_code == 200
