"""`familiar match` and `familiar gallery register` end to end: found pets against a register of lost ones."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from familiar.gallery import Gallery
from familiar.gallery.store.store import Store
from familiar.integrations.lost_pets.reports import find_pet
from support.cli import Familiar
from support.color_album import draw_photo
from support.html import Page
from support.pet_register import draw_register
from support.tiers import small_and_exhaustive

HUES = ("red", "green", "blue")


@pytest.fixture
def missing(familiar: Familiar, tmp_path: Path, mean_color_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A gallery of three lost pets called by their color, two photos each; the current folder has more photos."""
    monkeypatch.chdir(tmp_path)
    folders = [tmp_path / "lost" / color.title() for color in HUES]
    for folder in (*folders, tmp_path / "pets" / "A", tmp_path / "pets" / "B"):
        folder.mkdir(parents=True)
    for color in HUES:
        for number in (1, 2):
            draw_photo(tmp_path / "lost" / color.title() / f"{color}{number}.png", color, shade=number)
    draw_photo(tmp_path / "found.png", "red", shade=3)
    draw_photo(tmp_path / "pets" / "A" / "1.png", "red", shade=3)
    draw_photo(tmp_path / "pets" / "B" / "1.png", "blue", shade=3)
    (tmp_path / "pets" / "B" / "broken.png").write_text("no photo")
    assert familiar("gallery", "enroll", "missing", "lost", "--model", mean_color_bundle).code == 0
    assert familiar("gallery", "import", "missing", "lost").code == 0
    return tmp_path / "missing"


@pytest.fixture
def match(familiar: Familiar, missing: Path, mean_color_bundle: Path):
    def run(*arguments: object) -> Any:
        result = familiar("match", *arguments, "--gallery", missing, "--model", mean_color_bundle, "--json")
        assert result.code == 0, result.err
        return json.loads(result.out)

    return run


def names(pet: dict[str, Any]) -> list[str]:
    return [candidate["name"] for candidate in pet["candidates"]]


def test_photo_is_matched_and_nothing_is_stored(familiar: Familiar, missing: Path, mean_color_bundle: Path):
    before = (missing / "gallery.sqlite").read_bytes()
    result = familiar("match", "found.png", "--gallery", missing, "--model", mean_color_bundle, "-k", 2)
    first, *candidates = result.out.splitlines()
    assert first == "found: probably Red (#3)"
    assert len(candidates) == 2
    assert re.fullmatch(r"  Red \(#3\): similarity [01]\.\d{3}, probability \d+\.\d%", candidates[0])
    assert (missing / "gallery.sqlite").read_bytes() == before


def test_folder_of_found_pets_gives_one_document_and_names_bad_photos(
    familiar: Familiar, missing: Path, mean_color_bundle: Path
):
    Path("pets/C").mkdir()
    Path("pets/C/notes.txt").touch()
    result = familiar("match", "pets", "--gallery", missing, "--model", mean_color_bundle, "--json")
    first, second = json.loads(result.out)
    assert (first["found"], names(first)[0]) == ("A", "Red")
    assert (second["found"], names(second)[0], second["photos"]) == ("B", "Blue", ["pets/B/1.png"])
    assert "skipped pets/B/broken.png" in result.err
    assert "skipped no photo found in pets/C" in result.err
    assert first["candidates"][0]["probability"] > first["candidates"][1]["probability"]


def test_filters_use_the_fields_of_the_register(familiar: Familiar, missing: Path, match: Any):
    Path("pets.csv").write_text(
        "name,species,place,date\nRed,cat,Elm Street,2026-05-01\nGreen,dog,Harbor,2026-05-20\nBlue,cat,Harbor,\n"
    )
    assert familiar("gallery", "register", missing, "pets.csv").out == "3 reports entered\n"
    assert set(names(match("found.png", "--species", "cat")[0])) == {"Red", "Blue"}
    assert set(names(match("found.png", "--place", "harbor")[0])) == {"Green", "Blue"}
    assert set(names(match("found.png", "--since", "2026-05-10")[0])) == {"Green", "Blue"}
    (pet,) = match("found.png", "--until", "2026-05-10", "--species", "cat", "--found-on", "2026-04-01")
    assert names(pet) == ["Red", "Blue"]
    assert [candidate["impossible_dates"] for candidate in pet["candidates"]] == [True, False]
    assert (pet["filtered"], pet["compared"], pet["report"]["date"]) == (1, 2, "2026-04-01")
    text = familiar("match", "found.png", "-g", missing, "-m", "x", "--since", "May")
    assert (text.code, "written as 2026, 2026-05" in text.err) == (1, True)


