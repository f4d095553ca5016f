"""A picture of which triplets each way of mining picks from some of a run's photos."""

import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
from jaxtyping import Float32, Int, Int64, UInt8
from PIL import ImageColor
from torch import Tensor, nn

from familiar.core.errors import FamiliarError
from familiar.core.files import write_atomically
from familiar.core.vectors import check_unit_rows
from familiar.loading.dataset import Batch, FaceDataset, PhotoKey
from familiar.losses.mining import MINERS
from familiar.losses.triplet import triplet_gaps
from familiar.training.validation import embed_dataset

PICKS = {  # what each of them takes, for the picture
    "semi_hard": "negatives farther than the positive, but by less than the margin",
    "batch_hard": "for each anchor its farthest positive and its nearest negative",
    "hard_negative": "for each anchor and positive the anchor's nearest negative",
    "batch_all": "every anchor with every positive and every negative",
}


def triplet_batch(dataset: FaceDataset, identities: int = 10, photos: int = 4, seed: int = 0) -> Batch:
    """Up to so many identities with up to so many photos each, drawn by `seed`, as they are without augmentation.

    Identities that have two photos come before those that have one. UnreadablePhoto where a file is gone.
    """
    generator = np.random.default_rng(seed)
    labels = dataset.table.labels
    order = generator.permutation(len(dataset.table.names))
    single = dataset.table.photos_per_identity[order] < 2
    rows = [
        generator.permutation(np.flatnonzero(labels == label))[:photos]
        for label in order[np.argsort(single, kind="stable")][:identities]
    ]
    plain = FaceDataset(dataset.table, dataset.crops)
    batch = plain.__getitems__([PhotoKey(0, int(row)) for row in np.concatenate(rows)])
    if isinstance(batch, FamiliarError):
        raise batch
    return batch


def picture_of_mining(network: nn.Module, dataset: FaceDataset, path: Path, margin: float = 0.2, seed: int = 0) -> None:
    """`draw_triplets` for some of the dataset's photos, embedded in evaluation mode and without augmentation."""
    batch = triplet_batch(dataset, seed=seed)
    plain = FaceDataset(dataset.table, dataset.crops)
    embeddings = torch.from_numpy(embed_dataset(network, plain, batch.rows.numpy()))
    draw_triplets(path, batch.rgb_u8, batch.labels, embeddings, margin, seed=seed)


class Kind(NamedTuple):
    """How a triplet's negative lies to its positive."""

    name: str
    meaning: str
    color: str


KINDS = (
    Kind("violating", "the negative is nearer than the positive", "#c8374b"),
    Kind("semi-hard", "farther, but by less than the margin", "#d98a00"),
    Kind("easy", "farther by the margin or more: costs nothing", "#3f7fbf"),
)
VIOLATING, SEMI_HARD, EASY = range(3)
POSITIVE, INK, FAINT, LINE = "#2a9d5c", "#1a202c", "#6b7280", "#cbd5e0"


class Shown(NamedTuple):
    """One triplet of the picture: its rows, squared distances and kind."""

    rows: tuple[int, int, int]
    to_positive: float
    to_negative: float
    kind: int


class Band(NamedTuple):
    """What the picture says of one miner. `kinds`: how many of those it found are of each kind."""

    name: str
    kinds: tuple[int, ...]
    shown: Sequence[Shown]

    @property
    def found(self) -> int:
        return sum(self.kinds)


def draw_triplets(
    path: Path,
    rgb_u8: UInt8[Tensor, "n s s 3"] | UInt8[np.ndarray, "n s s 3"],
    labels: Int[Tensor, " n"],
    embeddings: Float32[Tensor, "n d"],
    margin: float = 0.2,
    each: int = 3,
    seed: int = 0,
) -> None:
    """A PNG of what every miner picks from a batch: how much of it, and `each` of its triplets.

    Triplets are drawn by `seed`, each of another identity where that is possible, and of the same anchors for all
    miners where these have any. For a batch to look at: all its valid triplets are listed.

    ValueError where embeddings are not unit rows, and for none of each. CannotWrite.
    """
    if each < 1:
        raise ValueError(f"each is 1 or more, not {each}")
    check_unit_rows(embeddings.cpu().numpy())
    embeddings, labels = embeddings.cpu(), labels.cpu().long()
    bands = bands_of(embeddings, labels, margin, each, seed)
    write_atomically(path, _page(np.asarray(rgb_u8), labels, bands, margin, each))


