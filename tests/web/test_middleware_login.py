"""Login: requests with and without the token, and the redirects of the login page."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.web.errors import MEDIA_TYPE
from familiar.web.middleware.login import local_path
from support.middleware import BASE_URL, BROWSER, COOKIE, CROSS, LOCKED, TOKEN, browser, session_of


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN[:8]}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN.upper()}",
        f"Bearer {TOKEN}, Bearer {TOKEN}",
        f"Basic {TOKEN}",
        f"Token {TOKEN}",
        TOKEN,
        "Bearer \xff\xfe",
    ],
)
def test_rejects_wrong_token(text: str) -> None:
    client = browser(LOCKED)
    answer = client.get("/api/v1/faces", headers={b"Authorization": text.encode("latin-1")})
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert answer.headers["Content-Type"] == MEDIA_TYPE
    assert answer.json()["status"] == 401


@pytest.mark.parametrize("text", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"BEARER  {TOKEN} "])
def test_accepts_valid_bearer_token(text: str) -> None:
    assert browser(LOCKED).get("/api/v1/faces", headers={"Authorization": text}).status_code == 200


def test_rejects_two_authorization_headers() -> None:
    twice = [(b"authorization", f"Bearer {TOKEN}".encode()), (b"authorization", b"Bearer x")]
    assert browser(LOCKED).get("/api/v1/faces", headers=twice).status_code == 401


@pytest.mark.parametrize("path", ["/", "/individuals/12?tab=unnamed", "/healthz/", "/login%3Fx", "/static"])
def test_anonymous_browser_is_redirected_to_login_and_back(path: str) -> None:
    client = browser(LOCKED)
    answer = client.get(path, headers=BROWSER)
    assert answer.status_code == 303
    where = urlsplit(answer.headers["Location"])
    assert where.path == "/login"
    onward = parse_qs(where.query).get("next", ["/"])[0]
    assert onward == path
    answer = client.post("/login", data={"token": TOKEN, "next": onward})
    assert (answer.status_code, answer.headers["Location"]) == (303, path)
    assert client.get(path, headers=BROWSER).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/", {}),
        ("GET", "/api/v1/faces", BROWSER),
        ("POST", "/undo", BROWSER),
        ("POST", "/healthz", {}),
        ("POST", "/static/app.js", {}),
        ("POST", "/logout", {}),
        ("POST", "/login/", {}),
        ("GET", "/", BROWSER | {"HX-Request": "true"}),
        ("OPTIONS", "/", BROWSER),
    ],
)
def test_other_anonymous_requests_return_401(method: str, path: str, headers: dict[str, str]) -> None:
    assert browser(LOCKED).request(method, path, headers=headers).status_code == 401


@pytest.mark.parametrize("path", ["/login", "/login?next=/", "/static/app.js", "/healthz"])
def test_login_static_and_health_paths_need_no_token(path: str) -> None:
    assert browser(LOCKED).get(path).status_code == 200
    assert browser(LOCKED).head(path).status_code == 200


@pytest.mark.parametrize(
    ("kind", "content", "status"),
    [
        ("application/x-www-form-urlencoded", b"token=" + TOKEN.encode(), 303),
        ("application/x-www-form-urlencoded; charset=utf-8", b"next=%2F&token=" + TOKEN.encode(), 303),
        ("application/json", b'{"token": "' + TOKEN.encode() + b'"}', 415),
        ("multipart/form-data; boundary=x", b"--x--", 415),
        ("application/x-www-form-urlencoded", b"token=" + b"x" * 9_000, 413),
        ("application/x-www-form-urlencoded", b"&".join([b"token=x"] * 50), 400),
    ],
)
def test_login_accepts_only_small_urlencoded_form(kind: str, content: bytes, status: int) -> None:
    answer = browser(LOCKED).post("/login", content=content, headers={"Content-Type": kind})
    assert answer.status_code == status
    assert (COOKIE in answer.cookies) == (status == 303)


@pytest.mark.parametrize("fields", [{}, {"token": ""}, {"token": TOKEN[:-1]}, {"token": TOKEN + "\0"}])
def test_wrong_login_redirects_without_cookie(fields: dict[str, str]) -> None:
    answer = browser(LOCKED).post("/login", data={**fields, "next": "/questions"})
    assert (answer.status_code, answer.headers["Location"]) == (303, "/login?wrong=1&next=%2Fquestions")
    assert "Set-Cookie" not in answer.headers


def test_rejects_cross_site_login() -> None:
    for headers in (
        {"Origin": CROSS},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
    ):
        assert browser(LOCKED).post("/login", data={"token": TOKEN}, headers=headers).status_code == 403


@pytest.mark.parametrize(
    "headers", [{"Origin": "null"}, {"Origin": BASE_URL}, {"Origin": "null", "Sec-Fetch-Site": "same-origin"}]
)
def test_login_accepts_null_or_same_origin(headers: dict[str, str]) -> None:
    """The login form is plain and its page sends no referrer, so browsers send Origin: null."""
    assert COOKIE in browser(LOCKED).post("/login", data={"token": TOKEN}, headers=headers).cookies


EVIL_NEXT = [
    "//evil.example",
    "///evil.example",
    "/\\evil.example",
    "\\\\evil.example",
    "/\t/evil.example",
    "/\n/evil.example",
    "/\r\nSet-Cookie: a=b",
    " //evil.example",
    "/ /evil.example",
    "http://evil.example",
    "HTTPS:evil.example",
    "javascript:alert(1)",
    "data:text/html,x",
    "evil.example",
    "@evil.example",
    "",
    "/\0",
    "/\x7f",
    "/\u2028/evil.example",
    "/\u3002evil",
    "/" + "x" * 2_048,
]


@pytest.mark.slow
@pytest.mark.parametrize("text", EVIL_NEXT)
def test_login_ignores_unsafe_next_path(text: str) -> None:
    client = browser(LOCKED)
    answer = client.post("/login", data={"token": TOKEN, "next": text})
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")
    answer = client.post("/login", data={"token": "wrong", "next": text})
    assert answer.headers["Location"] == "/login?wrong=1"


def as_a_browser_reads(text: str) -> str:
    """The first steps of the WHATWG URL parser: stripped characters, and backslashes read as slashes."""
    return re.sub("[\t\n\r]", "", text.strip("".join(map(chr, range(33))))).replace("\\", "/")


@given(st.one_of(st.text(), st.from_regex(r"[/\\\s:a-z%@.]{1,12}", fullmatch=True)))
def test_local_path_never_leads_to_another_site(text: str) -> None:
    path = local_path(text)
    assert path in (text, "/")
    read = as_a_browser_reads(path)
    assert read == path
    assert urlsplit(read)[:2] == ("", "")
    assert not read.startswith("//")


def test_local_path_keeps_safe_path() -> None:
    for path in ("/", "/individuals?tab=unnamed&after=3,4#top", "/search?name=M%C3%BCsli", "/a//b", "/:x@y"):
        assert local_path(path) == path


def test_logins_and_refusals_are_logged_with_address_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    client = browser(LOCKED, address="192.168.1.7")
    client.post("/login", data={"token": "a wrong token of this album"})
    client.post("/login", data={"token": TOKEN})
    client.get("/api/v1/faces", headers={"Authorization": "Bearer a wrong token of this album"})
    client.post("/api/v1/cluster", headers={"Origin": CROSS})
    messages = [record.getMessage() for record in caplog.records if "192.168.1.7" in record.getMessage()]
    assert messages == [
        "wrong token from 192.168.1.7",
        "logged in from 192.168.1.7",
        "wrong token from 192.168.1.7",
        "refused, wrong-token, from 192.168.1.7",
        "refused, forged-request, from 192.168.1.7",
    ]
    assert TOKEN not in caplog.text
    assert "a wrong token" not in caplog.text


def test_new_login_ends_the_old_session_of_the_browser() -> None:
    client = browser(LOCKED)
    client.post("/login", data={"token": TOKEN})
    old = {"Cookie": f"{COOKIE}={client.cookies[COOKIE]}"}
    assert client.get("/api/v1/faces", headers=old).status_code == 200
    client.post("/login", data={"token": TOKEN})
    assert client.get("/api/v1/faces").status_code == 200
    client.cookies.clear()
    assert client.get("/api/v1/faces", headers=old).status_code == 401


def test_logout_clears_what_the_browser_stored() -> None:
    client = browser(LOCKED)
    token = session_of(client)
    answer = client.post("/logout", headers={"X-CSRF-Token": token})
    assert answer.headers["Clear-Site-Data"] == '"cache", "storage"'
