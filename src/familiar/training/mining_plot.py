"""A picture of the triplets that each miner picks from some of a run's photos."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Int, Int64, UInt8
from torch import Tensor, nn

from familiar.core.files import write_atomically
from familiar.core.vectors import check_unit_rows
from familiar.loading.dataset import FaceDataset
from familiar.training.mining_summary import (
    DIFFICULTIES,
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
POSITIVE, INK = "#2a9d5c", "#1a202c"
DPI = 100
CROP_INCHES, ROW_INCHES, EMPTY_ROW_INCHES, TITLE_INCHES, LEGEND_INCHES, MIN_WIDTH_INCHES = 1.3, 2.2, 0.6, 0.6, 0.4, 11


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

    The anchors of the examples are drawn at random, each of another identity where possible, and the same for all
    miners that have triplets of these. Meant for small batches, since all valid triplets are listed.

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
    labels = labels.cpu().long()
    summaries = summarize_miners(embeddings.cpu(), labels, margin, examples, seed)
    png = io.BytesIO()
    draw_page(np.asarray(rgb_u8), labels, summaries, margin, examples).savefig(png, format="png", dpi=DPI)
    write_atomically(path, png.getvalue())


def _reason_for_none(labels: Int64[Tensor, " n"], valid: int) -> str:
    """Return why a miner picks nothing from a batch with `valid` triplets."""
    if valid:
        return "no negative lies in the band"
    if len(labels.unique()) == 1:
        return "all photos are of one identity, so there is no negative"
    return "no identity has two photos, so there is no positive"


def draw_page(
    rgb_u8: UInt8[np.ndarray, "n s s 3"],
    labels: Int64[Tensor, " n"],
    summaries: Sequence[MinerSummary],
    margin: float,
    examples: int,
) -> Any:
    """Return a matplotlib figure with a row of triplets for each miner, below its numbers."""
    from matplotlib.figure import Figure  # without pyplot: no window system, no global state
    from matplotlib.patches import Patch

    heights = [ROW_INCHES if summary.examples else EMPTY_ROW_INCHES for summary in summaries] + [LEGEND_INCHES]
    size = max(MIN_WIDTH_INCHES, 3 * examples * CROP_INCHES), sum(heights) + TITLE_INCHES
    figure: Any = Figure(size, layout="constrained", facecolor="white")
    figure.suptitle(
        f"Triplets that each miner picks from {len(labels)} photos of {len(labels.unique())} identities\n"
        f"numbers are squared distances from the anchor, 0 to 4, and the margin is {margin:g}"
    )
    *rows, legend = figure.subfigures(len(heights), height_ratios=heights)
    valid = max(summary.total for summary in summaries)  # batch_all picks every valid triplet
    for row, summary in zip(rows, summaries, strict=True):
        counts = zip(summary.counts, DIFFICULTIES, strict=True)
        numbers = ", ".join(f"{count:,} {difficulty.name}" for count, difficulty in counts)
        row.suptitle(
            f"{summary.name}: {MINER_DESCRIPTIONS[summary.name]}\n{summary.total:,} of {valid:,} valid triplets: "
            + (numbers if summary.examples else _reason_for_none(labels, valid)),
            x=0.01,
            ha="left",
            size="medium",
        )
        grid = row.subplots(1, 3 * examples, squeeze=False)[0]
        for axes in grid[3 * len(summary.examples) :]:
            axes.axis("off")
        for index, triplet in enumerate(summary.examples):
            _draw_triplet(grid[3 * index : 3 * index + 3], rgb_u8, triplet)
    patches = [Patch(color=each.color, label=f"{each.name}: {each.meaning}") for each in DIFFICULTIES]
    legend.legend(handles=patches, loc="center", ncols=len(patches), frameon=False, fontsize="small")
    return figure


def _draw_triplet(grid: Sequence[Any], rgb_u8: UInt8[np.ndarray, "n s s 3"], triplet: ExampleTriplet) -> None:
    """Draw the three crops as the network sees them, with roles above and distances below them."""
    difficulty = DIFFICULTIES[triplet.difficulty]
    parts = (
        ("anchor", "", INK),
        ("positive", f"{triplet.to_positive:.3f}", POSITIVE),
        ("negative", f"{triplet.to_negative:.3f} {difficulty.name}", difficulty.color),
    )
    for axes, row, (role, caption, color) in zip(grid, triplet.rows, parts, strict=True):
        axes.imshow(rgb_u8[row], interpolation="nearest")
        axes.set(xticks=[], yticks=[])
        axes.set_title(role, size="small", color=color)
        axes.set_xlabel(caption, size="small", color=color)
        for spine in axes.spines.values():
            spine.set(color=color, linewidth=3)
