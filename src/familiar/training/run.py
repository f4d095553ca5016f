"""The folder of a training run: the paths of its files, and reading them."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from familiar.core import run_files
from familiar.core.errors import BadRecipe, BadRun, CannotWrite
from familiar.core.files import make_folder
from familiar.core.json_text import parse_json
from familiar.datasets.folders import DataSpec
from familiar.datasets.split import Split
from familiar.training.recipe import Recipe


class _RunFile:
    """The path of a file in a run's folder, as an attribute of `RunFolder`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, run: "RunFolder", _: type) -> Path:
        return run.path / self.name


@dataclass(frozen=True)
class RunFolder:
    """The paths of a run's files. Creating the object reads and writes nothing.

    Attributes:
        path: of the folder, which need not exist yet.
    """

    path: Path

    recipe_json = _RunFile(run_files.RECIPE)
    """The recipe; its presence makes the folder a run."""
    data_json = _RunFile(run_files.DATA)
    """The record of the photos: where they were, how many, and a hash of their contents."""
    split_json = _RunFile(run_files.SPLIT)
    """The groups of photos of training, validation and test."""
    photos_csv = _RunFile(run_files.PHOTOS)
    """The photos, if they were given as a table in memory."""
    history_csv = _RunFile(run_files.HISTORY)
    """One row per epoch."""
    steps_csv = _RunFile(run_files.STEPS)
    """One row per step."""
    curves_png = _RunFile(run_files.CURVES)
    """The history as curves."""
    initial = _RunFile(run_files.INITIAL_WEIGHTS)
    """The network before its first step, if the final one keeps a share of it."""
    best = _RunFile(run_files.BEST_WEIGHTS)
    """Network and classifier after the epoch that validated best."""
    last = _RunFile(run_files.LAST_WEIGHTS)
    """Network and classifier after the last epoch."""
    triplets_png = _RunFile(run_files.TRIPLETS)
    """Triplets that each miner picks, if the loss mines triplets."""
    teachers = _RunFile(run_files.TEACHERS)
    """The teachers' embeddings of the training photos and blends, if the run has teachers."""
    tensorboard = _RunFile(run_files.TENSORBOARD)
    """The folder of TensorBoard event files, if they were requested."""
    lock_file = _RunFile(run_files.LOCK)
    """Locked by the process that trains in this folder."""
    state = _RunFile(run_files.STATE)
    """Everything `--resume` needs, in one file, so that it never mixes two epochs."""
    embedder = _RunFile(run_files.EMBEDDER_WEIGHTS)
    """The network alone, after the best epoch."""
    bundle = _RunFile(run_files.BUNDLE)
    """The exported bundle."""

    @property
    def space_id(self) -> str:
        """The id of the embeddings' space: that of the old bundle the run is compatible with, else one of its own.

        Its own depends on the weights alone, so that exporting a run twice gives the same id.
        """
        if compatible := self.data()["compatible"]:
            return compatible["space_id"]
        return hashlib.sha256(self.embedder.read_bytes()).hexdigest()[:32]

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Create the folder and keep other processes from training in it.

        The lock ends with the process, however that ends; a folder that stays empty is removed again.

        Raises:
            BadRun: another process trains in the folder, or it cannot be created.
        """
        try:
            make_folder(self.path)
            lock = FileLock(self.lock_file)
            lock.acquire(timeout=0)
        except Timeout:
            raise BadRun(f"{self.path}: another process is training in this folder; wait, or choose another") from None
        except CannotWrite as error:
            raise BadRun(f"{self.path}: cannot be used as a run's folder ({error})") from error
        except OSError as error:
            raise BadRun(f"{self.path}: cannot be used as a run's folder ({error.strerror})") from error
        try:
            yield
        finally:
            with suppress(OSError):  # Windows keeps a file that is open
                self.lock_file.unlink()
            lock.release()
            with suppress(OSError):
                self.path.rmdir()

    def recipe(self) -> Recipe:
        """Read the recipe. BadRun if it is missing or damaged."""
        try:
            return Recipe.from_json(self.recipe_json.read_text(encoding="utf-8"))
        except OSError as error:
            raise BadRun(f"{self.path}: not a run folder ({self.recipe_json.name}: {error.strerror})") from error
        except UnicodeDecodeError as error:
            raise BadRun(f"{self.recipe_json}: cannot be read ({error})") from error
        except BadRecipe as error:
            raise BadRun(f"{self.recipe_json}: {error}") from error

    def data(self) -> dict[str, Any]:
        """Read the record of the photos. BadRun if it is missing, damaged or incomplete."""
        try:
            stored = parse_json(self.data_json.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BadRun(f"{self.data_json}: cannot be read ({error})") from error
        if not _is_record(stored):
            raise BadRun(f"{self.data_json}: is not the record of a run's photos; was it edited or cut short?")
        return stored

    def trained_on(self) -> dict[str, dict[str, int]]:
        """Return the numbers of identities and photos of each data set that the weights have learned from.

        Those of a run that they started from count; of a data set of both runs, the larger numbers. BadRun as in
        `data`.
        """
        record = self.data()
        roots = {} if record["initial"] is None else dict(record["initial"]["train"])
        for root, counts in record["train"].items():
            before = roots.get(root, {})
            roots[root] = {name: max(number, before.get(name, 0)) for name, number in counts.items()}
        return roots

    def taught_by(self) -> list[str]:
        """Return the spaces of all teachers, those of a run that the weights started from among them."""
        record = self.data()
        parts = (record[part] for part in ("initial", "distilled") if record[part] is not None)
        return list(dict.fromkeys(space for part in parts for space in part["space_ids"]))

    def data_spec(self) -> DataSpec:
        """Read the sources of the photos."""
        return DataSpec.from_run(self.path)

    def split(self) -> Split:
        """Read the split into training, validation and test."""
        return Split.read(self.split_json)


def _is_record(stored: Any) -> bool:
    """Whether parsed JSON is the record of a run's photos."""
    keys = {"spec", "contents", "compatible", "distilled", "initial", "train", "validation"}
    if not isinstance(stored, dict) or not stored.keys() >= keys:
        return False
    nothing = {"train": {}, "space_ids": []}
    initial, distilled = (nothing if stored[part] is None else stored[part] for part in ("initial", "distilled"))
    if not (isinstance(initial, dict) and isinstance(distilled, dict)):
        return False
    spaces = [part.get("space_ids") for part in (initial, distilled)]
    return all(map(_are_counts, (stored["train"], stored["validation"], initial.get("train")))) and all(
        isinstance(listed, list) and all(isinstance(space, str) for space in listed) for listed in spaces
    )


def _are_counts(stored: Any) -> bool:
    """Whether parsed JSON is numbers of identities and photos by data set."""
    return isinstance(stored, dict) and all(
        isinstance(counts, dict) and all(type(count) is int for count in counts.values()) for counts in stored.values()
    )
