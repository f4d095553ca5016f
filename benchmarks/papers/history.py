"""Read a run's training history and the photos it used."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from matplotlib.axes import Axes

from familiar.evaluation.plots.chart import LIGHT
from familiar.training.run import RunFolder

_MARKS = "osD^vP"  # in addition to colors, which not everybody can tell apart


@dataclass(frozen=True)
class History:
    """Metrics by epoch; None in epochs without one: validation is not run in every epoch, a loss may have no margin."""

    epochs: tuple[Mapping[str, float | None], ...]

    @property
    def seconds(self) -> float:
        """Training time, without validation."""
        return sum(epoch["seconds"] or 0.0 for epoch in self.epochs)

    @property
    def photos(self) -> int:
        """Photos shown in total, counted again in every epoch."""
        return self.photos_until[-1] if self.epochs else 0

    @property
    def photos_until(self) -> list[int]:
        """Photos shown by the end of each epoch."""
        return list(accumulate(_photos(epoch) for epoch in self.epochs))

    def known(self, figure: str) -> list[tuple[int, float]]:
        """List (photos shown so far, value) for the epochs that have the metric."""
        epochs = zip(self.photos_until, self.epochs, strict=True)
        return [(photos, value) for photos, epoch in epochs if (value := epoch[figure]) is not None]


def read_history(run: RunFolder) -> History:
    """Read `history.csv`; the history is empty if the run ended before its first epoch did."""
    if not run.history_csv.exists():
        return History(())
    with run.history_csv.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return History(tuple({name: float(value) if value else None for name, value in row.items()} for row in rows))


def describe_photos(run: RunFolder) -> str:
    """Describe the training and validation photos of a run on LFW's `peopleDevTrain`."""
    data = run.data()
    train, validation = data["train"]["lfw_112"], data["validation"]["lfw_112"]
    return (
        f"{train['photos']:,} photos of {train['identities']:,} people of LFW's `peopleDevTrain` (validated on "
        f"{validation['photos']:,} photos of {validation['identities']:,} other people)"
    )


def draw_over_photos(axes: Axes, histories: Mapping[str, History], figure: str) -> None:
    """Draw one line per run, in its own color and marker."""
    for index, (name, history) in enumerate(histories.items()):
        known = history.known(figure)
        axes.plot(
            [photos for photos, _ in known],
            [value for _, value in known],
            label=name,
            color=LIGHT.series[index],
            marker=_MARKS[index],
            markersize=5,
        )
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(lambda photos, _: f"{photos / 1000:.0f}k" if photos else "0")


def _photos(epoch: Mapping[str, float | None]) -> int:
    return round((epoch["photos_per_second"] or 0.0) * (epoch["seconds"] or 0.0))
