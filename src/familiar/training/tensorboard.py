"""A run's history as TensorBoard event files."""

from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from familiar.core.errors import FamiliarError
from familiar.training.history import EpochRecord
from familiar.training.step_log import StepRecord


def require_tensorboard() -> None:
    """Raise FamiliarError if the package is missing. Call it before training, while there is nothing to lose."""
    if find_spec("tensorboard") is None:
        raise FamiliarError("TensorBoard is not installed: pip install 'familiar-faces[tensorboard]'")


class TensorBoard:
    """Writer of event files; use it as a context manager.

    Args:
        folder: for the event files.
        earlier: records of a resumed run's earlier epochs, which are written first: the interrupted run may not have
            written them all, or not have used TensorBoard.
        earlier_steps: likewise of its steps.
    """

    def __init__(self, folder: Path, earlier: Sequence[EpochRecord], earlier_steps: Sequence[StepRecord] = ()) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(folder, purge_step=1)
        for step in earlier_steps:
            self.add_step(step)
        for record in earlier:
            self.add(record)

    def __enter__(self) -> "TensorBoard":
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def add(self, record: EpochRecord) -> None:
        """Write one epoch."""
        for name, value in asdict(record).items():
            if name != "epoch" and value is not None:
                self._writer.add_scalar(name, value, record.epoch)
        self._writer.flush()

    def add_step(self, record: StepRecord) -> None:
        """Write one step, under names of their own: epochs and steps count differently."""
        for name in ("loss", "batch_recall_at_1", "lr"):
            if (value := getattr(record, name)) is not None:
                self._writer.add_scalar(f"step/{name}", value, record.step)
