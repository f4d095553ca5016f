"""HTML for notebooks: hostile text stays text, and nothing is requested from anywhere."""

from hypothesis import given
from hypothesis import strategies as st

from familiar.core.html import HtmlTable, NotebookHtml, image, missing_image, page_fragment, text, tile, tiles
from support.html import Page

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(1)>\n\N{RIGHT-TO-LEFT OVERRIDE}'


@given(st.text() | st.just(HOSTILE))
def test_no_text_becomes_an_element_or_an_attribute(value: str) -> None:
    table = HtmlTable(("name", value), (1,))
    table.add(value, value)
    picture, missing = image(b"jpeg", value), missing_image(value, value)
    html = page_fragment(table.html, tiles([tile([picture, missing], [value, value])]))
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
    assert len(text("x" * 100_000)) < 150


def test_notebook_displays_the_html() -> None:
    shown = NotebookHtml("<p>1</p>")
    assert shown._repr_html_() == "<p>1</p>"
    assert repr(shown) == "NotebookHtml(8 characters, which a notebook displays)"
