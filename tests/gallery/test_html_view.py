"""A gallery in a notebook: names are hostile, photos are missing, galleries are huge, closed or damaged."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from familiar import Gallery
from familiar.core.vectors import normalize
from familiar.gallery.search import html_view
from familiar.gallery.store.store import Store
from support.color_album import draw_album
from support.html import Page
from support.small_gallery import SPACE, UNCALIBRATED_SPACE, draw_individuals, enroll_vectors

HOSTILE = '"><script>alert(1)</script>'


@pytest.fixture
def album(tmp_path: Path, mean_color_bundle: Path) -> Iterator[Gallery]:
    """Photos of three colors, clustered: #1 green, #2 red, blue unassigned."""
    draw_album(tmp_path / "photos", red=3, green=4, blue=1)
    with Gallery.create(tmp_path / "album", mean_color_bundle) as gallery:
        gallery.enroll(tmp_path / "photos")
        gallery.cluster()
        yield gallery


def shown(html: str) -> Page:
    """Parse HTML, and check that all of it is closed and nothing comes from elsewhere."""
    page = Page(html)
    assert page.open == []
    assert "script" not in {tag for tag, _ in page.elements}
    assert all(each["src"].startswith("data:image/jpeg;base64,") for each in page.all("img"))
    assert "http" not in html.replace("http://www.w3.org", "")
    return page


def test_gallery_shows_its_identities_with_faces(album: Gallery) -> None:
    album.name(2, "Tom", confirm=True)
    with Gallery.open(album.store.folder) as opened:
        html = opened._repr_html_()
        assert opened._model.embedder is None, "no model is needed"
    assert len(shown(html).all("figure")) == 2
    assert len(shown(html).all("img")) == 6  # three faces of each, at most
    for text in ("Tom", "#1", "3 faces, 3 confirmed", "4 faces", "8, of which 1 in no identity", "2, 1 with a name"):
        assert text in html, text
    assert album.store.space.space_id in html
    assert "clustered from a similarity of" in html
    assert repr(album).endswith("album, 8 photos, 8 faces, 2 identities)")


def test_names_and_paths_are_escaped(tmp_path: Path, mean_color_bundle: Path) -> None:
    folder = tmp_path / "<script>alert(2)<"  # a folder that ends in /script>
    draw_album(folder / "script>", red=3)
    with Gallery.create(folder / "album", mean_color_bundle) as gallery:
        gallery.enroll(folder / "script>")
        gallery.cluster()
        gallery.name(1, HOSTILE)
        hits = gallery.search(folder / "script>" / "red1.png")
        for html in (gallery._repr_html_(), gallery.show(hits).html, gallery.table()._repr_html_()):
            shown(html)
            assert "&lt;script&gt;alert(1)" in html
            assert "<script>" not in html


def test_empty_and_closed_galleries_say_so(tmp_path: Path, mean_color_bundle: Path) -> None:
    with Gallery.create(tmp_path / "album", mean_color_bundle) as gallery:
        html = gallery._repr_html_()
        assert shown(html).all("img") == []
        assert "none clustered yet" in html
        assert shown(gallery.show([]).html).all("figure") == []
        assert repr(gallery).endswith("0 photos, 0 faces, 0 identities)")
    shown(gallery._repr_html_())
    assert "closed" in gallery._repr_html_()
    assert repr(gallery).endswith("album, closed)")


def test_damaged_gallery_is_no_exception(album: Gallery) -> None:
    with album.store.write(faces_change=True) as repository:
        repository.connection.execute("UPDATE faces SET embedding = x'00'")
    html = album._repr_html_()
    shown(html)
    assert "cannot be shown" in html
    assert "is damaged" in html


def test_missing_and_changed_photos_have_a_placeholder(album: Gallery, tmp_path: Path) -> None:
    _, *green, red1, red2, _ = sorted((tmp_path / "photos").iterdir())
    for photo in green:
        photo.unlink()
    red1.write_bytes(red2.read_bytes())
    page = shown(album._repr_html_())
    placeholders = [each for each in page.all("div") if each.get("class") == "familiar-missing"]
    assert (len(placeholders), len(page.all("img"))) == (4, 2)
    assert "photo missing" in album._repr_html_()


def test_faces_without_photos_have_a_placeholder(tmp_path: Path) -> None:
    with Store.create(tmp_path / "album", UNCALIBRATED_SPACE) as database:
        enroll_vectors(database, draw_individuals([3]))
        html = Gallery(database).show([1, 2, 99]).html
        assert [html.count(label) for label in (">no photo<", ">no face<")] == [2, 1]
        assert "a guess: not calibrated" in Gallery(database)._repr_html_()


def test_huge_gallery_is_shown_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many identities, names and long texts: the page and the number of photos read are bounded."""
    identities = 5_000
    rows = normalize(np.random.default_rng(0).normal(size=(2 * identities, 16)).astype(np.float32))
    reads: list[Path] = []

    def crop_face(path: Path, *_: object) -> np.ndarray:
        reads.append(path)
        return np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)  # no larger JPEG

    monkeypatch.setattr(html_view, "crop_face", crop_face)
    with Store.create(tmp_path / "album", SPACE) as database:
        faces = enroll_vectors(database, rows, "p" * 200)
        with database.write() as repository:
            repository.connection.execute("UPDATE photos SET size_bytes = 1")
            numbers = range(1, identities + 1)
            repository.identities.insert(numbers)
            for number in numbers:
                repository.identities.set_name(number, f"{HOSTILE * 100} {number}")
            repository.assignments.assign(dict(zip(faces, [*numbers, *numbers], strict=True)), by_user=False)
        gallery = Gallery(database)
        html = gallery._repr_html_()
        assert len(reads) <= 8 * 3
        assert "and 4,992 identities more" in html
        listed = gallery.show(gallery.identities()).html
        assert len(reads) <= 8 * 3 + 24 * 2
        assert "and 4,976 more" in listed
        assert max(len(html), len(listed), len(gallery.table()._repr_html_())) < 200_000
        shown(html)


def test_shows_what_the_gallery_returns(album: Gallery, tmp_path: Path) -> None:
    album.name(2, "Tom")
    query = tmp_path / "photos" / "red1.png"
    questions = album.questions()
    for items, images, text in (
        (album.search(query, 3), 3, "similarity 1.000"),
        (album.identify(query)[:1], 1, "known"),
        (album.identities(), 4, "Tom"),
        (questions, 2 * len(questions), ""),
        ([1], 1, "face 1"),
    ):
        html = album.show(items).html
        assert len(shown(html).all("img")) == images, items
        assert text in html
