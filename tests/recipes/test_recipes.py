import pytest

from familiar.core.errors import BadRecipe
from familiar.datasets.folders import DataSpec
from familiar.models.catalog import NETWORKS
from familiar.recipes import RECIPES, recipe_named
from familiar.training.fitting import fit
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder
from support.tiers import all_exhaustive_but, small_and_exhaustive
from support.tiny_run import history

pytestmark = pytest.mark.slow

# Same method, but only a few steps on a few photos, from random weights.
SMALL = (
    "input.size_px=64",
    "input.resize=stretch",
    "input.resize_px=64",
    "model.initial_weights=none",
    "sampler.identities=4",
    "sampler.photos=3",
    "sampler.batch_size=8",
    "split.train=",
    "budget.epochs=1",
    "validation.every_epochs=1",
)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_documented_and_survives_json_roundtrip(name):
    recipe = recipe_named(name)
    assert recipe.name == name
    assert Recipe.from_json(recipe.to_json()) == recipe
    assert recipe.model.name in NETWORKS
    assert RECIPES[name].__doc__


def test_unknown_recipe_error_lists_known_recipes():
    with pytest.raises(
        BadRecipe,
        match=r"'pets'; choose one of pet-mobile, pet-lite, pet-nano, pet-lite-nano, .*-arcface",
    ):
        recipe_named("pets")


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("name", all_exhaustive_but(["pet-mobile", "digits-arcface", "compatible"], RECIPES))
def test_every_recipe_trains(name, tmp_path, shared_bundle):
    recipe = recipe_named(name)
    settings = list(SMALL)
    if recipe.sampler.chunk_size:
        settings.append("sampler.chunk_size=5")
    if recipe.loss.compatible_with:
        settings.append(f"loss.compatible_with={shared_bundle}")
    if recipe.distill.blends or not recipe.distill.label_weight:
        settings.append(f"distill.teacher={shared_bundle}")
    if recipe.model.frozen_statistics:  # those of random weights would let all embeddings collapse
        settings += ["model.frozen_statistics=false", "model.frozen_stages=0"]
    run = RunFolder(tmp_path)
    result = fit(recipe.with_settings(settings), DataSpec(("synthetic:cats:20x4",)), run.path)
    assert result.epochs == 1
    assert [float(row["gradient_norm"]) > 0 for row in history(run)] == [True]
    assert run.embedder.exists()


@pytest.mark.exhaustive
@pytest.mark.usefixtures("quiet")
def test_facenet_small_trains_with_offline_mining(tmp_path):
    recipe = recipe_named("facenet-small").with_settings(
        [
            *SMALL,
            "mining.mode=offline",
            "sampler.chunk_size=5",
            "sampler.batch_size=12",
            "mining.every_steps=2",
        ]
    )
    result = fit(recipe, DataSpec(("synthetic:cats:20x4",)), tmp_path)
    assert result.epochs == 1


@pytest.mark.exhaustive
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    "setting",
    small_and_exhaustive(
        "model.frozen_trunk=true",
        *("model.head=average_mlp", "model.head=flatten", "model.name=shufflenet_v2"),
        *("optimizer.name=adagrad", "loss.name=softmax"),
    ),
)
def test_pet_mobile_trains_with_one_changed_setting(setting, tmp_path):
    recipe = recipe_named("pet-mobile").with_settings([*SMALL, setting])
    fit(recipe, DataSpec(("synthetic:cats:20x4",)), tmp_path)
    assert RunFolder(tmp_path).embedder.exists()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.head=gap", r"unknown head 'gap'"),
        ("model.blocks=5", r"option\(s\) blocks"),
        ("model.batch_norm=false", r"option\(s\) batch_norm"),
        ("model.name=vgg", r"unknown network 'vgg'; choose one of mobilenetv3_small_100, "),
    ],
)
def test_rejects_unsupported_model_setting_before_creating_run(setting, message, tmp_path):
    recipe = recipe_named("pet-mobile").with_settings([*SMALL, setting])
    with pytest.raises(BadRecipe, match=message):
        fit(recipe, DataSpec(("synthetic:cats:20x4",)), tmp_path / "run")
    assert not (tmp_path / "run").exists()
