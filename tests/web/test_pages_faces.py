"""The page of a photo, and common parts of the pages about faces: undo, hostile names, read-only servers."""

import hashlib
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from PIL import Image
from starlette.testclient import TestClient

from familiar.gallery.edits import corrections
from familiar.gallery.same.assignments import load_assignments
from familiar.gallery.same.decisions import decisions
from familiar.gallery.search.listing import photo as known_photo
from familiar.gallery.store.store import Store
from familiar.web.settings import Settings
from support.small_gallery import groups, identity_of
from support.web_forms import flash_of, make_client, names_of, post, redirect_of, unassign

pytestmark = pytest.mark.slow

HOSTILE = "\"><img src=x onerror=alert(1)>'{{ 7 * 7 }}"
RED, GREEN, BLUE = {1, 2, 3, 4}, {5, 6, 7}, {8, 9}  # faces, by the numbers of whom they show: 1, 2 and 3


@pytest.fixture
def gallery(folder: Path) -> Iterator[Store]:
    """A second connection to the server's gallery."""
    with Store.open(folder) as opened:
        yield opened


# --- Photos ---


def test_photo_page_draws_boxes_in_photo_pixels(client: TestClient, gallery: Store):
    corrections.name_identity(gallery, 1, "Tom")
    with gallery.write(faces_change=True) as repository:
        repository.connection.execute(
            "UPDATE faces SET left_px = 4.5, top_px = 2, right_px = 20, bottom_px = 30 WHERE id = 1"
        )
    page = client.get("/photos/1").text
    assert 'viewBox="0 0 32 32"' in page
    assert '<rect class="over" x="4.5" y="2.0" width="15.5" height="28.0"/>' in page
    assert 'aria-label="Face 1: Tom"' in page
    assert '<a href="/individuals/1">Tom</a>' in page


def test_photo_page_applies_exif_orientation(client: TestClient, gallery: Store, photos: list[Path]):
    side = photos[0].with_suffix(".jpg")
    exif = Image.Exif()
    exif[274] = 6  # turned by a quarter
    Image.new("RGB", (640, 480)).save(side, exif=exif)
    with gallery.write() as repository:
        content = hashlib.sha256(side.read_bytes()).digest()
        repository.connection.execute("UPDATE photos SET path = ?, sha256 = ? WHERE id = 1", (bytes(side), content))
    assert 'viewBox="0 0 480 640"' in client.get("/photos/1").text


def test_missing_photo_still_lists_faces(client: TestClient, photos: list[Path]):
    photos[0].unlink()
    page = client.get("/photos/1").text
    assert "cannot be shown" in page
    assert 'id="face-1"' in page
    assert "Add a face" not in page
    assert "<image" not in page


def test_photo_outside_roots_is_not_shown(client: TestClient, gallery: Store, tmp_path: Path):
    Image.new("RGB", (64, 64)).save(tmp_path / "secret.png")
    with gallery.write() as repository:
        repository.connection.execute(
            "UPDATE photos SET path = ?, sha256 = x'02' WHERE id = 1", (bytes(tmp_path / "secret.png"),)
        )
    page = client.get("/photos/1").text
    assert "cannot be shown" in page
    assert 'viewBox="0 0 64 64"' not in page


def test_selected_face_is_listed_first(client: TestClient, gallery: Store):
    with gallery.write(faces_change=True) as repository:
        repository.connection.execute("UPDATE faces SET photo_id = 1 WHERE id = 5")
    page = client.get("/photos/1?face=5").text
    assert re.findall(r'photo-face( chosen)?" id="face-(\d)"', page) == [(" chosen", "5"), ("", "1")]
    assert "Face 2" in page[page.index('id="face-5"') : page.index('id="face-1"')]


