"""`familiar gallery` as a user meets it: what each command says, its JSON, and one line where it cannot be."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from familiar.cli.commands.gallery import COMMANDS
from familiar.gallery.clustering.assignments import load_assignments
from familiar.gallery.database.connection import Gallery
from familiar.gallery.search import search
from support.cli import Familiar
from support.color_album import album, gallery_of, photo
from support.random_bundle import random_bundle

DOCS = Path(__file__).parents[2] / "docs" / "commands.md"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    album(tmp_path / "photos", red=3, green=3, blue=1)
    return tmp_path / "photos"


@pytest.fixture
def grouped(familiar: Familiar, tmp_path: Path, photos: Path, mean_color_bundle: Path) -> Path:
    """Enrolled and grouped by the commands: #1 and #2 of three, blue alone."""
    folder = tmp_path / "my album"
    assert familiar("gallery", "enroll", folder, photos, "--model", mean_color_bundle).code == 0
    assert familiar("gallery", "group", folder).code == 0
    return folder


def said(familiar: Familiar, *arguments: object) -> Any:
    answer = familiar("gallery", *arguments, "--json")
    assert answer.code == 0, answer.err
    return json.loads(answer.out)


def fails(familiar: Familiar, *arguments: object) -> str:
    answer = familiar("gallery", *arguments)
    assert answer.code == 1, answer.err
    *_, line = answer.err.strip().splitlines()
    assert line.startswith("familiar: ")
    assert "Traceback" not in answer.err
    return line


def whose(folder: Path) -> dict[str, str]:
    """Of each photo whom it shows."""
    with Gallery.open(folder) as gallery, gallery.reading() as connection:
        who = load_assignments(gallery)
        paths = dict(
            connection.execute("SELECT faces.id, path FROM faces JOIN photos ON photos.id = photo_id").fetchall()
        )
    numbers = zip(who.faces.ids.tolist(), who.identity.tolist(), strict=True)
    return {Path(paths[face]).stem: who.names.get(number, str(number)) for face, number in numbers}


def test_every_command_has_an_example_and_documentation(familiar: Familiar):
    shown = familiar("gallery", "--help").out
    section = DOCS.read_text().split("\n## gallery\n")[1].split("\n## ")[0]
    preamble, *sections = section.split("\n### ")
    documented = {text.split("\n", 1)[0]: text for text in sections}
    assert list(documented) == [command.name for command in COMMANDS]
    for command in COMMANDS:
        assert f"\n  {command.name} " in shown
        assert f"Example:\n    familiar gallery {command.name} " in familiar("gallery", command.name, "--help").out
        options = [option for parameter in command.params for option in parameter.opts if option[:2] == "--"]
        text = preamble + documented[str(command.name)]
        assert [option for option in options if not re.search(rf"{option}\b(?!-)", text) and option != "--model"] == []


