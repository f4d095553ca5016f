import dataclasses
import json
import math
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from familiar.core.errors import BadRecipe
from familiar.faces.tensor import IMAGENET_MEAN_RGB, IMAGENET_STD_RGB
from familiar.loading.augment.settings import AUGMENTATIONS, Augmentation
from familiar.training.recipe import (
    BudgetSettings,
    InputSettings,
    LossSettings,
    ModelSettings,
    OptimizerSettings,
    Recipe,
    SamplerSettings,
    SplitSettings,
    ValidationSettings,
    recipe_keys,
)

DEFAULT = Recipe(name="default")


def value_at(recipe, key):
    value = recipe
    for name in key.split("."):
        value = getattr(value, name)
    return value


def kind_of(key):
    *parents, name = key.split(".")
    return get_type_hints(type(value_at(DEFAULT, ".".join(parents)) if parents else DEFAULT))[name]


def share(low=0.0, high=1.0):
    return st.floats(low, high)


RECIPES = st.builds(
    Recipe,
    name=st.text(),
    seed=st.integers(0, 2**63 - 1),
    model=st.builds(
        ModelSettings,
        embedding_dim=st.integers(2, 4096),
        dropout=share(high=0.95),
        initial_weights=st.sampled_from(["none", "imagenet", "weights/Köter 1.npz"]),
    ),
    input=st.builds(
        InputSettings,
        size_px=st.integers(16, 224),
        resize=st.sampled_from(["stretch", "centre_crop"]),
        resize_px=st.integers(224, 2048),
        margin=share(high=2.0),
        normalisation=st.sampled_from(["auto", "imagenet", "symmetric"]),
    ),
    augmentation=st.builds(Augmentation, flip_p=share(), hue=share(high=0.5), rotate_deg=share(high=180)),
    split=st.builds(SplitSettings, validation=share(0.001, 0.5), test=share(high=0.49)),
    sampler=st.builds(
        SamplerSettings, name=st.sampled_from(["shuffled", "identities"]), batch_size=st.integers(2, 999)
    ),
    loss=st.builds(LossSettings, scale=st.floats(0.1, 1000), margin_rad=share(high=2.33)),
    optimizer=st.builds(OptimizerSettings, lr=share(high=10), final_lr=share(high=1)),
    budget=st.builds(BudgetSettings, epochs=st.integers(1, 100_000), seconds=st.floats(0, 1e9)),
    validation=st.builds(ValidationSettings, pairs=st.integers(2, 10_000_000)),
)


@settings(deadline=None, max_examples=60)
@given(RECIPES)
def test_a_recipe_comes_back_from_its_json(recipe):
    assert Recipe.from_json(recipe.to_json()) == recipe


@settings(deadline=None, max_examples=40)
@given(RECIPES, st.sampled_from(recipe_keys()))
def test_settings_carry_any_recipe_over(recipe, key):
    changed = DEFAULT.with_settings([f"{key}={value_at(recipe, key)}"] if key != "name" else [])
    assert key == "name" or value_at(changed, key) == value_at(recipe, key)


@settings(deadline=None, max_examples=40)
@given(RECIPES)
def test_the_order_of_settings_does_not_matter(recipe):
    wanted = [f"{key}={value_at(recipe, key)}" for key in recipe_keys() if key != "name"]
    forth, back = DEFAULT.with_settings(wanted), DEFAULT.with_settings(reversed(wanted))
    assert forth == back == dataclasses.replace(recipe, name="default")


OTHER_VALUES = {  # where one more or the half would not do
    "augmentation.crop_ratio_max": 1.2,
    "augmentation.blur_kernel_min": 5,
    "augmentation.blur_kernel_max": 11,
    "augmentation.jpeg_quality_max": 90,
}


def other_value(key):
    """One that is valid and not the default."""
    if key in OTHER_VALUES:
        return OTHER_VALUES[key]
    value, kind = value_at(DEFAULT, key), kind_of(key)
    if get_origin(kind) is Literal:
        return next((option for option in get_args(kind) if option != value), value)
    if kind is str:
        return "another"
    return value + 1 if kind is int else (value / 2 or 0.01)


