"""Notices of the operating system: real ones, and what happens where there are none."""

import os
import threading
import time
from pathlib import Path

import pytest

from familiar.integrations.watch import notices as notices_module
from familiar.integrations.watch.notices import ChangeNotices

pytest.importorskip("watchfiles")
pytestmark = pytest.mark.slow

PATIENCE_SECONDS = 30


class Collected:
    """The notices of a folder."""

    def __init__(self, folder: Path) -> None:
        self.failures: list[str] = []
        self.changes = 0
        self.notices = ChangeNotices([str(folder)], threading.Event(), self.failures.append)

    def wait(self, condition) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, self.failures
            self.notices.wait(0.2)
            self.changes += self.notices.take()


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


def test_name_that_is_not_utf8_lets_the_folders_be_searched(folder: Path, collected: Collected):
    (folder / os.fsdecode(b"caf\xe9.png")).write_bytes(b"a")
    collected.wait(lambda: collected.changes == 2)
    (folder / "later.png").write_bytes(b"a")
    collected.wait(lambda: collected.changes >= 3)
    assert collected.failures == []


def test_folder_that_appears_later_is_watched_after_a_restart(folder: Path, collected: Collected):
    folder.rename(folder.with_name("elsewhere"))
    collected.notices.restart()
    folder.mkdir()
    collected.notices.restart()
    collected.wait(lambda: collected.changes > 1)
    before = collected.changes
    (folder / "a.png").write_bytes(b"a")
    collected.wait(lambda: collected.changes > before)


def test_failure_is_reported_once(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object, **__: object) -> None:
        raise OSError("OS file watch limit reached.")

    monkeypatch.setattr("watchfiles.watch", fail)
    monkeypatch.setattr(notices_module, "_RETRY_SECONDS", 0.01)
    collected = Collected(folder)
    collected.wait(lambda: collected.changes > 3)
    assert collected.failures == ["OS file watch limit reached."]
    assert not collected.notices.works
