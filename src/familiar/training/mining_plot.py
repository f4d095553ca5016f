"""A picture of the triplets that each miner picks from some of a run's photos."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from jaxtyping import Float32, Int, Int64, UInt8
from PIL import ImageColor
from torch import Tensor, nn

from familiar.core.files import write_atomically
from familiar.core.vectors import check_unit_rows
from familiar.loading.dataset import FaceDataset
from familiar.training.mining_summary import (
    DIFFICULTIES,
    EASY,
    SEMI_HARD,
    ExampleTriplet,
    MinerSummary,
    sample_batch,
    summarize_miners,
)
from familiar.training.validation import embed_dataset

MINER_DESCRIPTIONS = {  # shown in the picture
    "semi_hard": "negatives farther than the positive, but by less than the margin",
    "batch_hard": "for each anchor its farthest positive and its nearest negative",
    "hard_negative": "for each anchor and positive the anchor's nearest negative",
    "batch_all": "every anchor with every positive and every negative",
}
POSITIVE, INK, FAINT, LINE = "#2a9d5c", "#1a202c", "#6b7280", "#cbd5e0"


def plot_mining(network: nn.Module, dataset: FaceDataset, path: Path, margin: float = 0.2, seed: int = 0) -> None:
    """Draw the triplets that each miner picks from a sample of the dataset, embedded without augmentation."""
    batch = sample_batch(dataset, seed=seed)
    unaugmented = FaceDataset(dataset.table, dataset.crops)
    embeddings = torch.from_numpy(embed_dataset(network, unaugmented, batch.rows.numpy()))
    draw_triplets(path, batch.rgb_u8, batch.labels, embeddings, margin, seed=seed)


def draw_triplets(
    path: Path,
    rgb_u8: UInt8[Tensor, "n s s 3"] | UInt8[np.ndarray, "n s s 3"],
    labels: Int[Tensor, " n"],
    embeddings: Float32[Tensor, "n d"],
    margin: float = 0.2,
    examples: int = 3,
    seed: int = 0,
) -> None:
    """Write a PNG of the triplets that every miner picks from a batch: their numbers, and examples.

    The examples are drawn at random, each of another identity where possible, and with the same anchors for all miners
    that have triplets of these. Meant for small batches, since all valid triplets are listed.

    Args:
        path: the PNG.
        rgb_u8: crops.
        labels: identities.
        embeddings: unit rows.
        margin: in squared distance, [0, 4].
        examples: number of examples per miner, 1 or more.
        seed: of the random draws.

    Raises:
        ValueError: the embeddings are not unit rows, or `examples` is less than 1.
        CannotWrite: the file cannot be written.
    """
    if examples < 1:
        raise ValueError(f"examples must be 1 or more, not {examples}")
    check_unit_rows(embeddings.cpu().numpy())
    embeddings, labels = embeddings.cpu(), labels.cpu().long()
    summaries = summarize_miners(embeddings, labels, margin, examples, seed)
    write_atomically(path, _render_page(np.asarray(rgb_u8), labels, summaries, margin, examples))


def _reason_for_none(labels: Int64[Tensor, " n"], valid: int) -> str:
    """Return why a miner picks nothing from a batch with `valid` triplets."""
    if valid:
        return "no negative lies in the band"
    if len(labels.unique()) == 1:
        return "all photos are of one identity, so there is no negative"
    return "no identity has two photos, so there is no positive"


# Layout of the page, in pixels.
EDGE, CROP_GAP, TRIPLET_GAP, FRAME = 24, 12, 36, 3
MIN_WIDTH, MIN_TILE, MAX_TILE = 1120, 112, 192
HEADER, MINER_HEADER, MINER_FOOTER, EMPTY_MINER, RULER = 124, 74, 70, 6, 44
DPI = 100


def _render_page(
    rgb_u8: UInt8[np.ndarray, "n s s 3"],
    labels: Int64[Tensor, " n"],
    summaries: Sequence[MinerSummary],
    margin: float,
    examples: int,
) -> bytes:
    """Draw the page and return it as a PNG."""
    # Figure without pyplot: no window system, no global state.
    from matplotlib.figure import Figure

    side = rgb_u8.shape[1]
    tile = side * -(-MIN_TILE // side) if side <= MAX_TILE else MAX_TILE
    triplet_width = 3 * tile + 2 * CROP_GAP
    width = max(MIN_WIDTH, 2 * EDGE + examples * triplet_width + (examples - 1) * TRIPLET_GAP)
    heights = [MINER_HEADER + (tile + MINER_FOOTER if summary.examples else EMPTY_MINER) for summary in summaries]
    height = HEADER + sum(heights)
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="white")
    # One unit is a pixel, downwards.
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    # Crops are copied pixel by pixel, since matplotlib would resample them.
    pixels = np.full((height, width, 3), 255, np.uint8)
    _draw_header(axes, labels, margin, width)
    valid = max(summary.total for summary in summaries)  # batch_all picks every valid triplet
    farthest = max(
        (max(t.to_negative, t.to_positive + margin) for summary in summaries for t in summary.examples), default=1.0
    )
    top = HEADER
    for summary, summary_height in zip(summaries, heights, strict=True):
        _draw_miner_header(axes, summary, valid, top, width)
        y = top + MINER_HEADER
        if not summary.examples:
            _write_text(axes, EDGE, y - 22, f"none: {_reason_for_none(labels, valid)}", INK, 9)
        for index, triplet in enumerate(summary.examples):
            x = EDGE + index * (triplet_width + TRIPLET_GAP)
            for column, row in enumerate(triplet.rows):
                color = _role_colors(triplet)[column]
                _paste_crop(pixels, rgb_u8[row], x + column * (tile + CROP_GAP), y, tile, color)
            _draw_captions(axes, triplet, x, y, tile)
            _draw_ruler(axes, triplet, x, y + tile + RULER, triplet_width / farthest, triplet_width, margin)
        top += summary_height
    figure.figimage(pixels, zorder=-1)
    png = io.BytesIO()
    figure.savefig(png, format="png")
    return png.getvalue()


def _draw_header(axes: Any, labels: Int64[Tensor, " n"], margin: float, width: int) -> None:
    """Draw the title and the legend."""
    _write_text(axes, EDGE, 32, "Triplets that each miner picks from a batch", INK, 13, weight="bold")
    batch = f"photos: {len(labels)}, identities: {len(labels.unique())}"
    _write_text(axes, width - EDGE, 32, batch, FAINT, 9, ha="right")
    distances = "Numbers: squared distance from the anchor, 0 to 4. All lines below photos have one scale:"
    _write_text(axes, EDGE, 64, distances, INK, 8.5)
    x = EDGE + 560
    for marker, color, name in (("s", INK, "anchor"), ("o", POSITIVE, "positive"), ("D", FAINT, "negative")):
        axes.plot([x], [64], marker=marker, color=color, markersize=6)
        _write_text(axes, x + 10, 64, name, INK, 8.5)
        x += 80
    axes.add_patch(_rectangle(x - 6, 57, 22, 14, facecolor=DIFFICULTIES[SEMI_HARD].color, alpha=0.25))
    _write_text(axes, x + 22, 64, f"the margin, {margin:g}", INK, 8.5)
    step = (width - 2 * EDGE) / len(DIFFICULTIES)
    for index, difficulty in enumerate(DIFFICULTIES):
        x = EDGE + index * step
        axes.add_patch(_rectangle(x, 86, 12, 12, facecolor=difficulty.color))
        _write_text(axes, x + 18, 92, difficulty.name, difficulty.color, 8.5, weight="bold")
        _write_text(axes, x + 28 + 7.6 * len(difficulty.name), 92, difficulty.meaning, INK, 8.5)


def _draw_miner_header(axes: Any, summary: MinerSummary, valid: int, top: int, width: int) -> None:
    """Draw a miner's name and description, its number of triplets, and a bar of their difficulties."""
    axes.plot([EDGE, width - EDGE], [top, top], color=LINE, linewidth=0.8)
    _write_text(axes, EDGE, top + 22, summary.name, INK, 11, weight="bold")
    _write_text(axes, EDGE + 140, top + 22, MINER_DESCRIPTIONS[summary.name], FAINT, 9)
    numbers = f"{summary.total:,} of {valid:,} valid triplets"
    if summary.total:
        numbers += f", {1 - summary.counts[EASY] / summary.total:.0%} of them active (not easy)"
    _write_text(axes, width - EDGE, top + 22, numbers, INK, 9, ha="right")
    x = float(EDGE)
    for count, difficulty in zip(summary.counts, DIFFICULTIES, strict=True):
        bar_width = count / max(summary.total, 1) * (width - 2 * EDGE)
        axes.add_patch(_rectangle(x, top + 36, bar_width, 6, facecolor=difficulty.color))
        x += bar_width


