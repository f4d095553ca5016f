"""Operations on files other than galleries, in WORK/disk."""

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from familiar.core.download import PublishedFile, download
from familiar.core.files import write_atomically
from familiar.loading.cache import CropCache, PackWriter, evict_packs, open_pack
from familiar.photos.preprocessing import Preprocessing
from support.storage_faults.recording import Acknowledge

_UNFINISHED = ".familiar."
_KIB = 1024


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

    def problems(self, work: Path, acknowledged: Sequence[str], reference: None) -> list[str]:
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

    def problems(self, work: Path, acknowledged: Sequence[str], reference: None) -> list[str]:
        target = self._target(work)
        problems = ["it is not there"] if acknowledged and not target.exists() else []
        self.run(work, lambda _: None)  # refuses a file of another content
        if target.read_bytes() != _random_bytes(7):
            problems.append("it has another content")
        return problems + [f"left behind: {path.name}" for path in target.parent.iterdir() if path != target]


@dataclass(frozen=True)
class CachePacks:
    """Packs of the cache of crops; they may be lost, but never be wrong."""

    packs: int = 3
    crops: int = 4
    preprocessing: Preprocessing = Preprocessing(size_px=16, resize_px=16, mean=(0.0,) * 3, std=(1.0,) * 3)

    def prepare(self, work: Path) -> None:
        (work / "disk" / "crops").mkdir()

    def _pack(self, work: Path, number: int) -> Path:
        return work / "disk" / "crops" / f"{number:040x}"

    def _pixels(self, number: int) -> np.ndarray:
        return np.random.default_rng(number).integers(0, 256, (self.crops, 16, 16, 3), np.uint8)

    def _write(self, work: Path, number: int) -> None:
        evict_packs(CropCache(self._pack(work, 0).parent, 2 * self._pixels(0).nbytes), self._pixels(0).nbytes)
        writer = PackWriter(self._pack(work, number))
        for row, crop in enumerate(self._pixels(number)):
            writer.write(row, crop)
        writer.commit([])

    def run(self, work: Path, acknowledge: Acknowledge) -> None:
        for number in range(self.packs):
            self._write(work, number)
            acknowledge(str(number))

    def problems(self, work: Path, acknowledged: Sequence[str], reference: None) -> list[str]:
        problems: list[str] = []
        for number in range(self.packs):
            for _ in range(2):
                if open_pack(self._pack(work, number), self.preprocessing, self.crops, self.crops) is None:
                    self._write(work, number)
                elif (self._pack(work, number) / "crops.u8").read_bytes() != self._pixels(number).tobytes():
                    problems.append(f"pack {number} has wrong pixels")
            if not self._pack(work, number).exists():
                problems.append(f"pack {number} cannot be written again")
        return problems


@dataclass(frozen=True)
class ExportRouter:
    """A router with its bundles, written as one folder."""

    def prepare(self, work: Path) -> None:
        from support.mean_color_bundle import CALIBRATED, write_mean_color_bundle
        from support.tiny_router import tiny_router

        from familiar.embedding.species.router_file import write_router

        (work / "made").mkdir()
        features = write_mean_color_bundle(work / "made" / "features.onnx", CALIBRATED)
        write_router(work / "made" / "router.json", tiny_router(features, work / "made"))

    def run(self, work: Path, acknowledge: Acknowledge) -> dict[str, bytes]:
        from familiar.export import export_router

        export_router(work / "made" / "router.json", work / "disk" / "pets")
        acknowledge("exported")
        return {path.name: path.read_bytes() for path in (work / "disk" / "pets").iterdir()}

    def problems(self, work: Path, acknowledged: Sequence[str], reference: dict[str, bytes]) -> list[str]:
        folder = work / "disk" / "pets"
        problems = ["it is not there"] if acknowledged and not folder.exists() else []
        if folder.exists():
            seen = {path.name: path.read_bytes() for path in folder.iterdir()}
            if seen != reference:
                problems.append(
                    f"part of it is there: {[name for name in reference if seen.get(name) != reference[name]]}"
                )
                shutil.rmtree(folder)
        if self.run(work, lambda _: None) != reference:
            problems.append("exported again, it differs")
        return problems
