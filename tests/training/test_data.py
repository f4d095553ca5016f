import json

import numpy as np
import pytest

from familiar.core.errors import BadDataset, BadRun
from familiar.datasets.folders import DataSpec, IdentityTable
from familiar.loading.crops import CropTable, read_table
from familiar.training.data import check_same_data, check_same_recipe, prepare_data, record_data
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder
from support.tiny_run import save_photos

RECIPE = Recipe(name="tiny").with_settings(
    ["input.size_px=32", "input.normalization=imagenet", "split.validation=0.25", "split.test=0.25"]
)
CATS, DOGS = "synthetic:cats:12x4", "synthetic:dogs:8x3"


def read(*sources):
    return read_table(DataSpec(sources or (CATS,)).read(), RECIPE.input.preprocessing())


def with_photos(counts):
    """Return photos of synthetic cats, that many for each identity."""
    whole = DataSpec((f"synthetic:cats:{len(counts)}x{max(counts)}",)).read()
    keep = [row for row, photo in enumerate(whole.photos) if photo.index < counts[photo.identity]]
    return read_table(whole.select_rows(np.array(keep, np.int64)), RECIPE.input.preprocessing())


def test_split_sides_are_disjoint_and_complete():
    data = prepare_data(RECIPE, read(CATS, DOGS))
    whole = data.photos.table
    sides = [set(data.split.train), set(data.split.validation), set(data.split.test)]
    assert set().union(*sides) == set(whole.names)
    assert sum(map(len, sides)) == len(whole.names)
    assert set(data.train.table.names) == sides[0]
    assert set(data.validation.table.names) == sides[1]


def test_only_training_photos_are_augmented():
    data = prepare_data(RECIPE, read())
    assert data.train.augmentation == RECIPE.augmentation
    assert data.train.seed == RECIPE.seed
    assert data.validation.augmentation is None
    for side in (data.train, data.validation):
        assert side.crops.preprocessing == RECIPE.input.preprocessing()
        assert side.crops.photos == side.table.photos


def test_data_is_deterministic_for_each_seed():
    first, again = prepare_data(RECIPE, read()), prepare_data(RECIPE, read())
    other = prepare_data(RECIPE.with_settings(["seed=1"]), read())
    assert first.split == again.split
    assert first.split.train != other.split.train


def test_min_photos_filters_training_but_not_validation():
    sparse = with_photos([1, 4] * 6)
    data = prepare_data(RECIPE.with_settings(["split.min_photos=2"]), sparse)
    assert data.train.table.photos_per_identity.min() == 4
    assert set(data.train.table.names) < set(data.split.train)
    assert set(data.validation.table.names) == set(data.split.validation)


@pytest.mark.parametrize("identities", [1, 2, 3])
def test_rejects_too_few_identities(identities):
    with pytest.raises(BadDataset, match="too few"):
        prepare_data(RECIPE, read(f"synthetic:cats:{identities}x4"))


def test_rejects_too_few_identities_with_min_photos():
    with pytest.raises(BadDataset, match=r"two identities with 5 photos or more, got 0$"):
        prepare_data(RECIPE.with_settings(["split.min_photos=5"]), read())


def test_rejects_validation_without_same_pair():
    with pytest.raises(BadDataset, match="no validation identity has two photos"):
        prepare_data(RECIPE, read("synthetic:cats:12x1"))


def test_rejects_more_identities_per_batch_than_available():
    recipe = RECIPE.with_settings(["sampler.name=identities", "sampler.identities=7"])
    with pytest.raises(BadDataset, match=r"6 training identities are too few.*sampler\.identities"):
        prepare_data(recipe, read())
    prepare_data(recipe.with_settings(["sampler.identities=6"]), read())


@pytest.fixture
def run(tmp_path):
    folder = RunFolder(tmp_path)
    record_data(folder, DataSpec((CATS, DOGS)), prepare_data(RECIPE, read(CATS, DOGS)))
    folder.recipe_json.write_text(RECIPE.to_json())
    return folder


