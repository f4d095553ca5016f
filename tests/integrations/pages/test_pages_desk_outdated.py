"""Forms of the desk that another program has overtaken, or that would show a pet twice in a photo."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from starlette.testclient import TestClient

from familiar.gallery import Gallery
from familiar.gallery.edits import corrections
from familiar.gallery.store.store import Store
from familiar.integrations.lost_pets.register import set_reports
from familiar.integrations.lost_pets.reports import Report, find_pet
from support.small_gallery import identity_of, rows
from support.web_forms import post, states_on


@pytest.fixture
def gallery(folder: Path) -> Iterator[Store]:
    """The gallery in another program: #1 is red, #2 green, #3 blue."""
    with Store.open(folder) as gallery:
        yield gallery


def opened_by_browser(client: TestClient, path: str, **fields: object) -> httpx2.Response:
    """Send a form as a browser without JavaScript does: the answer is a page."""
    headers = {"Accept": "text/html", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "same-origin"}
    return client.post(path, data=fields, headers=headers, follow_redirects=False)  # pyright: ignore


@pytest.mark.parametrize(
    ("action", "fields"),
    [
        ("/desk/1/report", {"status": "lost", "note": "mine"}),
        ("/desk/1/reunite", {"candidate": "3"}),
        ("/desk/1/not", {"candidate": "3"}),
    ],
)
def test_a_form_of_the_desk_does_not_replace_what_was_entered_meanwhile(
    client: TestClient, gallery: Store, action: str, fields: dict
):
    set_reports(Gallery(gallery), {1: Report("lost"), 3: Report("found")})
    page = client.get("/desk/1").text
    states = states_on(page, action)
    if action.endswith("not"):
        corrections.split(gallery, [1], "Ada")
    else:
        set_reports(Gallery(gallery), {1: Report("lost", note="theirs")})
    before = rows(gallery, ("identities", "assignments", "rejections"))
    answer = opened_by_browser(client, action, **fields, state=states)
    assert answer.status_code == 409
    assert rows(gallery, ("identities", "assignments", "rejections")) == before
    assert "#1 was changed at" in answer.text
    assert '<a class="button" href="/desk/1">Reload the page</a>' in answer.text
    assert find_pet(Gallery(gallery), 1).report.note in ("", "theirs")


def test_reunion_of_two_pets_that_one_photo_shows_asks_first(client: TestClient, gallery: Store):
    with gallery.write(faces_change=True) as repository:
        repository.connection.execute("UPDATE faces SET photo_id = 1 WHERE id = 5")
    set_reports(Gallery(gallery), {1: Report(status="lost"), 2: Report(status="found")})
    program = post(client, "/desk/1/reunite", candidate="2")
    assert program.status_code == 409
    assert program.json()["type"] == "urn:familiar:problem:shared-photo"
    assert identity_of(gallery, 1) != identity_of(gallery, 5)
