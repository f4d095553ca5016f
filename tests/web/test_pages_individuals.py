"""The pages of individuals: their content, and the changes of their forms."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from familiar.gallery.edits import corrections, manual_faces
from familiar.gallery.same.assignments import load_assignments
from familiar.gallery.same.decisions import decisions, undo
from familiar.gallery.store.store import Store
from familiar.web.pages import individual, individuals
from familiar.web.settings import Settings
from support.small_gallery import groups, identity_of
from support.web_forms import faces_on, flash_of, make_client, names_of, post, redirect_of, tiles_on, unassign

pytestmark = pytest.mark.slow

RED, GREEN, BLUE = {1, 2, 3, 4}, {5, 6, 7}, {8, 9}  # faces, by the numbers of whom they show: 1, 2 and 3


@pytest.fixture
def gallery(folder: Path) -> Iterator[Store]:
    """A second connection to the server's gallery."""
    with Store.open(folder) as opened:
        yield opened


def test_tabs_list_their_identities_largest_first(client: TestClient, gallery: Store):
    corrections.name_identity(gallery, 2, "Mia")
    unassign(gallery, [9])
    page = client.get("/individuals").text
    assert tiles_on(page) == [2]
    assert 'value="Mia"' in page
    assert "3 faces" in page
    unnamed = client.get("/individuals?tab=unnamed").text
    assert tiles_on(unnamed) == [1, 3]
    assert "<small>#1 · 4 faces" in unnamed
    assert faces_on(client.get("/individuals?tab=unassigned").text) == [9]


def test_tile_lazy_loads_faces_of_its_identity(client: TestClient):
    page = client.get("/individuals?tab=unnamed").text
    tile = page[page.index('id="individual-2"') :]
    shown = re.findall(r'<img src="/api/v1/faces/(\d+)/image\?side=\d+" alt="" [^>]*loading="lazy"', tile)
    assert set(map(int, shown[:3])) == GREEN


def test_default_tab_is_first_nonempty_tab(client: TestClient, gallery: Store):
    assert 'href="/individuals?tab=unnamed" aria-current="page"' in client.get("/individuals").text
    unassign(gallery, RED | GREEN | BLUE)
    assert 'href="/individuals?tab=unassigned" aria-current="page"' in client.get("/individuals").text


