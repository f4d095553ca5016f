"""`familiar watch`: wrong usage, what it prints on a terminal, and stopping."""

import json
from pathlib import Path
from typing import Any

import pytest

from familiar.cli.commands.watch import describe
from familiar.integrations.watch import watch as watch_module
from support.cli import Familiar
from support.color_album import draw_album


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    draw_album(tmp_path / "photos", red=3)
    return tmp_path / "photos"


def test_reports_json_lines_until_it_is_stopped(
    familiar: Familiar, tmp_path: Path, photos: Path, mean_color_bundle: Path, monkeypatch: pytest.MonkeyPatch
):
    step = watch_module.FolderWatch.step

    def step_and_stop(watching: watch_module.FolderWatch) -> float | None:
        wait = step(watching)
        if not watching._memory.settling:
            watching.stop()
        return wait

    monkeypatch.setattr(watch_module.FolderWatch, "step", step_and_stop)
    album = tmp_path / "album"
    options = (
        "--gallery",
        album,
        "--model",
        mean_color_bundle,
        "--detector",
        "none",
        "--settle",
        "0.05",
        "--poll",
        "1",
    )
    result = familiar("watch", photos, *options)
    assert result.code == 0, result.err
    lines = [json.loads(line) for line in result.out.splitlines()]
    assert [line["event"] for line in lines] == ["started", "enrolled", "enrolled", "enrolled", "stopped"]
    assert [face["identity"] for line in lines[1:-1] for face in line["faces"]] == [1, 1, 1]
    assert "a new gallery" in result.err
    again = familiar("watch", photos, *options)
    assert [json.loads(line)["event"] for line in again.out.splitlines()] == ["started", "stopped"]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["{photos}/red1.png"], 2, "is a file"),
        (["{photos}", "--webhook", "ftp://example.org/"], 1, "--webhook"),
        (["{photos}", "--webhook-secret-file", "{photos}/none"], 2, "No such file"),
        (["{photos}", "--webhook-secret-file", "{photos}/short"], 2, "at least 16 bytes"),
        (["{photos}", "--poll", "0"], 2, "--poll"),
        (["{photos}", "--mqtt", "http://ha"], 1, "--mqtt"),
        (["{photos}", "--mqtt", "ha", "--mqtt-login", "{photos}/short"], 1, "USER:PASSWORD"),
        (["{photos}", "--frigate", "{photos}"], 2, "need --mqtt"),
    ],
)
def test_wrong_usage_is_refused_before_the_gallery_is_created(
    familiar: Familiar,
    tmp_path: Path,
    photos: Path,
    mean_color_bundle: Path,
    options: list[str],
    code: int,
    message: str,
):
    (photos / "short").write_text("too short")
    arguments = [option.replace("{photos}", str(photos)) for option in options]
    result = familiar("watch", *arguments, "--gallery", tmp_path / "album", "--model", mean_color_bundle)
    assert result.code == code
    assert message in result.err
    assert not (tmp_path / "album").exists()


KNOWN = {"identity": 3, "name": "Mia", "probability": 0.987, "new_identity": False}
NEW = {"identity": 4, "name": None, "probability": None, "new_identity": True}
UNKNOWN = {"identity": None, "name": None, "probability": None, "new_identity": False}


@pytest.mark.parametrize(
    ("event", "fields", "text"),
    [
        ("started", {"folders": ["/a", "/b"], "photos": 1}, "watching /a, /b: 1 photo in the gallery"),
        ("enrolled", {"path": "/a\n.jpg", "faces": [KNOWN, NEW]}, "enrolled /a\\n.jpg: Mia (#3), 99%, #4, new"),
        ("enrolled", {"path": "/a.jpg", "faces": []}, "enrolled /a.jpg: no face"),
        ("edited", {"path": "/a.jpg", "replaces": [7], "faces": [UNKNOWN]}, "edited /a.jpg: unassigned"),
        ("moved", {"path": "/a.jpg", "previous_path": "/b.jpg"}, "moved /a.jpg, before /b.jpg"),
        ("missing", {"path": "/a.jpg"}, "missing /a.jpg"),
        ("returned", {"path": "/a.jpg", "previous_path": "/a.jpg"}, "returned /a.jpg"),
        ("returned", {"path": "/a.jpg", "previous_path": "/b.jpg"}, "returned /a.jpg, before /b.jpg"),
        ("skipped", {"path": "/a.jpg", "reason": "not\na photo"}, "skipped /a.jpg: not a photo"),
        ("stopped", {}, "stopped"),
    ],
)
def test_events_are_readable_on_a_terminal(event: str, fields: dict[str, Any], text: str):
    assert describe({"event": event, "id": "1", "at": ""} | fields) == text
