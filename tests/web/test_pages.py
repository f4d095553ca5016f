"""Common parts of all pages, the album and the login page; escaping and access."""

import re
import shutil
from collections.abc import Callable
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Literal

import apsw
import pytest
from starlette.testclient import TestClient

from familiar.core.gallery_types import Progress, SkippedPhoto
from familiar.detection.detectors import WholePhoto
from familiar.gallery import Gallery
from familiar.gallery.edits.corrections import name_identity
from familiar.gallery.same import decisions
from familiar.gallery.same.decisions import undo
from familiar.gallery.store.connection import DATABASE, connect
from familiar.gallery.store.store import Store
from familiar.web.jobs import JobQueue
from familiar.web.pages import album
from familiar.web.pages.render import HAS_DESK, NAV, UNDO_LABELS
from familiar.web.server import STATIC
from support import color_album
from support.damaged_gallery import damage_table
from support.html import BROWSER, Answer, Page, post_compare, post_search, text_of
from support.web_forms import unassign

pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror=alert(1)>'&.png"
ASKING = ("/search", "/compare")
WHERE = [path for _, _, path in NAV]
PAGES = ("/", "/album", "/individuals", "/individuals/1", "/individuals?tab=unassigned", "/photos/1", "/questions",
         "/search", "/compare", "/model", "/desk", "/desk/register", "/login", "/login?wrong=1",
         "/nothing-there")  # fmt: skip
State = Literal["waiting", "processing", "clustering", "done", "stopped", "failed"]


def answered(client: TestClient, photos: list[Path]) -> dict[str, Answer]:
    """Return every page, including the results of forms."""
    pages = {path: client.get(path, headers=BROWSER) for path in PAGES}
    pages["found"] = post_search(client, photos[0])
    pages["compared"] = post_compare(client, photos[0], photos[4])
    return pages


# --- Every page -------------------------------------------------------------------------------------------------------


@pytest.mark.one_case
@pytest.mark.parametrize("kind", ["as it is", "read only", "without a model", "with a token"])
def test_pages_have_no_inline_scripts_or_styles(serving: Callable[..., TestClient], photos: list[Path], kind: str):
    token = "a long enough token"
    changes = {
        "read only": {"read_only": True},
        "without a model": {"models": ()},
        "with a token": {"token": token},
    }
    client = serving(**changes.get(kind, {}))
    if kind == "with a token":
        client.headers["Authorization"] = f"Bearer {token}"
    for path, answer in answered(client, photos).items():
        if answer.headers["Content-Type"].startswith("application/"):  # refused, to a program
            assert answer.status_code == 409, path
            continue
        page = Page(answer.text)
        assert page.open == [], path
        assert page.all("style") == [], path
        for tag, attributes in page.elements:
            assert not [key for key in attributes if key == "style" or key.startswith(("on", "hx-on"))], path
            addresses = [attributes[key] for key in ("src", "href", "action") if key in attributes]
            for address in addresses:
                assert address.startswith(("/", "#", "data:image/png;base64,")), (path, tag)
                assert not address.startswith("//"), (path, tag)
        assert all(element["src"].startswith("/static/") for element in page.all("script")), path


def test_pages_have_valid_headings_labels_and_ids(client: TestClient, photos: list[Path]):
    for path, answer in answered(client, photos).items():
        page = Page(answer.text)
        assert len(page.all("h1")) == len(page.all("main")) == 1, path
        assert answer.text.count(" · familiar</title>") == 1, path
        assert page.all("h1")[0]["tabindex"] == "-1", path
        levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
        assert all(later <= before + 1 for before, later in pairwise(levels)), path
        assert all("alt" in picture for picture in page.all("img")), path
        ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
        assert len(ids) == len(set(ids)), path
        assert {"status", "error", "content"} <= set(ids), path
        labeled = {label["for"] for label in page.all("label") if "for" in label}
        for field in page.all("input"):
            named = field.get("id") in labeled or "aria-label" in field or "in a label" in field
            assert named or field.get("type") == "hidden", (path, field)
        for _, attributes in page.elements:
            for key in ("aria-labelledby", "aria-controls", "aria-describedby"):
                assert set(attributes.get(key, "").split()) <= set(ids), (path, key)