@pytest.mark.parametrize(
    "key",
    [key for key in recipe_keys() if key != "augmentation.blur_sigma_min"],  # which needs its max too
)
def test_every_key_can_be_set_and_changes_nothing_else(key):
    value = other_value(key)
    changed = DEFAULT.with_settings([f" {key} = {value} "])
    assert value_at(changed, key) == value
    assert type(value_at(changed, key)) is type(value)
    assert changed.with_settings([f"{key}={value_at(DEFAULT, key)}"]) == DEFAULT
    others = [other for other in recipe_keys() if other != key]
    assert [value_at(changed, other) for other in others] == [value_at(DEFAULT, other) for other in others]


def test_the_keys_are_those_of_the_json():
    def leaves(stored, prefix=""):
        for name, value in stored.items():
            yield from leaves(value, f"{prefix}{name}.") if isinstance(value, dict) else [prefix + name]

    assert recipe_keys() == list(leaves(json.loads(DEFAULT.to_json())))


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("optimizer.learning_rate", "optimizer.lr"),
        ("optimiser.lr", "optimizer.lr"),
        ("optimizer.Lr", "optimizer.lr"),
        ("lr", "optimizer.lr"),
        ("loss.margin", "loss.margin_rad"),
        ("epochs", "budget.epochs"),
        ("sed", "seed"),
        ("seed.value", "seed"),
        ("optimizer", "optimizer.lr"),
        ("optimizer.lr.x", "optimizer.lr"),
    ],
)
def test_an_unknown_key_is_told_the_nearest(wrong, right):
    with pytest.raises(BadRecipe, match=f"^no setting is called '{wrong}'; did you mean '{right}'\\?$"):
        DEFAULT.with_settings([f"{wrong}=1"])


def test_a_key_like_no_other_is_told_none():
    with pytest.raises(BadRecipe, match=r"^no setting is called 'zzzz'$"):
        DEFAULT.with_settings(["zzzz=1"])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("optimizer.lr", "'optimizer.lr': wanted key=value"),
        ("", "wanted key=value"),
        ("optimizer.lr=fast", "optimizer.lr is a number, not 'fast'"),
        ("optimizer.lr=", "optimizer.lr is a number, not ''"),
        ("budget.epochs=2.5", "budget.epochs is a whole number, not '2.5'"),
        ("budget.epochs=1e3", "budget.epochs is a whole number, not '1e3'"),
        ("seed=none", "seed is a whole number, not 'none'"),
        ("input.resize=squash", "input.resize is one of stretch, centre_crop, not 'squash'"),
        ("loss.name=triplet", "loss.name is one of arcface, not 'triplet'"),
        ("optimizer.lr=11", r"optimizer\.lr lies in \[0, 10\], not 11"),
        ("optimizer.lr=nan", r"optimizer\.lr lies in"),
        ("optimizer.lr=inf", r"optimizer\.lr lies in"),
        ("optimizer.final_lr=-1", r"optimizer\.final_lr lies in"),
        ("optimizer.final_lr=nan", r"optimizer\.final_lr lies in"),
        ("budget.epochs=0", r"budget\.epochs lies in"),
        (f"budget.epochs={10**400}", r"budget\.epochs lies in"),
        ("seed=-1", "seed lies in"),
        (f"seed={2**70}", "seed lies in"),
        ("loss.margin_rad=2.4", r"loss\.margin_rad lies in"),
        ("augmentation.flip_p=1.5", r"augmentation\.flip_p is a probability"),
        ("input.margin=3", r"input\.margin lies in"),
        ("input.margin=nan", r"input\.margin lies in"),
        ("input.size_px=15", r"input\.size_px lies in"),
        ("sampler.batch_size=1", r"sampler\.batch_size lies in"),
    ],
)
def test_wrong_settings_name_the_key(setting, message):
    with pytest.raises(BadRecipe, match=message):
        DEFAULT.with_settings([setting])


def test_settings_that_are_wrong_together():
    with pytest.raises(BadRecipe, match=r"input\.resize_px 112 is smaller than the crop of 224"):
        DEFAULT.with_settings(["input.resize=centre_crop", "input.resize_px=112"])
    with pytest.raises(BadRecipe, match=r"split\.validation and test leave no identity to train on"):
        DEFAULT.with_settings(["split.validation=0.5", "split.test=0.5"])
    small = DEFAULT.with_settings(["input.resize=centre_crop", "input.resize_px=128", "input.size_px=112"])
    assert small.input.size_px == 112


