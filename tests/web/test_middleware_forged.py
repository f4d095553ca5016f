"""Forged requests: requests that a page of another site makes the browser send."""

import pytest
from starlette.testclient import TestClient

from familiar.web.middleware import wrap_app
from familiar.web.settings import Settings
from support.middleware import BASE_URL, COOKIE, CROSS, LOCKED, OPEN, TOKEN, Clock, app, browser, session_of


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": BASE_URL}, 200),
        ({"Origin": "https://localhost:8000"}, 200),  # TLS ended at a proxy
        ({"Origin": BASE_URL.upper()}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Origin": CROSS}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "null", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "null", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": ""}, 403),
        ({"Origin": "http://localhost"}, 403),
        ({"Origin": "http://localhost:8001"}, 403),
        ({"Origin": "http://127.0.0.1:8000"}, 403),
        ({"Origin": "http://localhost:8000.evil.example"}, 403),
        ({"Origin": "http://evil.example/http://localhost:8000"}, 403),
        ({"Origin": "file://localhost:8000"}, 403),
        ({"Origin": f"{BASE_URL} {CROSS}"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": BASE_URL, "Sec-Fetch-Site": "cross-site"}, 403),
        ({"X-CSRF-Token": ""}, 403),
        ({"X-CSRF-Token": "0" * 64}, 403),
        ({"X-CSRF-Token": "ü"}, 403),
    ],
)
@pytest.mark.parametrize("settings", [OPEN, LOCKED])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "BREW"])
def test_page_writes_require_same_origin_and_csrf_token(
    settings: Settings, method: str, headers: dict[str, str], status: int
) -> None:
    client = browser(settings)
    right = {"X-CSRF-Token": session_of(client)}
    sent = {name.encode(): value.encode("latin-1") for name, value in (right | headers).items()}
    assert client.request(method, "/api/v1/cluster", headers=sent).status_code == status


@pytest.mark.parametrize("settings", [OPEN, LOCKED])
def test_writes_require_csrf_token_of_same_session(settings: Settings) -> None:
    chain = wrap_app(app, settings, Clock())
    client, other = (TestClient(chain, base_url=BASE_URL, client=("127.0.0.1", 1)) for _ in range(2))
    other_token, own_token = session_of(other), session_of(client)
    assert other_token != own_token
    assert client.post("/undo", headers={"Origin": BASE_URL}).status_code == 403
    assert client.post("/undo").status_code == 403, "the cookie alone"
    assert client.post("/undo", headers={"X-CSRF-Token": other_token}).status_code == 403
    assert client.post("/undo", headers={"X-CSRF-Token": own_token}).status_code == 200


def test_local_program_may_write_but_page_needs_session() -> None:
    client = browser(OPEN)
    assert client.post("/api/v1/cluster").status_code == 200
    assert client.post("/api/v1/cluster", headers={"Origin": BASE_URL}).status_code == 403
    assert client.post("/api/v1/cluster", headers={"Cookie": f"{COOKIE}=made-up"}).status_code == 403
    assert client.options("/api/v1/cluster", headers={"Origin": CROSS}).status_code == 200, "reads nothing"


def test_valid_bearer_token_may_write_cross_origin() -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "Origin": CROSS}
    assert browser(LOCKED).post("/api/v1/cluster", headers=headers).status_code == 200
    assert browser(OPEN).post("/api/v1/cluster", headers=headers).status_code == 403, "there is no token to know"
