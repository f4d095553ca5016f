"""What a run tells of itself: epoch by epoch, and which photos it had."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from matplotlib.axes import Axes

from familiar.evaluation.plots.chart import LIGHT
from familiar.training.run import RunFolder

_MARKS = "osD^vP"  # beside the colors, which not everybody can tell


@dataclass(frozen=True)
class History:
    """A figure is None in epochs that have none: most are validated only now and then, a loss may have no margin."""

    epochs: tuple[Mapping[str, float | None], ...]

    @property
    def seconds(self) -> float:
        """Of training alone: validations are not counted."""
        return sum(epoch["seconds"] or 0.0 for epoch in self.epochs)

    @property
    def photos(self) -> int:
        """Shown in all, the same one again in every epoch."""
        return self.photos_until[-1] if self.epochs else 0

    @property
    def photos_until(self) -> list[int]:
        """Photos shown until the end of each epoch."""
        return list(accumulate(_photos(epoch) for epoch in self.epochs))

    def known(self, figure: str) -> list[tuple[int, float]]:
        """(photos shown until then, the figure), of the epochs that have it."""
        epochs = zip(self.photos_until, self.epochs, strict=True)
        return [(photos, value) for photos, epoch in epochs if (value := epoch[figure]) is not None]


def read_history(run: RunFolder) -> History:
    """Without epochs where the run ended before its first did."""
    if not run.history_csv.exists():
        return History(())
    with run.history_csv.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return History(tuple({name: float(value) if value else None for name, value in row.items()} for row in rows))


def sides(run: RunFolder) -> str:
    """The photos that a run on LFW's `peopleDevTrain` was trained on, and those it was validated on."""
    data = run.data()
    train, validation = data["train"]["lfw_112"], data["validation"]["lfw_112"]
    return (
        f"{train['photos']:,} photos of {train['identities']:,} people of LFW's `peopleDevTrain` (validated on "
        f"{validation['photos']:,} of {validation['identities']:,} others of them)"
    )


def draw_over_photos(axes: Axes, histories: Mapping[str, History], figure: str) -> None:
    """A line a run, in its own color and mark."""
    for place, (name, history) in enumerate(histories.items()):
        known = history.known(figure)
        axes.plot(
            [photos for photos, _ in known],
            [value for _, value in known],
            label=name,
            **look(place),
        )
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(lambda photos, _: f"{photos / 1000:.0f}k" if photos else "0")


def look(place: int) -> dict[str, Any]:
    """Of the line of the run in this place."""
    return {"color": LIGHT.series[place], "marker": _MARKS[place], "markersize": 5}


def _photos(epoch: Mapping[str, float | None]) -> int:
    return round((epoch["photos_per_second"] or 0.0) * (epoch["seconds"] or 0.0))
