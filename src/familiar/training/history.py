"""The history of a run: one record per epoch, written as CSV and drawn as curves."""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from familiar.core.files import write_atomically

_HYPERPARAMETER_COLORS = {"margin": "dimgray", "gamma": "tab:purple"}


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
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(EpochRecord)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(record) for record in records)
    write_atomically(path, text.getvalue().encode())


def draw_curves(path: Path, records: Sequence[EpochRecord]) -> None:
    """Draw loss, validation, learning rates with margin and gamma, and speed over the epochs, as a PNG."""
    # Figure without pyplot: no window system, no global state.
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(10, 6), layout="constrained")
    loss, validation, rates, speed = figure.subplots(2, 2).flat
    validated = [record for record in records if record.validation_accuracy is not None]
    _draw_loss(loss, records, validated)
    _draw_recognition(validation, records, validated)
    _draw_rates(rates, records)
    _draw_speed(speed, records)
    for axes in (loss, validation, rates, speed):
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=110)
    write_atomically(path, png.getvalue())


def _column(records: Sequence[EpochRecord], name: str) -> list[float]:
    """Return one field of every record, NaN for None."""
    values = (getattr(record, name) for record in records)
    return [float("nan") if value is None else value for value in values]


def _draw_loss(axes: Any, records: Sequence[EpochRecord], validated: Sequence[EpochRecord]) -> None:
    axes.plot(_column(records, "epoch"), _column(records, "loss"), color="tab:blue", label="training")
    if any(record.validation_loss is not None for record in validated):
        axes.plot(
            _column(validated, "epoch"),
            _column(validated, "validation_loss"),
            color="tab:orange",
            marker=".",
            label="unseen identities, all triplets",
        )
        axes.legend()
    axes.set_title("loss")


def _draw_recognition(axes: Any, records: Sequence[EpochRecord], validated: Sequence[EpochRecord]) -> None:
    for name, label in (
        ("validation_accuracy", "verification accuracy"),
        ("validation_auc", "ROC AUC"),
        ("validation_recall_at_1", "recall@1"),
    ):
        axes.plot(_column(validated, "epoch"), _column(validated, name), marker=".", label=label)
    if any(record.batch_recall_at_1 is not None for record in records):
        recalls = _column(records, "batch_recall_at_1")
        axes.plot(_column(records, "epoch"), recalls, color="tab:gray", label="recall@1 in training batches")
    axes.set_title("validation (unseen identities)")
    axes.legend()


def _draw_rates(axes: Any, records: Sequence[EpochRecord]) -> None:
    epochs = _column(records, "epoch")
    axes.semilogy(epochs, _column(records, "lr"), label="head")
    axes.semilogy(epochs, _column(records, "backbone_lr"), label="trunk", linestyle=":")
    axes.legend(loc="upper left")
    drawn = [name for name in _HYPERPARAMETER_COLORS if any(getattr(record, name) is not None for record in records)]
    for index, name in enumerate(drawn):  # each on a scale of its own: margins are below 1, gamma is 64 or more
        color = _HYPERPARAMETER_COLORS[name]
        scale = axes.twinx()
        scale.spines["right"].set_position(("outward", 60 * index))
        scale.plot(epochs, _column(records, name), color=color, linestyle="--")
        scale.set_ylabel(name, color=color)
        scale.tick_params(axis="y", colors=color)
        scale.set_ylim(bottom=0)
    axes.set_title(f"learning rate (left), {' and '.join(drawn)} (right)" if drawn else "learning rate")


def _draw_speed(axes: Any, records: Sequence[EpochRecord]) -> None:
    axes.plot(_column(records, "epoch"), _column(records, "photos_per_second"), color="tab:green")
    axes.set_title("photos per second")
    axes.set_ylim(bottom=0)
