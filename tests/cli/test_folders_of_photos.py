"""Commands that take folders of photos say what they pass over, and take --exclude and --max-megapixels."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from familiar.cli.main import familiar
from support.color_album import draw_photo

PASSED_OVER = "2 in system folders, 1 raw file, 1 video"
EXPECTED = {"in system folders": 2, "raw files": 1, "videos": 1}


@pytest.fixture
def album(tmp_path: Path) -> Path:
    for name in ("Mia/1.png", "Mia/2.png", "Tom/1.png", "Tom/2_edited.png", "Mia/@eaDir/1.png", "Tom/@eaDir/1.png"):
        (tmp_path / "album" / name).parent.mkdir(parents=True, exist_ok=True)
        draw_photo(tmp_path / "album" / name, "red" if "Mia" in name else "blue")
    for name in ("1.dng", "1.mp4"):
        (tmp_path / "album" / "Mia" / name).touch()
    return tmp_path / "album"


def call(*args: object) -> tuple[str, str]:
    result = CliRunner().invoke(familiar, list(map(str, args)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def test_embed_and_enroll_count_what_they_pass_over(album: Path, tmp_path: Path, mean_color_bundle: Path):
    options = ("--model", mean_color_bundle, "--detector", "none")
    _, errors = call("embed", album, *options, "--output", tmp_path / "a.npz")
    assert f"passed over: {PASSED_OVER}\n" in errors
    document, _ = call("embed", album, *options, "--output", tmp_path / "a.npz", "--exclude", "*_edited.*", "--json")
    assert json.loads(document)["photos"] == 3
    assert json.loads(document)["passed_over"] == EXPECTED | {"excluded": 1}
    output, errors = call("gallery", "enroll", tmp_path / "g", album, *options, "--exclude", "Tom")
    assert "1 new photo with 1 face" in output  # the other one is a copy of it
    assert "passed over: 3 excluded, 1 in system folders, 1 raw file, 1 video\n" in errors
    document, _ = call("gallery", "enroll", tmp_path / "g", album, "--json")
    assert json.loads(document)["passed_over"] == EXPECTED


def test_inspect_counts_what_is_not_read(album: Path):
    output, _ = call("inspect", album)
    assert "4 photos of 2 identities" in output
    assert "ignored, in system folders: 2\nignored, raw files: 1\nignored, videos: 1" in output
    output, _ = call("inspect", album, "--exclude", "*_edited.png", "--exclude", "mia/2.png")
    assert "2 photos of 2 identities" in output
    assert "ignored, excluded: 2" in output


def test_max_megapixels_holds_for_the_command(album: Path, tmp_path: Path, mean_color_bundle: Path, monkeypatch):
    monkeypatch.delenv("FAMILIAR_MAX_MEGAPIXELS", raising=False)
    options = ("--model", mean_color_bundle, "--detector", "none", "--output", tmp_path / "a.npz")
    arguments = ["embed", str(album), *map(str, options), "--max-megapixels", "0.00001"]
    result = CliRunner().invoke(familiar, arguments)
    assert "is more than 10 pixels: scale it down, or allow more megapixels (--max-megapixels" in result.stderr
    assert "FAMILIAR_MAX_MEGAPIXELS" not in os.environ
    result = CliRunner().invoke(familiar, ["inspect", str(album), "--max-megapixels", "0.00001"])
    assert "none of the 4 photos can be read" in str(result.exception)
    call(*arguments[:-2])


@pytest.mark.parametrize(
    "command",
    ["embed", "inspect", "train", "evaluate", "watch", "pack", "augment", "match", "gallery enroll"],
)
def test_commands_that_read_folders_take_both_options(command: str):
    output, _ = call(*command.split(), "--help")
    assert "--exclude PATTERN" in output
    assert "--max-megapixels N" in output


@pytest.mark.parametrize(
    "command", ["verify", "serve", "export", "import", "gallery search", "gallery verify", "gallery migrate"]
)
def test_commands_that_read_photos_take_the_limit(command: str):
    assert "--max-megapixels N" in call(*command.split(), "--help")[0]