def test_enroll_counts_new_known_and_skipped_photos(
    familiar: Familiar, tmp_path: Path, photos: Path, mean_color_bundle: Path
):
    (photos / "fake.png").write_text("text")
    to = ("enroll", tmp_path / "g", photos, "--model", mean_color_bundle)
    first = familiar("gallery", *to, "--float32", "--species", "color", "--tta")
    assert first.code == 0
    assert "a new gallery, for embeddings of the space mean-color" in first.err
    assert "skipped" in first.err
    assert "fake.png" in first.err
    assert "7 new photos with 7 faces" in first.out
    assert "1 were skipped" in first.out
    again = said(familiar, *to)
    assert (again["photos"], again["known"], len(again["skipped"])) == (0, 7, 1)
    with Gallery.open(tmp_path / "g") as gallery:
        assert gallery.embedding_dtype.name == "float32"
    assert said(familiar, "search", tmp_path / "g", photos / "red1.png", "-m", mean_color_bundle)["photos"]
    other = ("--species", "scent")
    assert said(familiar, "search", tmp_path / "g", photos / "red1.png", "-m", mean_color_bundle, *other) == {
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
    monkeypatch.setattr(search, "INDEX_FROM", 7)
    to = ("enroll", tmp_path / "g", photos, "--model", mean_color_bundle)
    with monkeypatch.context() as patch:
        patch.setattr("familiar.cli.commands.gallery.photos.find_spec", lambda _: None)
        assert "familiar-faces[hnsw]" in familiar("gallery", *to).err
    assert not said(familiar, "stats", tmp_path / "g")["indexed"]
    assert familiar("gallery", *to).code == 0
    assert said(familiar, "stats", tmp_path / "g")["indexed"]


def test_enroll_rejects_router_and_missing_photo(
    familiar: Familiar, tmp_path: Path, photos: Path, mean_color_bundle: Path
):
    router = tmp_path / "router.json"
    assert "make a gallery for each species" in fails(familiar, "enroll", tmp_path / "g", photos, "-m", router)
    assert "gone.png" in fails(familiar, "enroll", tmp_path / "g", photos / "gone.png", "-m", mean_color_bundle)
    assert not (tmp_path / "g").exists()


def test_search_and_verify_report_known_identity_or_error(
    familiar: Familiar, tmp_path: Path, mean_color_bundle: Path, grouped: Path
):
    model = ("--model", mean_color_bundle)
    new = photo(tmp_path / "new.png", "red", shade=20)
    familiar("gallery", "name", grouped, "#" + whose(grouped)["red1"], "Rosa")
    answer = familiar("gallery", "search", grouped, new, *model, "-k", "2").out.splitlines()
    assert answer[0].startswith("Rosa (#")
    assert len(answer) == 3
    assert all("photos/red" in line and "Rosa" in line for line in answer[1:])
    by = said(familiar, "search", grouped, new, *model, "--by", "identity")
    assert [one["known"] for one in by["identities"]] == [True, False]
    assert by["known"]["name"] == "Rosa"
    green = "#" + whose(grouped)["green1"]
    only = said(familiar, "search", grouped, new, *model, "--identity", green, "--prefix", 3)
    assert {Path(hit["path"]).stem for hit in only["photos"]} == {"green1", "green2", "green3"}
    assert only["known"] is None
    blue = photo(tmp_path / "b.png", "blue", shade=9)
    assert familiar("gallery", "search", grouped, blue, *model).out.startswith("nobody here: the likest, ")
    later = familiar("gallery", "search", grouped, new, *model, "--since", "2024").out
    assert later == "nobody here: no identity passes what was asked for\n"
    shown = familiar("gallery", "verify", grouped, new, "Rosa", *model)
    assert "shows Rosa (#" in shown.out
    assert said(familiar, "verify", grouped, new, green, *model)["same"] is False
    assert familiar("gallery", "search", grouped, new, *model, "--prefix", 2).code == 2
    assert familiar("gallery", "search", grouped, new, *model, "--prefix", 3, "--by", "identity").code == 2
    assert "gone.png" in fails(familiar, "search", grouped, tmp_path / "gone.png", *model)
    assert "knows no 'Ruth'" in fails(familiar, "verify", grouped, new, "Ruth", *model)
    assert "no gallery" in fails(familiar, "search", tmp_path / "none", new, *model)


def test_rejects_model_of_another_space_until_migration(
    familiar: Familiar, tmp_path: Path, photos: Path, mean_color_bundle: Path, grouped: Path
):
    from familiar.photos.preprocessing import Preprocessing

    preprocessing = Preprocessing(size_px=32, resize_px=32)
    other = random_bundle(tmp_path / "other.onnx", sorted(photos.iterdir()), preprocessing)
    for command in (("search", grouped, photos / "red1.png"), ("enroll", grouped, photos)):
        assert "familiar gallery migrate" in fails(familiar, *command, "--model", other)
    before = whose(grouped)
    done = said(familiar, "migrate", grouped, "--model", other)
    assert (done["photos"], done["bridge"], done["space_id"]) == (7, 0, "random")
    assert whose(grouped) == before
    assert "space mean-color" in familiar("gallery", "migrate", grouped, "-m", mean_color_bundle).out
    assert "is a router" in fails(familiar, "migrate", grouped, "-m", tmp_path / "router.json")


def test_stats_and_group_report_counts_and_threshold(familiar: Familiar, grouped: Path, tmp_path: Path):
    seen = said(familiar, "stats", grouped)
    assert (seen["photos"], seen["faces"], seen["unassigned"]) == (7, 7, 1)
    assert [one["faces"] for one in seen["identities"]] == [3, 3]
    shown = familiar("gallery", "stats", grouped).out
    assert "7 photos, 7 faces, 2 identities, 1 alone" in shown
    assert "0.900, the model's" in shown
    assert re.search(r"  #\d +3 faces, 0 confirmed  like .*photos/(red|green)", shown)
    assert " group (" in shown
    again = familiar("gallery", "group", grouped).out
    assert "2 identities with 6 faces, 1 alone; 0 changed (threshold 0.900, the model's)" in again
    all_one = said(familiar, "group", grouped, "--threshold", "0.01", "--rebuild")
    assert (all_one["identities"], all_one["unassigned"]) == (1, 0)
    assert familiar("gallery", "group", grouped, "--threshold", "2").code == 2
    assert "no gallery" in fails(familiar, "group", tmp_path)


def test_corrections_apply_and_undo_reverts_each_in_order(familiar: Familiar, grouped: Path, photos: Path):
    red, green = "#" + whose(grouped)["red1"], "#" + whose(grouped)["green1"]
    assert familiar("gallery", "name", grouped, red, "Rosa", "--confirm").out == f"{red} is now Rosa ({red})\n"
    named = said(familiar, "name", grouped, green, "Gerd")
    assert named == {"identity": int(green[1:]), "name": "Gerd", "faces": 3, "propagated_faces": 0}
    assert "Rosa already" in fails(familiar, "name", grouped, "Gerd", "Rosa")
    assert familiar("gallery", "confirm", grouped, photos / "green1.png").out == "1 face confirmed\n"
    moved = familiar("gallery", "move", grouped, photos / "blue1.png", "--to", "Gerd").out
    assert moved.startswith("1 face shows now Gerd (#")
    assert whose(grouped)["blue1"] == "Gerd"
    assert "Gerd (#" in familiar("gallery", "reject", grouped, photos / "blue1.png").out
    assert whose(grouped)["blue1"] == "-1"
    assert said(familiar, "reject", grouped, photos / "blue1.png", "--of", "Rosa")["name"] == "Rosa"
    split = said(familiar, "split", grouped, photos / "blue1.png", photos / "green3.png", "--name", "Blau")
    assert split["faces"] >= 2
    assert whose(grouped)["green3"] == whose(grouped)["blue1"] == "Blau"
    merged = familiar("gallery", "merge", grouped, "Gerd", "Blau").out
    assert merged.startswith(f"Blau became Gerd ({green})")
    kinds = ["merge", "split", "reject", "reject", "move", "confirm", "name", "name", "group"]
    assert [said(familiar, "undo", grouped)["kind"] for _ in kinds[1:]] == kinds[:-1]
    assert familiar("gallery", "undo", grouped).out.startswith("undone: group of 20")
    assert set(whose(grouped).values()) == {"-1"}
    assert "no decision left" in fails(familiar, "undo", grouped)


def test_corrections_reject_unknown_identity_face_or_bad_name(familiar: Familiar, grouped: Path, photos: Path):
    for who in ("Ruth", "#99", "#99999999999999999999", "\udcff"):
        assert "knows no" in fails(familiar, "name", grouped, who, "Rosa")
    for face in ("99", "99999999999999999999", photos / "gone.png"):
        assert "has no" in fails(familiar, "split", grouped, face)
    for name in ("#3", " ", "\x1b[2J", "\udcff"):
        assert "is no name" in fails(familiar, "name", grouped, "#1", name)
    assert "nobody's" in fails(familiar, "reject", grouped, photos / "blue1.png")
    assert familiar("gallery", "move", grouped, photos / "blue1.png").code == 2
    assert familiar("gallery", "split", grouped).code == 2


def test_suggest_lists_questions_and_records_answers(
    familiar: Familiar, grouped: Path, monkeypatch: pytest.MonkeyPatch
):
    questions = said(familiar, "suggest", grouped, "-n", 2)
    assert questions
    assert Path(questions[0]["first_path"]).is_file()
    shown = familiar("gallery", "suggest", grouped)
    assert shown.out.startswith("1. ")
    assert questions[0]["second_path"] in shown.out
    assert re.match(r"1\. (does|are) .*\? \(probability \d+%\)\n", shown.out)
    monkeypatch.setattr("sys.stdin", io.StringIO("s\nmaybe\nn\n"))
    asked = familiar("gallery", "suggest", grouped, "--ask")
    assert asked.out == f"{grouped}: 1 question answered\n"
    assert asked.err.count("the same? y/n/s/q") >= 3
    assert re.findall(r"(\d)\. (?:does|are)", asked.err)[:2] == ["1", "2"], "what was skipped is passed over"
    assert said(familiar, "undo", grouped)["kind"] in {"tell apart", "reject"}
    monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))
    assert said(familiar, "suggest", grouped, "--ask") == {"answered": 0}