@pytest.mark.parametrize(
    ("path", "where"),
    [("/", "/album"), ("/album", "/album"), ("/photos/1", "/album"), ("/individuals/1", "/individuals"),
     ("/questions", "/questions"), ("/search", "/search"), ("/compare", "/compare"), ("/model", "/model")],
)  # fmt: skip
def test_navigation_marks_current_page(client: TestClient, path: str, where: str):
    links = Page(client.get(path).text).all("a")
    current = [link["href"] for link in links if link.get("aria-current") == "page"]
    assert [path for path in current if path in WHERE] == [where]


def test_static_assets_are_served_and_self_contained(client: TestClient):
    page = Page(client.get("/").text)
    urls = [element["src"] for element in page.all("script")] + [
        element["href"] for element in page.all("link") if element["rel"] in ("stylesheet", "icon")
    ]
    assert len(urls) == 7
    for path in urls:
        assert client.get(path).status_code == 200, path
    styles = "".join(path.read_text() for path in STATIC.glob("*.css"))
    assert "url(" not in styles
    assert "@import" not in styles
    assert (STATIC / "htmx.LICENSE.txt").read_text().startswith("Zero-Clause BSD")


def test_groups_that_look_like_two_are_marked(client: TestClient, monkeypatch: pytest.MonkeyPatch):
    page = client.get("/individuals?tab=unnamed").text
    assert "Maybe two" not in page
    monkeypatch.setattr(Gallery, "doubtful_identities", lambda _: frozenset([1]))
    tile = client.get("/individuals?tab=unnamed").text.split('id="individual-1"')[1].split("</li>")[0]
    assert "Maybe two" in tile


def test_undo_form_names_last_decision_and_return_page(client: TestClient, folder: Path):
    page = client.get("/individuals?tab=unnamed")
    button = next(element for element in Page(page.text).all("button") if element.get("id") == "undo")
    assert "Undo grouping" in " ".join(page.text.split())
    assert "disabled" not in button
    form = next(element for element in Page(page.text).all("form") if element["action"] == "/undo")
    assert form["data-undone"] == "Undone: grouping."
    assert "groups are dissolved" in form["hx-confirm"]
    with Store.open(folder) as gallery:
        name_identity(gallery, 1, "Ruby")
    form = next(element for element in Page(client.get("/model").text).all("form") if element["action"] == "/undo")
    assert form["data-undone"] == "Undone: naming."
    assert "hx-confirm" not in form
    with Store.open(folder) as gallery:
        undo(gallery)
    assert 'name="back" value="/individuals?tab=unnamed"' in page.text
    with Store.open(folder) as gallery:
        undo(gallery)
    button = next(element for element in Page(client.get("/model").text).all("button") if element.get("id") == "undo")
    assert "disabled" in button


def test_each_decision_kind_has_undo_text():
    decision_call = re.compile(r'with (?:decision\(store, |gallery\.decision\()"([^"]+)"')
    package = Path(decisions.__file__).parents[2]
    files = [*package.joinpath("gallery").rglob("*.py"), *package.joinpath("integrations").rglob("*.py")]
    decision_kinds = {kind for path in files for kind in decision_call.findall(path.read_text())}
    decision_kinds.add("group")  # what unassigned faces are made, by a page
    assert decision_kinds == set(UNDO_LABELS) if HAS_DESK else decision_kinds <= set(UNDO_LABELS)


