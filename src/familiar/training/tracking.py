"""A run's figures in an experiment tracker - TensorBoard, Weights & Biases or MLflow - through accelerate."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias, get_args

from familiar.core.errors import FamiliarError
from familiar.training.history import EpochRecord
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder
from familiar.training.step_log import StepRecord

TrackerName: TypeAlias = Literal["tensorboard", "wandb", "mlflow"]
TRACKERS: tuple[TrackerName, ...] = get_args(TrackerName)
PROJECT = "familiar"


def require_tracker(name: TrackerName) -> None:
    """Raise FamiliarError if a package is missing. Call it before training, while there is nothing to lose."""
    if name not in TRACKERS:
        raise FamiliarError(f"no tracker is named {name!r}; there are {', '.join(TRACKERS)}")
    if find_spec("accelerate") is None or (name == "tensorboard" and find_spec(name) is None):
        raise FamiliarError(f"--track {name} needs accelerate: pip install 'familiar-faces[track]'")
    if find_spec(name) is None:
        raise FamiliarError(f"--track {name} needs {name}: pip install {name}")


class Tracker:
    """Writer of a run's figures.

    All have the number of the step as their position: the tracker of Weights & Biases has no other.

    Args:
        tracker: of accelerate.
    """

    def __init__(self, tracker: Any) -> None:
        self._tracker = tracker
        self._step = 0

    def add_step(self, record: StepRecord) -> None:
        """Write one step."""
        self._step = record.step
        figures = {"loss": record.loss, "batch_recall_at_1": record.batch_recall_at_1, "lr": record.lr}
        self._write({f"step/{name}": value for name, value in figures.items()})

    def add(self, record: EpochRecord) -> None:
        """Write one epoch."""
        self._write(asdict(record))

    def _write(self, figures: dict[str, float | None]) -> None:
        self._tracker.log({name: value for name, value in figures.items() if value is not None}, step=self._step)


@contextmanager
def open_tracker(
    name: TrackerName, run: RunFolder, recipe: Recipe, earlier: Sequence[EpochRecord], steps: Sequence[StepRecord]
) -> Iterator[Tracker]:
    """Open a tracker with the recipe's settings, and close it at the end.

    Args:
        name: of the tracker.
        run: where the files of TensorBoard are written, and those of the others unless they are told otherwise.
        recipe: of the run.
        earlier: epochs of a resumed run, which are written first: a tracker has no interrupted runs.
        steps: likewise its steps.
    """
    from accelerate import Accelerator

    accelerator = Accelerator(log_with=name, project_dir=run.path)
    options: dict[str, dict[str, Any]] = {
        "tensorboard": {"purge_step": 1},
        "wandb": {"name": run.path.name, "dir": str(run.path)},
        "mlflow": {"run_name": run.path.name},
    }
    project = run.tensorboard.name if name == "tensorboard" else PROJECT
    accelerator.init_trackers(project, _flatten(recipe.to_primitive()), {name: options[name]})
    opened = accelerator.trackers[0]
    tracker = Tracker(opened)
    try:
        for record in earlier:
            for step in steps:
                if step.epoch == record.epoch:
                    tracker.add_step(step)
            tracker.add(record)
        for step in steps:
            if not earlier or step.epoch > earlier[-1].epoch:
                tracker.add_step(step)
        yield tracker
    finally:
        opened.finish()  # `Accelerator.end_training` would end the connection between ranks, too


def _flatten(settings: dict[str, Any], prefix: str = "") -> dict[str, float | str]:
    """Return settings by their full names, such as `optimizer.lr`; what is no number is a text."""
    flat: dict[str, float | str] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value if isinstance(value, int | float) else str(value)
    return flat
