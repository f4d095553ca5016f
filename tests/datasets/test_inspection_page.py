import base64
import io
import os
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from familiar.datasets import inspection_page
from familiar.datasets.folders import DataSpec, scan_folders
from familiar.datasets.inspection import Inspection, inspect_table
from familiar.datasets.inspection_page import render, write_page
from familiar.datasets.synthetic import SyntheticPhoto

pytestmark = pytest.mark.slow

VOID = {"meta", "img", "br"}
MAY_STAY_OPEN = {"td", "th", "tr", "li", "thead", "tbody", "html"}


class Page(HTMLParser):
    """Collects elements with their attributes, and the text; ValueError for wrongly nested elements."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def named(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for element, attributes in self.elements if element == name]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while (last := self._open.pop()) != tag:
            if last not in MAY_STAY_OPEN:
                raise ValueError(f"{last} is closed by {tag}")

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def decoded(image: dict[str, str | None]) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode((image["src"] or "").partition(",")[2])))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two cats share a picture; one photo is blank, one is not a photo."""
    root = tmp_path / "cats"
    for identity in range(4):
        (root / f"cat {identity}").mkdir(parents=True)
        for index in range(3):
            rgb_u8 = SyntheticPhoto("cats", identity, index).draw().rgb_u8
            Image.fromarray(rgb_u8).save(root / f"cat {identity}" / f"{index}.jpg")
    (root / "cat 1" / "stolen.jpg").write_bytes((root / "cat 0" / "0.jpg").read_bytes())
    (root / "cat 2" / "broken.jpg").write_text("no photo")
    Image.new("RGB", (50, 80), (9, 9, 9)).save(root / "cat 3" / "dark.png")
    return root


@pytest.fixture
def inspection(folder: Path) -> Inspection:
    return inspect_table(scan_folders(folder))


def test_page_is_self_contained(inspection: Inspection, tmp_path: Path) -> None:
    path = write_page(inspection, tmp_path / "made" / "here")
    assert path == tmp_path / "made" / "here" / "inspection.html"
    assert [file.name for file in path.parent.iterdir()] == ["inspection.html"]
    page = Page(path.read_text(encoding="utf-8"))
    for name in ("src", "href"):
        for _, attributes in page.elements:
            assert (attributes.get(name) or "#").startswith(("#", "data:image/jpeg;base64,"))
    assert not page.named("script")
    assert not page.named("link")
    assert "@import" not in path.read_text()
    assert "url(" not in path.read_text()


def test_internal_links_have_targets(inspection: Inspection) -> None:
    page = Page(render(inspection))
    marks = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    assert {(attributes["href"] or "")[1:] for attributes in page.named("a")} == marks


def test_page_reports_counts_and_findings(inspection: Inspection) -> None:
    text = Page(render(inspection)).text
    assert "Inspection of cats" in text
    assert "15 photos of 4 identities, 0 of them with one photo only." in text
    assert "2 photos may be labeled wrongly" in text
    assert "1 photo cannot be read" in text
    assert "3 to 4, median 4" in text
    assert "width, px 50 224 224" in text
    assert "the same pixels, several identities 1 2" in text
    assert "JPEG RGB 13 PNG RGB 1" in text
    assert "cat 2/broken.jpg: not a photo" in text
    assert "cats/cat 3/dark.png" in text


def test_images_have_alt_text_and_size(inspection: Inspection) -> None:
    images = Page(render(inspection)).named("img")
    assert len(images) == 9 + 2
    for image in images:
        assert (image["alt"] or "").startswith("Photo cats/cat ")
        assert (image["src"] or "").startswith("data:image/jpeg;base64,")
        assert decoded(image).size == (int(image["width"] or 0), int(image["height"] or 0))


def test_tables_have_scoped_headings(inspection: Inspection) -> None:
    page = Page(render(inspection))
    headings = page.named("th")
    assert {heading.get("scope") for heading in headings} == {"row", "col"}
    assert len(page.named("thead")) == len(page.named("table")) > 5


