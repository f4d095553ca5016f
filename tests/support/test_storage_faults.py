"""The model of a disk loses what was not synced, and nothing else; a record that misses a change is noticed."""

import mmap
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from support.storage_faults.disk import Contents, Disk, Loss, Model
from support.storage_faults.recording import Acknowledge, Call, Snapshot, record

ROOT = Path("/album")
BEFORE = Snapshot({"": 1, "names": 2}, {1: None, 2: b"old"})
REPLACE = (  # as write_atomically does
    Call("C", 3, path="/album/.new"),
    Call("W", 3, 0, data=b"new"),
    Call("S", 3),
    Call("R", path="/album/.new", new_path="/album/names"),
    Call("S", 1),
)


def after(calls: Sequence[Call], loss: Loss, seed: int = 0) -> Contents:
    return Disk(ROOT, BEFORE, tuple(calls)).after_cut(len(calls), loss, random.Random(seed))


@pytest.mark.parametrize("model", ["journal", "posix"])
def test_replaced_file_is_the_new_one_after_the_last_sync(model: Model):
    assert after(REPLACE, Loss(model, 0, 0)) == {"names": b"new"}


@pytest.mark.parametrize(("model", "rest"), [("journal", {".new": b"new"}), ("posix", {})])
def test_rename_may_be_lost_before_its_folder_is_synced(model: Model, rest: Contents):
    assert after(REPLACE[:4], Loss(model, 0, 0)) == {"names": b"old", **rest}
    assert after(REPLACE[:4], Loss(model, 1, 0)) == {"names": b"new"}


def test_rename_without_a_sync_of_the_file_may_leave_it_empty():
    assert after([*REPLACE[:2], *REPLACE[3:]], Loss("journal", 0, 0)) == {"names": b""}


def test_unsynced_writes_are_lost_torn_and_reordered():
    calls = [
        Call("W", 2, 0, data=b"a" * 1024),
        Call("S", 2),
        *(Call("W", 2, 512 * i, data=b"bc"[i : i + 1] * 512) for i in (0, 1)),
    ]
    seen = {after(calls, Loss("journal", 0.5, 0.5), seed)["names"] for seed in range(60)}
    assert seen == {first * 512 + second * 512 for first in (b"a", b"b") for second in (b"a", b"c")}
    torn = [Call("W", 2, 0, data=b"a" * 2048), Call("S", 2), Call("W", 2, 100, data=b"b" * 1900)]
    pieces = (0, 100, 512, 1024, 1536, 2000, 2048)  # torn at the file's sectors
    for seed in range(60):
        content = after(torn, Loss("journal", 0.9, 0.9), seed)["names"]
        assert isinstance(content, bytes)
        assert all(len({*content[a:b]}) == 1 for a, b in pairwise(pieces))


def test_truncation_and_names_in_new_folders_need_syncs():
    calls = [Call("T", 2, 1), Call("M", 3, path="/album/new"), Call("C", 4, path="/album/new/file"), Call("S", 3)]
    assert after(calls, Loss("posix", 0, 0)) == {"names": b"old"}
    assert after(calls, Loss("posix", 1, 1)) == {"names": b"o", "new": None, "new/file": b""}
    assert after(calls, Loss("journal", 0, 0)) == {"names": b"old", "new": None, "new/file": b""}


@dataclass(frozen=True)
class WriteByMap:
    """A change that no system call makes."""

    def prepare(self, work: Path) -> None:
        (work / "disk" / "file").write_bytes(b"old")

    def run(self, work: Path, acknowledge: Acknowledge) -> None:
        with (work / "disk" / "file").open("r+b") as file, mmap.mmap(file.fileno(), 3) as mapped:
            mapped[:] = b"new"
        acknowledge("written")

    def problems(self, work: Path, acknowledged: Sequence[str], _: None) -> list[str]:
        raise NotImplementedError


def test_unrecorded_changes_are_noticed(preload: Path, work: Path):
    recording = record(preload, work, WriteByMap())
    with pytest.raises(AssertionError, match=r"not all changes were recorded: \['file'\]"):
        Disk.from_recording(recording)
