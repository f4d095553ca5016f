"""Login: requests with and without the token, and the redirects of the login page."""

import re
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from familiar.web.errors import MEDIA_TYPE, HttpProblem
from familiar.web.middleware import wrap_app
from familiar.web.middleware.access import WrongTokens, local_path
from familiar.web.middleware.client_address import client_address
from familiar.web.settings import Limits
from support.middleware import BASE_URL, BROWSER, COOKIE, CROSS, LOCKED, TOKEN, app, browser, logged_in


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
        ("application/x-www-form-urlencoded", b"token=" + b"x" * 5_000_000, 413),
        ("application/x-www-form-urlencoded", b"&".join([b"token=x"] * 50), 400),
        ("multipart/form-data; boundary=x", b"--y", 400),
    ],
)
def test_login_accepts_only_a_small_form(kind: str, content: bytes, status: int) -> None:
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


@pytest.mark.parametrize("headers", [{}, {"Origin": BASE_URL}, {"Origin": BASE_URL, "Sec-Fetch-Site": "same-origin"}])
def test_login_is_taken_from_this_server_and_from_programs(headers: dict[str, str]) -> None:
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


def test_logout_clears_what_the_browser_stored() -> None:
    assert logged_in(LOCKED).post("/logout").headers["Clear-Site-Data"] == '"cache", "storage"'


# --- wrong tokens ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["login", "bearer", "both"])
def test_wrong_tokens_are_limited_without_blocking_right_token(how: str) -> None:
    chain = wrap_app(app, replace(LOCKED, limits=Limits(wrong_tokens_per_minute=3)))

    def guess(token: str, number: int, address: str = "192.168.1.7") -> int:
        client = TestClient(chain, base_url=BASE_URL, client=(address, 5000), follow_redirects=False)
        if how == "login" or (how == "both" and number % 2):
            return client.post("/login", data={"token": token}).status_code
        return client.get("/api/v1/faces", headers={"Authorization": f"Bearer {token}"}).status_code

    assert {guess(TOKEN, number) for number in range(20)} <= {200, 303}, "right ones are not counted"
    assert {guess("wrong", number) for number in range(3)} <= {401, 303}
    assert [guess("wrong", number) for number in range(4)] == [429] * 4
    assert {guess(TOKEN, number) for number in range(4)} <= {200, 303}, "the one who knows it is let in"
    assert guess("wrong", 0, "192.168.1.8") in (401, 303), "another address"


@pytest.mark.parametrize("proxy", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_wrong_tokens_behind_a_proxy_are_counted_for_each_client(proxy: str) -> None:
    client = browser(replace(LOCKED, limits=Limits(wrong_tokens_per_minute=1)), address=proxy)

    def guess(address: str) -> int:
        headers = {"Authorization": "Bearer wrong", "X-Forwarded-For": address}
        return client.get("/api/v1/faces", headers=headers).status_code

    assert [guess("10.0.0.1"), guess("10.0.0.1"), guess("10.0.0.2")] == [401, 429, 401]


def test_limit_names_the_wait_and_ends_after_a_minute() -> None:
    now = 1_000.0
    wrong = WrongTokens(2, lambda: now)
    wrong.add("a")
    wrong.add("a")
    now += 20
    with pytest.raises(HttpProblem, match="too many wrong tokens") as refused:
        wrong.add("a")
    assert refused.value.retry_seconds == 41
    wrong.add("b")
    now += 40
    wrong.add("a")


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("127.8.8.8", "this machine"),
        ("::1", "this machine"),
        ("::ffff:127.0.0.1", "this machine"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:0:1:ffff::2", "2001:db8:0:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
    ],
)
def test_clients_are_told_apart_by_address_or_ipv6_prefix(address: str, name: str) -> None:
    assert client_address({"client": (address, 1)}) == name
    assert client_address({"client": None}) == "this machine"
