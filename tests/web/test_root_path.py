"""The pages and the API under a path, behind a proxy that forwards the path or removes it."""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx2
import pytest
from playwright.sync_api import Browser, expect
from serving.proxies import NotInstalled, configuration, free_port, nginx_with
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from familiar.client import Client
from familiar.core.errors import FamiliarError
from familiar.gallery import Gallery
from familiar.gallery.edits.corrections import name_identity
from familiar.gallery.store.store import Store
from familiar.web.middleware.sessions import cookie_name
from familiar.web.server import STATIC, make_app
from familiar.web.service import Service
from familiar.web.settings import ServerSettings, Settings
from support.color_album import draw_photo
from support.html import BROWSER, Page
from support.middleware import TOKEN
from support.middleware import browser as bare_browser
from support.server import running_server

register = pytest.importorskip("familiar.integrations.lost_pets.register", reason="the pages include the desk")
reports = pytest.importorskip("familiar.integrations.lost_pets.reports")

pytestmark = pytest.mark.slow

ROOT = "/photos"  # which begins paths of the server, too
LINKS = ("href", "src", "action", "formaction", "data-similar", "hx-get")
NOT_LINKS = ("value", "content", "d")  # of a form field that comes back, of the head, of a drawing


@pytest.fixture
def settings(folder: Path, mean_color_bundle: Path) -> Settings:
    """Of an album with a lost pet, a found one, and a group without a name; with the lost pets first."""
    with Store.open(folder) as gallery:
        name_identity(gallery, 1, "Ruby")
        name_identity(gallery, 2, "Emma")
        register.set_reports(Gallery(gallery), {1: reports.Report("lost", "cat"), 2: reports.Report("found", "cat")})
    return Settings(gallery=folder, models=(mean_color_bundle,), desk=True)


@contextlib.contextmanager
def behind_proxy(settings: Settings, *, removes: bool, header: str = "") -> Iterator[TestClient]:
    """Start the server behind a proxy that knows it as /photos.

    Args:
        settings: of the server.
        removes: whether the proxy removes the path from requests.
        header: what it sends as X-Forwarded-Prefix.
    """
    app = make_app(Service(settings))

    async def proxy(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            assert scope["path"].startswith(f"{ROOT}/"), "not for this server"
            for key in ("path", "raw_path") if removes else ():
                scope[key] = scope[key][len(ROOT) :]
            scope["headers"] += [(b"x-forwarded-prefix", header.encode())] if header else []
        await app(scope, receive, send)

    with TestClient(proxy, base_url="http://127.0.0.1:8000", client=("127.0.0.1", 5000)) as client:
        yield client


@contextlib.contextmanager
def nginx(server: str, folder: Path, *, removes: bool) -> Iterator[str]:
    """Start nginx before a server, as the page about the server says, and provide the URL of /photos."""
    port, location = free_port(), configuration("serve.md", "nginx")
    assert "http://127.0.0.1:8000/;" in location
    location = location.replace("http://127.0.0.1:8000/", f"{server}/" if removes else server)
    nothing = 'location / { return 404 "not of familiar"; }'
    try:
        with nginx_with(folder, f"server {{ listen 127.0.0.1:{port}; {location} {nothing} }}", port):
            yield f"http://127.0.0.1:{port}{ROOT}"
    except NotInstalled as error:
        pytest.skip(str(error))


def check_links(url: str, html: str) -> set[str]:
    """Return the paths that a page leads to by GET, once all its addresses are under the root path."""
    paths: set[str] = set()
    for tag, attributes in Page(html).elements:
        for key, value in attributes.items():
            assert key in (*LINKS, *NOT_LINKS) or not value.startswith("/"), (url, tag, key, value)
            if key in LINKS and value.startswith("/"):
                assert value.startswith(f"{ROOT}/"), (url, tag, key, value)
            by_get = key in ("href", "src") or (key == "action" and attributes.get("method") == "get")
            if by_get and not value.startswith(("#", "data:")):
                paths.add(urljoin(url, value))
    return paths


def walk(client: httpx2.Client) -> tuple[set[str], dict[str, str]]:
    """Open all that can be reached from the first page. Returns the paths, and the pages by path."""
    waiting, seen, pages = [f"{ROOT}/"], {f"{ROOT}/"}, {}
    while waiting:
        path = waiting.pop()
        answer = client.get(path, headers=BROWSER)
        assert answer.status_code == 200, path
        if answer.headers["content-type"].startswith("text/html"):
            pages[path] = answer.text
            new = check_links(path, answer.text) - seen
            waiting += new
            seen |= new
    return seen, pages


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("root_path", "removes", "header"),
    [(ROOT, True, ""), (ROOT, False, ""), ("", True, ROOT), ("", True, f"{ROOT}/"), (ROOT, True, "/other")],
)
def test_each_link_of_each_page_leads_back_under_the_path(
    settings: Settings, photos: list[Path], root_path: str, removes: bool, header: str
):
    settings = replace(settings, root_path=root_path)
    with behind_proxy(settings, removes=removes, header=header) as client:
        seen, pages = walk(client)
        shown = {urlsplit(path).path.removeprefix(ROOT) for path in seen}
        assert {"/album", "/individuals/3", "/photos/1", "/questions", "/search", "/compare", "/model", "/desk/2",
                "/desk/register", "/desk/2/1/print", "/static/app.js", "/static/style.css", "/api/v1/faces/1/image",
                "/api/v1/photos/1/image"} <= shown  # fmt: skip
        for answer in (
            client.post(f"{ROOT}/search", files={"photo": photos[0].read_bytes()}),
            client.post(f"{ROOT}/compare", files={"first": photos[0].read_bytes(), "second": photos[4].read_bytes()}),
            client.get(f"{ROOT}/missing", headers=BROWSER),
            client.post(f"{ROOT}/individuals/99/name", data={"name": "Tom"}, headers=BROWSER),
        ):
            check_links(str(answer.url), answer.text)
        forms = [form for page in pages.values() for form in Page(page).all("form") if form.get("method") == "post"]
        for action in {form["action"] for form in forms}:
            answer = client.post(action, follow_redirects=False)  # without its fields
            assert answer.status_code not in (403, 404, 405, 500), action
            assert answer.headers.get("location", f"{ROOT}/").startswith(f"{ROOT}/"), action


