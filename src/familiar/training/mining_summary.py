"""The triplets that each miner picks from a batch: how many of each difficulty, and examples to look at."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from familiar.core.errors import FamiliarError
from familiar.loading.dataset import Batch, FaceDataset, PhotoKey
from familiar.losses.mining import MINERS
from familiar.losses.triplet import triplet_gaps


class Difficulty(NamedTuple):
    """A class of triplets, by how far the negative is compared to the positive."""

    name: str
    meaning: str
    color: str


DIFFICULTIES = (
    Difficulty("violating", "the negative is nearer than the positive", "#c8374b"),
    Difficulty("semi-hard", "farther, but by less than the margin", "#d98a00"),
    Difficulty("easy", "farther by the margin or more: costs nothing", "#3f7fbf"),
)
VIOLATING, SEMI_HARD, EASY = range(3)


class ExampleTriplet(NamedTuple):
    """One triplet of the picture.

    Attributes:
        rows: anchor, positive and negative.
        to_positive, to_negative: squared distances from the anchor.
        difficulty: index in `DIFFICULTIES`.
    """

    rows: tuple[int, int, int]
    to_positive: float
    to_negative: float
    difficulty: int


class MinerSummary(NamedTuple):
    """The triplets that one miner picks: how many of each of `DIFFICULTIES`, and examples."""

    name: str
    counts: tuple[int, ...]
    examples: Sequence[ExampleTriplet]

    @property
    def total(self) -> int:
        """Number of all triplets that the miner picks."""
        return sum(self.counts)


def sample_batch(dataset: FaceDataset, identities: int = 10, photos: int = 4, seed: int = 0) -> Batch:
    """Draw up to `identities` identities with up to `photos` photos each, without augmentation.

    Identities that have two photos come before those that have one.

    Raises:
        UnreadablePhoto: a file is missing.
    """
    generator = np.random.default_rng(seed)
    labels = dataset.table.labels
    order = generator.permutation(len(dataset.table.names))
    single = dataset.table.photos_per_identity[order] < 2
    rows = [
        generator.permutation(np.flatnonzero(labels == label))[:photos]
        for label in order[np.argsort(single, kind="stable")][:identities]
    ]
    unaugmented = FaceDataset(dataset.table, dataset.crops)
    batch = unaugmented.__getitems__([PhotoKey(0, int(row)) for row in np.concatenate(rows)])
    if isinstance(batch, FamiliarError):
        raise batch
    return batch


def summarize_miners(
    embeddings: Float32[Tensor, "n d"], labels: Int64[Tensor, " n"], margin: float, examples: int, seed: int
) -> list[MinerSummary]:
    """Mine with each miner and choose up to `examples` of its triplets to show; arguments as in `draw_triplets`."""
    generator = np.random.default_rng(seed)
    mined = {name: miner(embeddings, labels, margin) for name, miner in MINERS.items()}
    # Anchors that most miners have a triplet of come first, so that one column is mostly one anchor.
    miner_counts = sum(np.bincount(triplets.anchors.unique(), minlength=len(labels)) for triplets in mined.values())
    order = np.lexsort((generator.permutation(len(labels)), -np.asarray(miner_counts)))
    identities = labels.numpy()[order]
    earlier = np.tril(identities[:, None] == identities, -1).sum(axis=1)  # photos of the same identity
    rank = np.argsort(order[np.argsort(earlier, kind="stable")])
    summaries: list[MinerSummary] = []
    for name, triplets in mined.items():
        anchors, positives, negatives = triplets.select_rows(embeddings)
        to_positive = (anchors - positives).square().sum(dim=1)
        gaps = triplet_gaps(anchors, positives, negatives)
        difficulties = torch.where(gaps <= -margin, EASY, torch.where(gaps < 0, SEMI_HARD, VIOLATING))
        rows = list(triplets)
        _, firsts = np.unique(rank[triplets.anchors.numpy()], return_index=True)  # one triplet of each anchor
        shown = [
            ExampleTriplet(
                rows[index],
                float(to_positive[index]),
                float(to_positive[index] - gaps[index]),
                int(difficulties[index]),
            )
            for index in firsts[:examples].tolist()
        ]
        counts = torch.bincount(difficulties, minlength=len(DIFFICULTIES))
        summaries.append(MinerSummary(name, tuple(counts.tolist()), shown))
    return summaries
