"""The pages in a real browser: names are not lost, messages cover nothing, hasty keys answer nothing."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from familiar.gallery import Gallery
from familiar.gallery.store.store import Store
from familiar.web.settings import Settings
from support.server import running_server
from support.web_forms import unassign

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def url(settings: Settings) -> Iterator[str]:
    with running_server(settings) as url:
        yield url


@pytest.fixture(params=[1280, 390])
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page as wide as that of a computer, then of a phone."""
    with browser.new_context(viewport={"width": request.param, "height": 844}, reduced_motion="reduce") as context:
        yield context.new_page()


def names_in(settings: Settings) -> dict[int, str]:
    with Gallery.open(settings.gallery) as gallery:
        return gallery.names()


def test_names_are_saved_when_the_focus_leaves_their_tile(page: Page, url: str, settings: Settings):
    page.goto(f"{url}/individuals?tab=unnamed")
    first, second = page.get_by_label("Name of #1", exact=True), page.get_by_label("Name of #2", exact=True)
    first.fill("Luna")
    second.click()
    second.press_sequentially("Gi")
    expect(page.locator("#individual-1 .saved")).to_be_visible()
    second.press_sequentially("l")
    expect(second).to_have_value("Gil")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Save")).to_be_focused()  # the focus is still in the form
    page.keyboard.press("Tab")
    expect(page.locator("#individual-2 .saved")).to_be_visible()
    assert names_in(settings) == {1: "Luna", 2: "Gil"}
    first.fill("Luna B")  # what the page knows of the tile is up to date
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").first).to_have_text("Now called Luna B.")
    expect(page).to_have_url(re.compile("tab=unnamed"))
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("status").first).to_have_text("Undone: this is again Luna.")
    assert names_in(settings) == {1: "Luna", 2: "Gil"}


def test_name_is_saved_before_the_next_page_is_shown(page: Page, url: str, settings: Settings):
    page.goto(f"{url}/individuals?tab=unnamed")
    page.get_by_label("Name of #1", exact=True).fill("Luna")
    page.get_by_role("link", name="Named", exact=False).first.click()
    expect(page.get_by_label("Name of Luna")).to_have_value("Luna")
    assert names_in(settings) == {1: "Luna"}


def test_name_of_another_individual_is_not_saved_and_stays_in_its_field(page: Page, url: str, settings: Settings):
    with Gallery.open(settings.gallery) as gallery:
        gallery.name(1, "Luna")
    page.goto(f"{url}/individuals?tab=unnamed")
    page.get_by_label("Name of #2", exact=True).fill("Luna")
    page.get_by_label("Name of #3", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("there is already an individual called Luna")
    expect(page.get_by_label("Name of #2", exact=True)).to_have_value("Luna")
    assert names_in(settings) == {1: "Luna"}
    page.get_by_role("link", name="Are both the same?").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Are these one individual?")


@pytest.mark.parametrize("scrolled", [0, 10_000])
@pytest.mark.parametrize("path", ["/questions", "/individuals/1", "/individuals?tab=unnamed"])
def test_message_takes_room_of_its_own_below_the_bar(page: Page, url: str, scrolled: int, path: str):
    page.goto(f"{url}{path}")
    page.evaluate(f"scrollTo(0, {scrolled})")
    scroll = page.evaluate("scrollY")
    before = page.locator("main").bounding_box()
    page.evaluate("window.familiar.showStatus('Undone: naming.')")
    bar, strip, after = (page.locator(each).bounding_box() for each in (".top", ".messages", "main"))
    assert bar is not None
    assert strip is not None
    assert before is not None
    assert after is not None
    assert strip["height"] > 20
    assert strip["y"] == pytest.approx(bar["y"] + bar["height"], abs=1)
    assert page.evaluate("scrollY") == scroll
    assert after["y"] == pytest.approx(before["y"] + strip["height"], abs=1), "nothing hides behind the message"
    assert strip["y"] + strip["height"] < 200, "far from the bars at the bottom"


def test_key_that_is_pressed_before_a_question_can_be_read_answers_nothing(page: Page, url: str, settings: Settings):
    with Store.open(settings.gallery) as store:
        unassign(store, [4, 7, 9])
    with Gallery.open(settings.gallery) as gallery:
        for number, name in enumerate(("Luna", "Gil", "Mia"), 1):
            gallery.name(number, name)
    page.clock.install()
    page.goto(f"{url}/questions?skipped=0-1_0-2_0-3")
    expect(page.locator("form[data-keys]")).to_have_count(1)
    page.clock.pause_at(page.evaluate("Date.now()") / 1000 + 10)
    shown_now = "htmx.trigger(document.querySelector('form[data-keys]'), 'htmx:load', {elt: document.body})"
    is_sent = "document.body.classList.contains('htmx-request')"
    page.evaluate(shown_now)  # however long the page took to load
    page.clock.run_for(399)
    page.keyboard.press("n")
    assert not page.evaluate(is_sent)
    page.clock.run_for(1)
    with page.expect_request("**/questions") as request:
        page.keyboard.press("n")
    assert request.value.method == "POST"
