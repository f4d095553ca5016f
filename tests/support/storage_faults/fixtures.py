"""Fixtures of tests with power cuts and failing calls."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from support.storage_faults.recording import preload_library

MEMORY = Path("/dev/shm")  # a sync takes no time there
MEMORY_BYTES = 1 << 30  # in a container there may be only 64 MB


@pytest.fixture(scope="session")
def preload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that records calls and lets them fail; skips the test where there can be none."""
    return preload_library(tmp_path_factory.mktemp("preload"))


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    """A folder for an operation, in memory where that is possible."""
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < MEMORY_BYTES:
        yield tmp_path / "work"
        return
    with TemporaryDirectory(dir=MEMORY, prefix="familiar-test-") as folder:
        yield Path(folder) / "work"
