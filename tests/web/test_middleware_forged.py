"""Forged requests: requests that a page of another site makes the browser send."""

import pytest

from familiar.web.settings import Settings
from support.middleware import BASE_URL, CROSS, LOCKED, OPEN, TOKEN, browser, logged_in


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
        ({"Origin": "null", "Sec-Fetch-Site": "same-origin"}, 403),  # no page of this server is without an origin
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
    ],
)
@pytest.mark.parametrize("settings", [OPEN, LOCKED])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "BREW"])
def test_writes_of_browsers_come_from_pages_of_this_server(
    settings: Settings, method: str, headers: dict[str, str], status: int
) -> None:
    client = logged_in(settings)
    assert client.request(method, "/api/v1/cluster", headers=headers).status_code == status


def test_requests_that_change_nothing_may_come_from_anywhere() -> None:
    assert browser(OPEN).options("/api/v1/cluster", headers={"Origin": CROSS}).status_code == 200
    assert browser(OPEN).get("/album", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200, "a link"


def test_valid_bearer_token_may_write_cross_origin() -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "Origin": CROSS}
    assert browser(LOCKED).post("/api/v1/cluster", headers=headers).status_code == 200
    assert browser(OPEN).post("/api/v1/cluster", headers=headers).status_code == 403, "there is no token to know"
