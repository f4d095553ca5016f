"""Parse pages: their elements and texts; and post the two forms that take photos."""

import re
from html.parser import HTMLParser
from pathlib import Path

import httpx2
from starlette.testclient import TestClient

BROWSER = {"Accept": "text/html"}
VOID = {"meta", "link", "input", "img", "br", "hr", "circle", "line", "path", "rect", "use"}
Answer = httpx2.Response


class Page(HTMLParser):
    """The elements of a page, in order, and those that are open at its end."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        extra = {"in a label": ""} if "label" in self.open else {}
        self.elements.append((tag, {key: value or "" for key, value in attrs} | extra))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


def text_of(answer: Answer) -> str:
    """Return the text of a page in one line."""
    main = answer.text[answer.text.index("<main") : answer.text.index("</main>")]
    return " ".join(re.sub(r"<[^>]*>", " ", main).replace("\N{NO-BREAK SPACE}", " ").split())


def post_search(client: TestClient, photo: Path, name: str = "query.png", species: str = "") -> Answer:
    return client.post("/search", files={"photo": (name, photo.read_bytes())}, data={"species": species})


def post_compare(client: TestClient, first: Path, second: Path, name: str = "query.png") -> Answer:
    files = {"first": (name, first.read_bytes()), "second": (name, second.read_bytes())}
    return client.post("/compare", files=files)