def test_redirects_and_addresses_of_the_api_have_the_path(settings: Settings, photos: list[Path]):
    settings = replace(settings, root_path=ROOT)
    with behind_proxy(settings, removes=True) as client:
        named = client.post(
            f"{ROOT}/individuals/3/name",
            data={"name": "Tom", "back": "/individuals?tab=unnamed"},
            follow_redirects=False,
        )
        assert named.headers["location"].startswith(f"{ROOT}/individuals?tab=unnamed&done=named")
        answer = client.get(f"{ROOT}/individuals/merge?identity=1&identity=2", headers=BROWSER)
        assert answer.headers["hx-push-url"] == f"{ROOT}/individuals/merge?identity=1&identity=2"
        job = client.post(f"{ROOT}/api/v1/photos", files={"files": ("red1.png", photos[0].read_bytes())})
        assert job.headers["location"] == f"{ROOT}/api/v1/jobs/{job.json()['number']}"
        assert client.get(job.headers["location"]).status_code == 200
        assert client.get(f"{ROOT}/api/v1/openapi.json").json()["servers"] == [{"url": ROOT}]


@pytest.mark.parametrize("removes", [False, True])
def test_login_and_logout_lead_back_under_the_path(settings: Settings, removes: bool):
    settings = replace(settings, root_path=ROOT, token=TOKEN)
    with behind_proxy(settings, removes=removes) as client:
        answer = client.get(f"{ROOT}/individuals?tab=named", headers=BROWSER, follow_redirects=False)
        assert answer.headers["location"] == f"{ROOT}/login?next=%2Findividuals%3Ftab%3Dnamed"
        form = client.get(answer.headers["location"], headers=BROWSER)
        check_links(answer.headers["location"], form.text)
        onward = next(field["value"] for field in Page(form.text).all("input") if field["name"] == "next")
        wrong = client.post(f"{ROOT}/login", data={"token": "wrong", "next": onward}, follow_redirects=False)
        assert wrong.headers["location"] == f"{ROOT}/login?wrong=1&next=%2Findividuals%3Ftab%3Dnamed"
        done = client.post(f"{ROOT}/login", data={"token": TOKEN, "next": onward}, follow_redirects=False)
        assert done.headers["location"] == f"{ROOT}/individuals?tab=named"
        assert f"; path={ROOT};" in done.headers["set-cookie"]
        assert client.get(done.headers["location"], headers=BROWSER).status_code == 200
        out = client.post(f"{ROOT}/logout", follow_redirects=False)
        assert out.headers["location"] == f"{ROOT}/login"
        assert out.headers["clear-site-data"] == '"cache"'  # what else is on this host keeps its storage
        assert client.cookies.get(cookie_name(settings.session_name)) is None


