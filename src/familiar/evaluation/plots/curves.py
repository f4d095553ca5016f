"""Curves of a verification: similarities, ROC, DET, accuracy over the threshold, reliability of the probability."""

from collections.abc import Mapping, Sequence
from statistics import NormalDist

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, PercentFormatter

from familiar.evaluation.plots.chart import TEXT_PT, Chart, Theme, chart, key_below
from familiar.metrics.roc import RocCounts
from familiar.metrics.verification import accuracy_at, best_accuracy, equal_error_rate, rates_at, roc_curve

_BINS = 96  # of width 1/48 over [-1, 1]
_ACCURACY_POINTS = 240
_DET_MOST, _DET_TICKS = 0.8, (0.8, 0.5, 0.2, 0.05, 0.01, 1e-3, 1e-4, 1e-5, 1e-6)
_DET_LABEL = 0.14  # of the axis
_LINE_STYLES = (":", "--", "-.")
_NORMAL = NormalDist()


def similarity_chart(counts: RocCounts, thresholds: Mapping[str, float]) -> Chart:
    """Shares of the same and of different pairs over similarity, every pair counted; thresholds by name."""
    edges = np.linspace(-1, 1, _BINS + 1)
    points = [rates_at(counts, edge) for edge in edges[:-1].tolist()]
    same = -np.diff([*(point.tar for point in points), 0.0])
    different = -np.diff([*(point.far for point in points), 0.0])
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
        axes.set_xlabel("similarity (cosine)")
        axes.set_ylabel("share of pairs")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_ylim(bottom=0)
        key_below(axes, theme)

    return chart(draw, height_in=4.0, bottom_in=1.35)


def roc_chart(counts: RocCounts) -> Chart:
    """True accepts over false accepts, the latter on a logarithmic scale, where the interesting part is wide."""
    far, tar = roc_curve(counts)
    least = min(0.1, max(1 / counts.different, 1e-6))

    def draw(axes: Axes, theme: Theme) -> None:
        axes.plot(np.maximum(far, least), tar, color=theme.accent, linewidth=2)
        chance = np.geomspace(least, 1, 100)
        axes.plot(chance, chance, color=theme.muted, linewidth=1, linestyle=":", label="by chance")
        axes.set_xscale("log")
        axes.set_xlim(least, 1)
        axes.set_ylim(0, 1.01)
        axes.set_xlabel("strangers accepted")
        axes.set_ylabel("same individual accepted")
        axes.xaxis.set_major_locator(LogLocator(numticks=5))
        axes.xaxis.set_major_formatter(_share_label)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.legend(frameon=False, labelcolor=theme.ink, fontsize=TEXT_PT - 1, loc="lower right")

    return chart(draw)


def det_chart(counts: RocCounts) -> Chart:
    """False rejects over false accepts on normal-deviate axes (Martin et al. 1997), and where the two are equal."""
    far, tar = roc_curve(counts)
    least_far, least_frr = (min(0.01, max(0.5 / pairs, 1e-6)) for pairs in (counts.different, counts.same))
    eer = equal_error_rate(counts)[0]

    def draw(axes: Axes, theme: Theme) -> None:
        axes.plot(_deviates(far, least_far), _deviates(1 - tar, least_frr), color=theme.accent, linewidth=2)
        at = _deviates(np.array([eer]), min(least_far, least_frr))
        axes.plot(at, at, "o", color=theme.different, label=f"equal errors: {_share_label(eer)}")
        ends = _deviates(np.array([min(least_far, least_frr), _DET_MOST]), 1e-7)
        axes.plot(ends, ends, color=theme.muted, linewidth=1, linestyle=":")
        for axis, least in ((axes.xaxis, least_far), (axes.yaxis, least_frr)):
            ticks = _ticks_apart(least)
            axis.set_ticks([_NORMAL.inv_cdf(tick) for tick in ticks], [_share_label(tick) for tick in ticks])
        axes.set_xlim(_NORMAL.inv_cdf(least_far), _NORMAL.inv_cdf(_DET_MOST))
        axes.set_ylim(_NORMAL.inv_cdf(least_frr), _NORMAL.inv_cdf(_DET_MOST))
        axes.set_xlabel("strangers accepted")
        axes.set_ylabel("same individual rejected")
        axes.legend(frameon=False, labelcolor=theme.ink, fontsize=TEXT_PT - 1, loc="upper right")

    return chart(draw, left_in=1.0)


