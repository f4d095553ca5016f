"""Plots of the plane: digits, centers, boundaries, and a sample nearer to another digit than to its own."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from familiar.evaluation.plots.chart import LIGHT, TEXT_PT
from papers.planes import KNOWN, Plane, boundaries, describe_distance, unit_rows
from papers.plots import WIDTH_IN, panels

LENGTHS_SHOWN = 99.5  # percentile of the norms that fits into the plot


def draw_planes(planes: dict[str, Plane], known: bool) -> Figure:
    """Draw a panel per loss: test digits that it was trained on, or the others, with centers and boundaries."""
    figure = Figure(figsize=(WIDTH_IN, 6.4), facecolor=LIGHT.paper, layout="constrained")
    panel_axes = list(figure.subplots(2, 3).flat)
    for axes, (loss, plane) in zip(panel_axes, planes.items(), strict=True):
        _draw_plane(axes, plane.rows((plane.digits < KNOWN) == known))
        axes.set_title(loss, color=LIGHT.ink, fontsize=TEXT_PT)
    dots, digits = panel_axes[0].get_legend_handles_labels()
    arrow = Line2D([], [], color=LIGHT.ink, marker=">", markersize=2)
    line = Line2D([], [], color=LIGHT.muted, linewidth=1)
    legend = figure.legend(
        [*dots, arrow, line],
        [
            *(f"{digit}, {'trained on' if known else 'not trained on'}" for digit in digits),
            "class center",
            "boundary",
        ],
        loc="outside lower center",
        ncols=4,
        frameon=False,
        fontsize=TEXT_PT,
        labelcolor=LIGHT.ink,
        markerscale=4,
    )
    for handle in legend.legend_handles[: len(dots)]:
        handle.set_alpha(1)
    return figure


def draw_outlier(plane: Plane, outlier_rows: tuple[int, int, int]) -> Figure:
    """Draw rows A, B and C of a plane of correctly classified digits: the whole plane, and enlarged."""
    figure, (whole, close) = panels(2, 4.5)
    points = plane.raw[list(outlier_rows)]
    low, high = points.min(axis=0), points.max(axis=0)
    half = 0.7 * float((high - low).max())
    x_low, y_low = ((low + high) / 2 - half).tolist()
    _draw_points(whole, plane, 2.5)
    for digit in range(KNOWN):
        x, y = np.median(plane.raw[plane.digits == digit], axis=0).tolist()
        _write(whole, f"{digit}", x, y, ha="center", va="center", weight="bold")
    whole.add_patch(Rectangle((x_low, y_low), 2 * half, 2 * half, fill=False, edgecolor=LIGHT.ink, zorder=4))
    whole.set_title("softmax, correctly classified test digits", color=LIGHT.ink, fontsize=TEXT_PT)
    _draw_points(close, plane, 14)
    close.set(xlim=(x_low, x_low + 2 * half), ylim=(y_low, y_low + 2 * half))
    for end, style in ((1, "-"), (2, "--")):
        close.plot(*points[[0, end]].T, style, color=LIGHT.ink, linewidth=1.4, zorder=4)
    for name, row in zip("ABC", outlier_rows, strict=True):
        (x, y), digit = plane.raw[row].tolist(), plane.digits[row]
        close.scatter(x, y, 60, facecolor="none", edgecolor=LIGHT.ink, linewidth=1.6, zorder=5)
        side = "left" if x < x_low + 0.7 * half else "right" if x > x_low + 1.3 * half else "center"
        above = 0.07 if name != "B" else -0.14  # A and B are neighbors
        _write(close, f"{name}: image {plane.image_index[row]}, a {digit}", x, y + above * half, ha=side)
    near, far = (describe_distance(plane, outlier_rows[0], other) for other in outlier_rows[1:])
    close.set_title(f"A to B: {near}\nA to C: {far}", color=LIGHT.ink, fontsize=TEXT_PT)
    return figure


def _draw_plane(axes: Axes, plane: Plane) -> None:
    """Draw the points and the directions of the centers."""
    _draw_points(axes, plane, 2.5)
    reach = axes.get_xlim()[1]
    for digit, (x, y) in enumerate((reach * unit_rows(plane.centers)).tolist()):
        axes.annotate("", (0.8 * x, 0.8 * y), (0, 0), arrowprops={"arrowstyle": "-|>", "color": LIGHT.ink})
        _write(axes, f"{digit}", 0.9 * x, 0.9 * y, ha="center", va="center")


def _draw_points(axes: Axes, plane: Plane, size: float) -> None:
    """Draw the points and the decision boundaries; a few of the longest embeddings fall outside."""
    reach = 1.15 * float(np.percentile(np.linalg.norm(plane.raw, axis=1), LENGTHS_SHOWN))
    for digit in np.unique(plane.digits).tolist():
        x, y = plane.raw[plane.digits == digit].T
        axes.scatter(x, y, size, LIGHT.series[digit % KNOWN], alpha=0.5, linewidths=0, label=f"{digit}")
    for start, end in boundaries(plane.centers, plane.bias, 2 * reach):
        axes.plot(*zip(start, end, strict=True), color=LIGHT.muted, linewidth=1)
    axes.grid(visible=False)
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    axes.locator_params(nbins=5)
    axes.tick_params(colors=LIGHT.muted, labelsize=TEXT_PT - 2, length=3)
    for spine in axes.spines.values():
        spine.set(color=LIGHT.grid, visible=True)


def _write(axes: Axes, text: str, x: float, y: float, **style: Any) -> None:
    outline = [withStroke(linewidth=3, foreground=LIGHT.paper)]
    axes.text(x, y, text, fontsize=TEXT_PT, color=LIGHT.ink, path_effects=outline, zorder=6, **style)
