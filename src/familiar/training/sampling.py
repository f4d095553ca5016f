"""Which photos are in each batch: the sampler that a recipe names, and each rank's part of its batches."""

from collections.abc import Iterator
from itertools import groupby

import numpy as np
from jaxtyping import Int64

from familiar.core.errors import BadRecipe
from familiar.datasets.shards.scanning import rows_by_shard
from familiar.loading.dataset import PhotoKey
from familiar.loading.sampler import IdentityBatches, ShardBatches, ShuffledBatches
from familiar.training.data import TrainingData
from familiar.training.offline_mining import OfflineTriplets
from familiar.training.ranks import Ranks
from familiar.training.recipe import Recipe

BatchSampler = OfflineTriplets | IdentityBatches | ShuffledBatches | ShardBatches


def build_sampler(recipe: Recipe, data: TrainingData, ranks: Ranks) -> BatchSampler:
    """Return the sampler that chooses the photos of each batch, of all ranks.

    Raises:
        BadRecipe: photos are to be read shard by shard, but cannot.
    """
    table, sampler, mining = data.train.table, recipe.sampler, recipe.mining
    if sampler.shard_buffer and (mining.mode == "offline" or recipe.batches_by_identity):
        raise BadRecipe(
            "sampler.shard_buffer: this loss needs several photos of an identity in a batch, which are in different "
            "shards; set it to 0"
        )
    if mining.mode == "offline":
        return OfflineTriplets(
            data.train, sampler.batch_size, mining.every_steps, mining.subset, mining.skip, recipe.seed
        )
    if recipe.batches_by_identity:
        return IdentityBatches(
            table.labels,
            sampler.identities,
            sampler.photos,
            recipe.seed,
            repeats=recipe.augmentation.changes_photos,
        )
    if sampler.shard_buffer:
        if recipe.distill.blends:
            raise BadRecipe("sampler.shard_buffer: blends take photos from all shards; set distill.blends=0")
        try:
            rows = rows_by_shard(table.photos)
            return ShardBatches(rows, sampler.batch_size, sampler.shard_buffer, recipe.seed, ranks.size)
        except ValueError as error:
            raise BadRecipe(f"sampler.shard_buffer: {error}") from error
    return ShuffledBatches(len(table), sampler.batch_size, recipe.seed, blend_rounds=recipe.distill.blends)


class RankBatches:
    """This rank's part of every batch: whole identities, if the sampler draws identities.

    Args:
        sampler: of whole batches.
        labels: of the dataset's photos.
        ranks: that the batches are divided among.

    Raises:
        BadRecipe: a batch has fewer identities, or photos, than there are ranks.
    """

    def __init__(
        self,
        sampler: BatchSampler,
        labels: Int64[np.ndarray, " n"],
        ranks: Ranks,
    ) -> None:
        self.sampler = sampler
        self.labels = labels
        self.ranks = ranks
        setting = "identities" if isinstance(sampler, IdentityBatches) else "batch_size"
        if (count := getattr(sampler, setting)) < ranks.size:
            raise BadRecipe(
                f"sampler.{setting}: batches of {count} cannot be divided among {ranks.size} processes; raise it or "
                "start fewer"
            )

    def __iter__(self) -> Iterator[list[PhotoKey]]:
        for batch in self.sampler:
            yield [key for unit in self.ranks.share(self._units(batch)) for key in unit]

    def _units(self, batch: list[PhotoKey]) -> list[list[PhotoKey]]:
        """Divide a batch into what stays together."""
        if not isinstance(self.sampler, IdentityBatches):
            return [[key] for key in batch]
        return [list(keys) for _, keys in groupby(batch, lambda key: self.labels[key.row])]
