"""Training and what it leaves, in WORK/disk: cached crops, runs, bundles and routers."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from familiar.core.types import Photo
from familiar.datasets.folders import DataSpec, scan_folders
from familiar.embedding.bundle import load_bundle
from familiar.embedding.species.router_file import write_router
from familiar.export.router_export import export_router
from familiar.export.run_export import export_bundle
from familiar.loading.cache import CropCache
from familiar.loading.crops import read_table
from familiar.photos.decoding import save_photo
from familiar.photos.preprocessing import Preprocessing
from familiar.training.fitting import fit
from familiar.training.run import RunFolder
from support.mean_color_bundle import CALIBRATED, write_mean_color_bundle
from support.storage_faults.recording import Acknowledge
from support.tiny_router import tiny_router
from support.tiny_run import TINY, history, save_photos

_PREPROCESSING = Preprocessing(size_px=16, resize_px=16, mean=(0.0,) * 3, std=(1.0,) * 3)


@dataclass(frozen=True)
class CacheCrops:
    """The cache of crops, which has room for two of three collections: it may lose crops, but never give wrong ones."""

    photos: int = 4

    def prepare(self, work: Path) -> None:
        for collection in ("first", "second", "third"):
            for number in range(self.photos):
                pixels = np.random.default_rng([*collection.encode(), number]).integers(0, 256, (24, 24, 3), np.uint8)
                folder = work / "photos" / collection / "cat"
                folder.mkdir(parents=True, exist_ok=True)
                save_photo(Photo(pixels, "drawn", (24, 24)), folder / f"{number}.png")

    def run(self, work: Path, acknowledge: Acknowledge) -> dict[str, bytes]:
        return {collection: self._crops(work, collection, acknowledge) for collection in ("first", "second", "third")}

    def _crops(self, work: Path, collection: str, acknowledge: Acknowledge) -> bytes:
        cache = CropCache(work / "disk" / "crops", 2 * self.photos * 3 * 16**2)
        read = read_table(scan_folders(work / "photos" / collection), _PREPROCESSING, cache)
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


@dataclass(frozen=True)
class Train:
    """A training of two epochs; after each, its weights and its state are saved."""

    epochs: int = 2

    def prepare(self, work: Path) -> None:
        save_photos(work / "photos")
        self._fit(work, work / "undisturbed", False, lambda _: None)

    def _fit(self, work: Path, folder: Path, resume: bool, acknowledge: Acknowledge) -> RunFolder:
        torch.set_num_threads(1)  # a sum over several threads may have other last bits
        recipe = TINY.with_settings([f"budget.epochs={self.epochs}"])
        photos = DataSpec((str(work / "photos"),))
        fit(recipe, photos, folder, resume=resume, on_epoch=lambda record: acknowledge(str(record.epoch)))
        return RunFolder(folder)

    def _outcome(self, run: RunFolder) -> tuple[list[dict[str, str]], bytes, bytes]:
        return history(run), run.last.read_bytes(), run.embedder.read_bytes()

    def run(self, work: Path, acknowledge: Acknowledge) -> None:
        self._fit(work, work / "disk" / "runs" / "tiny", False, acknowledge)

    def problems(self, work: Path, acknowledged: Sequence[str], _: None) -> list[str]:
        run = RunFolder(work / "disk" / "runs" / "tiny")
        resumed: list[str] = []
        is_begun = run.state.exists()
        if not is_begun:  # as the message of --resume says
            shutil.rmtree(run.path, ignore_errors=True)
        problems = ["its state is lost"] if acknowledged and not is_begun else []
        finished = self._fit(work, run.path, is_begun, resumed.append)
        if len({*acknowledged} & {*resumed}):
            problems.append(f"after epoch {max(acknowledged)} it resumed with {min(resumed)}")
        if self._outcome(finished) != self._outcome(RunFolder(work / "undisturbed")):
            problems.append("it ends with another network")
        return problems


@dataclass(frozen=True)
class ExportBundle:
    """A run exported as one file.

    Attributes:
        run_folder: of the run.
    """

    run_folder: Path

    def prepare(self, work: Path) -> None:
        pass

    def run(self, work: Path, acknowledge: Acknowledge) -> None:
        export_bundle(self.run_folder, work / "disk" / "bundles" / "cats.onnx")
        acknowledge("exported")

    def problems(self, work: Path, acknowledged: Sequence[str], _: None) -> list[str]:
        path = work / "disk" / "bundles" / "cats.onnx"
        problems = ["it is not there"] if acknowledged and not path.exists() else []
        if path.exists():
            load_bundle(path)  # checks its checksum
        else:
            self.run(work, lambda _: None)
            load_bundle(path)
        return problems
