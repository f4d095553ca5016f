"""HEAD is answered as GET without a body."""

import pytest
from starlette.testclient import TestClient


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/album", "/search", "/compare", "/questions", "/desk", "/healthz", "/static/app.js", "/missing"),
        *("/api/v1/photos", "/api/v1/individuals", "/api/v1/gallery", "/api/v1/openapi.json", "/api/v1/missing"),
    ],
)
def test_head_is_get_without_a_body(client: TestClient, path: str):
    got, head = client.get(path, follow_redirects=False), client.head(path, follow_redirects=False)
    assert (head.status_code, head.content) == (got.status_code, b"")
    assert head.headers["content-type"] == got.headers["content-type"] if "content-type" in got.headers else True
    assert head.status_code != 405
    if path != "/missing":  # its page shows a number of the request
        assert head.headers.get("content-length") == got.headers.get("content-length")


def test_head_of_a_route_that_only_takes_post_says_so(client: TestClient):
    head = client.head("/api/v1/verify")
    assert (head.status_code, head.content) == (405, b"")
