"""Batch samplers: shuffled photos, photos shard by shard, or P identities with K photos each per batch."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

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


class ShardBatches(Sampler[list[PhotoKey]]):
    """Batches of all photos, read shard by shard: for shards that are too large, or too far away, to be read at random.

    In each epoch the shards come in a new random order, and their photos pass through a buffer, from which each one is
    drawn at random. With `parts`, each of them has shards of its own, and as many photos of every batch. An incomplete
    last batch is dropped, and so are the last photos of parts that have more than others.

    Args:
        rows_by_shard: for each shard its photos' rows in the dataset, in the order in which they are stored.
        batch_size: photos in a batch, at least `parts`.
        buffer: photos to draw from in each part; with 1 they keep their order.
        seed: of the order, together with the attribute `epoch`, which the caller sets before each epoch.
        parts: number of ranks; the photos of each are neighbors in a batch.

    Raises:
        ValueError: there are fewer shards than parts, fewer photos of a part than it has in a batch, or a batch with
            fewer photos than parts.
    """

    def __init__(
        self,
        rows_by_shard: Sequence[Int64[np.ndarray, " _"]],
        batch_size: int,
        buffer: int,
        seed: int = 0,
        parts: int = 1,
    ) -> None:
        if len(rows_by_shard) < parts:
            raise ValueError(f"{len(rows_by_shard)} shards cannot be divided among {parts} processes")
        if batch_size < parts or buffer < 1:
            raise ValueError(f"cannot make batches of {batch_size} in {parts} parts with a buffer of {buffer}")
        self.rows_by_shard = rows_by_shard
        self.batch_size = batch_size
        self.buffer = buffer
        self.seed = seed
        self.parts = parts
        self.epoch = 0

    def __len__(self) -> int:
        return min(len(rows) // count for rows, count in zip(self._rows_by_part(), self._counts, strict=True))

    def __iter__(self) -> Iterator[list[PhotoKey]]:
        parts = zip(self._rows_by_part(), self._counts, strict=True)
        shuffled = [(self._shuffle(rows, part), count) for part, (rows, count) in enumerate(parts)]
        for batch in range(len(self)):
            yield [
                PhotoKey(self.epoch, row)
                for rows, count in shuffled
                for row in rows[batch * count : (batch + 1) * count].tolist()
            ]

    @property
    def _counts(self) -> list[int]:
        """Number of each part's photos in a batch."""
        bounds = [self.batch_size * part // self.parts for part in range(self.parts + 1)]
        return [end - start for start, end in pairwise(bounds)]

    def _rows_by_part(self) -> list[Int64[np.ndarray, " _"]]:
        """Return the rows of each part in the order in which they are read."""
        order = np.random.default_rng((SAMPLER_STREAM, self.seed, self.epoch)).permutation(len(self.rows_by_shard))
        return [
            np.concatenate([self.rows_by_shard[shard] for shard in order[p :: self.parts]]) for p in range(self.parts)
        ]

    def _shuffle(self, rows: Int64[np.ndarray, " n"], part: int) -> Int64[np.ndarray, " n"]:
        """Let rows pass through the buffer."""
        generator = np.random.default_rng((SAMPLER_STREAM, self.seed, self.epoch, part))
        waiting = rows[: self.buffer].copy()
        drawn = np.empty_like(rows)
        later = len(rows) - len(waiting)
        for index, slot in enumerate(generator.integers(0, len(waiting), later).tolist()):
            drawn[index] = waiting[slot]
            waiting[slot] = rows[len(waiting) + index]
        drawn[later:] = generator.permutation(waiting)
        return drawn


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
