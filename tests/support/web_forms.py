"""Send forms to the pages as a browser does, and read the pages that follow."""

import re
from collections.abc import Iterable
from html import unescape
from urllib.parse import parse_qs, urlsplit

import httpx2
from starlette.testclient import TestClient

from familiar.gallery.same.assignments import load_assignments
from familiar.gallery.store.store import Store
from familiar.web.server import make_app
from familiar.web.service import Service
from familiar.web.settings import Settings


def post(client: TestClient, path: str, **fields: object) -> httpx2.Response:
    """Post a form without following the redirect."""
    return client.post(path, data=fields, follow_redirects=False)  # pyright: ignore[reportArgumentType]


def redirect_of(answer: httpx2.Response) -> tuple[str, dict[str, str]]:
    """Return the path and the query of the redirect after a form, without the number of the decision."""
    assert answer.status_code == 303, answer.text
    parts = urlsplit(answer.headers["location"])
    query = {key: ",".join(values) for key, values in parse_qs(parts.query).items()}
    query.pop("decision", None)
    return parts.path, query


def flash_of(client: TestClient, answer: httpx2.Response) -> str:
    """Return the flash message of the page that the redirect leads to."""
    page = client.get(answer.headers["location"]).text
    match = re.search(r'<p id="flash" hidden>(.*?)</p>', page, re.DOTALL)
    return "" if match is None else unescape(re.sub(r"<.*?>", "", match[1])).strip()


def unassign(gallery: Store, faces: Iterable[int]) -> None:
    """Remove the assignments of faces."""
    with gallery.write() as repository:
        repository.connection.executemany("DELETE FROM assignments WHERE face_id = ?", ((face,) for face in faces))
        repository.identities.delete_empty()


def names_of(gallery: Store) -> dict[int, str]:
    return load_assignments(gallery).names


def tiles_on(page: str) -> list[int]:
    return [int(number) for number in re.findall(r'id="individual-(\d+)"', page)]


def faces_on(page: str) -> list[int]:
    return [int(number) for number in re.findall(r'name="face" value="(\d+)" form="selected"', page)]


def make_client(settings: Settings) -> TestClient:
    return TestClient(make_app(Service(settings)), base_url="http://127.0.0.1:8000", client=("127.0.0.1", 5000))


def states_on(page: str, action: str) -> list[str]:
    """Return what a form of a page says of the individuals: its own fields, or those of its bar."""
    (form,) = re.findall(rf'<form([^>]*action="{re.escape(action)}(?:\?[^"]*)?"[^>]*)>(.*?)</form>', page, re.DOTALL)[
        :1
    ]
    states = re.findall(r'name="state" value="([^"]+)">', form[1])
    bar = re.search(r'id="(\w+)"', form[0])
    return states + (re.findall(rf'name="state" value="([^"]+)" form="{bar[1]}"', page) if bar else [])