def test_new_name_on_photo_names_whole_identity(client: TestClient, gallery: Store):
    answer = post(client, "/photos/1/faces/1", operation="name", name="Tom")
    assert redirect_of(answer)[0] == "/photos/1"
    assert flash_of(client, answer) == "Now called Tom."
    assert names_of(gallery) == {1: "Tom"}
    assert frozenset(RED) in groups(gallery)
    # What was said of a face outlasts another box.
    assert load_assignments(gallery).by_user.tolist() == [True] + [False] * 8
    moved = post(client, "/photos/1/faces/1/box", left="2", top="2", right="22", bottom="22")
    assert flash_of(client, moved) == "The box was saved; the face shows Tom."


def test_repeating_face_name_confirms_face(client: TestClient, gallery: Store):
    corrections.name_identity(gallery, 1, "Rex")
    answer = post(client, "/photos/1/faces/1", operation="name", name="Rex")
    assert flash_of(client, answer) == "1 face confirmed."
    assert load_assignments(gallery).by_user.tolist() == [True] + [False] * 8


def test_different_name_on_photo_moves_face(client: TestClient, gallery: Store):
    corrections.name_identity(gallery, 1, "Tom")
    corrections.name_identity(gallery, 2, "Mia")
    answer = post(client, "/photos/1/faces/1", operation="name", name="Mia")
    assert flash_of(client, answer) == "1 face moved to Mia."
    assert frozenset({1, *GREEN}) in groups(gallery)
    post(client, "/photos/2/faces/2", operation="name", name="Zoe")
    assert sorted(names_of(gallery).values()) == ["Mia", "Tom", "Zoe"]
    assert identity_of(gallery, 2) not in (1, 2)


def test_photo_page_confirms_rejects_and_deletes_faces(client: TestClient, gallery: Store):
    post(client, "/photos/1/faces/1", operation="confirm")
    assert load_assignments(gallery).by_user[0]
    post(client, "/photos/2/faces/2", operation="reject")
    assert identity_of(gallery, 2) == -1
    answer = post(client, "/photos/3/faces/3", operation="delete")
    assert flash_of(client, answer) == "The face was deleted."
    assert known_photo(gallery, 3).faces == ()
    assert "No face is marked on this photo." in client.get("/photos/3").text


def test_photo_page_adds_face(client: TestClient, gallery: Store):
    post(client, "/photos/1/faces/1", operation="delete")
    answer = post(client, "/photos/1/faces", left="4", top="5", right="20.5", bottom="30")
    path, query = redirect_of(answer)
    (face,) = known_photo(gallery, 1).faces
    assert (path, query["face"], query["done"]) == ("/photos/1", str(face.face), "added")
    assert face.box_xyxy_px == (4, 5, 20.5, 30)


def test_face_filling_photo_disables_new_box(client: TestClient, gallery: Store):
    for edge, room in ((32, False), (30, True)):
        with gallery.write(faces_change=True) as repository:
            repository.connection.execute(
                "UPDATE faces SET left_px = 0, top_px = 0, right_px = ?, bottom_px = 32 WHERE id = 1", (edge,)
            )
        page = client.get("/photos/1").text
        assert ('data-box="new"' in page) == room
        assert ("A face fills this photo" in page) != room


def test_photo_page_moves_box(client: TestClient, gallery: Store):
    answer = post(client, "/photos/1/faces/1/box", left="2", top="2", right="22", bottom="22")
    assert flash_of(client, answer) == "The box was saved; the face shows #1."
    assert known_photo(gallery, 1).faces[0].box_xyxy_px == (2, 2, 22, 22)


@pytest.mark.parametrize(
    ("box", "status"),
    [((9, 9, 9, 20), 409), ((20, 0, 4, 20), 409), (("nan", 0, 9, 9), 422), (("x", 0, 9, 9), 422)],
)
def test_rejects_invalid_box(client: TestClient, gallery: Store, box: tuple[object, ...], status: int):
    edges = dict(zip(("left", "top", "right", "bottom"), map(str, box), strict=True))
    for path in ("/photos/1/faces", "/photos/1/faces/1/box"):
        assert post(client, path, **edges).status_code == status
    assert len(known_photo(gallery, 1).faces) == 1


