"""`familiar watch` as a process, killed again and again while photos arrive: none is missed, none is enrolled twice."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from familiar.gallery.store.store import Store
from familiar.gallery.transfer.check import check
from support.small_gallery import draw_pets
from support.tiers import small_and_exhaustive
from support.webhook_receiver import Receiver, running_receiver

pytestmark = pytest.mark.slow

PATIENCE_SECONDS = 120


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with running_receiver() as receiver:
        yield receiver


def start(folder: Path, receiver: Receiver, *options: str) -> "subprocess.Popen[bytes]":
    """Start a watch that appends its lines to a file."""
    command = [sys.executable, "-m", "familiar", "watch", folder / "photos", "--gallery", folder / "album"]
    command += ["--model", "pet-nano", "--detector", "none", "--settle", "0.2", "--webhook", receiver.url, *options]
    with (folder / "lines").open("ab") as lines, (folder / "notes").open("ab") as notes:
        return subprocess.Popen(command, stdout=lines, stderr=notes)


def documents(folder: Path) -> list[dict]:
    """Return the events on stdout; a line that a kill cut short is left out."""
    lines = (folder / "lines").read_bytes().split(b"\n")[:-1] if (folder / "lines").exists() else []
    return [json.loads(line) for line in lines if line.endswith(b"}") and line.startswith(b'{"event"')]


def wait_until_reported(folder: Path, receiver: Receiver, photos: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        posted = {request.document["id"] for request in receiver.requests}
        printed = {each["id"]: each for each in documents(folder)}
        if sum(each["event"] == "enrolled" for each in printed.values()) == photos and printed.keys() <= posted:
            return
        assert process.poll() is None, (folder / "notes").read_text()
        time.sleep(0.05)
    pytest.fail(f"{photos} photos expected, {(folder / 'lines').read_text()}")


@pytest.mark.parametrize("kills", small_and_exhaustive(2, 10))
def test_kills_while_photos_arrive_neither_miss_nor_double_one(tmp_path: Path, receiver: Receiver, kills: int):
    drawn = draw_pets(tmp_path / "drawn", 4, 2 * kills)
    photos = tmp_path / "photos"
    photos.mkdir()
    rng = random.Random()  # unseeded: other moments in every run
    arriving = iter(drawn)
    per_life = len(drawn) // (kills + 1)
    for _ in range(kills):
        process = start(tmp_path, receiver)
        lines = len(documents(tmp_path))
        while len(documents(tmp_path)) == lines:  # it has started
            assert process.poll() is None, (tmp_path / "notes").read_text()
            time.sleep(0.02)
        receiver.answers = rng.choices([200, 500, None], k=3)
        for _ in range(per_life):
            copy_slowly(next(arriving), photos)
            time.sleep(rng.uniform(0, 0.1))
        time.sleep(rng.uniform(0, 0.8))
        process.send_signal(signal.SIGKILL)
        process.wait()
    for path in arriving:  # while nothing watches
        copy_slowly(path, photos)
    process = start(tmp_path, receiver)
    wait_until_reported(tmp_path, receiver, len(drawn), process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_SECONDS) == 0
    printed = documents(tmp_path)
    assert printed[-1]["event"] == "stopped"
    check_every_photo_once(tmp_path, len(drawn), printed, [request.document for request in receiver.requests])


def copy_slowly(path: Path, folder: Path) -> None:
    """Write a photo in two parts, as a copying program does."""
    content = path.read_bytes()
    with (folder / path.name).open("wb") as file:
        file.write(content[: len(content) // 2])
        file.flush()
        time.sleep(0.01)
        file.write(content[len(content) // 2 :])


def check_every_photo_once(folder: Path, count: int, printed: list[dict], posted: list[dict]) -> None:
    with Store.open(folder / "album") as gallery, gallery.read() as repository:
        paths = sorted(repository.photos.paths())
        assert check(gallery).problems == ()
    assert paths == sorted(map(str, (folder / "photos").iterdir()))
    for received in (printed, posted):
        by_id = {each["id"]: each for each in received}
        assert all(by_id[each["id"]] == each for each in received), "an id means one event"
        enrolled = [each for each in by_id.values() if each["event"] == "enrolled"]
        assert sorted(each["path"] for each in enrolled) == paths
        assert len({each["photo"] for each in enrolled}) == count
        assert {each["event"] for each in by_id.values()} <= {"started", "enrolled", "stopped"}


def test_stops_on_a_signal_and_refuses_a_second_watch(tmp_path: Path, receiver: Receiver):
    (tmp_path / "photos").mkdir()
    process = start(tmp_path, receiver, "--poll", "0.5")
    while not documents(tmp_path):
        assert process.poll() is None, (tmp_path / "notes").read_text()
        time.sleep(0.02)
    second = start(tmp_path, receiver)
    assert second.wait(PATIENCE_SECONDS) == 1
    *_, line = (tmp_path / "notes").read_text().splitlines()
    assert line.startswith("familiar: ")
    assert "another familiar watch" in line
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(PATIENCE_SECONDS) == 0
    assert [each["event"] for each in documents(tmp_path)] == ["started", "stopped"]
