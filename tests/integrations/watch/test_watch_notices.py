"""Notices of the operating system: real ones, and what happens where there are none."""

import threading
import time
from pathlib import Path

import pytest

from familiar.integrations.watch import watch
from familiar.integrations.watch.notices import ChangeNotices
from familiar.integrations.watch.outbox import Event
from familiar.integrations.watch.watch import WatchSettings
from support.watched_folder import WatchedFolder

pytest.importorskip("watchfiles")
pytestmark = pytest.mark.slow

PATIENCE_SECONDS = 30


class Collected:
    """The notices of a folder."""

    def __init__(self, folder: Path) -> None:
        self.changes = 0
        self.notices = ChangeNotices([str(folder)], threading.Event())

    def wait(self, condition) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline
            self.changes += self.notices.wait(0.2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    return tmp_path / "photos"


@pytest.fixture
def collected(folder: Path) -> Collected:
    collected = Collected(folder)
    collected.wait(lambda: collected.changes == 1)  # what changed before the system watches has to be searched
    return collected


def test_files_in_new_folders_are_noticed(folder: Path, collected: Collected):
    (folder / "sub").mkdir()
    collected.wait(lambda: collected.changes == 2)
    (folder / "sub" / "a.png").write_bytes(b"a")
    collected.wait(lambda: collected.changes == 3)


def test_folder_that_appears_later_is_watched_after_a_restart(folder: Path, collected: Collected):
    folder.rename(folder.with_name("elsewhere"))
    collected.notices.restart()
    folder.mkdir()
    collected.notices.restart()
    collected.wait(lambda: collected.changes > 1)
    before = collected.changes
    (folder / "a.png").write_bytes(b"a")
    collected.wait(lambda: collected.changes > before)


def test_change_is_enrolled_long_before_the_next_search(tmp_path: Path, mean_color_bundle: Path):
    watched = WatchedFolder(tmp_path, mean_color_bundle, WatchSettings(settle_seconds=0.1))
    watched.watch._clock, watched.watch._next_scan = time.monotonic, time.monotonic()

    def draw_then_stop(event: Event) -> None:
        if event["event"] == "started":
            threading.Timer(1, watched.draw, ["sub/a.png", "red"]).start()
        else:
            watched.watch.stop()

    watched.on_event = draw_then_stop
    giving_up = threading.Timer(PATIENCE_SECONDS, watched.watch.stop)
    giving_up.start()
    watched.watch.run()
    giving_up.cancel()
    assert watched.reported() == [("enrolled", "sub/a.png")]
    assert watched.notes == []


def test_folders_are_searched_at_intervals_once_notices_fail(
    tmp_path: Path, mean_color_bundle: Path, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: object, **__: object) -> None:
        raise OSError("OS file watch limit reached.")

    monkeypatch.setattr("watchfiles.watch", fail)
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.2)
    watched = WatchedFolder(tmp_path, mean_color_bundle, WatchSettings(settle_seconds=0.1))
    watched.watch._clock, watched.watch._next_scan = time.monotonic, time.monotonic()
    watched.on_event = lambda event: watched.watch.stop() if event["event"] == "enrolled" else None
    threading.Timer(1, watched.draw, ["a.png", "red"]).start()
    watched.watch.run()
    assert watched.reported() == [("enrolled", "a.png")]
    (note,) = watched.notes
    assert "OS file watch limit reached." in note
