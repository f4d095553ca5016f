"""A chart in two dresses, for a light and a dark page. Drawn without pyplot: no window, no global state."""

import io
import struct
from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

WIDTH_IN, HEIGHT_IN = 4.4, 3.3  # on a phone 358 px wide, where 11 points are 12 px: legible
RIGHT_IN = 0.3
TEXT_PT = 11
_DPI = 180


@dataclass(frozen=True)
class Theme:
    """Colors of one dress. `series` tells lines or identities apart."""

    paper: str
    ink: str
    muted: str
    grid: str
    same: str
    different: str
    accent: str
    series: tuple[str, ...]


# The series are Okabe and Ito's colors ("Color Universal Design", 2008), which the color-blind tell apart.
_SERIES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
LIGHT = Theme("#ffffff", "#1d232c", "#5a6573", "#dde1e7", "#0b7d5b", "#c23a2b", "#2563a8", _SERIES)
DARK = Theme("#1b1f26", "#e8ebf0", "#a3adba", "#363d48", "#45c79a", "#ff8577", "#7db7f0", _SERIES)

Draw = Callable[[Axes, Theme], None]


@dataclass(frozen=True)
class Chart:
    """PNG bytes of both dresses, and the size in pixels that they share."""

    light: bytes
    dark: bytes
    size_px: tuple[int, int]


def chart(
    *draw: Draw,
    columns: int = 1,
    height_in: float = HEIGHT_IN,
    left_in: float = 0.85,
    bottom_in: float = 0.6,
    top_in: float = 0.16,
    gap_in: tuple[float, float] = (0.0, 0.0),
) -> Chart:
    """One panel for each of `draw`, row by row, in a picture of this height.

    Margins are given, not found by trial: charts side by side line up, and drawing takes half the time. `gap_in`:
    between columns, between rows.
    """
    rows = -(-len(draw) // columns)
    wide = (WIDTH_IN - left_in - RIGHT_IN - (columns - 1) * gap_in[0]) / columns
    high = (height_in - bottom_in - top_in - (rows - 1) * gap_in[1]) / rows

    def png_in(theme: Theme) -> bytes:
        figure = Figure(figsize=(WIDTH_IN, height_in), facecolor=theme.paper)
        for place, panel in enumerate(draw):
            row, column = divmod(place, columns)
            left = left_in + column * (wide + gap_in[0])
            bottom = bottom_in + (rows - 1 - row) * (high + gap_in[1])
            shares = (left / WIDTH_IN, bottom / height_in, wide / WIDTH_IN, high / height_in)
            axes = figure.add_axes(shares)
            _dress(axes, theme)
            panel(axes, theme)
        return png(figure)

    light, dark = png_in(LIGHT), png_in(DARK)
    width_px, height_px = struct.unpack(">II", light[16:24])  # as the PNG's header has them
    return Chart(light, dark, (width_px, height_px))


def key_below(axes: Axes, theme: Theme, columns: int = 2) -> None:
    """The key at the foot of the picture, where it hides nothing; the chart's `bottom_in` has room for it."""
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


def _dress(axes: Axes, theme: Theme) -> None:
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
    """The figure as the bytes of a PNG file."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=dpi)
    return picture.getvalue()
