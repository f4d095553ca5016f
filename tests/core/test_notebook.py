"""HTML for notebooks: hostile text stays text, and nothing is requested from anywhere."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.data_table import DataTable, texts
from familiar.core.notebook import NotebookHtml, NotebookImage, NotebookTile, notebook_html
from support.html import Page

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(1)>\n\N{RIGHT-TO-LEFT OVERRIDE}'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("templates")
    (folder / "parts.html").write_text(
        '{% extends "notebook.html" %}{% import "notebook_parts.html" as ui %}{% block content %}'
        '{{ ui.table([(value, value)], ("name", value), (1,)) }}{{ ui.tiles(tiles) }}{% endblock %}'
    )
    return folder


@given(st.text() | st.just(HOSTILE))
def test_no_text_becomes_an_element_or_an_attribute(folder: Path, value: str) -> None:
    picture, missing = NotebookImage(value, b"jpeg"), NotebookImage(value, label=value)
    tiles = [NotebookTile((picture, missing), (value, value))]
    html = notebook_html(folder, "parts.html", value=value, tiles=tiles)
    page = Page(html)
    assert page.open == []
    assert {tag for tag, _ in page.elements} <= {
        *("div", "style", "table", "thead", "tbody", "tr", "th", "td", "bdi"),
        *("figure", "figcaption", "img", "br", "small"),
    }
    attributes = {name for _, each in page.elements for name in each}
    assert attributes <= {"class", "src", "alt", "title"}
    assert [each["src"][:23] for each in page.all("img")] == ["data:image/jpeg;base64,"]
    assert "\n" not in html


def test_long_text_is_shortened() -> None:
    short, long = (len(DataTable({"name": texts(["x" * letters])})._repr_html_()) for letters in (100, 100_000))
    assert short < long < short + 50


def test_notebook_displays_the_html() -> None:
    shown = NotebookHtml("<p>1</p>")
    assert shown._repr_html_() == "<p>1</p>"
    assert repr(shown) == "NotebookHtml(8 characters, which a notebook displays)"
