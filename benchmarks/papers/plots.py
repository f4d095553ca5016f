"""Plots of results with intervals, in the light theme of the evaluation report."""

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
    """Create a figure with panels side by side, without pyplot: no window, no global state."""
    figure = Figure(figsize=(WIDTH_IN, height_in), facecolor=LIGHT.paper, layout="constrained")
    panel_axes = list(figure.subplots(1, columns, squeeze=False, sharey=share_y)[0])
    for axes in panel_axes:
        axes.set_facecolor(LIGHT.paper)
        axes.tick_params(colors=LIGHT.ink, labelsize=TEXT_PT - 1, length=3)
        axes.grid(color=LIGHT.grid, linewidth=0.7)
        axes.set_axisbelow(True)
        for side, spine in axes.spines.items():
            spine.set(color=LIGHT.muted, visible=side in ("left", "bottom"))
    return figure, panel_axes


def save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, png(figure, DPI))


def whiskers(
    path: Path,
    columns: Mapping[str, Mapping[str, Estimate]],
    *,
    single_runs: Mapping[str, Sequence[float]] | None = None,
    zero: bool = False,
) -> None:
    """Draw one panel per column, with a point and its interval for each row, the first row on top.

    Args:
        path: the PNG file to write.
        columns: estimates by column title and row name; all columns have the same rows.
        single_runs: values of single runs by "column/row", drawn as small points.
        zero: draw a line at zero, for differences.
    """
    rows = list(next(iter(columns.values())))
    figure, panel_axes = panels(len(columns), _AXIS_IN + _ROW_IN * len(rows), share_y=True)
    for axes, (title, estimates) in zip(panel_axes, columns.items(), strict=True):
        for index, row in enumerate(rows):
            value, low, high = estimates[row]
            axes.plot([low, high], [index, index], color=LIGHT.muted, linewidth=1.6, marker="|", markersize=7)
            axes.plot(value, index, "o", color=LIGHT.accent, markersize=6.5)
            single = (single_runs or {}).get(f"{title}/{row}", ())
            axes.plot(single, [index + 0.28] * len(single), "o", color=LIGHT.series[1], markersize=3)
        if zero:
            axes.axvline(0, color=LIGHT.ink, linewidth=1)
        axes.set_title(title, color=LIGHT.ink, fontsize=TEXT_PT)
        axes.grid(axis="y", visible=False)
        axes.locator_params(axis="x", nbins=5)
    panel_axes[0].set_yticks(range(len(rows)), rows)
    panel_axes[0].invert_yaxis()
    save(figure, path)


def legend_above(figure: Figure, axes: Axes, columns: int) -> None:
    """Add one legend above all panels, which share their series."""
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc="outside upper center",
        ncols=columns,
        frameon=False,
        labelcolor=LIGHT.ink,
        fontsize=TEXT_PT,
    )
