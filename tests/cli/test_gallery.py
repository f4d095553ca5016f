"""`familiar gallery` end to end: the text and JSON of each command, and its one-line errors."""

import io
import json
import re
import webbrowser
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from familiar.cli.commands.gallery import COMMANDS
from familiar.gallery.edits import corrections
from familiar.gallery.same.assignments import load_assignments, resolve_face
from familiar.gallery.search import folder_index
from familiar.gallery.store.store import Store
from support.cli import Familiar
from support.color_album import create_gallery, draw_album, draw_photo
from support.random_bundle import random_bundle


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    draw_album(tmp_path / "photos", red=3, green=3, blue=1)
    return tmp_path / "photos"


@pytest.fixture
def clustered(familiar: Familiar, tmp_path: Path, photos: Path, mean_color_bundle: Path) -> Path:
    """Enrolled and clustered by the commands: #1 and #2 of three, blue alone."""
    folder = tmp_path / "my album"
    assert familiar("gallery", "enroll", folder, photos, "--model", mean_color_bundle).code == 0
    assert familiar("gallery", "cluster", folder).code == 0
    return folder


def run_json(familiar: Familiar, *arguments: object) -> Any:
    result = familiar("gallery", *arguments, "--json")
    assert result.code == 0, result.err
    return json.loads(result.out)


def fails(familiar: Familiar, *arguments: object) -> str:
    result = familiar("gallery", *arguments)
    assert result.code == 1, result.err
    *_, line = result.err.strip().splitlines()
    assert line.startswith("familiar: ")
    assert "Traceback" not in result.err
    return line


def identity_by_photo(folder: Path) -> dict[str, str]:
    """Map each photo to the name or number of its identity, -1 where it has none."""
    with Store.open(folder) as gallery, gallery.read() as repository:
        assignments = load_assignments(gallery)
        paths = dict(
            repository.connection.rows(
                "SELECT faces.id, CAST(path AS TEXT) FROM faces JOIN photos ON photos.id = photo_id"
            )
        )
    numbers = zip(assignments.faces.ids.tolist(), assignments.identity.tolist(), strict=True)
    return {Path(paths[face]).stem: assignments.names.get(number, str(number)) for face, number in numbers}


def test_help_lists_every_command_with_an_example(familiar: Familiar):
    shown = familiar("gallery", "--help").out
    for command in COMMANDS:
        assert f"\n  {command.name} " in shown
        assert f"Example:\n    familiar gallery {command.name} " in familiar("gallery", command.name, "--help").out


def test_enroll_counts_new_known_and_skipped_photos(
    familiar: Familiar, tmp_path: Path, photos: Path, mean_color_bundle: Path
):
    (photos / "fake.png").write_text("text")
    enroll = ("enroll", tmp_path / "g", photos, "--model", mean_color_bundle)
    first = familiar("gallery", *enroll, "--embeddings", "int8", "--species", "color", "--tta")
    assert first.code == 0
    assert f"a new gallery, with the model {mean_color_bundle}" in first.err
    assert "skipped" in first.err
    assert "fake.png" in first.err
    assert "7 new photos with 7 faces" in first.out
    assert "1 were skipped" in first.out
    again = run_json(familiar, *enroll)
    assert (again["photos"], again["known"], len(again["skipped"])) == (0, 7, 1)
    with Store.open(tmp_path / "g") as gallery:
        assert gallery.embedding_dtype == "int8"
    assert run_json(familiar, "search", tmp_path / "g", photos / "red1.png", "-m", mean_color_bundle)["photos"]
    other = ("--species", "scent")
    assert run_json(familiar, "search", tmp_path / "g", photos / "red1.png", "-m", mean_color_bundle, *other) == {
        "known": None,
        "photos": [],
    }


