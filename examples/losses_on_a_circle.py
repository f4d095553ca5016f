"""Draw the gradients of losses on a circle, as in docs/explanation/losses.md. Usage: losses_on_a_circle.py FOLDER

Embeddings of two components are points on a circle: a photo can go only one way or the other, and an arrow shows its
whole gradient.
"""

import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyArrowPatch, Wedge
from torch import Tensor, nn
from torch.func import functional_call

from familiar.losses import (
    ArcFace,
    BatchAll,
    BatchHard,
    CirclePairs,
    Contrastive,
    CosFace,
    HardNegative,
    NormFace,
    SemiHard,
    TripletLoss,
)
from familiar.losses.margin import arcface_cosine
from familiar.losses.triplet import triplet_gaps

# Three identities with four photos each; one photo of each has strayed to its neighbors.
ANGLES_DEG = (48, 70, 92, 155, 128, 178, 198, 222, 272, 298, 318, 365)
LABELS = torch.arange(3).repeat_interleave(4)

MARGIN, COSINE_MARGIN, MARGIN_RAD = 0.4, 0.35, 0.5  # the first in squared distance
Loss = Callable[[Tensor, Tensor], Tensor]
LOSSES: dict[str, tuple[Loss, str]] = {
    "batch_all": (BatchAll(MARGIN), "every triplet that costs something"),
    "semi_hard": (SemiHard(MARGIN), "negatives just beyond the positive"),
    "batch_hard": (BatchHard(MARGIN), "each anchor's hardest triplet"),
    "hard_negative": (HardNegative(MARGIN), "each pair's hardest negative"),
    "contrastive": (Contrastive(margin=1.0), "positives; negatives within 60 degrees"),
    "circle": (CirclePairs(gamma=32.0), "the farther away, the harder"),
    "normface": (NormFace(2, 3, scale=8.0), "photos against centers of classes"),
    "arcface": (ArcFace(2, 3, scale=8.0, margin_rad=MARGIN_RAD), "the same, with a margin between"),
}

COLORS, MARKERS = ("#2f6fb0", "#d98a00", "#2a9d5c"), ("o", "s", "D")
BLUE, _, GREEN = COLORS
INK, FAINT, LINE = "#1a202c", "#6b7280", "#cbd5e0"
LONGEST_ARROW = 0.5  # of the radius
MIN_ARROW = 0.01  # arrows shorter than this share of the longest are not drawn
STEPS, FIRST_MOVE_DEG = 40, 5.0
DPI = 110


def on_circle(angles: Tensor) -> Tensor:
    return torch.stack((angles.cos(), angles.sin()), dim=1)


def start() -> tuple[Tensor, Tensor]:
    """Return the angles of the photos, and of the classes' centers, each at the mean of its photos."""
    photos = torch.tensor(ANGLES_DEG, dtype=torch.float64).deg2rad()
    return photos, photos.view(3, 4).mean(dim=1)


def cost(loss: Loss, photos: Tensor, centers: Tensor) -> Tensor:
    if isinstance(loss, nn.Module):
        return functional_call(loss, {"centers": on_circle(centers)}, (on_circle(photos), LABELS))
    return loss(on_circle(photos), LABELS)


def downhill(loss: Loss, photos: Tensor, centers: Tensor) -> tuple[Tensor, Tensor]:
    """Compute minus the gradient with respect to the angles of photos and centers."""
    free = photos.clone().requires_grad_(), centers.clone().requires_grad_()
    photo_gradient, center_gradient = torch.autograd.grad(cost(loss, *free), free, materialize_grads=True)
    return -photo_gradient, -center_gradient


def pulls(loss: Loss, photos: Tensor) -> Tensor:
    """Compute how strongly each photo pulls each other one; below zero it pushes it away.

    Every photo gets a tiny component that no other has. The gradient of a photo along another photo's component is that
    other photo's contribution to it.
    """
    tiny = 1e-5
    markers = tiny * torch.eye(len(photos), dtype=photos.dtype)
    embeddings = torch.cat([on_circle(photos), markers], dim=1).requires_grad_()
    (gradient,) = torch.autograd.grad(loss(embeddings, LABELS), embeddings)
    return (-gradient[:, 2:] / tiny).fill_diagonal_(0)