def bands_of(
    embeddings: Float32[Tensor, "n d"], labels: Int64[Tensor, " n"], margin: float, each: int, seed: int
) -> list[Band]:
    """What each miner found, and up to `each` of its triplets to show."""
    generator = np.random.default_rng(seed)
    mined = {name: mine(embeddings, labels, margin) for name, mine in MINERS.items()}
    # Anchors that most miners have a triplet of come first, so that one column is mostly one anchor.
    miners_of = sum(np.bincount(found.anchors.unique(), minlength=len(labels)) for found in mined.values())
    order = np.lexsort((generator.permutation(len(labels)), -np.asarray(miners_of)))
    rank = np.argsort(order)
    bands: list[Band] = []
    for name, found in mined.items():
        anchors, positives, negatives = found.of(embeddings)
        to_positive = (anchors - positives).square().sum(dim=1)
        gaps = triplet_gaps(anchors, positives, negatives)
        kinds = torch.where(gaps <= -margin, EASY, torch.where(gaps < 0, SEMI_HARD, VIOLATING))
        rows = list(found)
        shown = [
            Shown(
                rows[which],
                float(to_positive[which]),
                float(to_positive[which] - gaps[which]),
                int(kinds[which]),
            )
            for which in _draw(found.anchors.numpy(), labels.numpy(), rank, each, generator)
        ]
        bands.append(Band(name, tuple(torch.bincount(kinds, minlength=len(KINDS)).tolist()), shown))
    return bands


def _draw(
    anchors: Int64[np.ndarray, " t"],
    labels: Int64[np.ndarray, " n"],
    rank: Int64[np.ndarray, " n"],
    count: int,
    generator: np.random.Generator,
) -> list[int]:
    """Up to `count` of the triplets: of other identities first, then of other anchors, then of the lower rank."""
    left = generator.permutation(len(anchors)).tolist()
    drawn: list[int] = []
    while left and len(drawn) < count:
        seen = Counter(anchors[drawn].tolist())
        identities = Counter(labels[anchors[drawn]].tolist())
        best = min(left, key=lambda t: (identities[labels[anchors[t]]], seen[anchors[t]], rank[anchors[t]]))
        left.remove(best)
        drawn.append(best)
    return drawn


def _why_none(labels: Int64[Tensor, " n"], valid: int) -> str:
    if valid:
        return "no negative lies in the band"
    if len(labels.unique()) == 1:
        return "all photos are of one identity, so there is no negative"
    return "no identity has two photos, so there is no positive"


# Of the page, in pixels.
EDGE, GAP, TRIPLET_GAP, FRAME = 24, 12, 36, 3
LEAST_WIDTH, LEAST_TILE, LARGEST_TILE = 1120, 112, 192
HEAD, BAND_HEAD, BAND_FOOT, NOTHING, RULER = 124, 74, 70, 6, 44
DPI = 100


def _page(
    rgb_u8: UInt8[np.ndarray, "n s s 3"],
    labels: Int64[Tensor, " n"],
    bands: Sequence[Band],
    margin: float,
    each: int,
) -> bytes:
    # Figure without pyplot: no window system, no global state.
    from matplotlib.figure import Figure

    side = rgb_u8.shape[1]
    tile = side * -(-LEAST_TILE // side) if side <= LARGEST_TILE else LARGEST_TILE
    across = 3 * tile + 2 * GAP
    width = max(LEAST_WIDTH, 2 * EDGE + each * across + (each - 1) * TRIPLET_GAP)
    heights = [BAND_HEAD + (tile + BAND_FOOT if band.shown else NOTHING) for band in bands]
    height = HEAD + sum(heights)
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="white")
    # One unit is a pixel, downwards.
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    # Crops are not drawn but set pixel by pixel, since matplotlib would resample them.
    pixels = np.full((height, width, 3), 255, np.uint8)
    _head(axes, labels, margin, width)
    valid = max(band.found for band in bands)  # batch_all finds every one
    farthest = max((max(t.to_negative, t.to_positive + margin) for band in bands for t in band.shown), default=1.0)
    top = HEAD
    for band, band_height in zip(bands, heights, strict=True):
        _band_head(axes, band, valid, top, width)
        y = top + BAND_HEAD
        if not band.shown:
            _write(axes, EDGE, y - 22, f"none: {_why_none(labels, valid)}", INK, 9)
        for place, triplet in enumerate(band.shown):
            x = EDGE + place * (across + TRIPLET_GAP)
            for column, row in enumerate(triplet.rows):
                _paste(pixels, rgb_u8[row], x + column * (tile + GAP), y, tile, _colors(triplet)[column])
            _captions(axes, triplet, x, y, tile)
            _ruler(axes, triplet, x, y + tile + RULER, across / farthest, across, margin)
        top += band_height
    figure.figimage(pixels, zorder=-1)
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    return picture.getvalue()


