"""The history of a run: one record per epoch, written as CSV and drawn as curves."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from familiar.core.files import write_atomically
from familiar.training.step_log import csv_of


@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """One epoch. The fields are the columns of `history.csv`; validation figures are None if it was not validated."""

    epoch: int  # counts from 1
    loss: float
    lr: float
    backbone_lr: float
    margin: float | None  # of the loss, in its own unit
    gamma: float | None
    active_triplets: float | None  # share of the last batch's triplets whose loss is above zero
    batch_recall_at_1: float | None = None  # mean over the training batches with positives
    gradient_norm: float
    validation_accuracy: float | None = None
    validation_auc: float | None = None
    validation_recall_at_1: float | None = None
    validation_loss: float | None = None  # of all triplets, with epoch 0's hyper-parameters; None for classifiers
    stranger_similarity: float | None = None  # mean over pairs of different identities; near 1 is a collapse
    photos_per_second: float
    seconds: float


def write_history(path: Path, records: Sequence[EpochRecord]) -> None:
    """Write the records as CSV, None as an empty field."""
    write_atomically(path, csv_of(EpochRecord, records))


def draw_curves(path: Path, records: Sequence[EpochRecord]) -> None:
    """Draw loss, validation, learning rates with margin and gamma, and speed over the epochs, as a PNG."""
    # Figure without pyplot: no window system, no global state.
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(10, 6), layout="constrained")
    for axes, (title, columns) in zip(figure.subplots(2, 2).flat, _PANELS.items(), strict=True):
        _draw_lines(axes, records, columns)
        axes.set_title(title)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend(fontsize="small", framealpha=0.5)
        if "lr" in columns:
            axes.set_yscale("log")
            _draw_hyperparameters(axes, records)
        elif "photos_per_second" in columns:
            axes.set_ylim(bottom=0)
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=110)
    write_atomically(path, png.getvalue())


_PANELS = {  # titles, and the columns of each with their names
    "loss": {"loss": "training", "validation_loss": "unseen identities, all triplets"},
    "recognition": {
        "validation_accuracy": "verification accuracy (unseen identities)",
        "validation_auc": "ROC AUC (unseen identities)",
        "validation_recall_at_1": "recall@1 (unseen identities)",
        "batch_recall_at_1": "recall@1 in training batches",
    },
    "learning rate (left)": {"lr": "head", "backbone_lr": "trunk"},
    "speed": {"photos_per_second": "photos per second"},
}
_HYPERPARAMETER_COLORS = {"margin": "dimgray", "gamma": "tab:purple"}


def _draw_lines(axes: Any, records: Sequence[EpochRecord], columns: Mapping[str, str], **style: Any) -> None:
    for name, label in columns.items():
        known = [(record.epoch, value) for record in records if (value := getattr(record, name)) is not None]
        if known:
            axes.plot(*zip(*known, strict=True), marker=".", label=label, **style)


def _draw_hyperparameters(axes: Any, records: Sequence[EpochRecord]) -> None:
    """Draw margin and gamma, each on a scale of its own at the right: margins are below 1, gamma is 64 or more."""
    for index, (name, color) in enumerate(_HYPERPARAMETER_COLORS.items()):
        if any(getattr(record, name) is not None for record in records):
            scale = axes.twinx()
            scale.spines["right"].set_position(("outward", 60 * index))
            _draw_lines(scale, records, {name: name}, color=color, linestyle="--")
            scale.set_ylabel(name, color=color)
            scale.tick_params(axis="y", colors=color)
            scale.set_ylim(bottom=0)
