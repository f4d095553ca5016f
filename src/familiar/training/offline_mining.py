"""Mining across photos instead of within batches (FaceNet, arXiv 1503.03832, section 3.2, "offline")."""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.utils.data import Sampler

from familiar.core.errors import BadDataset
from familiar.loading.dataset import FaceDataset, PhotoKey
from familiar.losses.blockwise import FAR, distance_blocks
from familiar.losses.mining import Triplets
from familiar.training.validation import embed_dataset

ROUNDING = 1e-6  # of a distance: the two ways between two photos are to be judged alike
OFFLINE_STREAM = 3  # keeps these draws apart from others that use the same seed


def mine_across(embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], skip: float = 0.02) -> Triplets:
    """For each row its farthest positive and nearest negative among all rows, block by block.

    The hardest of all are wrong labels and unreadable faces more often than lessons. So the share `skip` of rows whose
    farthest positive lies farthest says from where on positives are suspicious, likewise for the nearest negatives, and
    each row takes its hardest that is not. Rows for which none is left have no triplet.
    """
    n = len(labels)
    farthest, nearest = embeddings.new_full((n,), -FAR), embeddings.new_full((n,), FAR)
    for some, block in distance_blocks(embeddings, labels):
        farthest[some] = block.positives(pad=-FAR).amax(dim=1)
        nearest[some] = block.negatives(fill=FAR).amin(dim=1)
    suspicious_from = _quantile(farthest[farthest > -FAR], 1 - skip) + ROUNDING
    suspicious_to = _quantile(nearest[nearest < FAR], skip) - ROUNDING
    anchors, positives, negatives = [], [], []
    for some, block in distance_blocks(embeddings, labels):
        to_positives = block.positives(pad=-FAR)
        far, which = to_positives.masked_fill_(to_positives > suspicious_from, -FAR).max(dim=1, keepdim=True)
        to_negatives = block.negatives(fill=FAR)
        near, column = to_negatives.masked_fill_(to_negatives < suspicious_to, FAR).min(dim=1)
        found = ((far[:, 0] > -FAR) & (near < FAR)).nonzero().squeeze(1)
        anchors.append(found + some.start)
        positives.append(block.places.gather(1, which)[found, 0])
        negatives.append(column[found])
    none = labels.new_empty(0)
    return Triplets(*(torch.cat([none, *parts]) for parts in (anchors, positives, negatives)))


class OfflineTriplets(Sampler[list[PhotoKey]]):
    """Batches of mined triplets: first the anchors, then their positives, then their negatives.

    `mine` finds triplets for the next `every_steps` batches; iterating gives those batches. An epoch has as many as
    shuffled batches would have.
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
        self.plain = FaceDataset(dataset.table, dataset.crops)
        self.triplets_a_batch = max(1, batch_size // 3)
        self.steps = max(1, len(dataset) // (3 * self.triplets_a_batch))
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

    def rounds(self) -> range:
        """The first step of each round of an epoch."""
        return range(0, self.steps, self.every_steps)

    def mine(self, network: nn.Module, first_step: int) -> None:
        """Triplets by the network as it stands, for the round that begins with `first_step`.

        BadDataset where the photos hold none.
        """
        generator = np.random.default_rng((OFFLINE_STREAM, self.seed, self.epoch, first_step))
        rows = self._some_identities(generator)
        labels = self.plain.table.labels
        embeddings = torch.from_numpy(embed_dataset(network, self.plain, rows))
        triplets = mine_across(embeddings, torch.from_numpy(labels[rows]), self.skip)
        if len(triplets) == 0:
            raise BadDataset("no triplet can be mined: no identity has two photos that are not suspiciously far apart")
        columns = np.stack([triplets.anchors, triplets.positives, triplets.negatives])
        steps = min(self.every_steps, self.steps - first_step)
        wanted = steps * self.triplets_a_batch
        order = np.concatenate([generator.permutation(len(triplets)) for _ in range(-(-wanted // len(triplets)))])[
            :wanted
        ]
        self._batches = [
            [PhotoKey(self.epoch, int(row)) for row in rows[columns[:, chosen]].ravel()]
            for chosen in order.reshape(steps, self.triplets_a_batch)
        ]

    def _some_identities(self, generator: np.random.Generator) -> Int64[np.ndarray, " rows"]:
        """Rows of whole identities, drawn until there are `subset` of them."""
        labels = self.plain.table.labels
        counts = np.bincount(labels)
        order = generator.permutation(len(counts))
        enough = int(np.searchsorted(np.cumsum(counts[order]), self.subset)) + 1
        return np.flatnonzero(np.isin(labels, order[:enough]))


def _quantile(values: Tensor, share: float) -> Tensor:
    """The value below which that share lies; exact for any number of them, unlike `torch.quantile`."""
    if len(values) == 0:
        return values.new_zeros(())
    place = min(int(share * len(values)), len(values) - 1)
    return values.sort().values[place]