def test_hostile_names_are_escaped(
    client: TestClient, folder: Path, photos: list[Path], monkeypatch: pytest.MonkeyPatch
):
    with Store.open(folder) as gallery:
        name_identity(gallery, 1, HOSTILE)
        with gallery.write() as repository:
            repository.connection.execute("UPDATE photos SET path = CAST('/' || ? AS BLOB) WHERE id = 2", (HOSTILE,))
    failed = Progress("1", "failed", skipped=(SkippedPhoto(HOSTILE, HOSTILE),), skipped_count=1, error=HOSTILE)
    monkeypatch.setattr(JobQueue, "all", lambda _: [failed])
    for answer, times in (
        (
            client.get("/album"),
            4 + 1 + 3,
        ),  # four photos of #1, a photo's name, a job's photo, reason and error
        (post_search(client, photos[0], HOSTILE), 3),
        (post_compare(client, photos[0], photos[1], HOSTILE), 2),
    ):
        assert "<img src=x" not in answer.text
        assert answer.text.count(escape(HOSTILE).replace("&#x27;", "&#39;")) >= times
        assert not any("onerror" in attributes for _, attributes in Page(answer.text).elements)


def test_not_found_message_depends_on_client_type(client: TestClient, folder: Path):
    page = client.get("/photos/4711", headers=BROWSER)
    assert page.status_code == 404
    assert page.headers["Content-Type"].startswith("text/html")
    assert text_of(page) == "404 Nothing here the album has no photo 4711 To the album"
    swapped = client.get("/photos/4711", headers=BROWSER | {"HX-Request": "true", "HX-Boosted": "true"})
    assert swapped.status_code == 404
    assert swapped.json()["detail"] == "the album has no photo 4711"
    hinted = client.get("/individuals/4711", headers=BROWSER | {"HX-Request": "true", "HX-Boosted": "true"})
    assert hinted.json()["detail"] == "the album has no identity '#4711'; give a name, or a number such as #12"
    program = client.get("/api/v1/photos/4711").json()["detail"]
    assert program == f"{folder}: has no photo 4711"
    assert "There is no page at this address" in text_of(client.get("/nothing", headers=BROWSER))


def test_page_of_a_damaged_gallery_says_what_to_do(serving: Callable[..., TestClient], folder: Path):
    client = serving()
    with connect(folder / DATABASE) as connection:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    damage_table(folder, "identities")
    answer = client.get("/individuals", headers=BROWSER)
    assert answer.status_code == 500
    remedies = f"familiar gallery restore {folder}, or keep what can be read: familiar gallery repair {folder}"
    assert f"go back to a backup with: {remedies}" in text_of(answer)


def test_read_only_pages_have_no_write_forms(serving: Callable[..., TestClient], folder: Path, photos: list[Path]):
    client = serving(read_only=True)
    for path, answer in answered(client, photos).items():
        forms = {form.get("action", "") for form in Page(answer.text).all("form") if form.get("method") == "post"}
        assert forms <= {*ASKING, "/login"}, path
        if not path.startswith("/login"):
            assert "Read only" in answer.text, path
    files = [("files", ("red.png", photos[0].read_bytes()))]
    assert client.post("/api/v1/photos", files=files).status_code == 403
    assert client.post("/album/folder", data={"folder": str(photos[0].parent)}).status_code == 403
    assert not (folder / "photos").exists()


def test_pages_without_model_show_start_command(serving: Callable[..., TestClient], photos: list[Path]):
    client = serving(models=())
    for path in ("/album", "/search", "/compare", "/model"):
        answer = client.get(path)
        assert "familiar serve GALLERY --model MODEL" in text_of(answer), path
        assert 'type="file"' not in answer.text, path
    assert post_search(client, photos[0]).status_code == post_compare(client, photos[0], photos[1]).status_code == 409


# --- Album ------------------------------------------------------------------------------------------------------------