def test_without_model_boxes_cannot_be_drawn(folder: Path):
    with make_client(Settings(gallery=folder)) as client:
        page = client.get("/photos/1").text
        assert "data-box" not in page
        assert 'value="delete"' in page
        assert post(client, "/photos/1/faces", left=1, top=1, right=20, bottom=20).status_code == 409


# --- Undo ---


def test_undo_reverts_last_decision_and_redirects_back(client: TestClient, gallery: Store):
    corrections.merge(gallery, 1, [2])
    back = "/individuals?tab=unnamed&done=merged&individual=1"
    last = decisions(gallery, 1)[0].number
    assert post(client, "/undo", decision=last - 1, back=back).status_code == 409
    answer = post(client, "/undo", decision=last, back=back)
    assert redirect_of(answer) == ("/individuals", {"tab": "unnamed", "done": "undone"})
    assert flash_of(client, answer) == "Undone."
    assert groups(gallery) == {frozenset(RED), frozenset(GREEN), frozenset(BLUE)}


@pytest.mark.parametrize("back", ["//elsewhere.org/", "https://elsewhere.org", "/\\elsewhere.org", "javascript:0"])
def test_forms_ignore_external_back_url(client: TestClient, gallery: Store, back: str):
    corrections.name_identity(gallery, 1, "Tom")
    last = decisions(gallery, 1)[0].number
    for path, fields in (("/undo", {"decision": last}), ("/individuals/1/name", {"name": "Tim"})):
        answer = post(client, path, back=back, **fields)
        assert answer.status_code == 303
        assert not urlsplit(answer.headers["location"]).netloc
        assert "elsewhere" not in answer.headers["location"]


# --- Names that do harm ---


def test_hostile_name_is_stored_and_escaped(client: TestClient, gallery: Store):
    answer = post(client, "/individuals/1/name", name=HOSTILE)
    assert names_of(gallery) == {1: HOSTILE}
    unassign(gallery, [8])
    paths = [
        answer.headers["location"],
        "/individuals?tab=named",
        "/individuals/1?done=named&individual=1",
        "/individuals/merge?identity=1&identity=2",
        "/photos/1?done=moved&faces=1&individual=1",
        "/questions",
        f"/individuals/names?name={HOSTILE[:2]}",
    ]
    for path in paths:
        page = client.get(path).text
        assert "<img src=x" not in page
        assert "49" not in page or "{{ 7 * 7 }}" in page
    assert escape(HOSTILE, quote=False).split("'")[0].replace('"', "&#34;") in client.get(paths[2]).text


def test_status_message_ignores_invalid_query_values(client: TestClient):
    page = client.get("/individuals?tab=unnamed&done=Call+this+number&count=5").text
    assert "Call this number" not in page
    assert 'id="flash"' not in page
    page = client.get("/individuals?tab=unnamed&done=confirmed&count=many&propagated=%D9%A3").text
    assert "0 faces confirmed." in page


# --- Read only ---


def test_read_only_pages_have_no_write_controls(folder: Path, mean_color_bundle: Path):
    with make_client(Settings(gallery=folder, models=(mean_color_bundle,), read_only=True)) as client:
        paths = ["?tab=named", "?tab=unnamed", "?tab=unassigned", "/1", "/merge?identity=1&identity=2"]
        for path in [*(f"/individuals{path}" for path in paths), "/photos/1", "/questions"]:
            page = client.get(path).text
            assert 'method="post"' not in page
            assert "<button" not in page
            assert 'type="checkbox"' not in page
        assert post(client, "/individuals/1/name", name="Tom").status_code == 403


def test_pages_have_no_inline_script_or_style(client: TestClient):
    for path in (
        "/individuals",
        "/individuals/1",
        "/photos/1",
        "/questions",
        "/individuals/merge?identity=1&identity=2",
    ):
        page = client.get(path).text
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page)
