"""Offline mining: triplets across photos instead of within batches (FaceNet, arXiv 1503.03832, section 3.2)."""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.utils.data import Sampler

from familiar.core.errors import BadDataset
from familiar.loading.dataset import FaceDataset, PhotoKey
from familiar.losses.blockwise import FINITE_INF, distance_blocks
from familiar.losses.mining import Triplets
from familiar.training.ranks import ONE_RANK, Ranks
from familiar.training.validation import embed_by_ranks

ROUNDING_TOLERANCE = 1e-6  # of a distance, which must count the same from either of its two photos
OFFLINE_STREAM = 3  # separates these random draws from others that use the same seed


def mine_hardest_triplets(
    embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], skip: float = 0.02
) -> Triplets:
    """Find each row's farthest positive and nearest negative among all rows, block by block.

    The very hardest triplets are more often due to wrong labels and unreadable faces than useful. So the share `skip`
    of the rows whose farthest positive is farthest sets a limit beyond which positives are suspicious, likewise for the
    nearest negatives, and each row takes the hardest within the limits. Rows without any have no triplet.

    Args:
        embeddings: unit rows.
        labels: identities of the rows.
        skip: in [0, 0.5].
    """
    n = len(labels)
    farthest, nearest = embeddings.new_full((n,), -FINITE_INF), embeddings.new_full((n,), FINITE_INF)
    for block_rows, block in distance_blocks(embeddings, labels):
        farthest[block_rows] = block.positive_values(pad=-FINITE_INF).amax(dim=1)
        nearest[block_rows] = block.negative_values(fill=FINITE_INF).amin(dim=1)
    max_positive = _quantile(farthest[farthest > -FINITE_INF], 1 - skip) + ROUNDING_TOLERANCE
    min_negative = _quantile(nearest[nearest < FINITE_INF], skip) - ROUNDING_TOLERANCE
    anchors, positives, negatives = [], [], []
    for block_rows, block in distance_blocks(embeddings, labels):
        to_positives = block.positive_values(pad=-FINITE_INF)
        far, column = to_positives.masked_fill_(to_positives > max_positive, -FINITE_INF).max(dim=1, keepdim=True)
        to_negatives = block.negative_values(fill=FINITE_INF)
        near, negative = to_negatives.masked_fill_(to_negatives < min_negative, FINITE_INF).min(dim=1)
        hits = ((far[:, 0] > -FINITE_INF) & (near < FINITE_INF)).nonzero().squeeze(1)
        anchors.append(hits + block_rows.start)
        positives.append(block.positive_cols.gather(1, column)[hits, 0])
        negatives.append(negative[hits])
    none = labels.new_empty(0)
    return Triplets(*(torch.cat([none, *parts]) for parts in (anchors, positives, negatives)))


class OfflineTriplets(Sampler[list[PhotoKey]]):
    """Batches of mined triplets: first the anchors, then their positives, then their negatives.

    `mine_triplets` finds triplets for the next `every_steps` batches, a round; iterating gives those batches. An epoch
    has as many batches as it would have with shuffled ones.

    Args:
        dataset: the training photos.
        batch_size: photos in a batch, rounded down to whole triplets.
        every_steps: batches in a round.
        subset: how many photos to mine in; 0 for all.
        skip: share of suspiciously hard triplets to leave out, in [0, 0.5].
        seed: of the random draws.
    """

    def __init__(
        self,
        dataset: FaceDataset,
        batch_size: int,
        every_steps: int,
        subset: int,
        skip: float,
        seed: int = 0,
    ) -> None:
        self.unaugmented = FaceDataset(dataset.table, dataset.crops)
        self.triplets_per_batch = max(1, batch_size // 3)
        self.batch_size = 3 * self.triplets_per_batch
        self.steps = max(1, len(dataset) // self.batch_size)
        self.every_steps = every_steps
        self.subset = subset or len(dataset)
        self.skip = skip
        self.seed = seed
        self.epoch = 0
        self._batches: list[list[PhotoKey]] = []

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[list[PhotoKey]]:
        return iter(self._batches)

    def round_starts(self) -> range:
        """Return the first step of each round of an epoch."""
        return range(0, self.steps, self.every_steps)

    def mine_triplets(self, network: nn.Module, first_step: int, ranks: Ranks = ONE_RANK) -> None:
        """Find the triplets of the round that begins with `first_step`, with the network's current weights.

        Args:
            network: computes the embeddings.
            first_step: counted from 0.
            ranks: that compute them together; all find the same triplets.

        Raises:
            BadDataset: the photos contain no triplet.
        """
        generator = np.random.default_rng((OFFLINE_STREAM, self.seed, self.epoch, first_step))
        rows = self._sample_identities(generator)
        labels = self.unaugmented.table.labels
        embeddings = torch.from_numpy(embed_by_ranks(network, self.unaugmented, ranks, rows))
        triplets = mine_hardest_triplets(embeddings, torch.from_numpy(labels[rows]), self.skip)
        if len(triplets) == 0:
            raise BadDataset("no triplet can be mined: no identity has two photos that are not suspiciously far apart")
        columns = np.stack([triplets.anchors, triplets.positives, triplets.negatives])
        steps = min(self.every_steps, self.steps - first_step)
        count = steps * self.triplets_per_batch
        repeats = -(-count // len(triplets))
        order = np.concatenate([generator.permutation(len(triplets)) for _ in range(repeats)])[:count]
        self._batches = [
            [PhotoKey(self.epoch, int(row)) for row in rows[columns[:, chosen]].ravel()]
            for chosen in order.reshape(steps, self.triplets_per_batch)
        ]

    def _sample_identities(self, generator: np.random.Generator) -> Int64[np.ndarray, " rows"]:
        """Draw whole identities until they have `subset` photos; return the rows of these."""
        labels = self.unaugmented.table.labels
        counts = np.bincount(labels)
        order = generator.permutation(len(counts))
        enough = int(np.searchsorted(np.cumsum(counts[order]), self.subset)) + 1
        return np.flatnonzero(np.isin(labels, order[:enough]))


def _quantile(values: Tensor, share: float) -> Tensor:
    """Return the value below which that share of the values lies; exact for any number of them.

    `torch.quantile` refuses large tensors. 0 if there are no values.
    """
    if len(values) == 0:
        return values.new_zeros(())
    index = min(int(share * len(values)), len(values) - 1)
    return values.sort().values[index]
