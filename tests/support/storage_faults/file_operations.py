"""Operations on files other than galleries, in WORK/disk."""

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from familiar.core.download import PublishedFile, download
from familiar.core.files import write_atomically
from familiar.core.types import Photo
from familiar.datasets.folders import scan_folders
from familiar.embedding.species.router_file import write_router
from familiar.export.router_export import export_router
from familiar.loading.cache import CropCache
from familiar.loading.crops import read_table
from familiar.photos.decoding import save_photo
from familiar.photos.preprocessing import Preprocessing
from support.mean_color_bundle import CALIBRATED, write_mean_color_bundle
from support.storage_faults.recording import Acknowledge
from support.tiny_router import tiny_router

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


@dataclass(frozen=True)
class CacheCrops:
    """The cache of crops, which has room for two of three collections: it may lose crops, but never give wrong ones."""

    photos: int = 4
    preprocessing: Preprocessing = Preprocessing(size_px=16, resize_px=16, mean=(0.0,) * 3, std=(1.0,) * 3)

    def prepare(self, work: Path) -> None:
        for collection in ("first", "second", "third"):
            for number in range(self.photos):
                pixels = np.frombuffer(_random_bytes(ord(collection[0]) + number, 3 * 24**2), np.uint8)
                folder = work / "photos" / collection / "cat"
                folder.mkdir(parents=True, exist_ok=True)
                save_photo(Photo(pixels.reshape(24, 24, 3), "drawn", (24, 24)), folder / f"{number}.png")

    def run(self, work: Path, acknowledge: Acknowledge) -> dict[str, bytes]:
        return {collection: self._crops(work, collection, acknowledge) for collection in ("first", "second", "third")}

    def _crops(self, work: Path, collection: str, acknowledge: Acknowledge) -> bytes:
        cache = CropCache(work / "disk" / "crops", 2 * self.photos * 3 * 16**2)
        read = read_table(scan_folders(work / "photos" / collection), self.preprocessing, cache)
        acknowledge(collection)
        return b"".join(read.crops[row].tobytes() for row in range(len(read.table)))

    def problems(self, work: Path, _: Sequence[str], reference: dict[str, bytes]) -> list[str]:
        return [
            f"wrong crops of the {name}"
            for name, crops in self.run(work, lambda _: None).items()
            if crops != reference[name]
        ]


@dataclass(frozen=True)
class ExportRouter:
    """A router with its bundles, written as one folder."""

    def prepare(self, work: Path) -> None:
        (work / "made").mkdir()
        features = write_mean_color_bundle(work / "made" / "features.onnx", CALIBRATED)
        write_router(work / "made" / "router.json", tiny_router(features, work / "made"))

        export_router(work / "made" / "router.json", work / "expected")

    def run(self, work: Path, acknowledge: Acknowledge) -> None:
        export_router(work / "made" / "router.json", work / "disk" / "pets")
        acknowledge("exported")

    def problems(self, work: Path, acknowledged: Sequence[str], _: None) -> list[str]:
        folder = work / "disk" / "pets"
        expected, seen = _read_folder(work / "expected"), _read_folder(folder) if folder.exists() else None
        problems = ["it is not there"] if acknowledged and seen is None else []
        if seen not in (None, expected):
            problems.append(f"part of it is there: {[*seen]}")
            shutil.rmtree(folder)
        self.run(work, lambda _: None)
        return problems if _read_folder(folder) == expected else [*problems, "exported again, it differs"]


def _read_folder(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}