def draw_gradients() -> Figure:
    figure = _figure(
        8.9,
        "Which way each loss moves the same twelve photos",
        "Three identities with four photos each. Arrow: minus the gradient, along the circle; the longest has the same "
        "length in every panel.\nHollow: not moved. Lines in an identity's color: these two are pulled together. "
        "Dashed: these two are pushed apart.",
    )
    photos, centers = start()
    for axes, (name, (loss, what)) in zip(_panels(figure, top=0.83, between=0.2), LOSSES.items(), strict=True):
        axes.set(xlim=(-1.24, 1.24), ylim=(-1.16, 1.16), aspect="equal")
        axes.axis("off")
        axes.add_patch(Circle((0, 0), 1, fill=False, color=LINE, linewidth=1.5))
        if isinstance(loss, nn.Module):
            _draw_sectors(axes, centers, loss)
        else:
            _draw_lines(axes, photos, pulls(loss, photos))
        moved = _draw_photos(axes, photos, downhill(loss, photos, centers)[0])
        _head(axes, name, what)
        foot = f"{_triplets(loss, photos)}{moved} photos move"
        axes.text(0, -1.3, foot, ha="center", fontsize=12, color=FAINT)
    return figure


def _triplets(loss: Loss, photos: Tensor) -> str:
    if not isinstance(loss, TripletLoss):
        return ""
    rows = on_circle(photos)
    active = triplet_gaps(*loss.mine_triplets(rows, LABELS).select_rows(rows)) + loss.margin > 0
    return f"{int(active.sum())} triplets, "


def _draw_photos(axes: Axes, photos: Tensor, steps: Tensor) -> int:
    """Draw photos with their arrows; return how many of them move."""
    lengths = steps / steps.abs().max()
    moved = lengths.abs() > MIN_ARROW
    for angle, length, moves, label in zip(photos.tolist(), lengths.tolist(), moved, LABELS, strict=True):
        x, y, color = math.cos(angle), math.sin(angle), COLORS[label]
        if moves:
            edge = math.copysign(0.06, length)  # of the photo's mark
            ends = [(x - along * y, y + along * x) for along in (edge, edge + LONGEST_ARROW * length)]
            arrow = FancyArrowPatch(*ends, arrowstyle="-|>,head_width=3.2,head_length=5", shrinkA=0, shrinkB=0)
            arrow.set(color=color, linewidth=2.6, zorder=5)
            axes.add_patch(arrow)
        mark = Line2D([x], [y], marker=MARKERS[label], markersize=10, color=color, zorder=4)
        mark.set(markerfacecolor=color if moves else "white", markeredgewidth=2)
        axes.add_line(mark)
    return int(moved.sum())


def _draw_lines(axes: Axes, photos: Tensor, between: Tensor) -> None:
    """Draw a line between every two photos that act on each other, the wider the stronger."""
    widths = 4 * between / between.abs().max()
    ends = on_circle(photos)
    for i, j in (widths.tril() != 0).nonzero().tolist():
        width = widths[i, j].item()
        (line,) = axes.plot(*ends[[i, j]].T, color=COLORS[LABELS[i]], linewidth=width, alpha=0.5)
        if width < 0:  # dashes count in line widths
            line.set(color=INK, linewidth=-width, linestyle=(0, (-6 / width, -4 / width)))


def _draw_sectors(axes: Axes, centers: Tensor, loss: nn.Module) -> None:
    """Draw centers as spokes, and sectors of photos with the margin to all other classes; centers rise by angle."""
    gaps = (centers.roll(-1) - centers) % (2 * math.pi)
    half_margin = getattr(loss, "margin_rad", 0.0) / 2
    sides = zip(centers.tolist(), gaps.roll(1).tolist(), gaps.tolist(), COLORS, strict=True)
    for middle, before, after, color in sides:
        first, last = middle - before / 2 + half_margin, middle + after / 2 - half_margin
        sector = Wedge((0, 0), 0.9, math.degrees(first), math.degrees(last), color=color, alpha=0.13, linewidth=0)
        axes.add_patch(sector)
        axes.plot([0, 0.9 * math.cos(middle)], [0, 0.9 * math.sin(middle)], color=color, linewidth=2)


