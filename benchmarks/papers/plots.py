"""Pictures of a row: figures with their intervals, in the light dress of the evaluation's charts."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from familiar.core.files import write_atomically
from familiar.evaluation.plots.chart import LIGHT, TEXT_PT, png
from papers.figures import Estimate

WIDTH_IN, DPI = 8.0, 150  # 1,200 px wide; at 700 px the text is 13 px high
_ROW_IN, _AXIS_IN = 0.3, 1.1


def panels(columns: int, height_in: float, *, share_y: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure of panels side by side. Drawn without pyplot: no window, no global state."""
    figure = Figure(figsize=(WIDTH_IN, height_in), facecolor=LIGHT.paper, layout="constrained")
    every = list(figure.subplots(1, columns, squeeze=False, sharey=share_y)[0])
    for axes in every:
        axes.set_facecolor(LIGHT.paper)
        axes.tick_params(colors=LIGHT.ink, labelsize=TEXT_PT - 1, length=3)
        axes.grid(color=LIGHT.grid, linewidth=0.7)
        axes.set_axisbelow(True)
        for side, spine in axes.spines.items():
            spine.set(color=LIGHT.muted, visible=side in ("left", "bottom"))
    return figure, every


def save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, png(figure, DPI))


def whiskers(
    path: Path,
    columns: Mapping[str, Mapping[str, Estimate]],
    *,
    of: Mapping[str, Sequence[float]] | None = None,
    zero: bool = False,
) -> None:
    """A panel for each of `columns`, in which every row is a figure with its interval, the first on top.

    `of`: a row's single runs, small, by "column/row". `zero`: a line at zero, for differences.
    """
    rows = list(next(iter(columns.values())))
    figure, every = panels(len(columns), _AXIS_IN + _ROW_IN * len(rows), share_y=True)
    for axes, (title, found) in zip(every, columns.items(), strict=True):
        for place, row in enumerate(rows):
            value, low, high = found[row]
            axes.plot([low, high], [place, place], color=LIGHT.muted, linewidth=1.6, marker="|", markersize=7)
            axes.plot(value, place, "o", color=LIGHT.accent, markersize=6.5)
            single = (of or {}).get(f"{title}/{row}", ())
            axes.plot(single, [place + 0.28] * len(single), "o", color=LIGHT.series[1], markersize=3)
        if zero:
            axes.axvline(0, color=LIGHT.ink, linewidth=1)
        axes.set_title(title, color=LIGHT.ink, fontsize=TEXT_PT)
        axes.grid(axis="y", visible=False)
        axes.locator_params(axis="x", nbins=5)
    every[0].set_yticks(range(len(rows)), rows)
    every[0].invert_yaxis()
    save(figure, path)


def key_above(figure: Figure, axes: Axes, columns: int) -> None:
    """One key for all panels, which share their series."""
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc="outside upper center",
        ncols=columns,
        frameon=False,
        labelcolor=LIGHT.ink,
        fontsize=TEXT_PT,
    )