def test_album_lists_newest_photos_first(client: TestClient, folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(album, "PHOTOS", 4)
    with Store.open(folder) as gallery:
        name_identity(gallery, 3, "Blue")
        with gallery.write() as repository:
            repository.connection.execute("UPDATE photos SET path = ? WHERE id = 8", (b"/" + 64 * b"a" + b"-tom.jpg",))

    def shown(path: str) -> list[int]:
        links = Page(client.get(path).text).all("a")
        return [int(link["href"].removeprefix("/photos/")) for link in links if "/photos/" in link["href"]]

    first = client.get("/album")
    assert "9 photos with 9 faces" in text_of(first)
    assert "Blue on blue2.png" in text_of(first)
    assert "on tom.jpg" in text_of(first)
    assert shown("/album") == [9, 8, 7, 6]
    assert 'href="/album?before=6"' in first.text
    assert shown("/album?before=6") == [5, 4, 3, 2]
    last = client.get("/album?before=2")
    assert shown("/album?before=2") == [1]
    assert "Older photos" not in last.text + client.get("/album?before=5").text
    assert 'href="/album">Newest' in last.text
    assert client.get("/album?before=0").status_code == client.get("/album?before=x").status_code == 422


def test_upload_stores_photos_and_reports_skipped_files(client: TestClient, folder: Path, tmp_path: Path):
    new = color_album.draw_photo(tmp_path / "new.png", "blue", shade=9)
    files = [("files", ("new.png", new.read_bytes())), ("files", (HOSTILE, b"no photo"))]
    answer = client.post("/api/v1/photos", files=files)
    assert answer.status_code == 202
    (skipped,) = answer.json()["skipped"]
    assert skipped["name"] == HOSTILE
    assert skipped["reason"].startswith("not a photo")
    number = answer.json()["number"]
    with client.stream("GET", f"/api/v1/jobs/{number}/events") as events:
        assert '"done"' in [*events.iter_lines()][-2]  # it ends with the job
    page = client.get("/album")
    assert "Done" in text_of(page)
    assert "1 photo skipped, and why" in text_of(page)
    assert "10 photos with 10 faces" in text_of(page)
    assert len(list((folder / "photos").iterdir())) == 1


def test_upload_without_valid_photo_starts_no_job(client: TestClient):
    answer = client.post("/api/v1/photos", files=[("files", ("a.png", b"no photo"))])
    assert answer.status_code == 415
    assert answer.json()["detail"].startswith("a.png: not a photo")
    assert client.get("/api/v1/jobs").json() == []


def test_folder_form_starts_job_and_rejects_outside_roots(client: TestClient, photos: list[Path]):
    assert str(photos[0].parent) in client.get("/album").text
    sent = client.post("/album/folder", data={"folder": f" {photos[0].parent} "}, follow_redirects=False)
    assert (sent.status_code, sent.headers["location"]) == (303, "/album")
    assert client.get("/api/v1/jobs").json()[0]["state"] in ("waiting", "processing", "clustering", "done")
    assert client.post("/album/folder", data={"folder": "/etc"}).status_code == 403


@pytest.mark.parametrize(
    ("state", "says"),
    [("waiting", "Waiting for the previous photos"), ("processing", "Processing the photos"),
     ("clustering", "Grouping the faces"), ("done", "Done"), ("stopped", "Stopped"),
     ("failed", "Failed")],
)  # fmt: skip
def test_album_shows_job_progress(client: TestClient, monkeypatch: pytest.MonkeyPatch, state: State, says: str):
    skipped = tuple(SkippedPhoto(f"bad{number}.jpg", "is cut short") for number in range(200))
    job = Progress(
        "17", state, total=1234, processed=1000, photos=700, faces=2345, without_face=5, without_bundle=2, known=6,
        skipped=skipped, skipped_count=201, new_individuals=78, error="the disk is full" if state == "failed" else None,
    )  # fmt: skip
    monkeypatch.setattr(JobQueue, "all", lambda _: [job])
    answer = client.get("/album")
    page, text = Page(answer.text), text_of(answer)
    assert says in text
    assert "Processed 1,000 of 1,234 Faces 2,345 New individuals 78 Nothing found 5 Already here 6 Skipped 201" in text
    assert "On 5 photos no face was found. On 2 photos only faces were found that this album has no model for." in text
    assert "bad199.jpg is cut short and 1 other" in text
    assert ("the disk is full" in text) == (state == "failed")
    assert ("Undo reverts the grouping, not the photos" in text) == (state == "done")
    live = [attributes for _, attributes in page.elements if "data-job-live" in attributes]
    assert all((element["hx-get"], element["hx-trigger"]) == ("/album", "every 1s") for element in live)
    assert [element["data-job-live"] for element in live] == (
        ["17"] if state in ("waiting", "processing", "clustering") else []
    )
    bars = [bar for bar in page.all("progress") if bar.get("id") != "upload"]
    assert [bar.get("value") for bar in bars] == {
        "processing": ["1000"],
        "waiting": [None],
        "clustering": [None],
    }.get(state, [])
    assert ('class="button second" href="/individuals"' in answer.text) == (state == "done")


def test_job_counts_are_hidden_until_total_is_known(client: TestClient, monkeypatch: pytest.MonkeyPatch):
    for total in (0, 3):
        monkeypatch.setattr(JobQueue, "all", lambda _, total=total: [Progress("17", "waiting", total=total)])
        figures = next(
            element for element in Page(client.get("/album").text).all("dl") if element["class"] == "figures"
        )
        assert ("hidden" in figures) == (total == 0)


# --- Login ------------------------------------------------------------------------------------------------------------


def test_login_page_has_form_and_no_gallery_controls(serving: Callable[..., TestClient]):
    client = serving(token="a long enough token")
    sent = client.get("/album", headers=BROWSER, follow_redirects=False)
    assert sent.headers["location"] == "/login?next=%2Falbum"
    page = client.get(sent.headers["location"], headers=BROWSER)
    assert page.status_code == 200
    assert 'name="next" value="/album"' in page.text
    assert "Undo" not in page.text
    assert "That is not the token" not in page.text
    form = Page(page.text).all("form")[0]
    assert (form["action"], form["hx-boost"]) == ("/login", "false")
    assert "autofocus" in next(element for element in Page(page.text).all("input") if element.get("id") == "token")
    wrong = client.get("/login?wrong=1&next=//elsewhere.org")
    assert 'role="alert">That is not the token' in wrong.text
    assert "elsewhere" not in wrong.text


def test_logout_form_is_shown_only_when_token_is_set(serving: Callable[..., TestClient], client: TestClient):
    with_token = serving(token="a long enough token")
    with_token.headers["Authorization"] = "Bearer a long enough token"
    assert 'action="/logout"' in with_token.get("/model").text
    assert 'action="/logout"' not in client.get("/model").text


def test_folder_field_is_shown_only_if_it_can_work(
    serving: Callable[..., TestClient], tmp_path: Path, photos: list[Path]
):
    album = tmp_path / "new"
    client = serving(gallery=album)
    assert "Or enter a folder" not in client.get("/album").text
    with Gallery.open(album) as gallery:
        upload = gallery.uploads / "aa" / "photo.png"
        upload.parent.mkdir(parents=True)
        shutil.copy(photos[0], upload)
        gallery.open_model()
        gallery.enroll([upload], detector=WholePhoto())
    assert "Or enter a folder" not in serving(gallery=album).get("/album").text, "the folder of uploads is not meant"
    page = serving(gallery=album, roots=(photos[0].parent,)).get("/album").text
    assert f'name="folder" value="{photos[0].parent}"' in page
    other = tmp_path / "other"
    other.mkdir()
    page = serving(gallery=album, roots=(photos[0].parent, other)).get("/album").text
    assert 'name="folder" list="roots"' in page


def test_finished_job_says_whom_its_faces_show(client: TestClient, folder: Path, monkeypatch: pytest.MonkeyPatch):
    done = Progress("7", state="done", photos=6, faces=6, after_photo=3)
    monkeypatch.setattr(JobQueue, "all", lambda _: [done])
    with Store.open(folder) as store:  # photos 4 to 9: one of #1, three of #2, two of #3
        name_identity(store, 1, "Luna")
        name_identity(store, 2, "Gil")
        unassign(store, [9])
    answer = client.get("/album")
    summary = answer.text.partition('<p class="summary">')[2]
    assert '<a href="/individuals/2"><bdi>Gil</bdi></a> 3' in summary
    assert '<a href="/individuals?tab=unassigned">1 face</a> is unassigned' in summary
    assert "6 faces added: Gil 3, Luna 1. 1 face shows" in text_of(answer).replace(" ,", ",")