def test_enroll_builds_index_for_large_gallery_if_hnsw_installed(
    familiar: Familiar,
    tmp_path: Path,
    photos: Path,
    mean_color_bundle: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(folder_index, "INDEX_FROM", 7)
    enroll = ("enroll", tmp_path / "g", photos, "--model", mean_color_bundle)
    with monkeypatch.context() as patch:
        patch.setattr("familiar.gallery.search.index_update.find_spec", lambda _: None)
        assert "familiar-faces[hnsw]" in familiar("gallery", *enroll).err
    assert not run_json(familiar, "stats", tmp_path / "g")["indexed"]
    assert familiar("gallery", *enroll).code == 0
    assert run_json(familiar, "stats", tmp_path / "g")["indexed"]


def test_enroll_rejects_missing_species_file_and_missing_photo(
    familiar: Familiar, tmp_path: Path, photos: Path, mean_color_bundle: Path
):
    file = tmp_path / "family.json"
    assert "family.json: cannot be read" in fails(familiar, "enroll", tmp_path / "g", photos, "-m", file)
    assert "gone.png" in fails(familiar, "enroll", tmp_path / "g", photos / "gone.png", "-m", mean_color_bundle)
    assert not (tmp_path / "g").exists()


def test_search_and_verify_report_known_identity_or_error(
    familiar: Familiar, tmp_path: Path, mean_color_bundle: Path, clustered: Path
):
    model = ("--model", mean_color_bundle)
    new = draw_photo(tmp_path / "new.png", "red", shade=20)
    familiar("gallery", "name", clustered, "#" + identity_by_photo(clustered)["red1"], "Rosa")
    answer = familiar("gallery", "search", clustered, new, *model, "-k", "2").out.splitlines()
    assert answer[0].startswith("Rosa (#")
    assert len(answer) == 3
    assert all("photos/red" in line and "Rosa" in line for line in answer[1:])
    by = run_json(familiar, "search", clustered, new, *model, "--by", "identity")
    assert [match["known"] for match in by["identities"]] == [True, False]
    assert by["known"]["name"] == "Rosa"
    green = "#" + identity_by_photo(clustered)["green1"]
    only = run_json(familiar, "search", clustered, new, *model, "--identity", green, "--prefix", 3)
    assert {Path(hit["path"]).stem for hit in only["photos"]} == {"green1", "green2", "green3"}
    assert only["known"] is None
    blue = draw_photo(tmp_path / "b.png", "blue", shade=9)
    assert familiar("gallery", "search", clustered, blue, *model).out.startswith(
        "no match: the most similar identity, "
    )
    later = familiar("gallery", "search", clustered, new, *model, "--since", "2024").out
    assert later == "no match: no identity passes the filter\n"
    shown = familiar("gallery", "verify", clustered, new, "Rosa", *model)
    assert "shows Rosa (#" in shown.out
    assert run_json(familiar, "verify", clustered, new, green, *model)["same"] is False
    assert familiar("gallery", "search", clustered, new, *model, "--prefix", 2).code == 2
    assert familiar("gallery", "search", clustered, new, *model, "--prefix", 3, "--by", "identity").code == 2
    assert "gone.png" in fails(familiar, "search", clustered, tmp_path / "gone.png", *model)
    assert "has no identity 'Ruth'" in fails(familiar, "verify", clustered, new, "Ruth", *model)
    assert "no gallery" in fails(familiar, "search", tmp_path / "none", new, *model)


def test_rejects_model_of_another_space_until_migration(
    familiar: Familiar, tmp_path: Path, photos: Path, mean_color_bundle: Path, clustered: Path
):
    from familiar.photos.preprocessing import Preprocessing

    preprocessing = Preprocessing(size_px=32, resize_px=32)
    other = random_bundle(tmp_path / "other.onnx", sorted(photos.iterdir()), preprocessing)
    for command in (("search", clustered, photos / "red1.png"), ("enroll", clustered, photos)):
        assert "familiar gallery migrate" in fails(familiar, *command, "--model", other)
    before = identity_by_photo(clustered)
    done = run_json(familiar, "migrate", clustered, "--model", other)
    assert (done["reembedded_faces"], done["mapped_faces"], done["space_id"]) == (7, 0, "random")
    assert identity_by_photo(clustered) == before
    assert "space mean-color" in familiar("gallery", "migrate", clustered, "-m", mean_color_bundle).out
    assert "cannot be read" in fails(familiar, "migrate", clustered, "-m", tmp_path / "family.json")


def test_stats_and_cluster_report_counts_and_threshold(familiar: Familiar, clustered: Path, tmp_path: Path):
    statistics = run_json(familiar, "stats", clustered)
    assert (statistics["photos"], statistics["faces"], statistics["unassigned"]) == (7, 7, 1)
    assert [identity["faces"] for identity in statistics["identities"]] == [3, 3]
    shown = familiar("gallery", "stats", clustered).out
    assert "7 photos, 7 faces, 2 identities, 1 unassigned" in shown
    decided = "faces are grouped from 0.900 on, as the model was calibrated"
    assert f"threshold  {decided}" in shown
    assert re.search(r"  #\d +3 faces, 0 confirmed  for example .*photos/(red|green)", shown)
    assert " cluster (" in shown
    again = familiar("gallery", "cluster", clustered).out
    assert "2 identities with 6 faces, 1 unassigned; 0 changed\n" in again
    assert decided in again
    single = run_json(familiar, "cluster", clustered, "--threshold", "0.01", "--rebuild")
    assert (single["identities"], single["unassigned"]) == (1, 0)
    assert familiar("gallery", "cluster", clustered, "--threshold", "2").code == 2
    assert "no gallery" in fails(familiar, "cluster", tmp_path)


def test_corrections_apply_and_undo_reverts_each_in_order(familiar: Familiar, clustered: Path, photos: Path):
    red, green = "#" + identity_by_photo(clustered)["red1"], "#" + identity_by_photo(clustered)["green1"]
    assert familiar("gallery", "name", clustered, red, "Rosa", "--confirm").out == f"{red} is now Rosa ({red})\n"
    named = run_json(familiar, "name", clustered, green, "Gerd")
    assert named == {"identity": int(green[1:]), "name": "Gerd", "faces": 3, "propagated_faces": 0}
    assert "Rosa already" in fails(familiar, "name", clustered, "Gerd", "Rosa")
    assert familiar("gallery", "confirm", clustered, photos / "green1.png").out == "1 face confirmed\n"
    moved = familiar("gallery", "move", clustered, photos / "blue1.png", "--to", "Gerd").out
    assert moved.startswith("1 face shows now Gerd (#")
    assert identity_by_photo(clustered)["blue1"] == "Gerd"
    assert "Gerd (#" in familiar("gallery", "reject", clustered, photos / "blue1.png").out
    assert identity_by_photo(clustered)["blue1"] == "-1"
    assert run_json(familiar, "reject", clustered, photos / "blue1.png", "--identity", "Rosa")["name"] == "Rosa"
    split = run_json(familiar, "split", clustered, photos / "blue1.png", photos / "green3.png", "--name", "Blau")
    assert split["faces"] >= 2
    assert identity_by_photo(clustered)["green3"] == identity_by_photo(clustered)["blue1"] == "Blau"
    merged = familiar("gallery", "merge", clustered, "Gerd", "Blau").out
    assert merged.startswith(f"Blau became Gerd ({green})")
    decisions = ["merge", "split", "reject", "reject", "move", "confirm", "name", "name", "cluster"]
    assert [run_json(familiar, "undo", clustered)["kind"] for _ in decisions[1:]] == decisions[:-1]
    assert familiar("gallery", "undo", clustered).out.startswith("undone: cluster of 20")
    assert set(identity_by_photo(clustered).values()) == {"-1"}
    assert "nothing to undo" in fails(familiar, "undo", clustered)


def test_one_identity_twice_in_a_photo_needs_an_option(familiar: Familiar, clustered: Path, photos: Path):
    blue, green = photos / "blue1.png", photos / "green1.png"
    with Store.open(clustered) as gallery:
        first, second = resolve_face(gallery, str(blue)), resolve_face(gallery, str(green))
        with gallery.write(faces_change=True) as repository:
            repository.connection.execute(
                "UPDATE faces SET photo_id = (SELECT photo_id FROM faces WHERE id = ?) WHERE id = ?", (second, first)
            )
    to = f"#{identity_by_photo(clustered)['green2']}"
    run_json(familiar, "split", clustered, first, "--name", "Blau")
    for name, *rest in (("merge", to, "Blau"), ("move", first, "--to", to), ("split", first, second)):
        assert "green1.png: would show one identity twice" in fails(familiar, name, clustered, *rest)
        result = run_json(familiar, name, clustered, *rest, "--same-photo")
        with Store.open(clustered) as gallery:
            assignments = load_assignments(gallery)
            rows = assignments.faces.rows_of(np.array([first, second]))
            assert assignments.identity[rows].tolist() == [result["identity"]] * 2
        assert run_json(familiar, "undo", clustered)["kind"] == name


def test_corrections_reject_unknown_identity_face_or_bad_name(familiar: Familiar, clustered: Path, photos: Path):
    for identity in ("Ruth", "#99", "#99999999999999999999", "\udcff"):
        assert "has no identity" in fails(familiar, "name", clustered, identity, "Rosa")
    for face in ("99", "99999999999999999999", photos / "gone.png"):
        assert "has no" in fails(familiar, "split", clustered, face)
    for name in ("#3", " ", "\x1b[2J", "\udcff"):
        assert "is not a valid name" in fails(familiar, "name", clustered, "#1", name)
    assert "not assigned to an identity" in fails(familiar, "reject", clustered, photos / "blue1.png")
    assert familiar("gallery", "move", clustered, photos / "blue1.png").code == 2
    assert familiar("gallery", "split", clustered).code == 2


def test_review_lists_questions_and_what_is_open(familiar: Familiar, clustered: Path):
    questions = run_json(familiar, "review", clustered, "-n", 2)
    assert questions
    assert Path(questions[0]["first_path"]).is_file()
    shown = familiar("gallery", "review", clustered)
    assert shown.out.startswith("1. ")
    assert questions[0]["second_path"] in shown.out
    assert re.match(r"1\. (does|are) .*\? \(probability \d+%\)\n", shown.out)
    assert re.search(r"\d+ questions? left that matter; \d+ groups? without a name; \d+ faces? in no group", shown.out)
    assert run_json(familiar, "review", clustered, "--species", "cat") == []


class Window(webbrowser.BaseBrowser):
    """A browser that opens a window, if there is a screen."""

    def __init__(self, screen: bool) -> None:
        super().__init__()
        self.screen = screen

    def open(self, url: str, new: int = 0, autoraise: bool = True) -> bool:  # noqa: ARG002 - as of any browser
        return self.screen


@pytest.mark.parametrize(
    ("browser", "verb"),
    [(Window(True), "opened"), (Window(False), "open"), (webbrowser.GenericBrowser("false"), "open"), (None, "open")],
)
def test_interactive_review_opens_the_page_of_questions_or_prints_its_address(
    familiar: Familiar,
    clustered: Path,
    monkeypatch: pytest.MonkeyPatch,
    browser: webbrowser.BaseBrowser | None,
    verb: str,
):
    def find() -> webbrowser.BaseBrowser:
        if browser is None:
            raise webbrowser.Error("could not locate runnable browser")
        return browser

    monkeypatch.setattr("webbrowser.get", find)

    async def end(*_: object) -> None:
        """As after Ctrl+C at once."""

    monkeypatch.setattr("uvicorn.Server.serve", end)
    result = familiar("gallery", "review", clustered, "--interactive")
    assert re.search(rf": {verb} http://127\.0\.0\.1:\d+/questions in a browser; Ctrl\+C ends\n", result.err)
    assert familiar("gallery", "review", clustered, "--interactive", "--json").code == 2


def test_undo_of_a_given_change_undoes_no_other(familiar: Familiar, clustered: Path):
    run_json(familiar, "name", clustered, "#1", "Mia")
    (last, *_) = run_json(familiar, "stats", clustered)["decisions"]
    assert f"name (1 row), change {last['number']}\n" in familiar("gallery", "stats", clustered).out
    run_json(familiar, "name", clustered, "#2", "Tom")
    assert "nothing was undone" in fails(familiar, "undo", clustered, "--change", last["number"])
    assert run_json(familiar, "undo", clustered)["number"] > last["number"]
    assert run_json(familiar, "undo", clustered, "--change", last["number"])["number"] == last["number"]


def overtake(monkeypatch: pytest.MonkeyPatch, folder: Path, answer: str, change: Callable[[Store], object]) -> None:
    """Answer a question on the terminal after another program has changed the gallery."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

        def readline(self, *arguments: int) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
            if self.tell() == 0:
                with Store.open(folder) as other:
                    change(other)
            return super().readline(*arguments)

    monkeypatch.setattr("sys.stdin", Terminal(answer))


def test_identity_that_grew_while_the_user_was_asked_is_not_erased(
    familiar: Familiar, clustered: Path, monkeypatch: pytest.MonkeyPatch
):
    overtake(monkeypatch, clustered, "y\n", lambda other: corrections.merge(other, 1, [2]))
    refused = familiar("gallery", "forget", clustered, "--identity", "#1")
    assert refused.code == 1
    assert "#1 was merged at" in refused.err
    assert run_json(familiar, "undo", clustered)["kind"] == "merge"


def test_forget_requires_confirmation_before_erasing(
    familiar: Familiar, clustered: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
):
    red = "#" + identity_by_photo(clustered)["red1"]
    assert familiar("gallery", "forget", clustered).code == 2
    assert familiar("gallery", "forget", clustered, "--identity", red, "--photo", photos / "red1.png").code == 2
    without_terminal = familiar("gallery", "forget", clustered, "--identity", red)
    assert without_terminal.code == 2
    assert "--yes" in without_terminal.err
    terminal = io.StringIO("n\n")
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdin", terminal)
    assert familiar("gallery", "forget", clustered, "--identity", red).code == 1
    assert "red1" in identity_by_photo(clustered)
    forgotten = run_json(familiar, "forget", clustered, "--identity", red, "--yes")
    assert forgotten == {"photos": 0, "faces": 3, "erased": True}
    assert "red1" not in identity_by_photo(clustered)
    by_photo = familiar("gallery", "forget", clustered, "--photo", photos / "blue1.png", "--yes")
    assert by_photo.out == "erased: 1 photo with 1 face\n"
    assert "gone.png" in fails(familiar, "forget", clustered, "--photo", photos / "gone.png", "--yes")


@pytest.fixture
def uncalibrated(familiar: Familiar, tmp_path: Path, uncalibrated_bundle: Path) -> Path:
    """Enrolled and clustered by the commands with a model that was never calibrated: #1 and #2 of six."""
    folder = tmp_path / "guessed"
    create_gallery(folder, uncalibrated_bundle, draw_album(tmp_path / "guessed photos", red=6, green=6)).close()
    clustered = familiar("gallery", "cluster", folder)
    guess = "faces are grouped from 0.550 on, a guess: the model was never calibrated"
    for printed in (clustered, familiar("gallery", "stats", folder)):
        assert guess in printed.out
    return folder


def test_verify_gives_no_verdict_by_a_model_that_was_never_calibrated(
    familiar: Familiar, uncalibrated: Path, tmp_path: Path, uncalibrated_bundle: Path
):
    photo = tmp_path / "guessed photos" / "red1.png"
    model = ("--model", uncalibrated_bundle)
    answer = familiar("gallery", "verify", uncalibrated, photo, "#1", *model)
    assert answer.out.startswith(f"{photo}: similarity 1.000 to #1; the model was never calibrated")
    document = run_json(familiar, "verify", uncalibrated, photo, "#1", *model)
    assert (document["same"], document["threshold"], document["probability"]) == (None, None, None)


def test_check_reports_damage_and_repair_fixes_it(familiar: Familiar, clustered: Path, photos: Path):
    (photos / "blue1.png").unlink()
    whole = familiar("gallery", "check", clustered)
    assert whole.code == 0
    assert f"missing: {photos / 'blue1.png'}" in whole.out
    assert f"{clustered}: intact; 7 photos, 7 faces" in whole.out
    with Store.open(clustered) as gallery, gallery.write() as repository:
        repository.connection.execute("UPDATE faces SET embedding = zeroblob(6) WHERE id = 2")
    broken = familiar("gallery", "check", clustered)
    assert broken.code == 1
    assert "embeddings: " in broken.out
    as_json = familiar("gallery", "check", clustered, "--json")
    assert as_json.code == 1
    assert json.loads(as_json.out)["problems"]
    assert "repaired, with 7 photos" in familiar("gallery", "repair", clustered).out
    assert familiar("gallery", "check", clustered).code == 0
    assert "no gallery to repair" in fails(familiar, "repair", photos)


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (("import",), "--xmp"),
        (("import", "a.csv", "b.csv"), "--xmp"),
        (("import", "a.csv", "--exclude", "x"), "no SOURCE is one"),
        (("import", "--xmp", "--exclude", "x"), "no SOURCE is one"),
        (("export",), "--output and --xmp"),
        (("export", "--xmp", "--output", "a.csv"), "--output and --xmp"),
        (("export", "--output", "a.csv", "--in-place"), "--in-place is for --xmp"),
        (("export", "--xmp", "--link"), "--link and --identity are for --output"),
    ],
)
def test_import_and_export_refuse_options_that_exclude_each_other(
    familiar: Familiar, clustered: Path, arguments: tuple[str, ...], cause: str
):
    command, *rest = arguments
    result = familiar("gallery", command, clustered, *rest)
    assert result.code == 2
    assert cause in result.err


