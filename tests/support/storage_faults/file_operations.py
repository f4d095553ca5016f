"""Operations on files other than galleries, in WORK/disk."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from familiar.core.download import PublishedFile, download
from familiar.core.files import write_atomically
from familiar.photos.preprocessing import Preprocessing
from support.storage_faults.recording import Acknowledge

_KIB = 1024
_PREPROCESSING = Preprocessing(size_px=16, resize_px=16, mean=(0.0,) * 3, std=(1.0,) * 3)


def _random_bytes(seed: int, size: int = 20 * _KIB) -> bytes:
    return np.random.default_rng(seed).bytes(size)


@dataclass(frozen=True)
class WriteFiles:
    """Files written one after another, which replace each other."""

    versions: int = 4

    def _path(self, work: Path) -> Path:
        return work / "disk" / "results" / "results.json"

    def prepare(self, work: Path) -> None:
        self._path(work).parent.mkdir()
        self._path(work).write_bytes(_random_bytes(0))

    def run(self, work: Path, acknowledge: Acknowledge) -> None:
        for version in range(1, self.versions):
            write_atomically(self._path(work), _random_bytes(version))
            acknowledge(str(version))

    def problems(self, work: Path, acknowledged: Sequence[str], _: None) -> list[str]:
        path = self._path(work)
        content = path.read_bytes()
        least = max(map(int, acknowledged), default=0)
        intact = any(content == _random_bytes(version) for version in range(least, self.versions))
        problems = [] if intact else [f"{len(content)} bytes are none of the versions from {least} on"]
        self.run(work, lambda _: None)
        if path.read_bytes() != _random_bytes(self.versions - 1):
            problems.append("cannot be written again")
        return problems


@dataclass(frozen=True)
class Download:
    """A file fetched into a new folder."""

    def _file(self, work: Path) -> PublishedFile:
        content = _random_bytes(7)
        return PublishedFile(
            (work / "published.onnx").as_uri(), hashlib.sha256(content).hexdigest(), len(content), "Apache-2.0"
        )

    def _target(self, work: Path) -> Path:
        return work / "disk" / "models" / "network.onnx"

    def prepare(self, work: Path) -> None:
        (work / "published.onnx").write_bytes(_random_bytes(7))

    def run(self, work: Path, acknowledge: Acknowledge) -> None:
        download(self._file(work), self._target(work))
        acknowledge("downloaded")

    def problems(self, work: Path, acknowledged: Sequence[str], _: None) -> list[str]:
        target = self._target(work)
        problems = ["it is not there"] if acknowledged and not target.exists() else []
        self.run(work, lambda _: None)  # refuses a file of another content
        if target.read_bytes() != _random_bytes(7):
            problems.append("it has another content")
        return problems + [f"left behind: {path.name}" for path in target.parent.iterdir() if path != target]