def test_a_value_may_hold_an_equals_sign_and_later_settings_win():
    changed = DEFAULT.with_settings(["model.initial_weights=a=b.npz", "seed=1", "seed=2"])
    assert changed.model.initial_weights == "a=b.npz"
    assert changed.seed == 2
    assert DEFAULT.with_settings([]) == DEFAULT


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("[]", r"a recipe: wanted an object, got \[\]"),
        ("3", "a recipe: wanted an object"),
        ("{}", "name"),
        ('{"name": "x", "optimizer": 3}', "optimizer: wanted an object, got 3"),
        ('{"name": "x", "optimizer": {"learning_rate": 1}}', r"'optimizer\.learning_rate'; did you mean"),
        ('{"name": "x", "optimiser": {"lr": 1}}', "'optimiser'; did you mean"),
        ('{"name": "x", "optimizer": {"lr": "1"}}', r"optimizer\.lr: '1' does not fit"),
        ('{"name": "x", "optimizer": {"lr": true}}', r"optimizer\.lr: True does not fit"),
        ('{"name": "x", "optimizer": {"lr": null}}', r"optimizer\.lr: None does not fit"),
        ('{"name": "x", "optimizer": {"lr": NaN}}', r"optimizer\.lr lies in"),
        ('{"name": "x", "budget": {"epochs": 2.0}}', r"budget\.epochs: 2\.0 does not fit"),
        ('{"name": "x", "seed": -1}', "seed lies in"),
        ('{"name": 3}', "name: 3 does not fit"),
        ('{"name": "x", "input": {"resize": "squash"}}', r"input\.resize: 'squash' does not fit"),
        ('{"name": "x", "input": {"resize": []}}', r"input\.resize: \[\] does not fit"),
        ('{"name": "x", "loss": {"scale": 0}}', r"loss\.scale lies in"),
    ],
)
def test_json_that_is_no_recipe(text, message):
    with pytest.raises(BadRecipe, match=message):
        Recipe.from_json(text)


def test_keys_left_out_of_the_json_have_their_defaults():
    assert Recipe.from_json('{"name": "default", "optimizer": {"lr": 1}}') == dataclasses.replace(
        DEFAULT, optimizer=OptimizerSettings(lr=1.0)
    )


@pytest.mark.parametrize(
    ("normalisation", "mean", "std"),
    [("imagenet", IMAGENET_MEAN_RGB, IMAGENET_STD_RGB), ("symmetric", (0.5,) * 3, (0.5,) * 3)],
)
def test_the_preprocessing_is_that_of_the_input(normalisation, mean, std):
    found = InputSettings(112, "centre_crop", 128, 0.2, normalisation).preprocessing()
    assert (found.size_px, found.resize, found.resize_px, found.margin) == (112, "centre_crop", 128, 0.2)
    assert (found.mean, found.std, found.colour_order) == (mean, std, "RGB")


def test_symmetric_normalisation_is_keras():
    found = InputSettings(normalisation="symmetric").preprocessing()
    assert (200 / 255 - found.mean[0]) / found.std[0] == pytest.approx(200 / 127.5 - 1)


def test_a_normalisation_that_is_not_settled_is_no_preprocessing():
    with pytest.raises(BadRecipe, match="depends on the initial weights"):
        InputSettings().preprocessing()


@pytest.mark.parametrize(
    "make",
    [
        lambda: ModelSettings(dropout=math.nan),
        lambda: LossSettings(label_smoothing=1.0),
        lambda: SplitSettings(validation=0.0),
        lambda: ValidationSettings(pairs=1),
        lambda: InputSettings(margin=-0.1),
    ],
)
def test_settings_are_checked_when_they_are_made(make):
    with pytest.raises(ValueError, match="lies in"):
        make()


def test_a_published_augmentation_can_be_chosen_and_differed_from():
    circle = DEFAULT.with_settings(["augmentation.flip_p=0.25", "augmentation=circle"])
    assert circle.augmentation == dataclasses.replace(AUGMENTATIONS["circle"], flip_p=0.25)
    assert circle.with_settings(["augmentation=pet"]) == DEFAULT
    assert DEFAULT.with_settings(["augmentation=none"]).augmentation == AUGMENTATIONS["none"]
    with pytest.raises(BadRecipe, match=r"^augmentation is one of pet, circle, none, not 'all'$"):
        DEFAULT.with_settings(["augmentation=all"])
