"""Charts of verification: similarity histogram, ROC, DET, accuracy over the threshold, reliability diagram."""

from collections.abc import Mapping, Sequence
from statistics import NormalDist

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, PercentFormatter

from familiar.evaluation.plots.chart import TEXT_PT, Chart, Theme, chart, legend_below
from familiar.evaluation.results.labels import format_figure
from familiar.metrics.roc import RocCounts
from familiar.metrics.verification import accuracy_at, best_accuracy, equal_error_rate, rates_at, roc_curve

_BINS = 96  # of width 1/48 over [-1, 1]
_ACCURACY_POINTS = 240
_DET_MAX_RATE, _DET_TICKS = 0.8, (0.8, 0.5, 0.2, 0.05, 0.01, 1e-3, 1e-4, 1e-5, 1e-6)
_DET_LABEL_SHARE = 0.14  # of the axis
_LINE_STYLES = (":", "--", "-.")
_NORMAL = NormalDist()


def similarity_chart(counts: RocCounts, thresholds: Mapping[str, float]) -> Chart:
    """Draw the histograms of the similarities of all same and all different pairs, and thresholds by name."""
    edges = np.linspace(-1, 1, _BINS + 1)
    points = [rates_at(counts, edge) for edge in edges[:-1].tolist()]
    different, same = (-np.diff([*rates, 0.0]) for rates in zip(*points, strict=True))
    filled = np.flatnonzero((same > 0) | (different > 0))
    shown = slice(int(filled[0]), int(filled[-1]) + 1)
    edges = edges[shown.start : shown.stop + 1]

    def draw(axes: Axes, theme: Theme) -> None:
        for heights, label, color, hatch in (
            (different[shown], "different", theme.different, "////"),
            (same[shown], "same", theme.same, None),
        ):
            axes.stairs(heights, edges, fill=True, color=color, alpha=0.3)
            axes.stairs(heights, edges, color=color, linewidth=1.6, hatch=hatch, label=label)
        _mark_thresholds(axes, theme, thresholds)
        axes.set(xlabel="similarity (cosine)", ylabel="share of pairs", ylim=(0, None))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        legend_below(axes, theme)

    return chart(draw, height_in=4.0, bottom_in=1.35)


def roc_chart(counts: RocCounts) -> Chart:
    """Draw the ROC curve: TAR over FAR, with FAR on a logarithmic scale, which widens the interesting part."""
    far, tar = roc_curve(counts)
    min_far = min(0.1, max(1 / counts.different, 1e-6))

    def draw(axes: Axes, theme: Theme) -> None:
        axes.plot(np.maximum(far, min_far), tar, color=theme.accent, linewidth=2)
        chance = np.geomspace(min_far, 1, 100)
        axes.plot(chance, chance, color=theme.muted, linewidth=1, linestyle=":", label="by chance")
        axes.set(xscale="log", xlim=(min_far, 1), ylim=(0, 1.01))
        axes.set(xlabel="false accept rate (FAR)", ylabel="true accept rate (TAR)")
        axes.xaxis.set_major_locator(LogLocator(numticks=5))
        axes.xaxis.set_major_formatter(_share_label)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.legend(frameon=False, labelcolor=theme.ink, fontsize=TEXT_PT - 1, loc="lower right")

    return chart(draw)


def det_chart(counts: RocCounts) -> Chart:
    """Draw the DET curve: FRR over FAR on normal-deviate axes (Martin et al. 1997), and the equal error rate."""
    far, tar = roc_curve(counts)
    min_far, min_frr = (min(0.01, max(0.5 / pairs, 1e-6)) for pairs in (counts.different, counts.same))
    eer = equal_error_rate(counts)[0]

    def draw(axes: Axes, theme: Theme) -> None:
        axes.plot(_deviates(far, min_far), _deviates(1 - tar, min_frr), color=theme.accent, linewidth=2)
        point = _deviates(np.array([eer]), min(min_far, min_frr))
        axes.plot(point, point, "o", color=theme.different, label=f"equal error rate: {_share_label(eer)}")
        ends = _deviates(np.array([min(min_far, min_frr), _DET_MAX_RATE]), 1e-7)
        axes.plot(ends, ends, color=theme.muted, linewidth=1, linestyle=":")
        for axis, min_rate in ((axes.xaxis, min_far), (axes.yaxis, min_frr)):
            ticks = _spaced_ticks(min_rate)
            axis.set_ticks([_NORMAL.inv_cdf(tick) for tick in ticks], [_share_label(tick) for tick in ticks])
        end = _NORMAL.inv_cdf(_DET_MAX_RATE)
        axes.set(xlim=(_NORMAL.inv_cdf(min_far), end), ylim=(_NORMAL.inv_cdf(min_frr), end))
        axes.set(xlabel="false accept rate (FAR)", ylabel="false reject rate (FRR)")
        axes.legend(frameon=False, labelcolor=theme.ink, fontsize=TEXT_PT - 1, loc="upper right")

    return chart(draw, left_in=1.0)


