import json

import numpy as np
import pytest

from familiar.core.errors import BadDataset, BadRun
from familiar.datasets.folders import DataSpec, IdentityTable
from familiar.training.fold import check_same_run, make_fold, record_data
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder

RECIPE = Recipe(name="tiny").with_settings(
    ["input.size_px=32", "input.normalisation=imagenet", "split.validation=0.25", "split.test=0.25"]
)
CATS, DOGS = "synthetic:cats:12x4", "synthetic:dogs:8x3"


def table(*sources):
    return DataSpec(sources or (CATS,)).read()


def with_photos(counts):
    """A table of so many photos for each identity."""
    whole = table(f"synthetic:cats:{len(counts)}x{max(counts)}")
    keep = [row for row, photo in enumerate(whole.photos) if photo.index < counts[photo.identity]]
    return whole.rows(np.array(keep, np.int64))


def test_nobody_stands_on_two_sides():
    whole = table(CATS, DOGS)
    fold = make_fold(RECIPE, whole)
    sides = [set(fold.split.train), set(fold.split.validation), set(fold.split.test)]
    assert set().union(*sides) == set(whole.names)
    assert sum(map(len, sides)) == len(whole.names)
    assert set(fold.train.table.names) == sides[0]
    assert set(fold.validation.table.names) == sides[1]
    assert fold.fingerprint == whole.fingerprint


def test_only_the_photos_to_train_on_are_changed():
    fold = make_fold(RECIPE, table())
    assert fold.train.augmentation == RECIPE.augmentation
    assert fold.train.seed == RECIPE.seed
    assert fold.validation.augmentation is None
    assert fold.train.preprocessing == fold.validation.preprocessing == RECIPE.input.preprocessing()


def test_the_same_photos_and_seed_make_the_same_fold():
    first, again = make_fold(RECIPE, table()), make_fold(RECIPE, table())
    other = make_fold(RECIPE.with_settings(["seed=1"]), table())
    assert first.split == again.split
    assert first.split.train != other.split.train


def test_identities_with_few_photos_are_validated_on_but_not_trained_on():
    sparse = with_photos([1, 4] * 6)
    fold = make_fold(RECIPE.with_settings(["split.min_photos=2"]), sparse)
    assert fold.train.table.photos_per_identity.min() == 4
    assert set(fold.train.table.names) < set(fold.split.train)
    assert set(fold.validation.table.names) == set(fold.split.validation)


@pytest.mark.parametrize("identities", [1, 2, 3])
def test_too_few_identities(identities):
    with pytest.raises(BadDataset, match="too few"):
        make_fold(RECIPE, table(f"synthetic:cats:{identities}x4"))


def test_too_few_identities_with_photos_enough():
    with pytest.raises(BadDataset, match=r"^0 identities have 5 photos or more"):
        make_fold(RECIPE.with_settings(["split.min_photos=5"]), table())


def test_no_pair_to_validate_on():
    with pytest.raises(BadDataset, match="no held-out identity has two photos"):
        make_fold(RECIPE, table("synthetic:cats:12x1"))


def test_more_identities_a_batch_than_there_are():
    recipe = RECIPE.with_settings(["sampler.name=identities", "sampler.identities=7"])
    with pytest.raises(BadDataset, match=r"6 identities to train on.*sampler\.identities"):
        make_fold(recipe, table())
    make_fold(recipe.with_settings(["sampler.identities=6"]), table())


@pytest.fixture
def run(tmp_path):
    folder = RunFolder(tmp_path)
    record_data(folder, DataSpec((CATS, DOGS)), make_fold(RECIPE, table(CATS, DOGS)))
    folder.recipe_json.write_text(RECIPE.to_json())
    return folder


def test_the_record_says_what_was_where(run):
    assert run.split() == make_fold(RECIPE, table(CATS, DOGS)).split
    assert run.data_spec() == DataSpec((CATS, DOGS))
    stored = json.loads(run.data_json.read_text())
    assert stored["train"] == {
        "synthetic:cats": {"identities": 6, "photos": 24},
        "synthetic:dogs": {"identities": 4, "photos": 12},
    }
    assert stored["validation"]["synthetic:dogs"] == {"identities": 2, "photos": 6}


def test_the_same_run_is_known_again(run):
    check_same_run(run, RECIPE, make_fold(RECIPE, table(CATS, DOGS)))


def test_another_recipe_or_other_photos_are_another_run(run):
    fold = make_fold(RECIPE, table(CATS, DOGS))
    with pytest.raises(BadRun, match="another recipe"):
        check_same_run(run, RECIPE.with_settings(["optimizer.lr=1e-3"]), fold)
    with pytest.raises(BadRun, match="other photos"):
        check_same_run(run, RECIPE, make_fold(RECIPE, table(CATS)))


def test_an_empty_table():
    empty = IdentityTable((), np.empty(0, np.int64), ())
    with pytest.raises(BadDataset):
        make_fold(RECIPE, empty)
