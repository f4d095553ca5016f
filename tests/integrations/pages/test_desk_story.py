"""End-to-end test of the lost pets in a real browser: enter found pets, decide about candidates, and print."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from familiar.embedding.embedder import Embedder
from familiar.gallery import Gallery
from familiar.gallery.enroll.enroll import enroll
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store
from familiar.gallery.transfer.import_export import import_folders
from familiar.integrations.lost_pets.reports import list_pets
from familiar.photos.listing import find_photos
from familiar.web.settings import Settings
from support.pet_register import draw_register
from support.server import running_server
from support.tiers import small_and_exhaustive

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SERIOUS = {"serious", "critical"}


@pytest.fixture
def make_register(tmp_path: Path) -> Callable[[int, int, int], dict[str, str | None]]:
    """Return a function that draws lost and found pets and makes the gallery `missing` of the lost ones."""

    def make(lost: int, found_lost: int, unknown: int) -> dict[str, str | None]:
        owners = draw_register(tmp_path, lost, found_lost, unknown)
        embedder = Embedder("pet-mobile")
        with Store.create(tmp_path / "missing", Space.from_metadata(embedder.metadata)) as gallery:
            enroll(gallery, embedder, find_photos([tmp_path / "lost"]))
            import_folders(gallery, tmp_path / "lost")
        return owners

    return make


def opened(browser: Browser, url: str, width: int, *, javascript: bool = True) -> tuple[Page, list[str]]:
    """Open a page; return it and its console messages."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        reduced_motion="reduce",
        has_touch=width < 500,
        java_script_enabled=javascript,
    )
    page, console = context.new_page(), list[str]()
    page.on("pageerror", lambda error: console.append(str(error)))
    page.on("console", lambda line: console.append(line.text) if line.type in ("error", "warning") else None)
    page.goto(url)
    return page, console


def enter(page: Page, url: str, photos: Path, location: str = "") -> str:
    """Enter a found pet; return the path of its page."""
    page.goto(f"{url}/desk")
    page.get_by_label("Photos of this one pet").set_input_files(sorted(photos.iterdir()))
    page.get_by_label("Name").fill(photos.name)
    page.get_by_label("Where").fill(location)
    page.get_by_label("When").fill("2026-05-30")
    page.get_by_role("button", name="Look for its owner").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Found: {photos.name}")
    return page.url.removeprefix(url).partition("?")[0]


def first_name(page: Page) -> str:
    return page.locator(".candidate h3").first.inner_text().partition(". ")[2]


def check_accessible(page: Page) -> None:
    violations = [each for each in Axe().run(page).response["violations"] if each["impact"] in SERIOUS]
    assert violations == [], json.dumps(violations, indent=1)[:3000]


@pytest.mark.parametrize(
    ("lost", "found_lost", "unknown", "width"), small_and_exhaustive((4, 1, 1, 360), (4, 1, 1, 1280), (20, 7, 3, 1280))
)
def test_shelter_plays_through_its_found_pets(
    browser: Browser,
    tmp_path: Path,
    make_register: Callable[[int, int, int], dict[str, str | None]],
    lost: int,
    found_lost: int,
    unknown: int,
    width: int,
):
    owners, folder = make_register(lost, found_lost, unknown), tmp_path / "missing"
    with running_server(Settings(gallery=folder, models=(Path("pet-mobile"),), detector="none", desk=True)) as url:
        page, console = opened(browser, url, width)
        expect(page).to_have_url(f"{url}/desk")
        for label, owner in owners.items():
            path = enter(page, url, tmp_path / "found" / label, "Elm Street")
            expect(page.locator(".candidate").first).to_be_visible()
            name = first_name(page)
            if owner is not None:
                assert name == owner
                page.get_by_role("button", name=f"This is the one: {name}", exact=True).click()
                expect(page).to_have_url(re.compile("/desk.done=reunited"))
                expect(page.get_by_role("status")).to_have_text(f"Home again: {name}.")
                continue
            page.get_by_role("button", name=f"Not this one: {name}", exact=True).click()
            expect(page.get_by_role("heading", name="Not these")).to_be_visible()
            page.goto(url + path)  # it is still known after the page was left
            assert first_name(page) != name
            expect(page.locator("#dismissed").locator("xpath=..").get_by_role("link", name=name)).to_be_visible()
            page.get_by_role("button", name=re.compile("Undo")).click()
            expect(page.get_by_role("heading", name="Not these")).to_have_count(0)
            assert first_name(page) == name
            page.get_by_role("button", name=f"Not this one: {name}", exact=True).click()
            expect(page.get_by_role("heading", name="Not these")).to_be_visible()
        check_accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        with page.context.expect_page() as popup:
            page.get_by_role("button", name=re.compile("Page to print")).first.click()
        expect(popup.value.get_by_text("One possible match")).to_be_visible()
        assert all(popup.value.evaluate("[...document.images].map((image) => image.naturalWidth > 0)"))
        assert len(popup.value.pdf(format="A4")) > 10_000
        for path in ("/desk", "/desk/register?status=home"):
            page.goto(url + path)
            if lost > 4:
                check_accessible(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert console == []
        with Store.open(folder) as gallery:
            assert len(list_pets(Gallery(gallery), "home")) == found_lost
            assert len(list_pets(Gallery(gallery), "lost")) == lost - found_lost
            assert [
                len(Gallery(gallery).different_identities(pet.identity)) for pet in list_pets(Gallery(gallery), "found")
            ] == [1] * unknown


@pytest.mark.exhaustive
def test_desk_works_without_javascript(
    browser: Browser, tmp_path: Path, make_register: Callable[[int, int, int], dict[str, str | None]]
):
    make_register(2, 1, 0)
    with running_server(Settings(gallery=tmp_path / "missing", models=(Path("pet-mobile"),), detector="none")) as url:
        page, _ = opened(browser, f"{url}/desk", 900, javascript=False)
        message = page.locator("noscript .note")
        enter(page, url, tmp_path / "found" / "found-00")
        page.get_by_role("button", name="Not this one: cat-0").click()
        expect(message).to_have_text("Remembered: it is not cat-0.")
        page.locator("#undo").click()
        expect(message).to_have_text("Undone.")
        page.get_by_role("button", name="This is the one: cat-0").click()
        expect(message).to_have_text("Home again: cat-0.")
        with Store.open(tmp_path / "missing") as gallery:
            assert [pet.name for pet in list_pets(Gallery(gallery), "home")] == ["cat-0"]
