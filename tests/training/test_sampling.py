"""The sampler that a recipe names."""

from pathlib import Path

import pytest

from familiar.core.errors import BadRecipe
from familiar.datasets.folders import DataSpec
from familiar.datasets.shards.packing import pack
from familiar.loading.crops import read_table
from familiar.loading.sampler import ShardBatches
from familiar.training.data import TrainingData, prepare_data
from familiar.training.fitting import fit
from familiar.training.ranks import ONE_RANK, Ranks
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder
from familiar.training.sampling import build_sampler
from support.tiny_run import TINY, history

pytestmark = pytest.mark.slow

BUFFERED = TINY.with_settings(["sampler.shard_buffer=10", "budget.epochs=2", "input.normalization=imagenet"])


@pytest.fixture(scope="module")
def shards(cats: DataSpec, tmp_path_factory: pytest.TempPathFactory) -> DataSpec:
    folder = tmp_path_factory.mktemp("shards") / "cats"
    assert len(pack(cats.read(), folder, shard_bytes=20_000).shards) > 4
    return DataSpec((str(folder),))


def data_of(recipe: Recipe, spec: DataSpec) -> TrainingData:
    return prepare_data(recipe, read_table(spec.read(), recipe.input.preprocessing()))


def test_shards_are_read_one_after_the_other(shards: DataSpec):
    data = data_of(BUFFERED, shards)
    sampler = build_sampler(BUFFERED, data, ONE_RANK)
    assert isinstance(sampler, ShardBatches)
    drawn = [key.row for batch in sampler for key in batch]
    assert len(set(drawn)) == len(drawn)


@pytest.mark.usefixtures("without_curves")
def test_training_shard_by_shard_can_be_repeated(shards: DataSpec, tmp_path: Path):
    fit(BUFFERED, shards, tmp_path / "first")
    fit(BUFFERED, shards, tmp_path / "again")
    assert history(RunFolder(tmp_path / "first")) == history(RunFolder(tmp_path / "again"))


@pytest.mark.usefixtures("without_curves")
def test_training_on_shards_equals_training_on_files(shards: DataSpec, cats: DataSpec, tmp_path: Path):
    fit(TINY, cats, tmp_path / "files")
    fit(TINY, shards, tmp_path / "shards")
    assert history(RunFolder(tmp_path / "files")) == history(RunFolder(tmp_path / "shards"))


def test_what_cannot_be_read_shard_by_shard_is_refused(shards: DataSpec, cats: DataSpec):
    with pytest.raises(BadRecipe, match=r"sampler\.shard_buffer: .*is not in a shard; pack the photos"):
        build_sampler(BUFFERED, data_of(BUFFERED, cats), ONE_RANK)
    with pytest.raises(BadRecipe, match="shards cannot be divided among 99 processes"):
        build_sampler(BUFFERED, data_of(BUFFERED, shards), Ranks(0, 99))
    triplets = BUFFERED.with_settings(["loss.name=semi_hard", "sampler.identities=4"])
    with pytest.raises(BadRecipe, match="needs several photos of an identity in a batch"):
        build_sampler(triplets, data_of(triplets, shards), ONE_RANK)
