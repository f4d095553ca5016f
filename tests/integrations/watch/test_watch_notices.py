"""Notices of the operating system: real ones, and what happens where there are none."""

import os
import threading
import time
from pathlib import Path

import pytest

from familiar.integrations.watch import notices as notices_module
from familiar.integrations.watch.disk import Disk
from familiar.integrations.watch.notices import ChangeNotices

pytest.importorskip("watchfiles")
pytestmark = pytest.mark.slow

PATIENCE_SECONDS = 30


class Collected:
    """The notices of a folder."""

    def __init__(self, folder: Path) -> None:
        self.failures: list[str] = []
        self.paths: set[str] = set()
        self.lost = 0
        self.notices = ChangeNotices([str(folder)], threading.Event(), self.failures.append)

    def wait(self, condition) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, (self.paths, self.failures)
            self.notices.wait(0.2)
            paths, misses_some = self.notices.take()
            self.paths |= paths
            self.lost += misses_some


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    return tmp_path / "photos"


@pytest.fixture
def collected(folder: Path) -> Collected:
    collected = Collected(folder)
    collected.wait(lambda: collected.lost == 1)  # what changed before the system watches has to be searched
    return collected


def test_notices_name_new_files_in_new_folders(folder: Path, collected: Collected):
    (folder / "sub").mkdir()
    (folder / "sub" / "a.png").write_bytes(b"a")
    collected.wait(lambda: str(folder / "sub") in collected.paths)
    disk = Disk([folder])
    disk.scan()
    disk.files.clear()
    disk.refresh(collected.paths)
    assert [*disk.files] == [str(folder / "sub" / "a.png")]


def test_name_that_is_not_utf8_lets_the_folders_be_searched(folder: Path, collected: Collected):
    (folder / os.fsdecode(b"caf\xe9.png")).write_bytes(b"a")
    collected.wait(lambda: collected.lost > 1 or any("caf" in path for path in collected.paths))
    (folder / "later.png").write_bytes(b"a")
    collected.wait(lambda: collected.lost > 2 or str(folder / "later.png") in collected.paths)
    assert collected.failures == []


def test_folder_that_appears_later_is_watched_after_a_restart(folder: Path, collected: Collected):
    folder.rename(folder.with_name("elsewhere"))
    collected.notices.restart()
    folder.mkdir()
    collected.notices.restart()
    collected.wait(lambda: collected.lost > 1)
    (folder / "a.png").write_bytes(b"a")
    collected.wait(lambda: str(folder / "a.png") in collected.paths)


def test_failure_is_reported_once(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object, **__: object) -> None:
        raise OSError("OS file watch limit reached.")

    monkeypatch.setattr("watchfiles.watch", fail)
    monkeypatch.setattr(notices_module, "_RETRY_SECONDS", 0.01)
    collected = Collected(folder)
    collected.wait(lambda: collected.lost > 3)
    assert collected.failures == ["OS file watch limit reached."]
    assert not collected.notices.works