def draw_descent() -> Figure:
    figure = _figure(
        8.9,
        f"{STEPS} steps of gradient descent",
        "Angles in degrees, step by step. Each loss has the step size with which the photo that it moves most "
        f"moves {FIRST_MOVE_DEG:g} degrees\n"
        "in the first step. Dotted: the classes' centers, which are trained too.",
    )
    for axes, (name, (loss, what)) in zip(_panels(figure, top=0.81, between=0.28), LOSSES.items(), strict=True):
        photos, centers = _paths(loss)
        for label, path in zip(LABELS.tolist(), photos.T, strict=True):
            axes.plot(path, MARKERS[label] + "-", color=COLORS[label], linewidth=2, markevery=STEPS)
        if isinstance(loss, nn.Module):
            for color, path in zip(COLORS, centers.T, strict=True):
                axes.plot(path, ":", color=color, linewidth=2)
        _head(axes, name, what)
        axes.set(xlim=(-2, STEPS + 2), ylim=(30, 380), yticks=range(60, 400, 60))
        axes.tick_params(labelleft=axes in figure.axes[::4])
        _plain(axes)
    return figure


def _paths(loss: Loss) -> tuple[Tensor, Tensor]:
    """Return the angles of photos and centers in degrees, before the first step and after each."""
    photos, centers = start()
    rate = math.radians(FIRST_MOVE_DEG) / downhill(loss, photos, centers)[0].abs().max()
    history = [(photos, centers)]
    for _ in range(STEPS):
        photo_steps, center_steps = downhill(loss, photos, centers)
        photos, centers = photos + rate * photo_steps, centers + rate * center_steps
        history.append((photos, centers))
    photo_paths, center_paths = (torch.stack(angles).rad2deg() for angles in zip(*history, strict=True))
    return photo_paths, center_paths


def draw_margins() -> Figure:
    figure = _figure(
        6.4,
        "What a margin does",
        "Left: the cosine of the own class after the margin. Right: how strongly a photo is pulled back to its center\n"
        "on its way to another one, 120 degrees away (gradient by the angle, divided by the scale, which is 16 except "
        "for the dotted line).",
    )
    margins = {"left": 0.045, "right": 0.985, "top": 0.79, "bottom": 0.1, "wspace": 0.12}
    logits, back = figure.subplots(1, 2, gridspec_kw=margins)
    _draw_logits(logits)
    _draw_pulls(back)
    for axes in (logits, back):
        axes.set_xlabel("angle between the photo and its own center, in degrees", fontsize=12, color=FAINT)
        _plain(axes)
    return figure


def _draw_logits(axes: Axes) -> None:
    angles = torch.linspace(0, math.pi, 721, dtype=torch.float64)
    cosines, degrees, switch_angle = angles.cos(), angles.rad2deg(), math.pi - MARGIN_RAD
    penalty, continuous = (arcface_cosine(cosines, MARGIN_RAD, branch) for branch in ("penalty", "continuous"))
    here, beyond = angles <= switch_angle, angles > switch_angle
    axes.plot(degrees, cosines, color=FAINT, linewidth=2.2)
    axes.plot(degrees, cosines - COSINE_MARGIN, color=GREEN, linewidth=2.2)
    axes.plot(degrees[here], penalty[here], color=BLUE, linewidth=2.2)
    for values, style in ((penalty, "--"), (continuous, "-."), ((angles + MARGIN_RAD).cos(), ":")):
        axes.plot(degrees[beyond], values[beyond], style, color=BLUE, linewidth=2.2)
    axes.axvline(math.degrees(switch_angle), color=FAINT, linewidth=1)
    axes.set(xlim=(0, 228), ylim=(-1.5, 1.15), xticks=range(0, 181, 30))
    _write(axes, 45, 0.84, "NormFace: cos(theta)", FAINT)
    _write(axes, 5, -0.17, f"ArcFace:\ncos(theta + {MARGIN_RAD})", BLUE)
    _write(axes, 79, -1.15, f"CosFace:\ncos(theta) - {COSINE_MARGIN}", GREEN)
    _write(axes, 154, 1.05, f"pi - {MARGIN_RAD}", FAINT)
    _write(axes, 182, -0.8, "plain formula:\nit rises", BLUE)
    _write(axes, 182, -1.1, "continuous", BLUE)
    _write(axes, 182, -1.24, "penalty", BLUE)


