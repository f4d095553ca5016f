"""A recipe and photos so small that an epoch takes a fraction of a second."""

import csv
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from familiar.datasets.folders import DataSpec, open_photo
from familiar.training.history import EpochRecord
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder

TINY = Recipe(name="tiny").with_settings(
    [
        "model.name=mobilenetv3_small_050",
        "model.initial_weights=none",
        "model.embedding_dim=16",
        "model.dropout=0.2",
        "input.size_px=32",
        "input.resize_px=32",
        "sampler.batch_size=16",
        "loss.scale=16",
        "loss.margin_rad=0 to 0.2 over 0.333",
        "optimizer.lr=3e-3",
        "optimizer.backbone_lr=3e-3",
        "optimizer.warmup_epochs=1",
        "budget.epochs=3",
        "validation.every_epochs=2",
    ]
)
TIMINGS = ("photos_per_second", "seconds")


class Interrupted(Exception):
    """Stands for a user's Ctrl-C."""


def stop_after(epoch: int) -> Callable[[EpochRecord], None]:
    """Return an `on_epoch` callback that raises `Interrupted` after an epoch."""

    def on_epoch(record: EpochRecord) -> None:
        if record.epoch == epoch:
            raise Interrupted

    return on_epoch


def save_photos(root: Path, source: str = "synthetic:cats:12x4") -> DataSpec:
    """Save synthetic pets as a folder of files, which are faster to read than to draw."""
    table = DataSpec((source,)).read()
    for photo, label in zip(table.photos, table.labels, strict=True):
        assert not isinstance(photo, Path)
        folder = root / f"cat {label}"
        folder.mkdir(parents=True, exist_ok=True)
        rgb_u8 = open_photo(photo, min_side_px=32).rgb_u8
        Image.fromarray(rgb_u8).save(folder / f"{photo.index}.png")
    return DataSpec((str(root),))


def history(run: RunFolder, without: tuple[str, ...] = TIMINGS) -> list[dict[str, str]]:
    """Read the rows of `history.csv`, by default without timings, which differ between runs."""
    with run.history_csv.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [{name: value for name, value in row.items() if name not in without} for row in rows]
