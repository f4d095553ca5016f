"""`familiar download`, as far as the command itself: what it says, and which folder it asks for."""

import json
from pathlib import Path

import click
import pytest

from familiar.cli.commands.download import download
from familiar.core.errors import BadDataset
from familiar.core.published_files import PUBLISHED_FILES
from familiar.loading import downloads
from support.cli import Familiar


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path]]:
    """The requested downloads, instead of fetching them; a folder that exists already counts as fetched."""
    calls: list[tuple[str, Path]] = []

    def stand_in(name: str, folder: Path) -> bool:
        calls.append((name, folder))
        return not folder.exists()

    for name in downloads.DOWNLOADS:
        monkeypatch.setitem(downloads.DOWNLOADS, name, lambda folder, name=name: stand_in(name, folder))
    return calls


def test_name_choices_match_available_downloads() -> None:
    (argument,) = [parameter for parameter in download.params if parameter.name == "name"]
    assert isinstance(argument.type, click.Choice)
    assert list(argument.type.choices) == [*downloads.DOWNLOADS, *PUBLISHED_FILES]


def test_prints_folder_and_suggests_inspect(
    familiar: Familiar, requested: list[tuple[str, Path]], tmp_path: Path
) -> None:
    done = familiar("download", "mnist", "--output", tmp_path / "digits")
    assert done.code == 0
    assert done.out == f"{tmp_path}/digits: downloaded. Inspect it: familiar inspect mnist:{tmp_path}/digits\n"
    (tmp_path / "faces").mkdir()
    again = familiar("download", "lfw", "-o", tmp_path / "faces")
    assert again.out == f"{tmp_path}/faces: downloaded already. Inspect it: familiar inspect {tmp_path}/faces\n"
    assert requested == [("mnist", tmp_path / "digits"), ("lfw", tmp_path / "faces")]


@pytest.mark.usefixtures("requested")
def test_json_reports_folder_downloaded_flag_and_data(familiar: Familiar, tmp_path: Path) -> None:
    document = json.loads(familiar("download", "mnist", "-o", tmp_path / "digits", "--json").out)
    assert document == {
        "folder": f"{tmp_path}/digits",
        "downloaded": True,
        "data": f"mnist:{tmp_path}/digits",
    }


def test_without_network_error_is_one_line(familiar: Familiar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> bool:
        raise BadDataset("MNIST cannot be downloaded (no route)")

    monkeypatch.setitem(downloads.DOWNLOADS, "mnist", refuse)
    answer = familiar("download", "mnist", "-o", tmp_path / "digits")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err == "familiar: MNIST cannot be downloaded (no route)\n"


@pytest.mark.usefixtures("requested")
def test_wrong_usage_exits_with_2(familiar: Familiar, tmp_path: Path) -> None:
    assert familiar("download", "imagenet", "-o", tmp_path / "x").code == 2
    assert familiar("download", "mnist").code == 2