def accuracy_chart(counts: RocCounts, thresholds: Mapping[str, float]) -> Chart:
    """Draw balanced accuracy over the threshold, its best, and thresholds by name."""
    best, best_threshold = best_accuracy(counts, balanced=True)
    pair_scores = counts.scores[(counts.same_at > 0) | (counts.different_at > 0)]
    low, high = float(pair_scores[0]), float(pair_scores[-1])
    curve_thresholds = np.unique([*np.linspace(low, high, _ACCURACY_POINTS).tolist(), best_threshold])
    accuracy = [accuracy_at(counts, threshold, balanced=True) for threshold in curve_thresholds.tolist()]

    def draw(axes: Axes, theme: Theme) -> None:
        axes.plot(curve_thresholds, accuracy, color=theme.accent, linewidth=2)
        axes.plot(
            [best_threshold],
            [best],
            "o",
            color=theme.different,
            label=f"best: {format_figure('similarity', best_threshold)}",
        )
        _mark_thresholds(axes, theme, thresholds)
        axes.set(xlabel="threshold (similarity)", ylabel="balanced accuracy")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        legend_below(axes, theme)

    return chart(draw, height_in=3.75, bottom_in=1.1)


def reliability_chart(predicted: Sequence[float], observed: Sequence[float], weight: Sequence[float]) -> Chart:
    """Draw a reliability diagram.

    Args:
        predicted: mean probability of each bin.
        observed: share of same pairs in each.
        weight: of each, drawn as the area of a point.
    """
    areas = 20 + 380 * np.array(weight) / max(*weight, 1e-12)

    def draw(axes: Axes, theme: Theme) -> None:
        axes.plot([0, 1], [0, 1], color=theme.muted, linewidth=1, linestyle=":", label="perfect calibration")
        axes.plot(predicted, observed, color=theme.accent, linewidth=1.2)
        axes.scatter(predicted, observed, s=areas, color=theme.accent, alpha=0.6)
        axes.set(xlim=(-0.04, 1.04), ylim=(-0.04, 1.04))
        axes.set(xlabel="predicted probability", ylabel="observed share of same pairs")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.legend(frameon=False, labelcolor=theme.ink, fontsize=TEXT_PT - 1, loc="upper left")

    return chart(draw)


def _spaced_ticks(min_rate: float) -> list[float]:
    """Select ticks of a DET axis from `min_rate` up, spaced so that labels do not touch; always the largest one."""
    spacing = _DET_LABEL_SHARE * (_NORMAL.inv_cdf(_DET_MAX_RATE) - _NORMAL.inv_cdf(min_rate))
    ticks: list[float] = []
    for tick in (tick for tick in _DET_TICKS if tick >= min_rate):
        if not ticks or _NORMAL.inv_cdf(ticks[-1]) - _NORMAL.inv_cdf(tick) >= spacing:
            ticks.append(tick)
    return ticks


def _mark_thresholds(axes: Axes, theme: Theme, thresholds: Mapping[str, float]) -> None:
    for (name, similarity), style in zip(thresholds.items(), _LINE_STYLES, strict=False):
        axes.axvline(
            similarity,
            color=theme.ink,
            linewidth=1.3,
            linestyle=style,
            label=f"{name}: {format_figure('similarity', similarity)}",
        )


def _deviates(rates: Float[np.ndarray, " v"], min_rate: float) -> list[float]:
    return [_NORMAL.inv_cdf(rate) for rate in np.clip(rates, min_rate, 1 - min_rate).tolist()]


def _share_label(share: float, _: float | None = None) -> str:
    return f"{100 * share:.3g} %"
