"""The pages of lost and found pets: entering, candidates, decisions, the register, the page to print, and access."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from familiar.gallery import Gallery
from familiar.gallery.edits.corrections import name_identity
from familiar.gallery.search import folder_index
from familiar.gallery.store.model_reference import NO_REFERENCE
from familiar.gallery.store.store import Store
from familiar.integrations.lost_pets.register import set_reports
from familiar.integrations.lost_pets.reports import Pet, Report, list_pets
from familiar.web.settings import Limits, Settings
from support.color_album import draw_photo
from support.html import BROWSER, Answer, Page, text_of
from support.web_forms import flash_of, make_client, post, redirect_of

pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror=alert(1)>'&"
ELM = Report("lost", "cat", "Elm Street", "2026-05-01", "555-0101", HOSTILE)
TOKEN = "a long enough token"


@pytest.fixture
def folder(folder: Path) -> Path:
    """The album with two lost pets, Ruby and Emma, and blue, who has no name."""
    with Store.open(folder) as gallery:
        name_identity(gallery, 1, "Ruby")
        name_identity(gallery, 2, "Emma")
        set_reports(Gallery(gallery), {1: ELM})
    return folder


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """One more photo of Ruby."""
    return draw_photo(tmp_path / "one more.png", "red", shade=9)


def pets(folder: Path, status: str | None = None) -> list[Pet]:
    with Store.open(folder) as gallery:
        return list_pets(Gallery(gallery), status)  # pyright: ignore[reportArgumentType]


def enter(client: TestClient, *photos: Path, **fields: str) -> Answer:
    return client.post(
        "/desk/pets",
        data={"status": "found"} | fields,
        files=[("photos", (path.name, path.read_bytes())) for path in photos],
        follow_redirects=False,
    )


def entered(client: TestClient, photo: Path, **fields: str) -> int:
    """Enter a found pet and return its number."""
    path, query = redirect_of(enter(client, photo, **fields))
    assert query == {"done": "entered", "individual": path.split("/")[-1]}
    return int(query["individual"])


def order(page: str) -> list[int]:
    return [int(number) for number in re.findall(r'id="candidate-(\d+)"', page)]


def test_found_pet_is_entered_and_its_owner_comes_first(client: TestClient, folder: Path, photo: Path):
    number = entered(client, photo, name="Stray", place="Elm Street", date="2026-05-03", note="limps", species="Cat")
    (pet,) = pets(folder, "found")
    assert (pet.identity, pet.name, pet.faces) == (number, "Stray", 1)
    assert pet.report == Report("found", "cat", "Elm Street", "2026-05-03", "", "limps")
    page = client.get(f"/desk/{number}")
    assert order(page.text) == [1, 2]
    text = text_of(page)
    assert "Found: Stray" in text
    assert re.search(r"1\. Ruby Stray Ruby [A-Z][a-z ]+: \d+(\.\d)? % similarity", text)
    assert "555-0101" in text
    desk = text_of(client.get("/desk"))
    assert "1 found pet without an owner yet, 2 lost pets" in desk
    assert "Most like Ruby" in desk


def test_several_photos_and_a_name_are_optional(client: TestClient, folder: Path, tmp_path: Path):
    photos = [draw_photo(tmp_path / f"blue{shade}.png", "blue", shade=shade) for shade in (7, 8)]
    path, _ = redirect_of(enter(client, *photos))
    (pet,) = pets(folder, "found")
    assert (path, pet.name, pet.faces) == (f"/desk/{pet.identity}", None, 2)
    assert f"Found: #{pet.identity}" in text_of(client.get(path))


def test_entry_does_not_wait_for_an_index(
    client: TestClient, folder: Path, photo: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(folder_index, "INDEX_FROM", 5)
    entered(client, photo)
    with Gallery.open(folder) as gallery:
        assert folder_index.lacks_index(gallery.store)


def test_entry_is_refused_with_the_reason(client: TestClient, folder: Path, photo: Path, photos: list[Path]):
    broken = photo.with_name("broken.png")
    broken.write_text("no photo")
    for answer, status, reason in (
        (enter(client, photos[0]), 409, "shows Ruby already"),
        (enter(client, broken), 415, "broken.png"),
        (enter(client, photo, name="Ruby"), 409, "has the name Ruby already"),
        (enter(client, photo, date="May"), 409, "written as 2026-05-31"),
        (enter(client, photo, status="home"), 422, ""),
        (enter(client), 422, ""),
    ):
        assert (answer.status_code, reason in answer.text) == (status, True), answer.text
    assert pets(folder, "found") == []


def test_bad_photo_among_several_is_left_out_and_counted(serving: Callable[..., TestClient], folder: Path, photo: Path):
    client = serving(limits=replace(Limits(), photo_bytes=100_000))
    broken, large = photo.with_name("broken.png"), photo.with_name("large.png")
    broken.write_text("no photo")
    large.write_bytes(photo.read_bytes().ljust(200_000, b"\0"))
    answer = enter(client, broken, photo, large)
    path, query = redirect_of(answer)
    assert query["left_out"] == "2"
    (pet,) = pets(folder, "found")
    assert pet.faces == 1
    assert "Entered: #" in (text := text_of(client.get(answer.headers["location"])))
    assert "; 2 photos left out, which cannot be read or show no face." in text
    answer = client.post(
        f"{path}/photos",
        files=[("photos", (each.name, each.read_bytes())) for each in (broken, photo)],
        follow_redirects=False,
    )
    assert redirect_of(answer)[1]["left_out"] == "1"
    assert enter(client, large).status_code == 413


def test_photos_without_a_face_are_not_stored(serving: Callable[..., TestClient], folder: Path, photo: Path):
    client = serving(detector="pets")  # which does not take a red square for a cat
    answer = enter(client, photo)
    assert (answer.status_code, "no head of a cat or dog was found" in answer.text) == (422, True)
    assert not list((folder / "uploads").rglob("*.png"))


def test_not_this_one_is_remembered_until_it_is_undone(client: TestClient, folder: Path, photo: Path):
    number = entered(client, photo)
    answer = post(client, f"/desk/{number}/not", candidate=1, back=f"/desk/{number}?species=")
    assert redirect_of(answer) == (f"/desk/{number}", {"done": "dismissed", "individual": "1"})
    assert flash_of(client, answer) == "Remembered: it is not Ruby."
    page = client.get(f"/desk/{number}").text
    assert (order(page), 'id="dismissed-1"' in page) == ([2], True)
    assert order(client.get("/desk/1").text) == []
    decision = re.search(r'name="decision" value="(\d+)"', page)
    assert decision
    assert redirect_of(post(client, "/undo", decision=decision[1], back=f"/desk/{number}"))[0] == f"/desk/{number}"
    assert order(client.get(f"/desk/{number}").text) == [1, 2]
    post(client, f"/desk/{number}/not", candidate=1)
    post(client, f"/desk/{number}/not", candidate=2)
    answer = post(client, f"/desk/{number}/again", candidate=1)
    assert flash_of(client, answer) == "Shown again: Ruby."
    with Store.open(folder) as gallery:
        assert Gallery(gallery).different_identities(number) == {2}


def test_reunion_closes_both_cases(client: TestClient, folder: Path, photo: Path):
    number = entered(client, photo, place="Harbor")
    answer = post(client, f"/desk/{number}/reunite", candidate=1)
    assert redirect_of(answer) == ("/desk", {"done": "reunited", "individual": "1"})
    assert flash_of(client, answer) == "Home again: Ruby."
    (pet,) = pets(folder, "home")
    assert (pet.name, pet.faces, pet.report.note) == ("Ruby", 5, HOSTILE + " Found, Harbor.")
    assert "Home again: Ruby" in text_of(client.get("/desk/1"))
    answer = client.get(f"/desk/{number}?done=undone", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/desk?done=undone")
    assert client.get(f"/desk/{number}").status_code == 404
    assert post(client, f"/desk/{number}/reunite", candidate=1).status_code == 404


def test_owner_finds_a_pet_that_was_found_before(client: TestClient, photo: Path, folder: Path):
    number = entered(client, photo)
    assert order(client.get("/desk/1").text) == [number]
    post(client, "/desk/1/reunite", candidate=number)
    assert [pet.identity for pet in pets(folder, "home")] == [1]


def test_entry_is_changed_and_photos_are_added(client: TestClient, folder: Path, photo: Path):
    answer = post(
        client, "/desk/2/report", status="lost", name="Emma 2", place="Harbor", date="2026-05-02", contact="5"
    )
    assert flash_of(client, answer) == "Saved: Emma 2."
    pet = next(pet for pet in pets(folder) if pet.identity == 2)
    assert (pet.name, pet.report) == ("Emma 2", Report("lost", "", "Harbor", "2026-05-02", "5"))
    files = [("photos", (photo.name, photo.read_bytes()))]
    answer = client.post("/desk/1/photos", files=files, follow_redirects=False)
    assert flash_of(client, answer) == "1 face added to Ruby."
    assert next(pet for pet in pets(folder) if pet.identity == 1).faces == 5
    assert post(client, "/desk/99/report", status="lost").status_code == 404
    assert post(client, "/desk/2/report", status="gone").status_code == 422


def test_filters_of_the_query(client: TestClient, photo: Path):
    number = entered(client, photo, date="2026-04-30", species="cat")
    for query, expected in (
        ("species=dog", [2]),  # Emma's species is not known
        ("species=CAT&place=elm", [1, 2]),
        ("place=harbor", [2]),
        ("since=2026-05-02", [2]),
        ("until=2026-05-01", [1, 2]),
        ("possible=1", [2]),
        ("k=1", [1]),
        ("", [1, 2]),
    ):
        page = client.get(f"/desk/{number}?{query}").text
        assert order(page) == expected, query
        assert ("More candidates" in page) == (query == "k=1")
        assert ("By the dates it was found before it was lost" in page) == (1 in expected)
    assert client.get(f"/desk/{number}?since=May").status_code == 409


def test_register_lists_pets_by_status(client: TestClient, photo: Path):
    number = entered(client, photo, name="Stray")
    lost, found_pets = client.get("/desk/register").text, client.get("/desk/register?status=found").text
    assert re.findall(r'id="pet-(\d+)"', lost) == ["2", "1"]
    assert re.findall(r'id="pet-(\d+)"', found_pets) == [str(number)]
    assert client.get("/desk/register?status=gone").status_code == 422
    redirect_of(enter(client, draw_photo(photo.with_name("b.png"), "blue", shade=9), status="lost", name="Sky"))
    assert re.findall(r'id="pet-(\d+)"', client.get("/desk/register").text) == ["2", "1", str(number + 1)]


def test_printed_page_is_a_whole_file_without_contact(client: TestClient, photo: Path):
    number = entered(client, photo, name=HOSTILE)
    answer = client.get(f"/desk/{number}/1/print")
    page = Page(answer.text)
    assert page.open == []
    assert "sandbox" in answer.headers["Content-Security-Policy"]
    assert [image["src"][:23] for image in page.all("img")] == ["data:image/jpeg;base64,"] * 2
    assert "<img src=x" not in answer.text
    assert "555-0101" not in answer.text
    assert "Printed on" in answer.text
    assert "555-0101" in client.get(f"/desk/{number}/1/print?contact=1").text
    assert client.get(f"/desk/{number}/3/print").status_code == 404
    assert client.get(f"/desk/{number}/1/print?species=dog").status_code == 404


def test_pages_are_valid_and_escape_texts(client: TestClient, photo: Path):
    number = entered(client, photo, name=HOSTILE, place=HOSTILE, note=HOSTILE)
    post(client, f"/desk/{number}/not", candidate=2)
    for path in ("/desk", "/desk/register", "/desk/1", f"/desk/{number}", f"/desk/{number}?place={HOSTILE}"):
        answer = client.get(path, headers=BROWSER)
        page = Page(answer.text)
        assert page.open == [], path
        assert "<img src=x" not in answer.text, path
        assert len(page.all("h1")) == len(page.all("main")) == 1, path
        ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
        assert len(ids) == len(set(ids)), path
        labels = {label["for"] for label in page.all("label") if "for" in label}
        for field in (*page.all("input"), *page.all("select")):
            named = field.get("id") in labels or "aria-label" in field or "in a label" in field
            assert named or field.get("type") == "hidden", (path, field)
        for _, attributes in page.elements:
            assert not [key for key in attributes if key == "style" or key.startswith("on")], path


@pytest.mark.one_case
@pytest.mark.parametrize("kind", ["read only", "without a model"])
def test_desk_can_be_read_without_writing(
    serving: Callable[..., TestClient], client: TestClient, folder: Path, photo: Path, kind: str
):
    number = entered(client, photo)
    if kind == "without a model":
        with Store.open(folder) as gallery, gallery.write() as repository:
            repository.settings.set_model_reference(NO_REFERENCE)
    reader = serving(**({"read_only": True} if kind == "read only" else {"models": ()}))
    for path in ("/desk", "/desk/register", f"/desk/{number}", f"/desk/{number}/1/print"):
        page = reader.get(path)
        assert page.status_code == 200, path
        assert 'type="file"' not in page.text, path
    assert (f"/desk/{number}/not" in reader.get(f"/desk/{number}").text) == (kind != "read only")
    assert enter(reader, photo).status_code == (403 if kind == "read only" else 409)
    if kind == "read only":
        assert post(reader, f"/desk/{number}/not", candidate=1).status_code == 403
        assert post(reader, f"/desk/{number}/reunite", candidate=1).status_code == 403
        assert post(reader, "/desk/1/report", status="lost").status_code == 403


def test_contact_is_for_visitors_who_are_logged_in(serving: Callable[..., TestClient], folder: Path):
    with_token = serving(token=TOKEN, address="0.0.0.0")
    assert with_token.get("/desk/1", headers=BROWSER, follow_redirects=False).headers["location"].startswith("/login")
    with_token.headers["Authorization"] = f"Bearer {TOKEN}"
    assert "555-0101" in with_token.get("/desk/1").text
    public = serving(address="0.0.0.0", trusted_network=True)
    for path in ("/desk/1", "/desk/register"):
        assert "555-0101" not in public.get(path).text
        assert 'name="contact"' not in public.get(path).text
    post(public, "/desk/1/report", status="lost", place="Harbor")
    report = next(pet.report for pet in pets(folder) if pet.identity == 1)
    assert (report.location, report.contact) == ("Harbor", "555-0101")


def test_navigation_has_the_desk_where_it_is_used(serving: Callable[..., TestClient], client: TestClient, folder: Path):
    def links(client: TestClient, path: str) -> list[str]:
        return [link["href"] for link in Page(client.get(path).text).all("a")]

    assert "/desk" in links(client, "/album")
    with Store.open(folder) as gallery, gallery.write() as repository:
        repository.identities.set_attributes(1, [])
    assert "/desk" not in links(client, "/album")
    assert "/desk" in links(client, "/desk")
    assert client.get("/", follow_redirects=False).status_code == 200
    desk = serving(desk=True)
    assert "/desk" in links(desk, "/album")
    assert desk.get("/", follow_redirects=False).headers["location"] == "/desk"


def test_form_without_javascript_is_taken_from_pages_of_this_server_only(settings: Settings, photo: Path):
    with make_client(settings) as client:
        path = f"/desk/{entered(client, photo)}/not"
        send = {"data": {"candidate": "1"}, "follow_redirects": False}
        for headers, status in (
            ({"Origin": "null", "Sec-Fetch-Site": "cross-site"}, 403),
            ({"Origin": "http://evil.example"}, 403),
            ({"Origin": "http://127.0.0.1:8000", "Sec-Fetch-Site": "same-origin"}, 303),
        ):
            assert client.post(path, headers=headers, **send).status_code == status  # pyright: ignore
