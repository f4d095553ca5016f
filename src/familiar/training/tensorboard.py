"""A run's history as TensorBoard's event files, for whoever watches many runs in one place."""

from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from familiar.core.errors import FamiliarError
from familiar.training.history import EpochRecord


def require_tensorboard() -> None:
    """FamiliarError where the package is missing: to be asked before there is anything to lose."""
    if find_spec("tensorboard") is None:
        raise FamiliarError("TensorBoard is not installed: pip install 'familiar-faces[tensorboard]'")


class TensorBoard:
    """Writes into `folder`, `earlier` first: also what an earlier part of a resumed run did not write."""

    def __init__(self, folder: Path, earlier: Sequence[EpochRecord]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(folder, purge_step=1)
        for record in earlier:
            self.add(record)

    def __enter__(self) -> "TensorBoard":
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def add(self, record: EpochRecord) -> None:
        for name, value in asdict(record).items():
            if name != "epoch" and value is not None:
                self._writer.add_scalar(name, value, record.epoch)
        self._writer.flush()
