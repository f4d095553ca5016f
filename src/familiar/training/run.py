"""The folder a training run leaves behind: which file is where, and reading them back."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from familiar.core import run_files
from familiar.core.errors import BadRecipe, BadRun
from familiar.datasets.folders import DataSpec
from familiar.datasets.split import Split
from familiar.training.recipe import Recipe


@dataclass(frozen=True)
class RunFolder:
    """Paths of a run's artifacts; nothing is read or made until asked."""

    path: Path

    @property
    def recipe_json(self) -> Path:
        return self.path / run_files.RECIPE

    @property
    def data_json(self) -> Path:
        """Which photos it was trained on: where they were, how many, what they held."""
        return self.path / run_files.DATA

    @property
    def split_json(self) -> Path:
        return self.path / run_files.SPLIT

    @property
    def space_id(self) -> str:
        """Of its embeddings: the old space it was trained to compare with, else one of its weights' own.

        The weights decide it, so that the same run exported twice gives the same one.
        """
        if compatible := self.data().get("compatible"):
            return compatible["space_id"]
        return hashlib.sha256(self.embedder.read_bytes()).hexdigest()[:32]

    @property
    def history_csv(self) -> Path:
        return self.path / run_files.HISTORY

    @property
    def curves_png(self) -> Path:
        return self.path / run_files.CURVES

    @property
    def best(self) -> Path:
        """Network and classifier after the epoch that validated best."""
        return self.path / run_files.BEST_WEIGHTS

    @property
    def last(self) -> Path:
        """Network and classifier after the newest epoch."""
        return self.path / run_files.LAST_WEIGHTS

    @property
    def triplets_png(self) -> Path:
        """What each way of mining picks, where the loss mines triplets."""
        return self.path / run_files.TRIPLETS

    @property
    def tensorboard(self) -> Path:
        """TensorBoard's event files, where they were asked for."""
        return self.path / run_files.TENSORBOARD

    @property
    def lock_file(self) -> Path:
        """Held by the process that trains in this folder."""
        return self.path / run_files.LOCK

    @property
    def state(self) -> Path:
        """All that `--resume` needs, in one file, so that it is never half of one epoch and half of another."""
        return self.path / run_files.STATE

    @property
    def embedder(self) -> Path:
        """The network alone, after the best epoch."""
        return self.path / run_files.EMBEDDER_WEIGHTS

    @property
    def bundle(self) -> Path:
        return self.path / run_files.BUNDLE

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder and keep other processes from training in it. BadRun where one does.

        The hold ends with the process, however that ends; a folder that stays empty is removed again.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.lock_file)
            lock.acquire(timeout=0)
        except Timeout:
            raise BadRun(f"{self.path}: another process is training in it") from None
        except OSError as error:
            raise BadRun(f"{self.path}: cannot be a run's folder ({error.strerror})") from error
        try:
            yield
        finally:
            with suppress(OSError):  # Windows keeps a file that is open
                self.lock_file.unlink()
            lock.release()
            with suppress(OSError):
                self.path.rmdir()

    def recipe(self) -> Recipe:
        try:
            return Recipe.from_json(self.recipe_json.read_text(encoding="utf-8"))
        except OSError as error:
            raise BadRun(f"{self.path}: no run of ours ({self.recipe_json.name}: {error.strerror})") from error
        except (UnicodeDecodeError, BadRecipe) as error:
            raise BadRun(f"{self.recipe_json}: cannot be read ({error})") from error

    def data(self) -> dict[str, Any]:
        try:
            stored = json.loads(self.data_json.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BadRun(f"{self.data_json}: cannot be read ({error})") from error
        if not isinstance(stored, dict) or not stored.keys() >= {
            "spec",
            "contents",
            "train",
            "validation",
        }:
            raise BadRun(f"{self.data_json}: is no record of a run's photos")
        return stored

    def data_spec(self) -> DataSpec:
        """What the run read its photos from."""
        return DataSpec.recorded(self.path)

    def split(self) -> Split:
        return Split.read(self.split_json)