def test_record_stores_split_spec_and_counts(run):
    assert run.split() == prepare_data(RECIPE, read(CATS, DOGS)).split
    assert run.data_spec() == DataSpec((CATS, DOGS))
    stored = json.loads(run.data_json.read_text())
    assert stored["train"] == {
        "synthetic:cats": {"identities": 6, "photos": 24},
        "synthetic:dogs": {"identities": 4, "photos": 12},
    }
    assert stored["validation"]["synthetic:dogs"] == {"identities": 2, "photos": 6}


def test_run_has_learned_what_the_run_of_its_initial_weights_has_learned(run, tmp_path):
    stored = json.loads(run.data_json.read_text())
    run.data_json.write_text(json.dumps({**stored, "distilled": {"space_ids": ["one", "two"]}}))
    second, third = RunFolder(tmp_path / "second"), RunFolder(tmp_path / "third")
    for folder, initial, species in ((second, run, "cats:16x2"), (third, second, "dogs:8x9")):
        folder.path.mkdir()
        data = DataSpec((f"synthetic:{species}",))
        record_data(folder, data, prepare_data(RECIPE, read(*data.sources)), initial)
    assert third.trained_on() == {
        "synthetic:cats": {"identities": 8, "photos": 24},  # the larger number of both runs
        "synthetic:dogs": {"identities": 4, "photos": 36},
    }
    assert third.taught_by() == ["one", "two"]
    assert run.trained_on() == stored["train"]


def test_checks_accept_unchanged_run(run):
    check_same_recipe(run, RECIPE)
    check_same_data(run, prepare_data(RECIPE, read(CATS, DOGS)))


def test_changed_recipe_error_lists_old_and_new_values(run):
    other = RECIPE.with_settings(["optimizer.lr=1e-3", "augmentation.flip_p=0.25", "seed=2", "name=else"])
    with pytest.raises(BadRun) as caught:
        check_same_recipe(run, other)
    assert str(caught.value) == (
        f"{run.path}: the run was started with another recipe: name was tiny, is else, seed was 0, is 2, "
        "augmentation.flip_p was 0.5, is 0.25, optimizer.lr was 0.0005, is 0.001"
    )


def test_rejects_added_or_removed_photos(run):
    for other in (read(CATS), read(CATS, DOGS.replace("8x", "9x")), read(CATS, DOGS.replace("x3", "x4"))):
        with pytest.raises(BadRun, match="started with other photos: files were added, removed or changed since"):
            check_same_data(run, prepare_data(RECIPE, other))


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize("change", ["pixel", "rename", "move"])
def test_rejects_edited_renamed_or_moved_photo(tmp_path, change):
    data, run = save_photos(tmp_path / "cats"), RunFolder(tmp_path)
    record_data(run, data, prepare_data(RECIPE, read_table(data.read(), RECIPE.input.preprocessing())))
    run.recipe_json.write_text(RECIPE.to_json())

    def check():
        check_same_data(run, prepare_data(RECIPE, read_table(data.read(), RECIPE.input.preprocessing())))

    check()
    photo = tmp_path / "cats" / "cat 3" / "2.png"
    if change == "pixel":
        content = photo.read_bytes()
        photo.write_bytes(content + b"\0")
        with pytest.raises(BadRun, match="other photos"):
            check()
        photo.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif change == "rename":
        photo.rename(photo.with_name("9.png"))
    else:
        photo.rename(tmp_path / "cats" / "cat 4" / "9.png")
    with pytest.raises(BadRun, match="other photos"):
        check()


def test_rejects_empty_table():
    whole = read()
    nothing = IdentityTable((), np.empty(0, np.int64), ())
    with pytest.raises(BadDataset):
        prepare_data(RECIPE, CropTable(nothing, whole.crops.select(nothing), ""))
