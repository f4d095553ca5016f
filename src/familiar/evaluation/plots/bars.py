"""Bars: what degradations cost, how each slice fares, how many photos the identities have."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Int
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from familiar.core.terminal_text import printable
from familiar.datasets.inspection import histogram
from familiar.evaluation.plots.chart import TEXT_PT, Chart, Draw, Theme, chart

Interval = Sequence[float] | None
_NAME_LETTERS = 18
_ROW_IN, _AXIS_IN, _LETTER_IN = 0.34, 0.8, 0.085


def share_bars(rows: Sequence[tuple[str, float, Interval]], label: str, reference: float | None = None) -> Chart:
    """A bar a row, the first on top, with its interval; `reference` is a line across them."""
    values = [value for _, value, _ in rows]

    def draw(axes: Axes, theme: Theme) -> None:
        at = np.arange(len(rows))
        axes.barh(at, values, color=theme.accent, height=0.62)
        for place, (_, _, interval) in zip(at.tolist(), rows, strict=True):
            if interval is not None:
                axes.plot(list(interval), [place, place], color=theme.ink, linewidth=1.6, marker="|", markersize=7)
        if reference is not None:
            axes.axvline(reference, color=theme.muted, linewidth=1.3, linestyle="--")
        if min([*values, 0.0]) < 0:
            axes.axvline(0, color=theme.muted, linewidth=0.8)
        axes.set_yticks(at, [shortened(name) for name, _, _ in rows])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(label)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))

    letters = max((len(shortened(name)) for name, _, _ in rows), default=0)
    return chart(draw, height_in=_AXIS_IN + _ROW_IN * max(2, len(rows)), left_in=0.3 + _LETTER_IN * letters)


def sweep_chart(sweeps: Mapping[str, Sequence[Mapping[str, float]]], units: Mapping[str, str], clean: float) -> Chart:
    """A panel for each degradation: recall@1 over its severity, and a line at that of the `clean` photos."""

    def panel(name: str, points: Sequence[Mapping[str, float]]) -> Draw:
        def draw(axes: Axes, theme: Theme) -> None:
            axes.axhline(clean, color=theme.muted, linewidth=1.3, linestyle=":")
            axes.plot(
                [point["severity"] for point in points],
                [point["recall_at_1"] for point in points],
                color=theme.accent,
                marker="o",
                markersize=4,
                linewidth=2,
            )
            axes.set_title(shortened(name.replace("_", " ")), pad=4)
            axes.set_ylim(-0.02, 1.04)
            axes.set_xlabel(units.get(name, "").partition(",")[0] or "severity")
            axes.xaxis.set_major_locator(MaxNLocator(4))
            axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))

        return draw

    panels = [panel(name, points) for name, points in sweeps.items()]
    rows = -(-len(panels) // 2)
    return chart(*panels, columns=2, height_in=0.3 + 2.0 * rows, left_in=0.6, top_in=0.35, gap_in=(0.6, 0.9))


def sizes_chart(photos_per_identity: Int[np.ndarray, " identities"]) -> Chart:
    """How many identities have how many photos: a bar a range, each with its number."""
    bins = histogram(photos_per_identity)

    def draw(axes: Axes, theme: Theme) -> None:
        at = np.arange(len(bins))
        axes.barh(at, [one.identities for one in bins], color=theme.accent, height=0.62)
        for place, one in zip(at.tolist(), bins, strict=True):
            axes.annotate(
                f"{one.identities:,}",
                (one.identities, place),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                color=theme.ink,
                fontsize=TEXT_PT - 1,
            )
        ranges = [f"{one.low}" if one.low == one.high else f"{one.low} to {one.high}" for one in bins]
        axes.set_yticks(at, ranges)
        axes.invert_yaxis()
        axes.margins(x=0.15)
        axes.grid(visible=False)
        axes.set_xticks([])
        axes.set_xlabel("identities")
        axes.set_ylabel("photos of an identity")

    return chart(draw, height_in=0.7 + 0.29 * max(4, len(bins)), left_in=1.25, bottom_in=0.35)


def shortened(name: str) -> str:
    """A name as a chart can hold it: short, and without what its font lacks or would take for mathematics."""
    shown = printable(name).replace("$", r"\$")
    shown = "".join(letter if ord(letter) < 0x250 else "?" for letter in shown)
    return shown if len(shown) <= _NAME_LETTERS else f"{shown[: _NAME_LETTERS - 1]}…"
