"""One individual twice in a photo: the pages ask first, and a second click says so."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import httpx2
import pytest
from starlette.testclient import TestClient

from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.edits import corrections
from familiar.gallery.same.decisions import undo
from familiar.gallery.store.store import Store
from support.small_gallery import identity_of
from support.web_forms import flash_of, post, redirect_of, unassign

pytestmark = pytest.mark.slow

BROWSER = {"HX-Request": "true", "HX-Boosted": "true"}


@pytest.fixture
def gallery(folder: Path) -> Iterator[Store]:
    """A second connection to the server's gallery: photo 1 shows face 1, of Mia (#1), and face 5, of #2."""
    with Store.open(folder) as opened:
        corrections.name_identity(opened, 1, "Mia")
        with opened.write(faces_change=True) as repository:
            repository.connection.execute("UPDATE faces SET photo_id = 1 WHERE id = 5")
        yield opened


def send(client: TestClient, path: str, fields: dict[str, object]) -> httpx2.Response:
    return client.post(path, data=fields, headers=BROWSER, follow_redirects=False)  # pyright: ignore[reportArgumentType]


def say_yes(client: TestClient, page: str) -> httpx2.Response:
    """Press the button of the page that asks."""
    form = re.search(r'<main.*<form method="post" action="([^"]*)"[^>]*>(.*?)</form>', page, re.DOTALL)
    assert form
    fields: dict[str, object] = {}
    for name, value in re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', form[2]):
        fields.setdefault(name, []).append(unescape(value))  # pyright: ignore[reportAttributeAccessIssue]
    return send(client, unescape(form[1]), fields)


def test_second_face_of_a_photo_gets_the_name_by_a_second_click(client: TestClient, gallery: Store):
    question_page = send(client, "/photos/1/faces/5", {"operation": "name", "name": "mia"})
    assert (question_page.status_code, question_page.headers["HX-Replace-Url"]) == (200, "false")
    assert "Is this Mia twice?" in question_page.text
    assert "Yes, both are Mia" in question_page.text
    assert '<a class="button quiet" href="/photos/1">No' in question_page.text
    assert re.findall(r"/api/v1/faces/(\d)/image", question_page.text) == ["1", "5"]
    assert identity_of(gallery, 5) == 2
    answer = say_yes(client, question_page.text)
    assert redirect_of(answer)[0] == "/photos/1"
    assert flash_of(client, answer).startswith("1 face moved to Mia")
    cluster(gallery, rebuild=True)
    assert (identity_of(gallery, 1), identity_of(gallery, 5)) == (1, 1)
    page = client.get("/photos/1").text
    assert page.count('<a href="/individuals/1">Mia</a>') == 2
    undo(gallery)
    undo(gallery)
    assert identity_of(gallery, 5) == 2


@pytest.mark.parametrize(
    ("path", "fields", "cancel"),
    [
        (
            "/individuals/merge",
            {"identity": ["1", "2"], "into": "1", "back": "/individuals?tab=unnamed"},
            "?tab=unnamed",
        ),
        ("/individuals/2/faces", {"face": ["5", "6"], "operation": "move", "name": "Mia"}, "/individuals/2"),
        ("/individuals/unassigned", {"face": ["1", "5"], "name": "Kim"}, "/individuals"),
        ("/individuals/unassigned", {"face": ["1", "5"]}, "/individuals"),
    ],
)
def test_pages_ask_before_a_photo_shows_one_individual_twice(
    client: TestClient, gallery: Store, path: str, fields: dict[str, object], cancel: str
):
    if "unassigned" in path:
        unassign(gallery, [1, 5])
    before = identity_of(gallery, 1), identity_of(gallery, 5)
    program = post(client, path, **fields)
    assert program.status_code == 409
    assert program.json()["type"] == "urn:familiar:problem:shared-photo"
    assert "red1.png: would show" in program.json()["detail"]
    question_page = send(client, path, fields)
    assert f'{cancel}">No, change nothing' in unescape(question_page.text)
    assert (identity_of(gallery, 1), identity_of(gallery, 5)) == before
    assert say_yes(client, question_page.text).status_code == 303
    assert identity_of(gallery, 1) == identity_of(gallery, 5) != -1