def accuracy_chart(counts: RocCounts, thresholds: Mapping[str, float]) -> Chart:
    """Accuracy, both kinds of pairs weighed alike, over the threshold; its best, and the bundle's thresholds."""
    best, best_threshold = best_accuracy(counts, balanced=True)
    decided = counts.scores[(counts.same_at > 0) | (counts.different_at > 0)]
    low, high = float(decided[0]), float(decided[-1])
    at = np.unique([*np.linspace(low, high, _ACCURACY_POINTS).tolist(), best_threshold])
    accuracy = [accuracy_at(counts, threshold, balanced=True) for threshold in at.tolist()]

    def draw(axes: Axes, theme: Theme) -> None:
        axes.plot(at, accuracy, color=theme.accent, linewidth=2)
        axes.plot([best_threshold], [best], "o", color=theme.different, label=f"best: {_signed(best_threshold)}")
        _mark_thresholds(axes, theme, thresholds)
        axes.set_xlabel("threshold (similarity)")
        axes.set_ylabel("accuracy")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        key_below(axes, theme)

    return chart(draw, height_in=3.75, bottom_in=1.1)


def reliability_chart(bins: Sequence[Mapping[str, float]]) -> Chart:
    """How often pairs are of one individual (`observed`) where the bundle `said` so; areas show a bin's `weight`."""
    said, observed, weight = (np.array([part[name] for part in bins]) for name in ("said", "observed", "weight"))

    def draw(axes: Axes, theme: Theme) -> None:
        axes.plot([0, 1], [0, 1], color=theme.muted, linewidth=1, linestyle=":", label="as it should be")
        axes.plot(said, observed, color=theme.accent, linewidth=1.2)
        axes.scatter(said, observed, s=20 + 380 * weight / max(weight.max(), 1e-12), color=theme.accent, alpha=0.6)
        axes.set_xlim(-0.04, 1.04)
        axes.set_ylim(-0.04, 1.04)
        axes.set_xlabel("probability said")
        axes.set_ylabel("share that was the same")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.legend(frameon=False, labelcolor=theme.ink, fontsize=TEXT_PT - 1, loc="upper left")

    return chart(draw)


def _ticks_apart(least: float) -> list[float]:
    """Ticks of a DET axis from `least` on, so far apart that their labels do not touch; the largest is always there."""
    apart = _DET_LABEL * (_NORMAL.inv_cdf(_DET_MOST) - _NORMAL.inv_cdf(least))
    ticks: list[float] = []
    for tick in (tick for tick in _DET_TICKS if tick >= least):
        if not ticks or _NORMAL.inv_cdf(ticks[-1]) - _NORMAL.inv_cdf(tick) >= apart:
            ticks.append(tick)
    return ticks


def _mark_thresholds(axes: Axes, theme: Theme, thresholds: Mapping[str, float]) -> None:
    for (name, similarity), style in zip(thresholds.items(), _LINE_STYLES, strict=False):
        axes.axvline(
            similarity,
            color=theme.ink,
            linewidth=1.3,
            linestyle=style,
            label=f"{name}: {_signed(similarity)}",
        )


def _signed(similarity: float) -> str:
    return f"{similarity:.3f}".replace("-", "−")


def _deviates(rates: Float[np.ndarray, " v"], least: float) -> list[float]:
    return [_NORMAL.inv_cdf(rate) for rate in np.clip(rates, least, 1 - least).tolist()]


def _share_label(share: float, _: float | None = None) -> str:
    return f"{100 * share:.3g} %"