def test_images_keep_photo_colors(tmp_path: Path) -> None:
    (tmp_path / "cats" / "Red").mkdir(parents=True)
    Image.new("RGB", (60, 60), (220, 30, 20)).save(tmp_path / "cats" / "Red" / "a.png")
    image = Page(render(inspect_table(scan_folders(tmp_path / "cats")))).named("img")[0]
    red, green, blue = np.asarray(decoded(image))[30, 30]
    assert red > 200 > 60 > max(green, blue)


def test_escapes_hostile_names(tmp_path: Path) -> None:
    folder = tmp_path / "<b>cats"
    names = ('"><script>alert(1)</script>', "new\nline", "قطة \U0001f408", os.fsdecode(b"\xff"), "a&amp;b")
    for index, name in enumerate(names):
        (folder / name.replace("/", "")).mkdir(parents=True)
        pixels = SyntheticPhoto("cats", 0, 0).draw().rgb_u8 if index < 2 else np.zeros((9, 9, 3), np.uint8)
        Image.fromarray(pixels).save(folder / name.replace("/", "") / "'\x1b[2J\u202e.png")
        (folder / name.replace("/", "") / "<i>.png").touch()
    html = render(inspect_table(scan_folders(folder)))
    html.encode()
    page = Page(html)
    assert not {"script", "b"} & {element for element, _ in page.elements}
    assert all(set(attributes) <= {"src", "alt", "width", "height", "loading"} for attributes in page.named("img"))
    assert '"><script>alert(1)<script>' in page.text
    assert "new\\nline" in page.text
    assert "قطة \U0001f408" in page.text
    assert "a&amp;b" in page.text
    assert not {"\x1b", "\u202e", "\udcff"} & set(html)


def test_single_photo_page_uses_singular(tmp_path: Path) -> None:
    (tmp_path / "cats" / "Mia").mkdir(parents=True)
    Image.new("RGB", (1, 700)).save(tmp_path / "cats" / "Mia" / "thin.png")
    text = Page(render(inspect_table(scan_folders(tmp_path / "cats")))).text
    assert "1 photo of 1 identity, 1 of them with one photo only" in text
    assert "fewest" not in text


def test_shows_synthetic_photos() -> None:
    assert len(Page(render(inspect_table(DataSpec(("synthetic:dogs:5x2",)).read()))).named("img")) == 9


def test_deleted_photo_is_reported_in_page(inspection: Inspection, folder: Path) -> None:
    (folder / "cat 1" / "stolen.jpg").unlink()
    page = Page(render(inspection))
    assert "can no longer be read" in page.text


def test_truncated_lists_report_remainder(inspection: Inspection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection_page, "IDENTITIES_LISTED", 3)
    monkeypatch.setattr(inspection_page, "LINES_LISTED", 2)
    monkeypatch.setattr(inspection_page, "GROUPS_SHOWN", {True: 1, False: 1})
    monkeypatch.setattr(inspection_page, "PHOTOS_SHOWN", 1)
    text = Page(render(replace(inspection, blank=(0, 1, 2), duplicates=inspection.duplicates * 2))).text
    assert "1 more are in the output of --json" in text
    assert "and 1 more" in text
    assert "the same pixels, several identities (1 of 2)" in text.lower()


@pytest.mark.exhaustive
def test_page_size_is_limited_with_many_duplicates(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (300, 300, 3), np.uint8)  # the worst case for JPEG
    for identity in range(40):
        for index in range(2):
            (tmp_path / "cats" / f"{index}{identity:02d}").mkdir(parents=True)
            pixels = np.roll(noise, identity * 7, axis=0)
            Image.fromarray(pixels).save(tmp_path / "cats" / f"{index}{identity:02d}" / "a.png", compress_level=1)
    inspection = inspect_table(scan_folders(tmp_path / "cats"))
    assert len(inspection.duplicates) == 40
    assert len(render(inspection)) < 3_000_000