def test_more_link_pages_through_all_tiles(client: TestClient, gallery: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(individuals, "TILES", 1)
    unassign(gallery, [4])  # red and green have three faces each
    path, seen = "/individuals?tab=unnamed", []
    while path:
        page = client.get(path).text
        seen += tiles_on(page)
        assert ("From the beginning" in page) == (len(seen) > 1)
        path = next(map(unescape, re.findall(r'href="([^"]*)">More<', page)), "")
    assert seen == [1, 2, 3]


def test_naming_on_later_page_redirects_back_to_it(client: TestClient):
    back = "/individuals?tab=unnamed&faces=3&after=2"
    named = post(client, "/individuals/3/name", name="Tom", back=back)
    assert named.headers["location"] == f"{back}&done=named&individual=3&decision=2"


def test_more_link_pages_through_unassigned_faces(client: TestClient, gallery: Store, monkeypatch: pytest.MonkeyPatch):
    unassign(gallery, RED)
    monkeypatch.setattr(individuals, "FACES", 3)
    page = client.get("/individuals?tab=unassigned").text
    assert faces_on(page) == [1, 2, 3]
    (more,) = re.findall(r'href="([^"]*)">More<', page)
    assert faces_on(client.get(unescape(more)).text) == [4]


def test_tile_form_names_identity(client: TestClient, gallery: Store):
    answer = post(client, "/individuals/1/name", name=" Tom ", back="/individuals?tab=unnamed")
    assert redirect_of(answer) == ("/individuals", {"tab": "unnamed", "done": "named", "individual": "1"})
    assert flash_of(client, answer) == "Now called Tom."
    assert names_of(gallery) == {1: "Tom"}


def test_duplicate_name_offers_merge(client: TestClient, gallery: Store):
    corrections.name_identity(gallery, 1, "Tom")
    answer = post(client, "/individuals/2/name", name="Tom", back="/individuals?tab=unnamed")
    assert redirect_of(answer) == ("/individuals/merge", {"identity": "1,2", "back": "/individuals?tab=unnamed"})
    page = client.get(answer.headers["location"]).text
    assert "There is already an individual called Tom" in page
    assert '<input type="radio" name="into" value="1" checked>' in page
    assert 'href="/individuals?tab=unnamed">No, keep them separate' in page
    assert names_of(gallery) == {1: "Tom"}
    assert groups(gallery) == {frozenset(RED), frozenset(GREEN), frozenset(BLUE)}
    merged = post(client, "/individuals/merge", identity=["1", "2"], into="1", back="/individuals?tab=unnamed")
    assert flash_of(client, merged) == "Merged into Tom."
    assert groups(gallery) == {frozenset(RED | GREEN), frozenset(BLUE)}


def test_name_matching_ignores_case_but_prefers_exact_match(client: TestClient, gallery: Store):
    corrections.name_identity(gallery, 1, "Tom")
    answer = post(client, "/individuals/2/name", name="tom")
    assert redirect_of(answer) == ("/individuals/merge", {"identity": "1,2", "back": "/individuals"})
    post(client, "/individuals/2/faces", operation="move", face="5", name="TOM")
    assert identity_of(gallery, 5) == 1
    post(client, "/individuals/1/name", name="tom")  # one's own name may be written otherwise
    assert names_of(gallery) == {1: "tom"}
    corrections.name_identity(gallery, 2, "Tom")
    post(client, "/individuals/3/faces", operation="move", face="8", name="Tom")
    assert identity_of(gallery, 8) == 2


def test_forms_know_a_name_by_any_spelling(client: TestClient, gallery: Store):
    corrections.name_identity(gallery, 1, "Jos\u00e9")
    assert redirect_of(post(client, "/individuals/2/name", name="JOSE\u0301"))[0] == "/individuals/merge"
    post(client, "/individuals/2/faces", operation="move", face="5", name="\u200eJose\u0301\u3000")
    assert identity_of(gallery, 5) == 1
    post(client, "/photos/8/faces/8", name="\u5c71\u7530\u3000\u592a\u90ce", operation="name")
    assert names_of(gallery) == {1: "Jos\u00e9", 3: "\u5c71\u7530 \u592a\u90ce"}
    page = client.get("/individuals/names", params={"name": "jose\u0301"}).text
    assert page.strip() == '<option value="Jos\u00e9"></option>'
    answer = post(client, "/individuals/2/faces", operation="move", face="6", name="\u200b")
    assert "enter whom these faces show" in answer.json()["detail"]


def test_merge_page_pushes_its_url(client: TestClient):
    path = "/individuals/merge?identity=1&identity=2"
    assert client.get(path).headers["HX-Push-Url"] == path


def test_group_form_clusters_unassigned_faces(client: TestClient, gallery: Store):
    undo(gallery)
    for tab in ("unassigned", "unnamed"):
        assert 'action="/individuals/group"' in client.get(f"/individuals?tab={tab}").text
    assert "9 faces</a> are unassigned" in client.get("/individuals?tab=unnamed").text
    answer = post(client, "/individuals/group")
    assert flash_of(client, answer) == "Grouped: there are 3 individuals now."
    assert groups(gallery) == {frozenset(RED), frozenset(GREEN), frozenset(BLUE)}
    assert "are unassigned" not in client.get("/individuals?tab=unnamed").text
    again = post(client, "/individuals/group")
    assert flash_of(client, again) == "No faces are similar enough to be grouped."


def test_empty_gallery_shows_notice_without_group_form(tmp_path: Path, mean_color_bundle: Path):
    with make_client(Settings(gallery=tmp_path / "new", models=(mean_color_bundle,))) as client:
        for tab in ("unnamed", "unassigned"):
            page = client.get(f"/individuals?tab={tab}").text
            assert "There are no individuals yet" in page
            assert "/individuals/group" not in page


@pytest.mark.parametrize(
    ("name", "message"), [("", "enter a name first"), ("#12", "start with #"), ("two\nlines", "line break")]
)
def test_rejects_invalid_names(client: TestClient, gallery: Store, name: str, message: str):
    for path in ("/individuals/1/name", "/photos/1/faces/1"):
        answer = post(client, path, name=name, operation="name")
        assert answer.status_code == 409
        assert message in answer.json()["detail"]
    assert not load_assignments(gallery).by_user.any()
    assert names_of(gallery) == {}


def test_merge_without_target_asks_for_target(client: TestClient, gallery: Store):
    answer = post(client, "/individuals/merge", identity=["3", "2"])
    assert redirect_of(answer) == ("/individuals/merge", {"identity": "3,2", "back": "/individuals"})
    page = client.get(answer.headers["location"]).text
    assert re.findall(r'name="into" value="(\d)"( checked)?', page) == [("2", " checked"), ("3", "")]
    assert len(groups(gallery)) == 3


def test_merge_keeps_name_of_target(client: TestClient, gallery: Store):
    corrections.name_identity(gallery, 1, "Tom")
    corrections.name_identity(gallery, 2, "Mia")
    post(client, "/individuals/merge", identity=["1", "2"], into="2")
    assert names_of(gallery) == {2: "Mia"}


def test_rejects_merge_of_single_identity(client: TestClient):
    answer = post(client, "/individuals/merge", identity=["1", "1"], into="1")
    assert answer.status_code == 409
    assert "select two" in answer.json()["detail"]


def test_merge_on_page_of_absorbed_identity_redirects_to_target(client: TestClient):
    answer = post(client, "/individuals/merge", identity=["1", "2"], into="1", back="/individuals/2?order=likely")
    assert redirect_of(answer) == ("/individuals/1", {"done": "merged", "individual": "1"})


def test_rejects_merge_of_identities_in_same_photo(client: TestClient, gallery: Store):
    with gallery.write(faces_change=True) as repository:
        repository.connection.execute("UPDATE faces SET photo_id = 1 WHERE id = 5")
    answer = post(client, "/individuals/merge", identity=["1", "2"], into="1")
    assert answer.status_code == 409
    assert "would show one identity twice" in answer.json()["detail"]
    assert len(groups(gallery)) == 3


def test_names_endpoint_completes_prefix(client: TestClient, gallery: Store):
    corrections.name_identity(gallery, 1, "Tom & Co")
    corrections.name_identity(gallery, 2, "Mia")
    page = client.get("/individuals/names", params={"name": "to"}).text
    assert page.strip() == '<option value="Tom &amp; Co"></option>'


def test_unassigned_faces_become_new_identity(client: TestClient, gallery: Store):
    unassign(gallery, [8, 9])
    answer = post(client, "/individuals/unassigned", face=["8", "9"], back="/individuals?tab=unassigned")
    assert frozenset({8, 9}) in groups(gallery)
    number = identity_of(gallery, 8)
    assert flash_of(client, answer) == f"2 faces moved to #{number}."


def test_unassigned_face_moves_to_identity_by_name(client: TestClient, gallery: Store):
    corrections.name_identity(gallery, 2, "Mia")
    unassign(gallery, [9])
    post(client, "/individuals/unassigned", face="9", name="Mia")
    assert frozenset(GREEN | {9}) in groups(gallery)
    unassign(gallery, [9])
    post(client, "/individuals/unassigned", face="9", name="Somebody new")
    assert "Somebody new" in names_of(gallery).values()


# --- One individual ---


def test_least_fitting_faces_come_first_but_confirmed_ones_last(client: TestClient, gallery: Store):
    page = client.get("/individuals/1?order=likely").text
    shown = faces_on(page)
    assert set(shown) == RED
    assert re.findall(r"Face (\d) of #1, likely [^<]+\s%", page) == ["1", "2", "3", "4"]
    corrections.confirm(gallery, [shown[-1]])
    # Confirmed faces are not doubted, so they come last.
    again = faces_on(client.get("/individuals/1").text)
    assert again == [*shown[-2::-1], shown[-1]]


def test_selects_the_rest_of_an_intruder(client: TestClient, gallery: Store):
    corrections.move(gallery, [5, 6], 1)  # green among red
    with gallery.write() as repository:
        repository.connection.execute("UPDATE assignments SET by_user = 0")
    assert client.get("/individuals/1/similar?face=5").json() == [6]
    assert client.get("/individuals/1/similar?face=5&face=6").json() == []
    assert client.get("/individuals/2/similar?face=5").json() == [], "it is in another individual"
    corrections.confirm(gallery, [6])
    assert client.get("/individuals/1/similar?face=5").json() == [], "a confirmed face stays"
    assert client.get("/individuals/1/similar?face=599").status_code == 404


def test_confirmed_and_doubtful_faces_are_marked(client: TestClient, gallery: Store):
    corrections.move(gallery, [9], 1)  # blue among red: nothing like them
    corrections.confirm(gallery, [1])
    page = client.get("/individuals/1").text
    assert "5 faces, 2 confirmed" in page
    assert page.count('<span class="mark">Confirmed</span>') == 2
    assert 'one doubtful"' not in page
    with gallery.write() as repository:
        repository.connection.execute("UPDATE assignments SET by_user = 0 WHERE face_id = 9")
    page = client.get("/individuals/1").text
    assert "1 doubtful" in page
    assert re.search(r'<li class="tile single doubtful" id="face-9">', page)


def test_more_link_pages_through_identity_faces(client: TestClient, monkeypatch: pytest.MonkeyPatch):
    whole = faces_on(client.get("/individuals/1").text)
    monkeypatch.setattr(individual, "FACES", 3)
    page = client.get("/individuals/1").text
    assert faces_on(page) == whole[:3]
    (more,) = re.findall(r'href="([^"]*)">More<', page)
    rest = client.get(unescape(more)).text
    assert faces_on(rest) == whole[3:]
    assert "Face 4 of #1" in rest


@pytest.mark.parametrize(
    ("fields", "expected", "says"),
    [
        ({"operation": "split", "face": ["1", "2"]}, [{1, 2}, {3, 4}], "2 faces split off as #4."),
        ({"operation": "move", "face": ["1"], "name": "Mia"}, [{1, *GREEN}, {2, 3, 4}], "1 face moved to Mia."),
        ({"operation": "split", "face": ["1"], "name": "Mia"}, [{1, *GREEN}, {2, 3, 4}], "1 face split off as Mia."),
        ({"operation": "move", "face": ["1"], "name": "Zoe"}, [{1}, {2, 3, 4}], "1 face moved to Zoe."),
        ({"operation": "reject", "face": ["1", "1"]}, [{2, 3, 4}], "1 face removed from #1, unassigned now."),
    ],
)
def test_face_form_splits_moves_and_rejects(
    client: TestClient, gallery: Store, fields: dict[str, object], expected: list[set[int]], says: str
):
    corrections.name_identity(gallery, 2, "Mia")
    answer = post(client, "/individuals/1/faces", **fields)
    assert redirect_of(answer)[0] == "/individuals/1"
    assert all(frozenset(faces) in groups(gallery) for faces in expected)
    assert flash_of(client, answer) == says


def test_correction_reports_propagated_faces(client: TestClient, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(corrections, "reject", lambda *_: corrections.CorrectionResult(1, 12))
    answer = post(client, "/individuals/1/faces", operation="reject", face="1")
    assert flash_of(client, answer) == "1 face removed from #1, unassigned now; 12 similar faces changed with it."


def test_confirms_selected_or_all_faces(client: TestClient, gallery: Store):
    answer = post(client, "/individuals/1/faces", operation="confirm", face=["2", "3"])
    assert flash_of(client, answer) == "2 faces confirmed."
    assert load_assignments(gallery).by_user.tolist() == [False, True, True] + [False] * 6
    answer = post(client, "/individuals/1/confirm", faces="4")
    assert flash_of(client, answer) == "2 faces confirmed."
    assert load_assignments(gallery).by_user.tolist() == [True] * 4 + [False] * 5
    assert "Confirm all" not in client.get("/individuals/1").text
    answer = post(client, "/individuals/1/confirm", faces="4")  # from a window that was loaded before
    assert flash_of(client, answer) == "0 faces confirmed."


def test_rejects_confirm_all_when_face_count_changed(client: TestClient, gallery: Store):
    answer = post(client, "/individuals/1/confirm", faces="3")
    assert answer.status_code == 409
    assert "4 faces now" in answer.json()["detail"]
    assert not load_assignments(gallery).by_user.any()


def test_moving_face_to_same_identity_confirms_it(client: TestClient, gallery: Store):
    corrections.name_identity(gallery, 1, "Rex")
    answer = post(client, "/individuals/1/faces", operation="move", face="1", name="rex")
    assert flash_of(client, answer) == "1 face confirmed."
    assert load_assignments(gallery).by_user.tolist() == [True] + [False] * 8


def test_correcting_deleted_face_returns_404(client: TestClient, gallery: Store):
    manual_faces.delete_face(gallery, 1)
    for path, fields in (
        ("/individuals/1/faces", {"operation": "reject", "face": "1"}),
        ("/individuals/unassigned", {"face": "1"}),
        ("/photos/1/faces/1", {"operation": "confirm"}),
    ):
        answer = post(client, path, **fields)
        assert answer.status_code == 404
        assert answer.json()["detail"] == "this face was deleted in the meantime; reload the page"


def test_rejects_move_without_name(client: TestClient, gallery: Store):
    answer = post(client, "/individuals/1/faces", operation="move", face="1", name="  ")
    assert answer.status_code == 409
    assert decisions(gallery, 1)[0].kind == "cluster"


def test_missing_identity_returns_404_and_huge_number_422(client: TestClient):
    answer = client.get("/individuals/99", headers={"accept": "text/html"})
    assert answer.status_code == 404
    assert client.get("/individuals/99999999999999999999").status_code == 422


def test_missing_identity_after_merge_redirects_to_list(client: TestClient):
    answer = client.get("/individuals/99?done=merged&individual=1", follow_redirects=False)
    assert redirect_of(answer) == ("/individuals", {"done": "merged", "individual": "1"})


def test_first_naming_leads_back_to_the_tab_that_was_shown(client: TestClient):
    page = client.get("/individuals").text
    (back,) = set(re.findall(r'name="back" value="(/individuals[^"]*)"', page.partition("<main")[2]))
    assert unescape(back) == "/individuals?tab=unnamed"
    answer = post(client, "/individuals/1/name", name="Tom", back=back)
    assert tiles_on(client.get(answer.headers["location"]).text) == [2, 3]


@pytest.mark.parametrize(
    ("path", "fields", "says"),
    [
        ("/individuals/1/name", {"name": "Tom", "back": "/individuals?tab=unnamed"}, "Undone: this is again #1."),
        ("/individuals/2/name", {"name": "Tom", "back": "/individuals?tab=named"}, "Undone: this is again Mia."),
        ("/individuals/2/faces", {"operation": "reject", "face": ["5", "6"]}, "Undone: 2 faces back with Mia."),
        ("/individuals/1/faces", {"operation": "move", "face": "1", "name": "Mia"}, "Undone: 1 face back with #1."),
        ("/photos/1/faces/1", {"operation": "name", "name": "Mia"}, "Undone: 1 face back with #1."),
        ("/photos/9/faces/9", {"operation": "name", "name": "Mia"}, "Undone: 1 face unassigned again."),
        ("/individuals/unassigned", {"face": "9", "name": "Zoe"}, "Undone: 1 face unassigned again."),
        ("/individuals/1/confirm", {"faces": "4"}, "Undone."),
    ],
)
def test_undo_says_where_the_faces_are_now(
    client: TestClient, gallery: Store, path: str, fields: dict[str, object], says: str
):
    corrections.name_identity(gallery, 2, "Mia")
    unassign(gallery, [9])
    changed = post(client, path, **fields).headers["location"]
    decision = decisions(gallery)[0].number
    answer = post(client, "/undo", back=changed, decision=str(decision))
    assert flash_of(client, answer) == says


@pytest.mark.parametrize(
    ("path", "fields", "undoes"),
    [
        ("/individuals/unassigned", {"face": ["8", "9"], "name": "Zoe"}, "naming"),
        ("/individuals/unassigned", {"face": ["8", "9"], "name": "Mia"}, "naming"),
        (
            "/individuals/unassigned",
            {"face": ["8", "9"]},
            "\N{LEFT SINGLE QUOTATION MARK}same individual\N{RIGHT SINGLE QUOTATION MARK}",
        ),
        ("/photos/9/faces/9", {"operation": "name", "name": "Zoe"}, "naming"),
        ("/photos/1/faces/1", {"operation": "name", "name": "Mia"}, "moving"),
        ("/individuals/1/faces", {"operation": "split", "face": "1", "name": "Zoe"}, "splitting"),
    ],
)
def test_undo_button_says_what_was_done(
    client: TestClient, gallery: Store, path: str, fields: dict[str, object], undoes: str
):
    corrections.name_identity(gallery, 2, "Mia")
    unassign(gallery, BLUE)
    post(client, path, **fields)
    assert f"<span>Undo {undoes}</span>" in client.get("/model").text
