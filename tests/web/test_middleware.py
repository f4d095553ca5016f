"""Headers of every response, including errors, and the request log."""

import logging
import re
from dataclasses import replace

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from familiar.web.errors import MEDIA_TYPE
from familiar.web.middleware import wrap_app
from familiar.web.middleware.headers import CSP_HEADER, SANDBOX_POLICY, SECURITY_HEADERS
from familiar.web.settings import Limits
from support.middleware import BASE_URL, BROWSER, CROSS, LOCKED, OPEN, TOKEN, browser, messages_of


def test_every_response_has_security_headers() -> None:
    slow = replace(LOCKED, limits=replace(Limits(), json_bytes=3))
    signed = {"Authorization": f"Bearer {TOKEN}"}
    answers = [
        browser(OPEN).get("/"),
        browser(OPEN).get("/unchanged"),
        browser(OPEN).get("/", headers={"Host": "evil.example"}),
        browser(LOCKED).get("/", headers=BROWSER),
        browser(LOCKED).get("/"),
        browser(LOCKED).post("/login", data={"token": TOKEN}),
        browser(slow).post("/x", content=b"1234", headers=signed),
        browser(OPEN).post("/", headers={"Origin": CROSS}),
    ]
    assert [a.status_code for a in answers] == [200, 304, 421, 303, 401, 303, 413, 403]
    for answer in answers:
        assert {name: answer.headers[name] for name in SECURITY_HEADERS} == SECURITY_HEADERS
        assert "Server" not in answer.headers
        cached = "max-age=60" if answer.status_code == 304 else "no-store"
        assert answer.headers["Cache-Control"] == cached
    assert SECURITY_HEADERS["Content-Security-Policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


def test_error_is_html_for_browsers_and_json_for_programs() -> None:
    evil = {"Origin": CROSS}
    page = browser(OPEN).post("/undo", headers=BROWSER | evil)
    assert page.headers["Content-Type"].startswith("text/html")
    assert "<h1>Forbidden</h1>" in page.text
    assert len(page.content) < 500
    for headers in ({}, BROWSER | {"HX-Request": "true", "HX-Boosted": "true"}):
        problem = browser(OPEN).post("/undo", headers=headers | evil)
        assert problem.headers["Content-Type"] == MEDIA_TYPE
        assert problem.json() == {
            "type": "urn:familiar:problem:forged-request",
            "title": "Forbidden",
            "status": 403,
            "detail": "this change was requested by a page of another site",
        }


@pytest.mark.parametrize(
    ("method", "path", "line"),
    [
        ("GET", "/", "GET / - 200"),
        ("GET", "/individuals/12?name=Rex", "GET /individuals/* - 200"),
        ("GET", "/individuals/rex", "GET /individuals/* - 200"),
        ("GET", "/photos/home/rex/Rex.jpg", "GET /photos/* - 200"),
        ("GET", "/Rex", "GET /* - 200"),
        ("GET", "/a%0Aforged%20line", "GET /* - 200"),
        ("GET", "/api/v1/faces/12/image?side=160", "GET /api/v1/* - 200"),
        ("GET", "/api/rex", "GET /api/* - 200"),
        ("POST", "/undo", "POST /undo - 200"),
    ],
)
def test_log_masks_private_parts_of_path(method: str, path: str, line: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "familiar.serve"):
        browser(OPEN).request(method, path, content=b"Rex" if method == "POST" else None)
    messages = [record.getMessage() for record in caplog.records if record.name == "familiar.serve"]
    assert len(messages) == 1
    assert re.fullmatch(re.escape(line) + r" \d+\.\d ms", messages[0])


def test_log_includes_route_name(caplog: pytest.LogCaptureFixture) -> None:
    async def image(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.path_params["face"])

    routed = Starlette(routes=[Route("/api/v1/faces/{face}/image", image)])
    with caplog.at_level(logging.INFO, "familiar.serve"):
        chain = wrap_app(routed, OPEN)
        assert TestClient(chain, base_url=BASE_URL).get("/api/v1/faces/12/image").text == "12"
    assert caplog.records[-1].getMessage().startswith("GET /api/v1/* image 200 ")


def test_websockets_are_closed_and_lifespan_is_forwarded() -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
        seen.append(scope["type"])

    assert messages_of(wrap_app(app, OPEN), {"type": "lifespan"}) == []
    assert messages_of(wrap_app(app, OPEN), {"type": "websocket"}) == [{"type": "websocket.close", "code": 1008}]
    assert seen == ["lifespan"]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (SANDBOX_POLICY, SANDBOX_POLICY),
        (SANDBOX_POLICY + "; script-src *", SECURITY_HEADERS[CSP_HEADER]),
        ("", SECURITY_HEADERS[CSP_HEADER]),
    ],
)
def test_only_sandbox_policy_overrides_default_policy(policy: str, expected: str) -> None:
    page = HTMLResponse("a report", headers={CSP_HEADER: policy})
    answer = TestClient(wrap_app(page, OPEN), base_url=BASE_URL).get("/")
    assert answer.headers.get_list(CSP_HEADER) == [expected]