def test_import_restores_names_from_exported_csv_and_folders(
    familiar: Familiar, tmp_path: Path, clustered: Path, photos: Path
):
    familiar("gallery", "name", clustered, "#1", "Rosa")
    before = identity_by_photo(clustered)
    assert familiar("gallery", "export", clustered, "-o", tmp_path / "w.csv").out == f"{tmp_path / 'w.csv'}: 7 faces\n"
    assert run_json(familiar, "export", clustered, "-o", tmp_path / "out")["photos"] == 6
    familiar("gallery", "undo", clustered)
    familiar("gallery", "undo", clustered)
    imported = familiar("gallery", "import", clustered, tmp_path / "w.csv")
    assert imported.out == f"{clustered}: 6 faces of 2 identities, 0 skipped\n"
    named = {photo for photo, name in before.items() if name == "Rosa"}
    assert {photo for photo, name in identity_by_photo(clustered).items() if name == "Rosa"} == named
    familiar("gallery", "undo", clustered)
    assert run_json(familiar, "import", clustered, tmp_path / "out")["faces"] == 6
    (tmp_path / "w.csv").write_text("path,name\ngone.png,Rosa\n")
    assert "nothing in it could be imported" in fails(familiar, "import", clustered, tmp_path / "w.csv")
    assert "line 1" in fails(familiar, "import", clustered, photos / "red1.png")
    assert "not empty" in fails(familiar, "export", clustered, "-o", tmp_path / "out")
    assert familiar("gallery", "export", clustered, "-o", tmp_path / "w.csv", "--link").code == 2
    (photos / "red1.png").rename(tmp_path / "red1.png")
    assert "red1.png: missing" in familiar("gallery", "export", clustered, "-o", tmp_path / "copies").err
    photos.rename(tmp_path / "elsewhere")
    for target in (["-o", tmp_path / "none"], *([["--xmp"]] if find_spec("familiar.integrations") else [])):
        assert f"familiar gallery enroll {clustered} PHOTOS" in fails(familiar, "export", clustered, *target)
    assert "red2.png: missing" in familiar("gallery", "export", clustered, "-o", tmp_path / "none").err


