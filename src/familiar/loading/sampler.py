"""Batch samplers: shuffled photos, or P identities with K photos each per batch."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Int64
from torch.utils.data import Sampler

from familiar.loading.dataset import PhotoKey

SAMPLER_STREAM = 2  # makes these draws independent of others with the same seed


class ShuffledBatches(Sampler[list[PhotoKey]]):
    """Batches of all photos, in a new random order in each epoch.

    With blends, each epoch has as many of them as photos: those of the next round, and after the last round the first
    ones again. An incomplete last batch is dropped, since batch norm would use the statistics of a few photos, unless
    it is the only one.

    Args:
        photos: number of photos in the dataset, 1 or more.
        batch_size: photos in a batch, 1 or more; above `photos`, there is one batch of all.
        seed: of the order, together with the attribute `epoch`, which the caller sets before each epoch.
        blend_rounds: rounds of blends behind the photos in the dataset, each as many as there are photos.

    Raises:
        ValueError: there are no photos, or the batch size is below 1.
    """

    def __init__(self, photos: int, batch_size: int, seed: int = 0, *, blend_rounds: int = 0) -> None:
        if photos < 1 or batch_size < 1:
            raise ValueError(f"cannot make batches of {batch_size} from {photos} photos")
        self.photos = photos
        self.blend_rounds = blend_rounds
        self.rows_per_epoch = photos * (2 if blend_rounds else 1)
        self.batch_size = min(batch_size, self.rows_per_epoch)
        self.seed = seed
        self.epoch = 0

    def __len__(self) -> int:
        return self.rows_per_epoch // self.batch_size

    def __iter__(self) -> Iterator[list[PhotoKey]]:
        order = np.random.default_rng((SAMPLER_STREAM, self.seed, self.epoch)).permutation(self.rows_per_epoch)
        if self.blend_rounds:
            order[order >= self.photos] += self.photos * (self.epoch % self.blend_rounds)
        for batch in range(len(self)):
            rows = order[batch * self.batch_size : (batch + 1) * self.batch_size]
            yield [PhotoKey(self.epoch, int(row)) for row in rows]


class IdentityBatches(Sampler[list[PhotoKey]]):
    """Batches of P identities with K photos each; every identity occurs at most once per epoch.

    If an identity has fewer than K photos, some are repeated, with a `PhotoKey.repeat` that has them augmented anew.
    Identities that do not fill a last batch are left out of the epoch; the order differs in each epoch.

    Args:
        labels: the identity of each photo of the dataset.
        identities: P, from 1 to the number of identities among the labels.
        photos: K, 1 or more.
        seed: of the draws, together with the attribute `epoch`, which the caller sets before each epoch.
        repeats: False: identities with fewer photos have fewer in a batch. Without augmentation repeated photos would
            be positives of themselves.

    Raises:
        ValueError: P or K is below 1, or there are fewer than P identities.
    """

    def __init__(
        self, labels: Int64[np.ndarray, " n"], identities: int, photos: int, seed: int = 0, *, repeats: bool = True
    ) -> None:
        by_label = np.argsort(labels, kind="stable")
        _, starts = np.unique(labels[by_label], return_index=True)
        if identities < 1 or photos < 1:
            raise ValueError(f"a batch needs at least 1 identity and 1 photo, got {identities} x {photos}")
        if identities > len(starts):
            raise ValueError(f"batches of {identities} identities, but there are only {len(starts)}")
        self.rows_by_identity = np.split(by_label, starts[1:])
        self.identities = identities
        self.photos = photos
        self.repeats = repeats
        self.seed = seed
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.rows_by_identity) // self.identities

    def __iter__(self) -> Iterator[list[PhotoKey]]:
        generator = np.random.default_rng((SAMPLER_STREAM, self.seed, self.epoch))
        order = generator.permutation(len(self.rows_by_identity))
        for batch in range(len(self)):
            chosen = order[batch * self.identities : (batch + 1) * self.identities]
            yield [key for identity in chosen for key in self._draw_photos(self.rows_by_identity[identity], generator)]

    def _draw_photos(self, rows: Int64[np.ndarray, " r"], generator: np.random.Generator) -> list[PhotoKey]:
        """Draw K photos of an identity, all of them before any is repeated."""
        if len(rows) >= self.photos:
            drawn = generator.choice(rows, self.photos, replace=False).tolist()
        else:
            repeated = generator.choice(rows, self.photos - len(rows), replace=True)
            drawn = [*generator.permutation(rows).tolist(), *(repeated.tolist() if self.repeats else [])]
        return [PhotoKey(self.epoch, row, drawn[:index].count(row)) for index, row in enumerate(drawn)]
