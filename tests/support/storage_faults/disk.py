"""What may be on a disk after a power cut.

Data: what was written to a file or cut from it since its last sync is there, or not, or in part, each write and each
of its sectors independently. A sync (fsync, fdatasync) of a file makes all of that durable.

Names: creating, renaming, linking and removing files changes folders, each change as a whole. Two models:

- "journal": changes of all folders reach the disk in their order, and any sync makes all changes before it durable.
  That is how ext4 (and XFS) work.
- "posix": each change reaches the disk independently of the others, and only a sync of its folder makes it durable,
  of both folders if a file is moved from one to the other. POSIX promises no more. What survives this one survives on
  any file system.
"""

import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Literal

from support.storage_faults.recording import Call, Recording, Snapshot

Model = Literal["journal", "posix"]
Contents = dict[str, bytes | str | None]  # by path: bytes of a file, target of a link, None for a folder
_TORN_SHARE = 0.3  # of the writes that survive, how many do so in part


@dataclass(frozen=True)
class Loss:
    """How much of what is not durable a power cut loses.

    Attributes:
        model: of names.
        names: the probability of each change of names to survive.
        data: that of each write and truncation. If both are 1, nothing is lost, as if the process had been killed.
        sector_bytes: writes are torn at multiples of it.
    """

    model: Model
    names: float
    data: float
    sector_bytes: int = 512


@dataclass
class _File:
    """A file, folder or link, in the order of the calls."""

    start: bytes | str | None
    changes: list[tuple[int, int, bytes | None]] = field(default_factory=list)  # call, offset, data or None to truncate
    syncs: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class _NameChange:
    """Entries of folders that change at once: (folder, name) to a file's number, or None for removed."""

    call: int
    entries: dict[tuple[int, str], int | None]