def _role_colors(triplet: ExampleTriplet) -> tuple[str, str, str]:
    """Return the colors of anchor, positive and negative."""
    return INK, POSITIVE, DIFFICULTIES[triplet.difficulty].color


def _paste_crop(pixels: np.ndarray, rgb_u8: np.ndarray, x: int, y: int, tile: int, color: str) -> None:
    """Copy a framed crop into the page, enlarged without smoothing, to show just what the network sees."""
    pixels[y - FRAME : y + tile + FRAME, x - FRAME : x + tile + FRAME] = ImageColor.getrgb(color)
    interpolation = cv2.INTER_AREA if len(rgb_u8) > tile else cv2.INTER_NEAREST
    pixels[y : y + tile, x : x + tile] = cv2.resize(rgb_u8, (tile, tile), interpolation=interpolation)


def _draw_captions(axes: Any, triplet: ExampleTriplet, x: int, y: int, tile: int) -> None:
    """Write roles above and distances below the three crops."""
    negative = f"{triplet.to_negative:.3f} {DIFFICULTIES[triplet.difficulty].name}"
    distances = "", f"{triplet.to_positive:.3f}", negative
    columns = zip(("anchor", "positive", "negative"), distances, _role_colors(triplet), strict=True)
    for column, (role, distance, color) in enumerate(columns):
        middle = x + column * (tile + CROP_GAP) + tile / 2
        _write_text(axes, middle, y - 13, role, FAINT, 8, ha="center")
        _write_text(axes, middle, y + tile + 15, distance, color, 8.5, ha="center", weight="bold")


def _draw_ruler(
    axes: Any, triplet: ExampleTriplet, x: int, y: int, pixels_per_distance: float, length: int, margin: float
) -> None:
    """Mark the distances of positive and negative on a line, with the margin shaded behind the positive."""
    positive, negative = x + triplet.to_positive * pixels_per_distance, x + triplet.to_negative * pixels_per_distance
    shade = DIFFICULTIES[SEMI_HARD].color
    axes.add_patch(_rectangle(positive, y - 7, margin * pixels_per_distance, 14, facecolor=shade, alpha=0.25))
    axes.plot([x, x + length], [y, y], color=LINE, linewidth=1.2)
    for position, marker, color in zip((x, positive, negative), "soD", _role_colors(triplet), strict=True):
        axes.plot([position], [y], marker=marker, color=color, markersize=6)


def _write_text(axes: Any, x: float, y: float, text: str, color: str, size: float, **style: Any) -> None:
    axes.text(x, y, text, color=color, fontsize=size, **{"va": "center", **style})


def _rectangle(x: float, y: float, width: float, height: float, **style: Any) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), width, height, linewidth=0, **style)