def _draw_pulls(axes: Axes) -> None:
    angles = torch.linspace(0, 2 * math.pi / 3, 481, dtype=torch.float64)
    for loss, color, style, name in (
        (ArcFace(2, 3, scale=16.0, margin_rad=MARGIN_RAD), BLUE, "-", "ArcFace"),
        (CosFace(2, 3, scale=16.0, margin=COSINE_MARGIN), GREEN, "-", "CosFace"),
        (NormFace(2, 3, scale=16.0), FAINT, "-", "NormFace"),
        (NormFace(2, 3, scale=1.0), FAINT, ":", "NormFace, scale 1"),
    ):
        back = _pull_to_center(loss, angles) / loss.scale
        axes.plot(angles.rad2deg(), back, style, color=color, linewidth=2.2, label=name)
    axes.set(xlim=(0, 122), ylim=(-0.03, 2.05), xticks=range(0, 121, 20))
    axes.legend(loc="upper left", frameon=False, fontsize=12.5, labelcolor="linecolor")


def _pull_to_center(loss: nn.Module, angles: Tensor) -> Tensor:
    """Compute the gradient by angle of photos with their center at 0; the others are at 120 and 240 degrees."""
    free = angles.clone().requires_grad_()
    centers = {"centers": on_circle(torch.arange(3, dtype=torch.float64) * 2 * math.pi / 3)}
    labels = torch.zeros(len(free), dtype=torch.int64)
    mean = functional_call(loss, centers, (on_circle(free), labels))
    return torch.autograd.grad(mean * len(free), free)[0]


def _figure(height: float, title: str, how_to_read: str) -> Figure:
    # Figure without pyplot: no window system, no global state.
    figure = Figure(figsize=(13, height), dpi=DPI, facecolor="white")
    figure.text(0.02, 1 - 0.45 / height, title, fontsize=19, weight="bold", color=INK)
    figure.text(0.02, 1 - 0.6 / height, how_to_read, fontsize=12.5, color=FAINT, va="top", linespacing=1.35)
    return figure


def _panels(figure: Figure, top: float, between: float) -> Iterator[Axes]:
    margins = {"left": 0.035, "right": 0.985, "top": top, "bottom": 0.04, "hspace": between, "wspace": 0.06}
    yield from figure.subplots(2, 4, gridspec_kw=margins).flat


def _head(axes: Axes, name: str, what: str) -> None:
    above: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "ha": "center"}
    axes.annotate(name, (0.5, 1), (0, 24), fontsize=16, weight="bold", color=INK, **above)
    axes.annotate(what, (0.5, 1), (0, 8), fontsize=12, color=FAINT, **above)


def _plain(axes: Axes) -> None:
    axes.tick_params(colors=FAINT, labelsize=11, length=0)
    axes.grid(color=LINE, alpha=0.5)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _write(axes: Axes, x: float, y: float, text: str, color: str) -> None:
    axes.text(x, y, text, color=color, fontsize=12.5, va="center")


PICTURES: dict[str, Callable[[], Figure]] = {
    "losses.png": draw_gradients,
    "losses-descent.png": draw_descent,
    "losses-margins.png": draw_margins,
}


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        draw().savefig(folder / name)
        print(folder / name)


if __name__ == "__main__":
    main()
