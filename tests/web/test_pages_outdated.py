"""Forms of a page that another program has overtaken: what the user did not see is not changed, and he can go on."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from familiar.gallery.edits import corrections
from familiar.gallery.same.decisions import decisions
from familiar.gallery.store.store import Store
from support.small_gallery import rows
from support.web_forms import post, states_on

RED, GREEN, BLUE = [1, 2, 3, 4], [5, 6, 7], [8, 9]


@pytest.fixture
def gallery(folder: Path) -> Iterator[Store]:
    """The gallery in another program: #1 is red, #2 green, #3 blue."""
    with Store.open(folder) as gallery:
        corrections.name_identity(gallery, 2, "Emma")
        yield gallery


def merge_away(gallery: Store) -> None:
    corrections.merge(gallery, 2, [1])


def rename(gallery: Store) -> None:
    corrections.name_identity(gallery, 1, "Tom")


def take_faces(gallery: Store) -> None:
    corrections.split(gallery, [1, 2], "Ada")


MERGED, RENAMED = r"#1 was merged into Emma at \d\d:\d\d", r"Tom was renamed at \d\d:\d\d"
TAKEN = "face 1 is in Ada now"
FORMS = [
    ("/individuals?tab=unnamed", "/individuals/1/name", {"name": "Mia"}, merge_away, MERGED),
    ("/individuals/1", "/individuals/1/name", {"name": "Mia"}, rename, RENAMED),
    ("/individuals/1", "/individuals/1/name", {"name": "Mia"}, take_faces, r"#1 was changed at \d\d:\d\d"),
    ("/individuals/1", "/individuals/1/confirm", {"faces": "4"}, rename, RENAMED),
    (
        "/individuals/1",
        "/individuals/1/faces",
        {"face": "1", "operation": "reject"},
        take_faces,
        "face 1 is in Ada now",
    ),
    ("/individuals/1", "/individuals/1/faces", {"face": "1", "operation": "confirm"}, rename, RENAMED),
    (
        "/individuals/1",
        "/individuals/1/faces",
        {"face": "1", "operation": "split"},
        merge_away,
        "face 1 is in Emma now",
    ),
    (
        "/individuals?tab=unnamed",
        "/individuals/merge",
        {"identity": ["1", "3"], "into": "3"},
        take_faces,
        r"#1 was changed at \d\d:\d\d",
    ),
    (
        "/individuals/merge?identity=1&identity=3",
        "/individuals/merge",
        {"identity": ["1", "3"], "into": "1"},
        rename,
        RENAMED,
    ),
    ("/photos/1", "/photos/1/faces/1", {"operation": "confirm"}, take_faces, "face 1 is in Ada now"),
    ("/photos/1", "/photos/1/faces/1", {"operation": "name", "name": "Mia"}, rename, RENAMED),
    ("/photos/1", "/photos/1/faces/1", {"operation": "reject"}, merge_away, "face 1 is in Emma now"),
]


@pytest.mark.parametrize(("page", "action", "fields", "change", "reason"), FORMS)
def test_a_form_about_what_another_program_changed_is_refused_with_the_cause(
    client: TestClient, gallery: Store, page: str, action: str, fields: dict, change: Callable, reason: str
):
    states = states_on(client.get(page).text, action)
    assert states
    change(gallery)
    before = rows(gallery)
    answer = post(client, action, **fields, state=states)
    assert answer.status_code == 409
    assert re.match(rf"{reason}.* by another program or in another window; reload", answer.json()["detail"])
    assert rows(gallery) == before


@pytest.mark.parametrize(("page", "action", "fields"), [form[:3] for form in FORMS])
def test_the_same_form_is_accepted_after_changes_of_others(
    client: TestClient, gallery: Store, page: str, action: str, fields: dict
):
    states = states_on(client.get(page).text, action)
    corrections.split(gallery, [5], "Ada")
    before = rows(gallery)
    assert post(client, action, **fields, state=states).status_code == 303
    assert rows(gallery) != before


def test_an_unassigned_face_that_was_assigned_meanwhile_is_not_taken(client: TestClient, gallery: Store):
    corrections.reject(gallery, [1])
    states = states_on(client.get("/individuals?tab=unassigned").text, "/individuals/unassigned")
    corrections.split(gallery, [1], "Ada")
    answer = post(client, "/individuals/unassigned", face="1", name="Mia", state=states)
    assert answer.status_code == 409
    assert answer.json()["detail"].startswith("face 1 is in Ada now: it was reassigned at ")


def test_a_question_about_an_individual_that_was_renamed_is_skipped(client: TestClient, gallery: Store):
    page = client.get("/questions?skipped=" + "_".join(f"0-{number}" for number in range(1, 100))).text  # no batches
    fields = dict(
        re.findall(r'<input type="hidden" name="(kind|first_face|second_face|first|second)" value="(\w*)">', page)
    )
    states = states_on(page, "/questions")
    for number in (1, 3):
        corrections.name_identity(gallery, number, f"other {number}")
    before = rows(gallery)
    answer = post(client, "/questions", **fields, state=states, same="true")
    assert answer.headers["location"] == "/questions?done=changed"
    assert rows(gallery) == before


def test_the_undo_button_says_when_the_last_change_is_not_the_users(client: TestClient, gallery: Store):
    answer = post(client, "/individuals/1/name", name="Mia")
    decided = re.search(r"decision=(\d+)", answer.headers["location"])
    assert decided is not None
    assert int(decided[1]) == decisions(gallery, 1)[0].number
    page = client.get(answer.headers["location"]).text
    assert "Undo naming</span>" in page
    assert "not yours" not in page
    corrections.name_identity(gallery, 3, "Ada")
    page = client.get(answer.headers["location"]).text
    assert "Undo naming (not yours)</span>" in page
    assert 'hx-confirm="The last change is not yours: another program or window has made it since.' in page
    refused = post(client, "/undo", decision=decided[1])
    assert refused.status_code == 409
    assert decisions(gallery, 1)[0].kind == "name"
    assert "not yours" not in client.get("/individuals").text


def test_a_form_without_states_is_that_of_a_program(client: TestClient):
    assert post(client, "/individuals/1/name", name="Mia").status_code == 303
    assert post(client, "/individuals/1/name", name="Ida", state="1.2.3").status_code == 422