# --- the remembered model and detector ----------------------------------------------------------------------------


def test_later_commands_need_no_model_and_refuse_another(
    familiar: Familiar, clustered: Path, photos: Path, tmp_path: Path
):
    more = draw_photo(tmp_path / "more.png", "red", shade=7)
    assert "1 new photo with 1 face" in familiar("gallery", "enroll", clustered, more).out
    assert familiar("gallery", "search", clustered, more).out.startswith("#")
    assert "shows #" in familiar("gallery", "verify", clustered, more, "#2").out
    line = fails(familiar, "search", clustered, more, "--model", "pet-nano")
    assert "not pet-nano" in line
    assert "mean color.onnx" in line
    assert "gallery migrate" in line
    line = fails(familiar, "enroll", clustered, photos, "--detector", "pets")
    assert "detector is none, not pets; " in line
    assert f"enroll {clustered} --redetect --detector pets" in line


def test_first_command_needs_no_model(familiar: Familiar, photos: Path, tmp_path: Path):
    result = familiar("gallery", "enroll", tmp_path / "new", photos)
    assert "a new gallery, with the model cat,dog=pet-mobile and person=person-mobile" in result.err
    assert "7 show no head of a cat or dog and no face of a person\n" in result.out
    document = run_json(familiar, "enroll", tmp_path / "new", photos)
    assert document["models"] == ["cat,dog=pet-mobile", "person=person-mobile"]
    assert (document["detector"], document["known"]) == ("auto", 7)


