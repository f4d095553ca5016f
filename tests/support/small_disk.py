"""A file system of a few megabytes, to fill."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """Mount a file system in memory on a new folder. The test is skipped where this user may not mount any."""
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder]
    try:
        mounted = subprocess.run(["mount", *map(str, options)], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no command to mount a file system")
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path) -> Path:
    """Fill the file system of a folder to its last byte, and return the file that does it."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
        with contextlib.suppress(OSError):
            for _ in range(free // 4096 + 1):
                file.write(bytes(4096))
    return filler
