"""What `familiar inspect` prints."""

import csv
import io
import json
import os
import re
import sys
from collections.abc import Callable
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from familiar.cli import main
from familiar.datasets.synthetic import SyntheticPhoto

Printed = Callable[..., str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "cats"
    for identity, photos in enumerate((2, 3, 5)):
        (root / f"cat {identity}").mkdir(parents=True)
        for index in range(photos):
            rgb_u8 = SyntheticPhoto("cats", identity, index).draw().rgb_u8
            Image.fromarray(rgb_u8).save(root / f"cat {identity}" / f"{index}.png")
    (root / "cat 1" / "stolen.png").write_bytes((root / "cat 0" / "0.png").read_bytes())
    Image.open(root / "cat 2" / "0.png").save(root / "cat 0" / "again.jpg", quality=60)
    (root / "cat 2" / "broken.jpg").write_text("no photo")
    Image.new("L", (80, 50), 9).save(root / "cat 2" / "dark.png")
    (root / "notes.txt").touch()
    return root


@pytest.fixture
def printed(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Printed:
    def run(*arguments: object, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["familiar", "inspect", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main.main()
        captured = capfd.readouterr()
        assert (stopped.value.code or 0) == code, captured.err
        return captured.out if code == 0 else captured.err

    return run


def test_names_that_look_alike_are_listed_with_their_difference(printed: Printed, tmp_path: Path) -> None:
    for name in ("Jos\u00e9", "Jose\u0301", "Mia", "mia", "Tom"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        Image.new("RGB", (40, 40)).save(tmp_path / "pets" / name / "1.png")
    out = printed(tmp_path / "pets", "--output", tmp_path / "page")
    assert "names that look alike: 2\n" in out
    assert r"  'pets/Jose\u0301', 'pets/Jos\xe9': one identity" in out
    assert "  'pets/Mia', 'pets/mia': 2 identities" in out
    assert "'pets/mia': 2 identities" in unescape((tmp_path / "page" / "inspection.html").read_text())
    assert json.loads(printed(tmp_path / "pets", "--json"))["look_alike_names"] == [
        {"names": ["pets/Jose\u0301", "pets/Jos\u00e9"], "identities": 1},
        {"names": ["pets/Mia", "pets/mia"], "identities": 2},
    ]


@pytest.mark.slow
def test_text_report_shows_counts_sizes_and_duplicates(printed: Printed, folder: Path) -> None:
    out = printed(folder)
    assert out.startswith("14 photos of 3 identities, 0 of them with one photo only\n")
    for line in (
        "             3       1 #{40}",
        "             5       0",
        "          most       7 cats/cat 2",
        "        fewest       3 cats/cat 0",
        "width, px +80 +224 +224",
        "height, px +50 +224 +224",
        r"stored as: PNG RGB \(11\), JPEG RGB \(1\), PNG gray \(1\)",
        r"sizes, px: 224 x 224 \(12\), 80 x 50 \(1\)",
        "gray pixels only: 1",
        "  the same pixels, several identities +1 +2",
        "  nearly the same, several identities +1 +2",
        "  the same pixels, one identity +0 +0",
        "probably labeled wrongly:",
        "  cats/cat 0/0.png",
        "    = cats/cat 1/stolen.png",
        "  cats/cat 0/again.jpg",
        "    ~ cats/cat 2/0.png",
        "nearly one color: 1",
        "  cats/cat 2/dark.png",
        "unreadable: 1",
        "  .*broken.jpg: not a photo .*",
        "ignored, files outside an identity's folder: 1",
    ):
        assert re.search(f"^{line}$", out, re.MULTILINE), line
    assert max(len(line) for line in out.splitlines() if "broken.jpg" not in line) <= 100


@pytest.mark.slow
def test_without_duplicates_reports_no_wrong_names(printed: Printed) -> None:
    assert "wrong name" not in printed("synthetic:cats:20x2")


@pytest.mark.slow
def test_output_writes_page_and_json_reports_its_path(printed: Printed, folder: Path, tmp_path: Path) -> None:
    assert printed(folder, "--output", tmp_path / "a" / "b").endswith(f"page: {tmp_path}/a/b/inspection.html\n")
    document = json.loads(printed(folder, "--json", "-o", tmp_path / "c"))
    assert document["page"] == str(tmp_path / "c" / "inspection.html")
    assert (tmp_path / "a" / "b" / "inspection.html").read_bytes() == Path(document["page"]).read_bytes()
    assert "page" not in json.loads(printed(folder, "--json"))


@pytest.mark.slow
def test_csv_has_a_row_per_photo(printed: Printed, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "made" / "photos.csv"
    assert printed(folder, "--csv", path).endswith(f"table: {path}\n")
    with path.open(newline="", encoding="utf-8") as file:
        rows = {row["file"]: row for row in csv.DictReader(file)}
    assert len(rows) == 14
    cats = folder / "cat 2"
    size = (folder / "cat 2" / "dark.png").stat().st_size
    assert rows[str(cats / "dark.png")] == {
        "identity": "cats/cat 2",
        "file": str(cats / "dark.png"),
        "height_px": "50",
        "width_px": "80",
        "channels": "1",
        "stored_as": "PNG gray",
        "bytes": str(size),
    }
    broken = rows[str(cats / "broken.jpg")]
    assert (broken["height_px"], broken["channels"], broken["stored_as"], broken["bytes"]) == ("", "", "", "8")
    assert {row["channels"] for name, row in rows.items() if name.endswith("0.png")} == {"3"}
    assert [entry.name for entry in path.parent.iterdir()] == ["photos.csv"]
    assert json.loads(printed(folder, "--json", "--csv", path))["csv"] == str(path)


def test_csv_of_drawn_photos_has_no_bytes(printed: Printed, tmp_path: Path) -> None:
    path = tmp_path / "photos.csv"
    printed("synthetic:cats:2x2", "--csv", path)
    assert [line.split(",")[2:] for line in path.read_text().splitlines()[1:]] == [["224", "224", "3", "drawn", ""]] * 4


@pytest.mark.slow
def test_csv_survives_unusual_names(printed: Printed, oddly_named: Path, tmp_path: Path) -> None:
    path = tmp_path / "photos.csv"
    printed(oddly_named, "--csv", path)
    text = os.fsdecode(path.read_bytes())
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert len(rows) == 3 * len(NAMES)
    assert all(Path(row["file"]).is_file() for row in rows)


def test_rejects_unwritable_csv_before_reading_data(printed: Printed, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "file" in printed(tmp_path / "no such folder", "--csv", tmp_path / "file" / "photos.csv", code=1)


def test_rejects_unwritable_output_before_reading_data(printed: Printed, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for output in (tmp_path / "file", tmp_path / "file" / "within"):
        assert "file" in printed(tmp_path / "no such folder", "--output", output, code=1)


def test_long_lists_are_truncated_with_a_count(printed: Printed, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in range(15):
        (tmp_path / "cats" / f"{name:02d}").mkdir(parents=True)
    for picture in range(12):
        pixels = rng.integers(0, 256, (40, 40, 3), np.uint8)
        for name in range(15) if picture == 0 else (picture, 14 - picture % 2):
            Image.fromarray(pixels).save(tmp_path / "cats" / f"{name:02d}" / f"{picture}.png")
    for index in range(30):
        (tmp_path / "cats" / "00" / f"broken {index}.png").touch()
    out = printed(tmp_path / "cats")
    assert out.count("    = ") == 3 + 9
    assert "    ... and 11 more\n" in out
    assert "  ... and 2 more: see --output or --json\n" in out
    assert out.count(": the file is empty") == 20
    assert "  ... and 10 more: see --json\n" in out


NAMES = ("new\nline", "\x1b[2J\x9b1mclear", "\u202egnp", "quote \"'", "قطة \U0001f408", os.fsdecode(b"\xff"))


@pytest.fixture
def oddly_named(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / "cats" / name).mkdir(parents=True)
        Image.fromarray(SyntheticPhoto("cats", 0, 0).draw().rgb_u8).save(tmp_path / "cats" / name / f"{name}.png")
        Image.new("L", (9, 9)).save(tmp_path / "cats" / name / "blank.png")
        (tmp_path / "cats" / name / "broken.png").touch()
    return tmp_path / "cats"


def test_control_characters_in_names_are_escaped(printed: Printed, oddly_named: Path, tmp_path: Path) -> None:
    out = printed(oddly_named, "--output", tmp_path / "new\nline\x1b")
    assert not {"\x1b", "\x9b", "\u202e", "\udcff"} & set(out)
    assert "new\\nline" in out
    assert "قطة \U0001f408" in out
    assert "\nline" not in out


def test_json_paths_with_unusual_names_point_to_existing_files(printed: Printed, oddly_named: Path) -> None:
    out = printed(oddly_named, "--json")
    (group,) = json.loads(out)["duplicates"]["exact_across_identities"][:1]
    assert len(group["photos"]) == len(NAMES)
    assert all(Path(path).is_file() for path in group["photos"])
