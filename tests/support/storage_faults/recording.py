"""Record every change that an operation makes to the files of a folder, in a process of its own."""

import ctypes
import importlib
import os
import pickle
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

SOURCE = Path(__file__).with_name("preload.c")
TIMEOUT_SECONDS = 600
_HEAD = struct.Struct("<cQQII")
_SHARED_MEMORY = "-shm"  # SQLite maps it into memory, and makes it anew when a database is opened after a crash

Acknowledge = Callable[[str], None]


class Operation(Protocol):
    """What a user does to the files in WORK/disk, and how to tell whether a power cut damaged them.

    WORK is a folder of the operation's own; what lies beside `disk` (photos, say) is not recorded and never lost.
    """

    def prepare(self, work: Path) -> None:
        """Create the files that are there before the operation, in WORK/disk."""
        ...

    def run(self, work: Path, acknowledge: Acknowledge) -> object:
        """Run the operation; return what `problems` needs to know about a run without a power cut.

        `acknowledge` is called with each promise made to the user.
        """
        ...

    def problems(self, work: Path, acknowledged: Sequence[str], reference: Any, /) -> list[str]:
        """Look for damage in WORK/disk after a power cut, then repeat the operation.

        Args:
            work: the operation's folder.
            acknowledged: what was promised before the cut.
            reference: what `run` returned.

        Returns:
            One description per problem.
        """
        ...


def name(operation: Operation) -> str:
    """Return the name of a test's case."""
    return str(getattr(operation, "name", type(operation).__name__))


@dataclass(frozen=True)
class Call:
    """A successful system call, or an acknowledgement to the user (operation "A").

    Attributes:
        operation: C create a file, M create a folder, Y create a symbolic link, W write, T truncate, S sync, R rename,
            L link, U unlink, A acknowledge.
        inode: of the file or folder; 0 where `path` says it.
        offset: of a write in bytes, or the size to truncate to.
        path: absolute; the old one of a rename or link.
        data: what is written; the target of a link; the text of an acknowledgement.
        new_path: of a rename or link.
    """

    operation: str
    inode: int = 0
    offset: int = 0
    path: str = ""
    data: bytes = b""
    new_path: str = ""


@dataclass(frozen=True)
class Snapshot:
    """The files of a folder. Paths are relative to it, "" is the folder itself.

    Attributes:
        inodes: of each path.
        contents: of each inode: bytes of a file, None for a folder, the target of a symbolic link.
    """

    inodes: dict[str, int]
    contents: dict[int, bytes | str | None]

    @staticmethod
    def read(root: Path) -> "Snapshot":
        inodes, contents = {"": root.stat().st_ino}, {root.stat().st_ino: None}
        for path in sorted(root.rglob("*")):
            if path.name.endswith(_SHARED_MEMORY):
                continue
            inode = path.lstat().st_ino
            inodes[path.relative_to(root).as_posix()] = inode
            contents[inode] = (
                str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else None
            )
        return Snapshot(inodes, contents)

    def by_path(self) -> dict[str, bytes | str | None]:
        return {path: self.contents[inode] for path, inode in self.inodes.items() if path}


@dataclass(frozen=True)
class Recording:
    """An operation without a power cut: the files before and after, every call, and what the operation returned."""

    root: Path
    before: Snapshot
    after: Snapshot
    calls: tuple[Call, ...]
    reference: object