@pytest.mark.parametrize("prefix", ["//evil.example", "/../etc", "/a b", '/a"b', "https://evil.example", "photos", "/"])
def test_malformed_prefix_is_ignored(settings: Settings, prefix: str):
    with behind_proxy(settings, removes=True, header=prefix) as client:
        assert 'href="/album"' in client.get(f"{ROOT}/album", headers=BROWSER).text


def test_prefix_of_another_machine_is_ignored(settings: Settings):
    for address, path in (("127.0.0.1", ROOT), ("::1", ROOT), ("192.168.1.7", "")):
        client = bare_browser(replace(settings, token=TOKEN), address=address)
        answer = client.get("/", headers=BROWSER | {"X-Forwarded-Prefix": ROOT, "X-Forwarded-For": "192.168.1.9"})
        assert answer.headers["location"] == f"{path}/login", address


def test_cookie_of_https_keeps_the_path_that_browsers_demand(settings: Settings):
    client = bare_browser(replace(settings, root_path=ROOT, token=TOKEN), base_url="https://localhost:8000")
    cookie = client.post("/login", data={"token": TOKEN}).headers["set-cookie"]
    assert cookie.startswith("__Host-")
    assert "; path=/;" in cookie


@pytest.mark.parametrize(
    "root_path", ["photos", "/photos/", "//photos", "/a b", "/..", "/a/./b", "/ä", "https://host/a"]
)
def test_root_path_that_is_none_is_refused(root_path: str):
    with pytest.raises(FamiliarError, match="give one such as /photos"):
        ServerSettings(root_path=root_path)


def test_scripts_name_no_path_without_the_root():
    for script in ("app.js", "faces.js"):
        assert (
            re.findall(r"""(?:fetch|assign|EventSource|open|ajax)\([^;]*?["'`]/""", (STATIC / script).read_text()) == []
        )


@pytest.mark.parametrize("removes", [True, False])
def test_pages_and_client_work_behind_nginx(settings: Settings, photos: list[Path], tmp_path: Path, removes: bool):
    settings = replace(settings, root_path="" if removes else ROOT)
    with running_server(settings) as server, nginx(server, tmp_path / "nginx", removes=removes) as url:
        with httpx2.Client(base_url=url.removesuffix(ROOT), follow_redirects=True, trust_env=False) as http:
            seen, _ = walk(http)
            assert len(seen) > 20
            named = http.post(f"{ROOT}/individuals/3/name", data={"name": "Tom"})
            assert (named.status_code, named.url.path) == (200, f"{ROOT}/individuals")
        with Client(url) as client:
            assert {identity.name for identity in client.identities()} == {"Ruby", "Emma", "Tom"}
            jobs = list(client.watch(client.enroll([photos[0]])))
            assert jobs[-1].state == "done"


@pytest.mark.browser
def test_scripts_work_behind_nginx(settings: Settings, tmp_path: Path, browser: Browser):
    photo = draw_photo(tmp_path / "new.png", "red", shade=9)
    server = running_server(replace(settings, root_path=ROOT, token=TOKEN))
    with server as address, nginx(address, tmp_path / "nginx", removes=True) as url:
        page, console = browser.new_page(), list[str]()
        page.on("console", lambda line: console.append(line.text) if line.type in ("error", "warning") else None)
        page.goto(f"{url}/individuals?tab=unnamed")
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button").click()
        expect(page).to_have_url(f"{url}/individuals?tab=unnamed")
        page.get_by_role("combobox").press_sequentially("Ru")
        expect(page.locator("#names option")).to_have_attribute("value", "Ruby")
        page.get_by_role("link", name="Album").first.click()
        page.locator('input[type="file"]').first.set_input_files(photo)
        expect(page.locator("#status")).to_contain_text("1 face added")
        assert console == []
