"""In what order photos come: shuffled once an epoch, or P identities with K photos each a batch."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Int64
from torch.utils.data import Sampler

from familiar.loading.dataset import PhotoKey

SAMPLER_STREAM = 2  # keeps these draws apart from others that use the same seed


class ShuffledBatches(Sampler[list[PhotoKey]]):
    """Every photo once an epoch, in an order of (seed, epoch).

    A last batch that is not full is left out, since batch norm would judge by a few photos; where there is
    only one batch it stays.
    """

    def __init__(self, photos: int, batch_size: int, seed: int = 0) -> None:
        if photos < 1 or batch_size < 1:
            raise ValueError(f"no batches of {batch_size} from {photos} photos")
        self.photos = photos
        self.batch_size = min(batch_size, photos)
        self.seed = seed
        self.epoch = 0

    def __len__(self) -> int:
        return self.photos // self.batch_size

    def __iter__(self) -> Iterator[list[PhotoKey]]:
        order = np.random.default_rng((SAMPLER_STREAM, self.seed, self.epoch)).permutation(self.photos)
        for batch in range(len(self)):
            rows = order[batch * self.batch_size : (batch + 1) * self.batch_size]
            yield [PhotoKey(self.epoch, int(row)) for row in rows]


class IdentityBatches(Sampler[list[PhotoKey]]):
    """P identities x K photos a batch; every identity once an epoch.

    Where an identity has fewer than K photos, the rest are drawn again from those it has. Identities that do
    not fill a last batch wait for another epoch, whose order differs.
    """

    def __init__(self, labels: Int64[np.ndarray, " n"], identities: int, photos: int, seed: int = 0) -> None:
        by_label = np.argsort(labels, kind="stable")
        _, starts = np.unique(labels[by_label], return_index=True)
        if identities < 1 or photos < 1:
            raise ValueError(f"a batch of {identities} identities x {photos} photos is none")
        if identities > len(starts):
            raise ValueError(f"batches of {identities} identities, but there are only {len(starts)}")
        self.rows_by_identity = np.split(by_label, starts[1:])
        self.identities = identities
        self.photos = photos
        self.seed = seed
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.rows_by_identity) // self.identities

    def __iter__(self) -> Iterator[list[PhotoKey]]:
        generator = np.random.default_rng((SAMPLER_STREAM, self.seed, self.epoch))
        order = generator.permutation(len(self.rows_by_identity))
        for batch in range(len(self)):
            chosen = order[batch * self.identities : (batch + 1) * self.identities]
            yield [
                PhotoKey(self.epoch, int(row))
                for identity in chosen
                for row in _draw_rows(self.rows_by_identity[identity], self.photos, generator)
            ]


def _draw_rows(rows: np.ndarray, count: int, generator: np.random.Generator) -> np.ndarray:
    if len(rows) >= count:
        return generator.choice(rows, count, replace=False)
    again = generator.choice(rows, count - len(rows), replace=True)
    return np.concatenate([generator.permutation(rows), again])
