"""The access token, and its replacement while the server runs."""

from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from familiar.core.errors import FamiliarError
from familiar.web.access_token import MAX_TOKEN_BYTES, MIN_TOKEN_CHARACTERS, read_token_file
from familiar.web.settings import Settings
from support.middleware import BROWSER, COOKIE, OPEN, TOKEN, browser

OTHER = "another token of this album"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text(TOKEN + "\n")
    return tmp_path / "token"


@pytest.fixture
def settings(file: Path) -> Settings:
    return replace(OPEN, token_file=file)


def status(client: TestClient, token: str) -> int:
    return client.get("/api/v1/faces", headers={"Authorization": f"Bearer {token}"}).status_code


def test_new_token_replaces_old_one_and_ends_its_sessions_at_once(settings: Settings, file: Path) -> None:
    client, program = browser(settings), browser(settings)
    client.post("/login", data={"token": TOKEN})
    assert client.get("/", headers=BROWSER).status_code == 200
    assert (status(program, TOKEN), status(program, OTHER)) == (200, 401)
    file.write_text(OTHER)
    assert (status(program, TOKEN), status(program, OTHER)) == (401, 200)
    assert client.get("/", headers=BROWSER).headers["Location"] == "/login"
    assert client.post("/api/v1/cluster").status_code == 401
    assert client.post("/login", data={"token": TOKEN}).headers["Location"] == "/login?wrong=1"
    assert client.post("/login", data={"token": OTHER}).headers["Location"] == "/"
    assert client.get("/", headers=BROWSER).status_code == 200


@pytest.mark.parametrize("content", [None, b"", b"short", b"\xff" * 30])
def test_nobody_is_let_in_while_file_has_no_token(
    settings: Settings, file: Path, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    client, program = browser(settings), browser(settings)
    client.post("/login", data={"token": TOKEN})
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    assert status(program, TOKEN) == 503
    assert status(program, "") == 503
    assert client.get("/", headers=BROWSER).status_code == 503
    assert client.post("/login", data={"token": TOKEN}).status_code == 503
    assert program.get("/healthz").status_code == program.get("/login").status_code == 200, "open to all"
    messages = [record.getMessage() for record in caplog.records if str(file) in record.getMessage()]
    assert len(messages) == 2, "one of each server"
    assert "nobody can log in" in messages[0]
    assert str(file) not in client.get("/", headers=BROWSER).text
    file.write_text(TOKEN)
    assert status(program, TOKEN) == 200
    assert COOKIE in client.cookies
    assert client.get("/", headers=BROWSER).status_code == 200, "the same token again"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        (b"", "empty"),
        (b" \n", "empty"),
        (b"\xff\xfe" * 20, "not a text file"),
        (b"t" * (MIN_TOKEN_CHARACTERS - 1), "at least 16"),
        (b"t" * (MAX_TOKEN_BYTES + 1), "at least 16"),
        (b"first line of it\nsecond line of it", "on one line"),
    ],
)
def test_rejects_file_without_token(file: Path, content: bytes | None, reason: str) -> None:
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    with pytest.raises(FamiliarError, match=reason) as error:
        read_token_file(file)
    assert str(error.value).startswith(f"{file}: ")
    with pytest.raises(FamiliarError, match=reason):
        replace(OPEN, token_file=file)


def test_token_file_goes_with_no_other_answer(file: Path) -> None:
    with pytest.raises(FamiliarError, match="not both"):
        replace(OPEN, token=TOKEN, token_file=file)
    for changes in ({"token": TOKEN}, {"token_file": file}):
        with pytest.raises(FamiliarError, match="trusted network"):
            replace(OPEN, trusted_network=True, **changes)
    assert replace(OPEN, address="192.168.1.5", token_file=file).requires_token
