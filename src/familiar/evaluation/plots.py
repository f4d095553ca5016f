"""Pictures of an evaluation, each as PNG bytes. Figures are made without pyplot: no window, no global state."""

import io
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int64, UInt8
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from familiar.faces.bundle import Calibration
from familiar.metrics.roc import RocCounts
from familiar.metrics.verification import roc_auc, roc_curve

SAME, DIFFERENT, NEUTRAL = "#2a9d5c", "#d1495b", "#4a5568"


def roc_picture(counts: RocCounts) -> bytes:
    """True accept rate over false accept rate, the latter on a logarithmic scale beside the plain one."""
    far, tar = roc_curve(counts)
    figure = Figure(figsize=(9, 4), layout="constrained")
    plain, logarithmic = figure.subplots(1, 2)
    for axes in (plain, logarithmic):
        axes.plot(far, tar, color=SAME)
        axes.set_xlabel("false accept rate")
        axes.set_ylabel("true accept rate")
        axes.set_ylim(0, 1.01)
        axes.grid(alpha=0.3)
    plain.plot([0, 1], [0, 1], color=NEUTRAL, linewidth=0.8, linestyle=":")
    plain.set_title(f"ROC, AUC {roc_auc(counts):.4f}")
    logarithmic.set_xscale("log")
    logarithmic.set_xlim(min(max(1.0 / counts.different, 1e-6), 0.1), 1)
    logarithmic.set_title("the same, few false accepts")
    return _png(figure)


def similarity_picture(
    scores: Float[np.ndarray, " p"], same: Bool[np.ndarray, " p"], calibration: Calibration
) -> bytes:
    """How similar the same and different individuals are, with the bundle's three thresholds."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots()
    bins = np.linspace(min(-0.2, float(scores.min())), 1, 80).tolist()
    for chosen, label, colour in ((~same, "different", DIFFERENT), (same, "same", SAME)):
        axes.hist(
            scores[chosen], bins, density=True, alpha=0.6, label=f"{label} ({chosen.sum():,})", color=colour
        )
    axes.set_ylim(top=axes.get_ylim()[1] * 1.35)  # room for the names of the thresholds
    for name in ("high_recall", "balanced", "high_precision"):
        similarity = getattr(calibration, name).similarity
        axes.axvline(similarity, color=NEUTRAL, linewidth=1, linestyle="--")
        _label_line(axes, similarity, name.replace("_", " "))
    axes.set_xlabel("similarity (cosine)")
    axes.set_yticks([])
    axes.legend(loc="upper left")
    return _png(figure)


def neighbour_picture(
    queries: Sequence[UInt8[np.ndarray, "s s 3"]],
    neighbours: Sequence[Sequence[UInt8[np.ndarray, "s s 3"]]],
    similarities: Float[np.ndarray, "q k"],
    correct: Bool[np.ndarray, "q k"],
) -> bytes:
    """A row per query: the photo, then its nearest, framed green where it is the same individual."""
    rows, columns = similarities.shape
    figure = Figure(figsize=(1.5 * (columns + 1), 1.7 * rows), layout="constrained")
    grid = figure.subplots(rows, columns + 1, squeeze=False)
    for row in range(rows):
        _tile(grid[row, 0], queries[row], "query", NEUTRAL)
        for column in range(columns):
            colour = SAME if correct[row, column] else DIFFERENT
            title = f"{similarities[row, column]:.2f} {'✓' if correct[row, column] else '✗'}"
            _tile(grid[row, column + 1], neighbours[row][column], title, colour)
    return _png(figure)


def example_queries(labels: Int64[np.ndarray, " n"], count: int, seed: int) -> Int64[np.ndarray, " q"]:
    """One photo each of up to `count` identities that have another, drawn by `seed`."""
    generator = np.random.default_rng(seed)
    mates = np.bincount(labels)
    chosen = generator.permutation(np.flatnonzero(mates > 1))[:count]
    return np.array([generator.choice(np.flatnonzero(labels == label)) for label in sorted(chosen)], np.int64)


def _tile(axes: Axes, rgb_u8: UInt8[np.ndarray, "s s 3"], title: str, colour: str) -> None:
    axes.imshow(rgb_u8)
    axes.set_title(title, fontsize=8, color=colour, pad=4)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(colour)
        spine.set_linewidth(3)


def _label_line(axes: Axes, x: float, text: str) -> None:
    axes.text(x, axes.get_ylim()[1], f" {text}", rotation=90, va="top", ha="right", fontsize=8, color=NEUTRAL)


def _png(figure: Figure) -> bytes:
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    return picture.getvalue()