def test_forget_requires_confirmation_before_erasing(
    familiar: Familiar, grouped: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
):
    red = "#" + whose(grouped)["red1"]
    assert familiar("gallery", "forget", grouped).code == 2
    assert familiar("gallery", "forget", grouped, "--identity", red, "--photo", photos / "red1.png").code == 2
    asked_nobody = familiar("gallery", "forget", grouped, "--identity", red)
    assert asked_nobody.code == 2
    assert "--yes" in asked_nobody.err
    terminal = io.StringIO("n\n")
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdin", terminal)
    assert familiar("gallery", "forget", grouped, "--identity", red).code == 1
    assert "red1" in whose(grouped)
    forgotten = said(familiar, "forget", grouped, "--identity", red, "--yes")
    assert forgotten == {"photos": 0, "faces": 3, "erased": True}
    assert "red1" not in whose(grouped)
    by_photo = familiar("gallery", "forget", grouped, "--photo", photos / "blue1.png", "--yes")
    assert by_photo.out == "forgotten: 1 photo with 1 face\n"
    assert "gone.png" in fails(familiar, "forget", grouped, "--photo", photos / "gone.png", "--yes")


@pytest.mark.slow
def test_calibrate_fits_confirmed_faces_and_reset_restores_model(
    familiar: Familiar, tmp_path: Path, mean_color_bundle: Path, grouped: Path
):
    assert "confirmed" in fails(familiar, "calibrate", grouped)
    folder = tmp_path / "large"
    gallery_of(folder, mean_color_bundle, album(tmp_path / "more", red=6, green=6)).close()
    familiar("gallery", "group", folder)
    for who in set(whose(folder).values()):
        familiar("gallery", "name", folder, f"#{who}", f"name {who}", "--confirm")
    assert "(F 1.000 on what you confirmed)" in familiar("gallery", "calibrate", folder).out
    assert "the gallery's own" in familiar("gallery", "stats", folder).out
    assert said(familiar, "calibrate", folder, "--reset") == {"threshold": 0.9, "own": False, "f": None}


