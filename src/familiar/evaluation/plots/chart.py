"""Draw a chart in two themes, light and dark. Without pyplot: no window, no global state."""

import io
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure

WIDTH_IN, HEIGHT_IN = 4.4, 3.3  # on a phone 358 px wide, where 11 points are 12 px: legible
RIGHT_IN = 0.3
TEXT_PT = 11
_DPI = 180


@dataclass(frozen=True)
class Theme:
    """Colors of a theme. `series`: the colors of lines or identities."""

    paper: str
    ink: str
    muted: str
    grid: str
    same: str
    different: str
    accent: str
    series: tuple[str, ...]


# The series are Okabe and Ito's colors ("Color Universal Design", 2008), which color-blind readers can distinguish.
_SERIES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
LIGHT = Theme("#ffffff", "#1d232c", "#5a6573", "#dde1e7", "#0b7d5b", "#c23a2b", "#2563a8", _SERIES)
DARK = Theme("#1b1f26", "#e8ebf0", "#a3adba", "#363d48", "#45c79a", "#ff8577", "#7db7f0", _SERIES)

Draw = Callable[[Axes, Theme], None]


@dataclass(frozen=True)
class Chart:
    """The PNG bytes of a chart in both themes, and their size in pixels (width, height).

    `alt`: its alternative text. `legend`: the identities of the map by number, from 1.
    """

    light: bytes
    dark: bytes
    size_px: tuple[int, int]
    alt: str = ""
    caption: str = ""
    legend: tuple[str, ...] = ()

    def captioned(self, alt: str, caption: str, legend: tuple[str, ...] = ()) -> "Chart":
        """Return the chart with texts."""
        return replace(self, alt=alt, caption=caption, legend=legend)


def chart(
    *draw: Draw,
    columns: int = 1,
    height_in: float = HEIGHT_IN,
    left_in: float = 0.85,
    bottom_in: float = 0.6,
    top_in: float = 0.16,
    gap_in: tuple[float, float] = (0.0, 0.0),
) -> Chart:
    """Draw a chart of one or more panels in both themes.

    Margins are fixed rather than fitted to the labels: charts side by side line up, and drawing takes half the time.

    Args:
        draw: one function per panel, row by row.
        columns: number of panels in a row.
        height_in: of the whole chart; the width is `WIDTH_IN`.
        left_in: margin on the left.
        bottom_in: margin below.
        top_in: margin above.
        gap_in: between columns, between rows.
    """
    rows = -(-len(draw) // columns)
    panel_width_in = (WIDTH_IN - left_in - RIGHT_IN - (columns - 1) * gap_in[0]) / columns
    panel_height_in = (height_in - bottom_in - top_in - (rows - 1) * gap_in[1]) / rows

    def png_in(theme: Theme) -> bytes:
        figure = Figure(figsize=(WIDTH_IN, height_in), facecolor=theme.paper)
        grid = figure.add_gridspec(
            rows,
            columns,
            left=left_in / WIDTH_IN,
            right=1 - RIGHT_IN / WIDTH_IN,
            bottom=bottom_in / height_in,
            top=1 - top_in / height_in,
            wspace=gap_in[0] / panel_width_in,
            hspace=gap_in[1] / panel_height_in,
        )
        for index, panel in enumerate(draw):
            axes = figure.add_subplot(grid[index])
            _apply_theme(axes, theme)
            panel(axes, theme)
        return png(figure)

    light, dark = png_in(LIGHT), png_in(DARK)
    width_px, height_px = struct.unpack(">II", light[16:24])  # from the PNG header
    return Chart(light, dark, (width_px, height_px))


def legend_below(axes: Axes, theme: Theme, columns: int = 2) -> None:
    """Draw the legend below the axes, where it hides nothing; the chart's `bottom_in` must leave room for it."""
    figure = axes.figure
    assert isinstance(figure, Figure)
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc="lower center",
        ncols=columns,
        frameon=False,
        labelcolor=theme.ink,
        fontsize=TEXT_PT - 1,
        handlelength=1.6,
        columnspacing=1.2,
        borderaxespad=0.1,
    )


def _apply_theme(axes: Axes, theme: Theme) -> None:
    axes.set_facecolor(theme.paper)
    axes.tick_params(colors=theme.muted, labelsize=TEXT_PT - 1, which="both", length=3)
    axes.xaxis.label.set(color=theme.ink, fontsize=TEXT_PT)
    axes.yaxis.label.set(color=theme.ink, fontsize=TEXT_PT)
    axes.title.set(color=theme.ink, fontsize=TEXT_PT)
    axes.grid(color=theme.grid, linewidth=0.7)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set(color=theme.muted, visible=side in ("left", "bottom"))


def png(figure: Figure, dpi: int = _DPI) -> bytes:
    """Render a figure as the bytes of a PNG file."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=dpi)
    return file.getvalue()