def test_saved_pet_remembers_what_it_is_not(familiar: Familiar, missing: Path, match: Any):
    (pet,) = match("found.png", "--save", "Stray", "--found-at", "Elm Street", "--found-on", "2026-05-02")
    assert (names(pet)[0], pet["identity"]) == ("Red", 4)
    with Store.open(missing) as gallery:
        report = find_pet(Gallery(gallery), 4).report
        assert (report.status, report.location, report.reported_on) == ("found", "Elm Street", "2026-05-02")
    (pet,) = match("found.png", "--not", "Red")
    assert pet["not"] == [{"identity": 3, "name": "Red"}]
    (pet,) = match("found.png")
    assert (pet["found"], pet["report"]["place"]) == ("Stray", "Elm Street")
    assert "Red" not in names(pet)
    assert "undone: mark different" in familiar("gallery", "undo", missing).out
    assert names(match("found.png")[0])[0] == "Red"


def test_pet_is_saved_though_one_of_its_photos_is_gone(familiar: Familiar, missing: Path, mean_color_bundle: Path):
    Path("pets/B/gone.png").symlink_to("nowhere.png")
    result = familiar("match", "pets/B", "--gallery", missing, "--model", mean_color_bundle, "--save", "Stray")
    assert result.code == 0
    assert "skipped pets/B/gone.png: No such file" in result.err
    assert "Stray (#4): found" in familiar("gallery", "register", missing, "--status", "found").out


def test_unsaved_pet_is_not_compared_with_dismissed_ones_this_time(match: Any):
    assert "Red" not in names(match("found.png", "--not", "Red")[0])
    assert names(match("found.png")[0])[0] == "Red"


def test_report_writes_a_page_for_each_pet(familiar: Familiar, missing: Path, mean_color_bundle: Path):
    Path("pets.csv").write_text("name,contact,note\nRed,555-0101,<b>bites</b>\n")
    assert familiar("gallery", "register", missing, "pets.csv").code == 0
    common = ("--gallery", missing, "--model", mean_color_bundle, "-k", 2, "--report")
    assert "pages/B.html: open it" in familiar("match", "pets", *common, "pages").err
    assert sorted(path.name for path in Path("pages").iterdir()) == ["A.html", "B.html"]
    text = Path("pages/A.html").read_text("utf-8")
    page = Page(text)
    assert page.open == []
    assert [image["src"][:23] for image in page.all("img")] == ["data:image/jpeg;base64,"] * 4
    assert page.all("script") == page.all("link") == []
    assert "&lt;b&gt;bites&lt;/b&gt;" in text
    assert "555-0101" not in text
    assert "@media print" in text
    assert familiar("match", "pets", *common, "with", "--contact").code == 0
    assert "555-0101" in Path("with/A.html").read_text("utf-8")


def test_report_says_where_a_photo_is_gone(familiar: Familiar, missing: Path, mean_color_bundle: Path):
    for path in Path("lost/Red").iterdir():
        path.write_bytes(Path("found.png").read_bytes())
    common = ("--gallery", missing, "--model", mean_color_bundle)
    assert familiar("match", "found.png", *common, "-k", 1, "--report", "pages").code == 0
    text = Path("pages/found.html").read_text("utf-8")
    assert "The photo cannot be read" in text
    assert len(Page(text).all("img")) == 1