def test_check_reports_damage_and_repair_fixes_it(familiar: Familiar, grouped: Path, photos: Path):
    (photos / "blue1.png").unlink()
    whole = familiar("gallery", "check", grouped)
    assert whole.code == 0
    assert f"missing: {photos / 'blue1.png'}" in whole.out
    assert f"{grouped}: whole; 7 photos, 7 faces" in whole.out
    with Gallery.open(grouped) as gallery, gallery.writing() as connection:
        connection.execute("UPDATE faces SET embedding = zeroblob(6) WHERE id = 2")
    broken = familiar("gallery", "check", grouped)
    assert broken.code == 1
    assert "embeddings are damaged" in broken.out
    as_json = familiar("gallery", "check", grouped, "--json")
    assert as_json.code == 1
    assert json.loads(as_json.out)["problems"]
    assert "whole again with 7 photos" in familiar("gallery", "repair", grouped).out
    assert familiar("gallery", "check", grouped).code == 0
    assert "no gallery to repair" in fails(familiar, "repair", photos)


def test_import_restores_names_from_exported_csv_and_folders(
    familiar: Familiar, tmp_path: Path, grouped: Path, photos: Path
):
    familiar("gallery", "name", grouped, "#1", "Rosa")
    before = whose(grouped)
    assert familiar("gallery", "export", grouped, "-o", tmp_path / "w.csv").out == f"{tmp_path / 'w.csv'}: 7 faces\n"
    assert said(familiar, "export", grouped, "-o", tmp_path / "out")["photos"] == 6
    familiar("gallery", "undo", grouped)
    familiar("gallery", "undo", grouped)
    imported = familiar("gallery", "import", grouped, tmp_path / "w.csv")
    assert imported.out == f"{grouped}: 6 faces of 2 identities, 0 skipped\n"
    named = {photo for photo, who in before.items() if who == "Rosa"}
    assert {photo for photo, who in whose(grouped).items() if who == "Rosa"} == named
    familiar("gallery", "undo", grouped)
    assert said(familiar, "import", grouped, tmp_path / "out")["faces"] == 6
    (tmp_path / "w.csv").write_text("path,name\ngone.png,Rosa\n")
    assert "says nothing of any face" in fails(familiar, "import", grouped, tmp_path / "w.csv")
    assert "line 1" in fails(familiar, "import", grouped, photos / "red1.png")
    assert "not empty" in fails(familiar, "export", grouped, "-o", tmp_path / "out")
    assert familiar("gallery", "export", grouped, "-o", tmp_path / "w.csv", "--copy").code == 2
    photos.rename(tmp_path / "elsewhere")
    assert "skipped " in familiar("gallery", "export", grouped, "-o", tmp_path / "copies", "--copy").err