def preload_library(folder: Path) -> Path:
    """Compile `preload.c`; skip the test where that is impossible."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if sys.platform != "linux":
        pytest.skip("system calls are recorded with LD_PRELOAD, which only Linux has")
    if compiler is None:
        pytest.skip("system calls are recorded by a library in C, and there is no C compiler (cc)")
    library = folder / "preload.so"
    built = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-U_FORTIFY_SOURCE", "-o", library, SOURCE, "-ldl", "-lpthread"],
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        pytest.skip(f"system calls are recorded by a library in C, which cannot be compiled here: {built.stderr}")
    return library


def run_with_library(library: Path, function: str, *arguments: object) -> None:
    """Call a function, `module:name`, in a new process into which the library is loaded.

    Raises:
        AssertionError: the process fails; the message is its output.
    """
    environment = os.environ | {"LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import {__name__} as r; r.call_from_file({str(_write_call(library, function, arguments))!r})",
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert not process.returncode, process.stderr + process.stdout


def _write_call(library: Path, function: str, arguments: Sequence[object]) -> Path:
    path = library.with_name(f"call-{os.urandom(8).hex()}.pickle")
    path.write_bytes(pickle.dumps((function, arguments)))
    return path


def call_from_file(path: str) -> None:
    """Make the call that `run_with_library` described in a file."""
    function, arguments = pickle.loads(Path(path).read_bytes())
    module, _, name = function.partition(":")
    getattr(importlib.import_module(module), name)(*arguments)


class Library:
    """The functions of `preload.c`, in a process into which it is loaded."""

    def __init__(self, root: Path) -> None:
        """Watch a folder."""
        self._functions = ctypes.CDLL(None, use_errno=True)
        self._functions.fail_calls.argtypes = (ctypes.c_int, ctypes.c_long, ctypes.c_long, ctypes.c_int)
        self._functions.count_calls.restype = ctypes.c_long
        self._functions.watch(os.fsencode(root.resolve()))

    def start_recording(self, file: Path) -> None:
        assert self._functions.start_recording(os.fsencode(file)) >= 0

    def stop_recording(self) -> None:
        self._functions.stop_recording()

    def acknowledge(self, text: str) -> None:
        self._functions.acknowledge(text.encode())

    def fail_calls(self, call_types: int, first: int, count: int, error: int) -> None:
        self._functions.fail_calls(call_types, first, count, error)

    def count_calls(self) -> int:
        return self._functions.count_calls()


def record(library: Path, work: Path, operation: Operation) -> Recording:
    """Record an operation in a new process.

    Args:
        library: from `preload_library`.
        work: a folder for it; created.
        operation: can be pickled.

    Raises:
        AssertionError: the operation fails, or not all its changes were recorded.
    """
    run_with_library(library, f"{__name__}:_record_here", work, operation)
    before, after, reference = pickle.loads((work / "run.pickle").read_bytes())
    return Recording((work / "disk").resolve(), before, after, tuple(read_calls(work / "calls")), reference)


def _record_here(work: Path, operation: Operation) -> None:
    root = work / "disk"
    root.mkdir(parents=True)
    library = Library(root)
    operation.prepare(work)
    before = Snapshot.read(root)
    library.start_recording(work / "calls")
    reference = operation.run(work, library.acknowledge)
    library.stop_recording()
    (work / "run.pickle").write_bytes(pickle.dumps((before, Snapshot.read(root), reference)))


def read_calls(file: Path) -> list[Call]:
    """Read a record of `preload.c`."""
    content, position, calls = file.read_bytes(), 0, []
    while position < len(content):
        operation, inode, offset, *lengths = _HEAD.unpack_from(content, position)
        texts: list[bytes] = []
        position += _HEAD.size
        for length in lengths:
            texts.append(content[position : position + length])
            position += length
        calls.append(_call(operation.decode(), inode, offset, *texts))
    return [call for call in calls if not (call.path or call.new_path).endswith(_SHARED_MEMORY)]


def _call(operation: str, inode: int, offset: int, first: bytes, second: bytes) -> Call:
    match operation:
        case "W" | "A":
            return Call(operation, inode, offset, data=first)
        case "R" | "L":
            return Call(operation, path=os.fsdecode(first), new_path=os.fsdecode(second))
        case "Y":
            return Call(operation, inode, path=os.fsdecode(first), data=second)
        case _:
            return Call(operation, inode, offset, path=os.fsdecode(first))
