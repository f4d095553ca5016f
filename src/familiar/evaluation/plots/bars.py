"""Bar charts: metrics lost to corruptions, metrics by slice, photos per identity; and the sweeps of corruptions."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Int
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter, ScalarFormatter

from familiar.core.terminal_text import printable
from familiar.datasets.inspection import histogram
from familiar.evaluation.plots.chart import TEXT_PT, Chart, Draw, Theme, chart

Interval = Sequence[float] | None
SweepStep = tuple[float, float]
"""Severity of a corruption, and recall@1 at it."""
_NAME_LETTERS = 18
_ROW_IN, _AXIS_IN, _LETTER_IN, _PANEL_GAP_IN = 0.34, 0.8, 0.085, 0.3


def share_bars(rows: Sequence[tuple[str, float, Interval]], label: str, reference: float | None = None) -> Chart:
    """Draw one horizontal bar per row, the first on top.

    Args:
        rows: name, value as a share, and its interval if there is one.
        label: of the value axis.
        reference: value of a vertical line across the bars.
    """

    def draw(axes: Axes, theme: Theme) -> None:
        _draw_bars(axes, theme, rows, label)
        if reference is not None:
            axes.axvline(reference, color=theme.muted, linewidth=1.3, linestyle="--")

    return _bar_chart([draw], [name for name, _, _ in rows])


def robustness_bars(
    recall_drops: Sequence[tuple[str, float, Interval]], similarity_drops: Sequence[tuple[str, float, Interval]]
) -> Chart:
    """Draw for each corruption a bar of the recall@1 lost, and beside it of the similarity lost, on a scale of its own.

    Args:
        recall_drops: name, loss as a share, and its interval if there is one; empty: there is no such panel.
        similarity_drops: the same of the cosine; its corruptions are the rows of the chart, in its order.
    """
    names = [name for name, _, _ in similarity_drops]
    recall_by_name = {name: (loss, interval) for name, loss, interval in recall_drops}

    def draw_recall(axes: Axes, theme: Theme) -> None:
        rows = [(name, *recall_by_name.get(name, (0.0, None))) for name in names]
        _draw_bars(axes, theme, rows, "recall@1 lost", ticks=2)

    def draw_similarity(axes: Axes, theme: Theme) -> None:
        _draw_bars(axes, theme, similarity_drops, "similarity lost", ticks=2)
        axes.tick_params(labelleft=not recall_drops)
        axes.xaxis.set_major_formatter(ScalarFormatter())

    return _bar_chart([draw_recall, draw_similarity] if recall_drops else [draw_similarity], names)


def _draw_bars(
    axes: Axes, theme: Theme, rows: Sequence[tuple[str, float, Interval]], label: str, ticks: int = 5
) -> None:
    values = [value for _, value, _ in rows]
    positions = np.arange(len(rows))
    axes.barh(positions, values, color=theme.accent, height=0.62)
    for position, (_, _, interval) in zip(positions.tolist(), rows, strict=True):
        if interval is not None:
            axes.plot(list(interval), [position, position], color=theme.ink, linewidth=1.6, marker="|", markersize=7)
    if min([*values, 0.0]) < 0:
        axes.axvline(0, color=theme.muted, linewidth=0.8)
    axes.set_yticks(positions, [chart_label(name) for name, _, _ in rows])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(label)
    axes.xaxis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))


def _bar_chart(panels: Sequence[Draw], names: Sequence[str]) -> Chart:
    """Draw panels side by side, with room for the names of the rows before the first."""
    letters = max((len(chart_label(name)) for name in names), default=0)
    return chart(
        *panels,
        columns=len(panels),
        height_in=_AXIS_IN + _ROW_IN * max(2, len(names)),
        left_in=0.3 + _LETTER_IN * letters,
        gap_in=(_PANEL_GAP_IN, 0.0),
    )


def sweep_chart(sweeps: Mapping[str, Sequence[SweepStep]], units: Mapping[str, str], clean: float) -> Chart:
    """Draw a panel for each corruption: recall@1 over its severity, and a line at that of the `clean` photos."""

    def panel(name: str, points: Sequence[SweepStep]) -> Draw:
        def draw(axes: Axes, theme: Theme) -> None:
            axes.axhline(clean, color=theme.muted, linewidth=1.3, linestyle=":")
            axes.plot(*zip(*points, strict=True), color=theme.accent, marker="o", markersize=4, linewidth=2)
            axes.set_title(chart_label(name.replace("_", " ")), pad=4)
            axes.set(ylim=(-0.02, 1.04), xlabel=units.get(name, "").partition(",")[0] or "severity")
            axes.xaxis.set_major_locator(MaxNLocator(4))
            axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))

        return draw

    panels = [panel(name, points) for name, points in sweeps.items()]
    rows = -(-len(panels) // 2)
    return chart(*panels, columns=2, height_in=0.3 + 2.0 * rows, left_in=0.6, top_in=0.35, gap_in=(0.6, 0.9))


def sizes_chart(photos_per_identity: Int[np.ndarray, " identities"]) -> Chart:
    """Draw a histogram of the photos per identity: a bar for each range, labeled with its count."""
    bins = histogram(photos_per_identity)

    def draw(axes: Axes, theme: Theme) -> None:
        positions = np.arange(len(bins))
        bars = axes.barh(positions, [bin_.identities for bin_ in bins], color=theme.accent, height=0.62)
        axes.bar_label(bars, fmt="{:,.0f}", padding=4, color=theme.ink, fontsize=TEXT_PT - 1)
        ranges = [f"{bin_.low}" if bin_.low == bin_.high else f"{bin_.low} to {bin_.high}" for bin_ in bins]
        axes.set_yticks(positions, ranges)
        axes.invert_yaxis()
        axes.margins(x=0.15)
        axes.grid(visible=False)
        axes.set(xticks=[], xlabel="identities", ylabel="photos per identity")

    return chart(draw, height_in=0.7 + 0.29 * max(4, len(bins)), left_in=1.25, bottom_in=0.35)


def chart_label(name: str) -> str:
    """Shorten a name for a chart, and replace what its font lacks or would typeset as mathematics."""
    text = printable(name).replace("$", r"\$")
    text = "".join(letter if ord(letter) < 0x250 else "?" for letter in text)
    return text if len(text) <= _NAME_LETTERS else f"{text[: _NAME_LETTERS - 1]}…"