class Disk:
    """The changes of a recording, from which the disk after a power cut is computed."""

    def __init__(self, root: Path, before: Snapshot, calls: tuple[Call, ...]) -> None:
        """Assign the calls to the files and folders they change.

        Args:
            root: the folder that was recorded.
            before: its files before the first call; they are durable.
            calls: in their order.
        """
        self.root, self.calls = root, calls
        self._files: list[_File] = []
        self._number_of_inode: dict[int, int] = {}
        self._names: dict[tuple[int, str], int | None] = {}  # at the current call
        self._name_changes: list[_NameChange] = []
        for path, inode in before.inodes.items():
            if inode not in self._number_of_inode:
                self._add_file(inode, before.contents[inode])
            if path:
                folder, name = self._entry(str(root / path))
                self._names[folder, name] = self._number_of_inode[inode]
        self._first_names = dict(self._names)
        for index, call in enumerate(calls):
            self._apply(index, call)

    @staticmethod
    def from_recording(recording: Recording) -> "Disk":
        """Create the disk of a recording.

        Raises:
            AssertionError: the calls do not lead to the files that the operation left.
        """
        disk = Disk(recording.root, recording.before, recording.calls)
        replayed, real = (
            disk.after_cut(len(disk.calls), Loss("journal", 1, 1), random.Random(0)),
            recording.after.by_path(),
        )
        differing = [path for path in {**replayed, **real} if replayed.get(path, 0) != real.get(path, 0)]
        assert not differing, f"not all changes were recorded: {differing}"
        return disk

    @property
    def syncs(self) -> list[int]:
        """The calls that make something durable."""
        return [index for index, call in enumerate(self.calls) if call.operation == "S"]

    def without(self, index: int, before: Snapshot) -> "Disk":
        """Return the disk as if one call had been left out."""
        return Disk(self.root, before, self.calls[:index] + self.calls[index + 1 :])

    def acknowledged(self, cut: int) -> list[str]:
        """Return what was promised to the user before a call."""
        return [call.data.decode() for call in self.calls[:cut] if call.operation == "A"]

    def after_cut(self, cut: int, loss: Loss, rng: random.Random) -> Contents:
        """Draw what is on the disk if the power is cut before a call.

        Args:
            cut: the index of the call; the number of calls for a cut after the last.
            loss: how much is lost.
            rng: draws what is lost.
        """
        names = dict(self._first_names)
        for change in self._surviving_names(cut, loss, rng):
            names.update(change.entries)
        contents: Contents = {}
        self._collect(0, "", names, contents, lambda number: self._content(number, cut, loss, rng))
        return contents

    def _surviving_names(self, cut: int, loss: Loss, rng: random.Random) -> list[_NameChange]:
        changes = [change for change in self._name_changes if change.call < cut]
        if loss.model == "journal":
            last_sync = max((index for index in self.syncs if index < cut), default=-1)
            durable = sum(change.call < last_sync for change in changes)
            pending = len(changes) - durable
            if loss.names in (0, 1):
                return changes[: durable + round(pending * loss.names)]
            return changes[: durable + rng.randint(0, pending)]
        return [change for change in changes if self._is_durable(change, cut) or rng.random() < loss.names]

    def _is_durable(self, change: _NameChange, cut: int) -> bool:
        return all(any(change.call < sync < cut for sync in self._files[folder].syncs) for folder, _ in change.entries)

    def _content(self, number: int, cut: int, loss: Loss, rng: random.Random) -> bytes | str | None:
        file = self._files[number]
        if not isinstance(file.start, bytes):
            return file.start
        content = bytearray(file.start)
        last_sync = max((sync for sync in file.syncs if sync < cut), default=-1)
        for index, offset, data in file.changes:
            if index >= cut:
                break
            durable = index < last_sync
            if not durable and rng.random() >= loss.data:
                continue
            if data is None:
                content[:] = content[:offset].ljust(offset, b"\0")
                continue
            content.extend(bytes(max(0, offset + len(data) - len(content))))
            is_torn = not durable and loss.data < 1 and rng.random() < _TORN_SHARE
            for start, piece in _sectors(offset, data, loss.sector_bytes) if is_torn else [(offset, data)]:
                if not is_torn or rng.random() < 0.5:
                    content[start : start + len(piece)] = piece
        return bytes(content)

    def _collect(
        self,
        folder: int,
        prefix: str,
        names: Mapping[tuple[int, str], int | None],
        contents: Contents,
        content_of: Callable[[int], bytes | str | None],
    ) -> None:
        """Add what is in a folder, and in folders in it, to `contents`."""
        for (parent, name), number in sorted(names.items(), key=lambda entry: entry[0]):
            if parent != folder or number is None:
                continue
            contents[prefix + name] = content_of(number)
            if contents[prefix + name] is None:
                self._collect(number, f"{prefix}{name}/", names, contents, content_of)

    def _add_file(self, inode: int, start: bytes | str | None) -> int:
        self._files.append(_File(start))
        self._number_of_inode[inode] = len(self._files) - 1
        return len(self._files) - 1

    def _entry(self, path: str) -> tuple[int, str]:
        """Return the folder and the name of a path at the current call."""
        assert Path(path).is_relative_to(self.root), f"{path}: is outside of the recorded folder"
        folder = 0
        *parents, name = Path(path).relative_to(self.root).parts
        for parent in parents:
            folder = self._names[folder, parent]
            assert folder is not None, f"{path}: {parent} does not exist"
        return folder, name

    def _apply(self, index: int, call: Call) -> None:
        match call.operation:
            case "W" | "T" | "S" if call.inode not in self._number_of_inode:
                return  # of a file without a name
            case "W":
                self._files[self._number_of_inode[call.inode]].changes.append((index, call.offset, call.data))
            case "T":
                self._files[self._number_of_inode[call.inode]].changes.append((index, call.offset, None))
            case "S":
                self._files[self._number_of_inode[call.inode]].syncs.append(index)
            case "C" | "M" | "Y":
                start = {"C": b"", "M": None, "Y": call.data.decode()}[call.operation]
                self._change_names(index, {self._entry(call.path): self._add_file(call.inode, start)})
            case "U":
                self._change_names(index, {self._entry(call.path): None})
            case "L":
                self._change_names(index, {self._entry(call.new_path): self._names[self._entry(call.path)]})
            case "R":
                old, new = self._entry(call.path), self._entry(call.new_path)
                self._change_names(index, {new: self._names[old], old: None})
            case _:
                assert call.operation == "A", f"unknown operation {call.operation}"

    def _change_names(self, index: int, entries: dict[tuple[int, str], int | None]) -> None:
        self._names.update(entries)
        self._name_changes.append(_NameChange(index, entries))


def _sectors(offset: int, data: bytes, sector_bytes: int) -> list[tuple[int, bytes]]:
    """Split a write at multiples of the sector's size in the file."""
    edges = [offset, *range((offset // sector_bytes + 1) * sector_bytes, offset + len(data), sector_bytes)]
    edges.append(offset + len(data))
    return [(start, data[start - offset : end - offset]) for start, end in pairwise(edges)]


def write_contents(root: Path, contents: Contents) -> None:
    """Replace a folder by what a disk contains."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    for path, content in contents.items():  # folders come before what is in them
        match content:
            case None:
                (root / path).mkdir()
            case str():
                (root / path).symlink_to(content)
            case bytes():
                (root / path).write_bytes(content)