def _head(axes: Any, labels: Int64[Tensor, " n"], margin: float, width: int) -> None:
    """Title, and how to read the page."""
    _write(axes, EDGE, 32, "Which triplets each way of mining picks from a batch", INK, 13, weight="bold")
    batch = f"photos: {len(labels)}, identities: {len(labels.unique())}"
    _write(axes, width - EDGE, 32, batch, FAINT, 9, ha="right")
    distances = "Numbers: squared distance from the anchor, 0 to 4. All lines below photos have one scale:"
    _write(axes, EDGE, 64, distances, INK, 8.5)
    x = EDGE + 560
    for marker, color, name in (("s", INK, "anchor"), ("o", POSITIVE, "positive"), ("D", FAINT, "negative")):
        axes.plot([x], [64], marker=marker, color=color, markersize=6)
        _write(axes, x + 10, 64, name, INK, 8.5)
        x += 80
    axes.add_patch(_box(x - 6, 57, 22, 14, facecolor=KINDS[SEMI_HARD].color, alpha=0.25))
    _write(axes, x + 22, 64, f"the margin, {margin:g}", INK, 8.5)
    step = (width - 2 * EDGE) / len(KINDS)
    for place, kind in enumerate(KINDS):
        x = EDGE + place * step
        axes.add_patch(_box(x, 86, 12, 12, facecolor=kind.color))
        _write(axes, x + 18, 92, kind.name, kind.color, 8.5, weight="bold")
        _write(axes, x + 28 + 7.6 * len(kind.name), 92, kind.meaning, INK, 8.5)


def _band_head(axes: Any, band: Band, valid: int, top: int, width: int) -> None:
    """What the miner takes, how many it found, and a bar of their kinds."""
    axes.plot([EDGE, width - EDGE], [top, top], color=LINE, linewidth=0.8)
    _write(axes, EDGE, top + 22, band.name, INK, 11, weight="bold")
    _write(axes, EDGE + 140, top + 22, PICKS[band.name], FAINT, 9)
    found = f"{band.found:,} of {valid:,} valid triplets"
    if band.found:
        found += f", {1 - band.kinds[EASY] / band.found:.0%} of them active (not easy)"
    _write(axes, width - EDGE, top + 22, found, INK, 9, ha="right")
    x = float(EDGE)
    for count, kind in zip(band.kinds, KINDS, strict=True):
        share = count / max(band.found, 1) * (width - 2 * EDGE)
        axes.add_patch(_box(x, top + 36, share, 6, facecolor=kind.color))
        x += share


def _colors(triplet: Shown) -> tuple[str, str, str]:
    return INK, POSITIVE, KINDS[triplet.kind].color


def _paste(pixels: np.ndarray, rgb_u8: np.ndarray, x: int, y: int, tile: int, color: str) -> None:
    """A crop in its frame, enlarged without smoothing, so that what is seen is what the network is shown."""
    pixels[y - FRAME : y + tile + FRAME, x - FRAME : x + tile + FRAME] = ImageColor.getrgb(color)
    way = cv2.INTER_AREA if len(rgb_u8) > tile else cv2.INTER_NEAREST
    pixels[y : y + tile, x : x + tile] = cv2.resize(rgb_u8, (tile, tile), interpolation=way)


def _captions(axes: Any, triplet: Shown, x: int, y: int, tile: int) -> None:
    distances = "", f"{triplet.to_positive:.3f}", f"{triplet.to_negative:.3f} {KINDS[triplet.kind].name}"
    columns = zip(("anchor", "positive", "negative"), distances, _colors(triplet), strict=True)
    for column, (role, distance, color) in enumerate(columns):
        middle = x + column * (tile + GAP) + tile / 2
        _write(axes, middle, y - 13, role, FAINT, 8, ha="center")
        _write(axes, middle, y + tile + 15, distance, color, 8.5, ha="center", weight="bold")


def _ruler(axes: Any, triplet: Shown, x: int, y: int, unit: float, across: int, margin: float) -> None:
    """Where positive and negative lie, `unit` pixels to one of distance; behind the positive the margin, shaded."""
    positive, negative = x + triplet.to_positive * unit, x + triplet.to_negative * unit
    axes.add_patch(_box(positive, y - 7, margin * unit, 14, facecolor=KINDS[SEMI_HARD].color, alpha=0.25))
    axes.plot([x, x + across], [y, y], color=LINE, linewidth=1.2)
    for place, marker, color in zip((x, positive, negative), "soD", _colors(triplet), strict=True):
        axes.plot([place], [y], marker=marker, color=color, markersize=6)


def _write(axes: Any, x: float, y: float, text: str, color: str, size: float, **style: Any) -> None:
    axes.text(x, y, text, color=color, fontsize=size, **{"va": "center", **style})


def _box(x: float, y: float, width: float, height: float, **style: Any) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), width, height, linewidth=0, **style)
