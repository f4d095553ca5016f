"""Labeled photos in a notebook and as a table."""

from pathlib import Path

from familiar.datasets.folders import DataSpec, scan_folders
from support.drawn_cats import draw_cats
from support.html import Page


def test_shows_photos_of_some_identities() -> None:
    table = DataSpec(("synthetic:cats:50x4",)).read()
    html = table._repr_html_()
    page = Page(html)
    assert page.open == []
    assert len(page.all("img")) == 8 * 3
    for text in ("200 photos of 50 identities", "4 of each", "synthetic:cats/000049", "and 42 identities more"):
        assert text in html, text
    assert len(html) < 150_000
    assert repr(table) == "IdentityTable(200 photos of 50 identities)"


def test_photo_that_cannot_be_read_has_a_placeholder(tmp_path: Path) -> None:
    draw_cats(tmp_path / "pets", cats=2, photos=2)
    (tmp_path / "pets" / "cat-0").rename(tmp_path / "pets" / "<script>")
    table = scan_folders(tmp_path / "pets")
    (tmp_path / "pets" / "<script>" / "0.png").unlink()
    html = table._repr_html_()
    assert "<script>" not in html
    assert "cannot be read" in html
    assert len(Page(html).all("img")) == 3
    few = table.select_rows(table.labels[:0])
    assert "0 photos of 0 identities" in few._repr_html_()


def test_table_has_photos_and_identities(tmp_path: Path) -> None:
    draw_cats(tmp_path / "pets", cats=2, photos=2)
    frame = scan_folders(tmp_path / "pets").to_pandas()
    assert frame.columns.tolist() == ["path", "identity", "collection"]
    assert frame["path"][3] == str(tmp_path / "pets" / "cat-1" / "1.png")
    assert frame["identity"].tolist() == ["cat-0"] * 2 + ["cat-1"] * 2
    assert frame["collection"].tolist() == ["pets"] * 4
    drawn = DataSpec(("synthetic:cats:1x2",)).read().to_pandas()
    assert drawn["path"][1].endswith("0001")