def test_models_that_are_named_are_each_for_their_species(familiar: Familiar, photos: Path, tmp_path: Path):
    both = ("--model", "pet-nano", "--model", "person-nano")
    assert run_json(familiar, "enroll", tmp_path / "new", photos, *both)["models"] == [
        "cat,dog=pet-nano",
        "person=person-nano",
    ]
    line = fails(familiar, "enroll", tmp_path / "other", photos, "--model", "person-nano", "--model", "person-mobile")
    assert "two models are for person: person-nano and person-mobile" in line
    assert not (tmp_path / "other").exists()


def test_looking_again_counts_what_it_looked_for(familiar: Familiar, clustered: Path):
    result = familiar("gallery", "enroll", clustered, "--redetect", "--detector", "pets")
    assert re.search(r"7 were looked at again.*\n  7 of their faces were not found again, and stay", result.out)
    document = run_json(familiar, "enroll", clustered, "--redetect")
    assert (document["detector"], document["looked_for"], document["searched_again"]) == (
        "pets",
        "head of a cat or dog",
        0,
    )


def test_enrolled_photos_without_a_face_say_what_was_looked_for(
    familiar: Familiar, photos: Path, tmp_path: Path, mean_color_bundle: Path
):
    album = tmp_path / "album"
    result = familiar("gallery", "enroll", album, photos, "--model", mean_color_bundle, "--detector", "pets")
    command = f"familiar gallery enroll {album} --redetect --detector auto"
    others = f"(this album is not searched for people; to change that: {command})"
    assert f"7 show no head of a cat or dog {others}" in result.out
    line = fails(familiar, "search", album, photos / "red1.png")
    assert f"no head of a cat or dog found {others}; if the photo is cropped" in line


@pytest.mark.parametrize(
    ("command", "option", "values"),
    [
        (("gallery", "enroll", "album", "photos"), "--detector", ("pets", "auto")),
        (("embed", "photos"), "--output", ("a.npz", "b.npz")),
        (("serve", "album"), "--port", ("1", "2")),
    ],
)
def test_option_that_takes_one_value_is_refused_twice(
    familiar: Familiar, command: tuple[str, ...], option: str, values: tuple[str, ...]
):
    result = familiar(*command, *(word for value in values for word in (option, value)))
    assert result.code == 2
    assert f"{option} was given twice: " in result.err
    assert all(value in result.err for value in values)