def test_expected_failures_are_one_line(familiar: Familiar, missing: Path, mean_color_bundle: Path):
    for arguments, message in (
        (("nothing.png",), "nothing.png"),
        (("found.png", "--not", "Bob"), "has no identity 'Bob'"),
        (("found.png", "--save", "Red"), "has a pet called Red already"),
        (("lost/Red/red1.png", "--save", "Stray"), "shows Red already"),
        (("pets/B/broken.png",), "broken.png"),
        (("found.png", "--found-on", "tomorrow"), "written as 2026-05-31"),
    ):
        result = familiar("match", *arguments, "--gallery", missing, "--model", mean_color_bundle)
        assert (result.code, result.out) == (1, ""), arguments
        assert message in result.err.splitlines()[-1]


def test_register_enters_the_rows_that_it_can(familiar: Familiar, missing: Path):
    Path("pets.csv").write_text("name,date\nRed,May\nBlue,2026-05-01\n")
    result = familiar("gallery", "register", missing, "pets.csv")
    assert (result.code, result.out) == (0, "1 report entered, 1 skipped\n")
    assert result.err.startswith("skipped pets.csv, line 2: a date must be written as")
    Path("pets.csv").write_text("name,date\nRed,May\n")
    result = familiar("gallery", "register", missing, "pets.csv")
    assert (result.code, result.out) == (1, "")
    assert "no row could be entered; the lines above say why" in result.err


def test_wrong_usage_is_refused(familiar: Familiar, missing: Path, mean_color_bundle: Path):
    for option in (("--save", "Stray"), ("--not", "Red"), ("--found-at", "Elm")):
        assert familiar("match", "pets", "--gallery", missing, "--model", mean_color_bundle, *option).code == 2
    assert familiar("gallery", "register", missing, "pets.csv", "--status", "lost").code == 2


def test_register_is_listed_and_written(familiar: Familiar, missing: Path):
    Path("pets.csv").write_text("name,status,place\nRed,found,Elm Street\nBlue,home,\n")
    assert json.loads(familiar("gallery", "register", missing, "pets.csv", "--json").out) == {
        "entered": 2,
        "skipped": [],
    }
    assert (
        familiar("gallery", "register", missing, "--status", "found").out == "Red (#3): found, Elm Street, 2 photos\n"
    )
    listed = json.loads(familiar("gallery", "register", missing, "--json").out)
    assert [(pet["name"], pet["status"], pet["photos"]) for pet in listed] == [
        ("Blue", "home", 2),
        ("Green", "lost", 2),
        ("Red", "found", 2),
    ]
    assert familiar("gallery", "register", missing, "--output", "out.csv").out == "out.csv: 3 pets\n"
    assert Path("out.csv").read_text().splitlines()[3] == "Red,found,,Elm Street,,,"
    Path("bad.csv").write_text("name\nBob\n")
    result = familiar("gallery", "register", missing, "bad.csv")
    assert (result.code, "bad.csv, line 2" in result.err, "no row could be entered" in result.err) == (1, True, True)


@pytest.mark.parametrize(("lost", "found_lost", "unknown"), small_and_exhaustive((4, 1, 1), (20, 7, 3)))
def test_found_pets_are_matched_with_their_owners(
    familiar: Familiar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: int, found_lost: int, unknown: int
):
    monkeypatch.chdir(tmp_path)
    truth = draw_register(tmp_path, lost, found_lost, unknown)
    cropped = ("--model", "pet-mobile", "--detector", "none")
    assert familiar("gallery", "enroll", "missing", "lost", *cropped).code == 0
    assert familiar("gallery", "import", "missing", "lost").code == 0
    result = familiar("match", "found", "--gallery", "missing", *cropped, "--json")
    pets = {pet["found"]: pet for pet in json.loads(result.out)}
    known = {
        label: next((candidate["name"] for candidate in pet["candidates"] if candidate["known"]), None)
        for label, pet in pets.items()
    }
    assert known == truth
    for label, name in truth.items():  # each is entered, and the one that is wrong or right is told
        (pet,) = json.loads(
            familiar("match", f"found/{label}", "--gallery", "missing", *cropped, "--save", label, "--json").out
        )
        first = pet["candidates"][0]["name"]
        assert name in (None, first)
        arguments = ("--not", first) if name is None else ()
        (pet,) = json.loads(
            familiar("match", f"found/{label}", "--gallery", "missing", *cropped, *arguments, "--json").out
        )
        assert (first in names(pet)) == (name is not None)
