"""What happened epoch by epoch: a CSV for programs, a picture for people."""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from familiar.core.files import write_atomically


@dataclass(frozen=True)
class EpochRecord:
    """One epoch; the validation figures are None in epochs that were not validated."""

    epoch: int  # counts from 1
    loss: float
    lr: float
    backbone_lr: float
    margin: float | None  # of the loss, in its own unit
    gamma: float | None
    active_triplets: float | None  # share of the newest batch's that still cost something
    gradient_norm: float
    validation_accuracy: float | None
    validation_auc: float | None
    validation_recall_at_1: float | None
    validation_loss: float | None  # of all triplets, as the run began with it; None for classifiers
    stranger_similarity: float | None  # mean over pairs of different identities; near 1 is a collapse
    photos_per_second: float
    seconds: float


def write_history(path: Path, records: Sequence[EpochRecord]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(EpochRecord)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(record) for record in records)
    write_atomically(path, text.getvalue().encode())


def draw_curves(path: Path, records: Sequence[EpochRecord]) -> None:
    """Loss, validation, learning rates with the margin, and speed, over the epochs."""
    # Figure without pyplot: no window system, no global state.
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(10, 6), layout="constrained")
    loss, validation, rates, speed = figure.subplots(2, 2).flat
    epochs = [record.epoch for record in records]
    loss.plot(epochs, [record.loss for record in records], color="tab:blue", label="training")
    loss.set_title("loss")
    seen = [record for record in records if record.validation_accuracy is not None]
    if any(record.validation_loss is not None for record in seen):
        at = [record.epoch for record in seen]
        loss.plot(
            at,
            [float("nan") if record.validation_loss is None else record.validation_loss for record in seen],
            color="tab:orange",
            marker=".",
            label="unseen identities, all triplets",
        )
        loss.legend()
    for name, label in (
        ("validation_accuracy", "verification accuracy"),
        ("validation_auc", "ROC AUC"),
        ("validation_recall_at_1", "recall@1"),
    ):
        values = [getattr(record, name) for record in seen]
        validation.plot([record.epoch for record in seen], values, marker=".", label=label)
    validation.set_title("validation (unseen identities)")
    validation.legend()
    rates.semilogy(epochs, [record.lr for record in records], label="head")
    rates.semilogy(epochs, [record.backbone_lr for record in records], label="trunk", linestyle=":")
    rates.set_title("learning rate (left), margin (right)")
    rates.legend(loc="upper left")
    margin = rates.twinx()
    margins = [float("nan") if record.margin is None else record.margin for record in records]
    margin.plot(epochs, margins, color="tab:gray", linestyle="--")
    margin.set_ylim(bottom=0)
    speed.plot(epochs, [record.photos_per_second for record in records], color="tab:green")
    speed.set_title("photos per second")
    speed.set_ylim(bottom=0)
    for axes in (loss, validation, rates, speed):
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    write_atomically(path, picture.getvalue())
