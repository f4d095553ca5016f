import dataclasses
import itertools
import json
import math
import operator
import re
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.errors import BadRecipe
from familiar.loading.augment.settings import AUGMENTATIONS, Augmentation
from familiar.photos.preprocessing import IMAGENET_MEAN_RGB, IMAGENET_STD_RGB
from familiar.training.loss_catalog import CLASSIFIERS, LOSSES, MINING_LOSSES, loss_named
from familiar.training.loss_settings import LossSettings
from familiar.training.recipe import FORMAT, Recipe, recipe_keys
from familiar.training.recipe_codec import RECIPES
from familiar.training.schedule import Schedule
from familiar.training.settings import (
    BudgetSettings,
    InputSettings,
    MiningSettings,
    ModelSettings,
    OptimizerSettings,
    QuantizeSettings,
    SamplerSettings,
    SplitSettings,
    ValidationSettings,
)

DEFAULT = Recipe(name="default")
# In this recipe every setting except those of the loss can be changed.
MINING = DEFAULT.with_settings(["loss.name=batch_hard"])
PREFIXED = ("model.embedding_dim", "loss.prefixes", "loss.prefix_weights")  # must fit each other


def value_at(recipe, key):
    """Return the recipe's value; for a setting of another loss, what that loss publishes."""
    group, _, name = key.rpartition(".")
    if group != "loss":
        return operator.attrgetter(key)(recipe)
    losses = (recipe.loss, *(loss() for loss in LOSSES.values()))
    return next(getattr(loss, name) for loss in losses if hasattr(loss, name))


def type_of(key):
    return RECIPES.key_types(Recipe)[key]


def text_of(value):
    """Return the text after `--set KEY=`."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def as_set(recipe, keys):
    return [f"{key}={text_of(value_at(recipe, key))}" for key in keys]


def keys_of(stored, prefix=""):
    """Yield the keys of the settings in a recipe's JSON."""
    for name, value in stored.items():
        yield from keys_of(value, f"{prefix}{name}.") if isinstance(value, dict) else [prefix + name]


def share(low=0.0, high=1.0):
    return st.floats(low, high)


def schedules(low, high):
    numbers = share(low, high)
    return st.one_of(
        st.builds(Schedule, numbers),
        st.builds(Schedule, numbers, numbers, over=share()),
        st.builds(Schedule, numbers, st.just(high), step=share(1e-9), every=st.integers(1, 99)),
        st.builds(Schedule, numbers, st.just(low), step=share(-1.0, -1e-9), every=st.integers(1, 99)),
    )


VALUES_BY_TYPE = {
    Schedule: schedules(0.1, 0.99),  # in the range of every hyper-parameter except margin_factor
    bool: st.booleans(),
    int: st.integers(1, 100),
    float: share(0.1),
    str: st.sampled_from(["", "old/Köter=1.onnx"]),
}


def any_value(key):
    field_type = type_of(key)
    if get_origin(field_type) is Literal:
        return st.sampled_from(get_args(field_type))
    return schedules(1.0, 2.5) if key == "loss.margin_factor" else VALUES_BY_TYPE[field_type]


WITHOUT_LOSS = st.fixed_dictionaries(
    {
        "name": st.text(),
        "seed": st.integers(0, 2**63 - 1),
        "model": st.builds(
            ModelSettings,
            embedding_dim=st.integers(2, 4096),
            dropout=share(high=0.95),
            initial_weights=st.sampled_from(["none", "imagenet", "weights/Köter 1.npz"]),
        ),
        "input": st.fixed_dictionaries(
            {
                "size_px": st.integers(16, 224),
                "resize": st.sampled_from(["stretch", "center_crop"]),
                "resize_px": st.integers(224, 2048),
                "margin": share(high=2.0),
                "normalization": st.sampled_from(["auto", "imagenet", "symmetric"]),
            }
        ),
        "augmentation": st.builds(Augmentation, flip_p=share(), hue=share(high=0.5), rotate_deg=share(high=180)),
        "split": st.fixed_dictionaries(
            {
                "validation": share(0.001, 0.5),
                "test": share(high=0.49),
                "train": st.sampled_from([(), ("0", "Köter 1")]),
            }
        ),
        "sampler": st.builds(
            SamplerSettings,
            name=st.sampled_from(["auto", "shuffled", "identities"]),
            batch_size=st.integers(2, 999),
        ),
        "quantize": st.builds(QuantizeSettings, st.booleans()),
        "optimizer": st.builds(OptimizerSettings, lr=share(high=10), final_lr=share(high=1)),
        "budget": st.builds(BudgetSettings, epochs=st.integers(1, 100_000), seconds=st.floats(0, 1e9)),
        "validation": st.builds(ValidationSettings, pairs=st.integers(2, 10_000_000)),
    }
)


@st.composite
def recipes(draw):
    """Draw a function that makes a recipe, with any of its loss's own settings.

    The test calls the function, since beartype checks random items of tuples, and hypothesis rejects such randomness.
    """
    parts = draw(WITHOUT_LOSS)
    embedding_dim = parts["model"].embedding_dim
    loss = LOSSES[draw(st.sampled_from(list(LOSSES)))]
    shared = LossSettings.settings()
    names = (*(name for name in loss.settings() if name not in shared), "compatible_with", "compatible_weight")
    chosen = {name: draw(any_value(f"loss.{name}")) for name in names}
    if draw(st.booleans()):
        shorter = draw(st.sets(st.integers(1, embedding_dim - 1), max_size=3))
        chosen["prefixes"] = (*sorted(shorter), embedding_dim)
        chosen["prefix_weights"] = tuple(draw(share(high=1e9)) for _ in chosen["prefixes"])
    mined = loss.mines_triplets
    if mined:
        chosen["mined_on"] = draw(st.sampled_from(["own", "full"]))
    offline = mined and "prefixes" not in chosen and not chosen["compatible_with"]
    mode = draw(st.sampled_from(["online", "offline"] if offline else ["online"]))
    mining = draw(st.builds(MiningSettings, st.just(mode), skip=share(high=0.5)))
    split, crops = parts.pop("split"), parts.pop("input")
    return lambda: Recipe(
        **parts, split=SplitSettings(**split), input=InputSettings(**crops), mining=mining, loss=loss(**chosen)
    )


@pytest.mark.slow
@given(recipes())
def test_recipe_round_trips_through_json(make):
    recipe = make()
    assert Recipe.from_json(recipe.to_json()) == recipe
    assert Recipe.from_json(recipe.to_json()).to_json() == recipe.to_json()


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_round_trips_through_json(name):
    recipe = Recipe(name="default", loss=LOSSES[name]())
    assert Recipe.from_json(recipe.to_json()) == recipe
    assert Recipe.from_json(recipe.to_json()).to_json() == recipe.to_json()
    assert tuple(recipe.to_primitive()["loss"]) == ("name", *recipe.loss.settings())


@pytest.mark.slow
@given(recipes(), st.data())
def test_any_value_can_be_set_as_text(make, data):
    recipe = make()
    key = data.draw(st.sampled_from([key for key in keys_of(recipe.to_primitive()) if key != "name"]))
    changed = DEFAULT.with_settings(as_set(recipe, ["loss.name", *(PREFIXED if key in PREFIXED else [key])]))
    assert value_at(changed, key) == value_at(recipe, key)


@pytest.mark.slow
@given(recipes(), st.randoms())
def test_order_of_settings_does_not_matter(make, random):
    recipe = make()
    settings = as_set(recipe, [key for key in keys_of(recipe.to_primitive()) if key != "name"])
    random.shuffle(settings)
    assert DEFAULT.with_settings(settings) == dataclasses.replace(recipe, name="default")


OTHER_VALUES = {  # for keys where the rules of `other_value` give an invalid value
    "input.detector": "center",
    "augmentation.crop_ratio_max": 1.2,
    "augmentation.blur_kernel_min": 5,
    "augmentation.blur_kernel_max": 11,
    "augmentation.jpeg_quality_max": 90,
    "augmentation.custom": "textwrap:dedent",
    "loss.margin_factor": Schedule(1.5),
    "sampler.chunk_size": 60,
    "optimizer.decay_to": 0.5,
    "optimizer.decay_from": 0.5,
}


def other_value(key, recipe=DEFAULT):
    """Return a valid value that differs from the recipe's."""
    if key in OTHER_VALUES:
        return OTHER_VALUES[key]
    value, field_type = value_at(recipe, key), type_of(key)
    if get_origin(field_type) is Literal:
        return next((option for option in get_args(field_type) if option != value), value)
    if field_type is Schedule:
        return Schedule(0.3, 0.7, step=0.1, every=2)
    if field_type is str:
        return "another"
    if field_type is bool:
        return not value
    if get_origin(field_type) is tuple:
        return ("0", "Köter 1")
    return value + 1 if field_type is int else (value / 2 or 0.01)


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize(
    "key",
    [
        key
        for key in recipe_keys()
        if not key.startswith("loss.")
        # The first needs its max too, the second batches without identities.
        # `input.views` has a form of its own (tests/models/test_views.py).
        and key not in ("augmentation.blur_sigma_min", "distill.blends", "input.views")
    ],
)
def test_setting_one_key_changes_only_that_key(key):
    value = other_value(key)
    text = ",".join(value) if isinstance(value, tuple) else value
    changed = MINING.with_settings([f" {key} = {text} "])
    assert value_at(changed, key) == value
    assert type(value_at(changed, key)) is type(value)
    assert changed.with_settings(as_set(MINING, [key])) == MINING
    others = [other for other in recipe_keys() if other != key]
    assert [value_at(changed, other) for other in others] == [value_at(MINING, other) for other in others]


SETTINGS_OF_LOSSES = [
    (loss, setting)
    for loss, declared in LOSSES.items()
    for setting in declared.settings()
    if setting not in ("prefixes", "prefix_weights")
]


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize(("loss", "setting"), SETTINGS_OF_LOSSES)
def test_setting_one_loss_key_changes_only_that_key(loss, setting):
    recipe, key = DEFAULT.with_settings([f"loss.name={loss}"]), f"loss.{setting}"
    assert recipe == dataclasses.replace(DEFAULT, loss=LOSSES[loss]())
    value = other_value(key, recipe)
    changed = recipe.with_settings([f" {key} = {value} "])
    assert changed.loss == dataclasses.replace(recipe.loss, **{setting: value})
    assert dataclasses.replace(changed, loss=recipe.loss) == recipe
    assert type(value_at(changed, key)) is type(value)
    assert changed.with_settings(as_set(recipe, [key])) == recipe


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_rejects_setting_of_another_loss(loss):
    known = ("name", *LOSSES[loss].settings())
    others = [key for key in recipe_keys() if key.startswith("loss.") and key.removeprefix("loss.") not in known]
    for key in others:
        setting, value = key.removeprefix("loss."), other_value(key)
        message = f"^{loss} has no setting {setting}; its settings are {', '.join(known)}$"
        with pytest.raises(BadRecipe, match=message):
            DEFAULT.with_settings([f"{key}={value}", f"loss.name={loss}"])
        stored = {"format": FORMAT, "name": "x", "loss": {setting: value, "name": loss}}
        with pytest.raises(BadRecipe, match=message):
            Recipe.from_json(json.dumps(stored, default=str))


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize("before", LOSSES)
@pytest.mark.parametrize("after", LOSSES)
def test_changing_loss_resets_loss_settings(before, after):
    changed = [f"loss.name={before}", "loss.compatible_with=old.onnx", "seed=3"]
    recipe = DEFAULT.with_settings(changed)
    switched = recipe.with_settings([f"loss.name={after}"])
    if before == after:
        assert switched == recipe
    else:
        assert switched == dataclasses.replace(DEFAULT, seed=3, loss=LOSSES[after]())


def test_loss_name_and_its_settings_apply_in_any_order():
    settings = ["loss.name=cosface", "loss.margin=0.3", "loss.scale=48"]
    expected = dataclasses.replace(LOSSES["cosface"](), margin=Schedule(0.3), scale=Schedule(48.0))
    for order in itertools.permutations(settings):
        assert DEFAULT.with_settings(order).loss == expected
    assert DEFAULT.with_settings(settings[:1]).with_settings(settings[1:]).loss == expected


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_same_loss_name_keeps_loss_settings(loss):
    name, key = f"loss.name={loss}", "loss.compatible_weight"
    recipe = DEFAULT.with_settings([name, f"{key}=0.3"])
    assert recipe.loss != LOSSES[loss]()
    assert recipe.with_settings([name]) == recipe
    assert recipe.with_settings([f"{key}=0.4", name]) == recipe.with_settings([f"{key}=0.4"])


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("0.4", Schedule(0.4)),
        ("0 to 0.4 over 0.33", Schedule(0.0, 0.4, over=0.33)),
        ("0.4 to 1e-06 over 1", Schedule(0.4, 1e-06, over=1.0)),
        ("0.2 + 0.02 every 5 to 1", Schedule(0.2, 1.0, step=0.02, every=5)),
        ("0.4 - 0.001 every 1", Schedule(0.4, step=-0.001, every=1)),
    ],
)
def test_schedule_text_is_parsed_and_stored(text, schedule):
    changed = DEFAULT.with_settings([f"loss.margin_rad={text}"])
    assert changed.loss.margin_rad == schedule
    assert changed.to_primitive()["loss"]["margin_rad"] == (0.4 if text == "0.4" else text)
    stored = json.dumps({"format": FORMAT, "name": "default", "loss": {"margin_rad": text}})
    assert Recipe.from_json(stored) == changed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("loss.margin_rad=0 + 0.1 every 1", r"^loss\.margin_rad must be in \[0, 3\.14159\], not 3\.9"),
        ("loss.margin_rad=0 + 0.06 every 1", r"^loss\.margin_rad must be in \[0, 2\.33\], not 2\.34"),
        (
            "loss.label_smoothing=0.1 - 0.01 every 1",
            r"^loss\.label_smoothing must be in \[0, 0\.99\], not -0\.29",
        ),
    ],
)
def test_rejects_schedule_that_leaves_range_during_run(text, message):
    with pytest.raises(BadRecipe, match=message):
        DEFAULT.with_settings([text])
    assert DEFAULT.with_settings([text, "budget.epochs=10"]).budget.epochs == 10


@pytest.mark.parametrize(("text", "value"), [("true", True), ("True", True), ("FALSE", False), (" false", False)])
def test_bias_accepts_true_and_false_in_any_case(text, value):
    changed = DEFAULT.with_settings(["loss.name=softmax", f"loss.bias={text}"])
    assert changed.loss.bias is value
    assert changed.to_primitive()["loss"]["bias"] is value


@pytest.mark.parametrize(("text", "value"), [("true", True), ("False", False)])
def test_quantize_aware_accepts_only_true_or_false(text, value):
    changed = DEFAULT.with_settings([f"quantize.aware={text}"])
    assert changed == dataclasses.replace(DEFAULT, quantize=QuantizeSettings(aware=value))
    assert changed.to_primitive()["quantize"] == {"aware": value}
    with pytest.raises(BadRecipe, match=r"^quantize\.aware: '8' has the wrong type, expected true or false$"):
        DEFAULT.with_settings(["quantize.aware=8"])


def test_recipe_without_quantize_section_takes_default():
    stored = json.loads(DEFAULT.to_json())
    del stored["quantize"]
    assert Recipe.from_json(json.dumps(stored)) == DEFAULT


@pytest.mark.parametrize("text", ["64,128,256", "(64, 128, 256)", "[64, 128, 256]", " 64 , 128,256, "])
def test_prefixes_are_parsed_from_text(text):
    weights = "(0.2, 0.3, 0.5)" if "(" in text else "0.2,0.3,0.5"
    changed = DEFAULT.with_settings(
        [f"loss.prefixes={text}", f"loss.prefix_weights={weights}", "model.embedding_dim=256"]
    )
    assert (changed.loss.prefixes, changed.loss.prefix_weights) == ((64, 128, 256), (0.2, 0.3, 0.5))
    loss = changed.to_primitive()["loss"]
    assert (loss["prefixes"], loss["prefix_weights"]) == ([64, 128, 256], [0.2, 0.3, 0.5])
    assert changed.with_settings(["loss.prefixes=", "loss.prefix_weights=()"]).loss == DEFAULT.loss


@pytest.mark.parametrize("prefixes", ["64", "64,256", "64,128,256"])
def test_rejects_last_prefix_unequal_to_embedding_dim(prefixes):
    weights = ",".join("1" for _ in prefixes.split(","))
    with pytest.raises(
        BadRecipe, match=r"^the last of loss\.prefixes must be model\.embedding_dim, 128, not (64|256)$"
    ):
        DEFAULT.with_settings([f"loss.prefixes={prefixes}", f"loss.prefix_weights={weights}"])
    with pytest.raises(BadRecipe, match=r"must be model\.embedding_dim, 64, not 128"):
        DEFAULT.with_settings(["loss.prefixes=32,128", "loss.prefix_weights=1,1", "model.embedding_dim=64"])


@pytest.mark.parametrize("loss", LOSSES)
def test_offline_mining_needs_plain_triplet_loss(loss):
    offline = [f"loss.name={loss}", "mining.mode=offline"]
    if loss not in MINING_LOSSES:
        with pytest.raises(BadRecipe, match=r"mining\.mode=offline: loss\.name must be one of batch_all, semi"):
            DEFAULT.with_settings(offline)
        return
    assert DEFAULT.with_settings(offline).mining == MiningSettings(mode="offline")
    for excluded in (
        ["loss.prefixes=128", "loss.prefix_weights=1"],
        ["loss.compatible_with=old.onnx"],
        ["distill.teacher=old.onnx"],
    ):
        with pytest.raises(BadRecipe, match=r"loss\.prefixes, loss\.compatible_with and distill\.teacher must not"):
            DEFAULT.with_settings([*offline, *excluded])


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_default_sampler_depends_on_loss(loss):
    recipe = DEFAULT.with_settings([f"loss.name={loss}"])
    assert recipe.batches_by_identity == (loss not in CLASSIFIERS)
    assert recipe.with_settings(["sampler.name=identities"]).batches_by_identity
    assert not recipe.with_settings(["sampler.name=shuffled"]).batches_by_identity
    if loss in MINING_LOSSES:
        assert not recipe.with_settings(["mining.mode=offline"]).batches_by_identity


@pytest.mark.parametrize("loss", LOSSES)
def test_recipe_keys_match_json_keys(loss):
    keys = [key for key in recipe_keys() if not key.startswith("loss.")]
    stored = list(keys_of(DEFAULT.with_settings([f"loss.name={loss}"]).to_primitive()))
    assert [key for key in stored if not key.startswith("loss.")] == keys
    assert {key for key in stored if key.startswith("loss.")} <= set(recipe_keys())


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("optimizer.learning_rate", "optimizer.lr"),
        ("optimiser.lr", "optimizer.lr"),
        ("optimizer.Lr", "optimizer.lr"),
        ("lr", "optimizer.lr"),
        ("loss.margin_radians", "loss.margin_rad"),
        ("loss.smoothing", "loss.label_smoothing"),
        ("mining.modus", "mining.mode"),
        ("epochs", "budget.epochs"),
        ("sed", "seed"),
        ("seed.value", "seed"),
        ("optimizer", "optimizer.lr"),
        ("optimizer.lr.x", "optimizer.lr"),
    ],
)
def test_unknown_key_error_suggests_similar_key(wrong, right):
    with pytest.raises(BadRecipe, match=f"^unknown setting '{wrong}'; did you mean '{right}'\\?$"):
        DEFAULT.with_settings([f"{wrong}=1"])


def test_dissimilar_key_error_has_no_suggestion():
    with pytest.raises(BadRecipe, match=r"^unknown setting 'zzzz'$"):
        DEFAULT.with_settings(["zzzz=1"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("optimizer.lr", "'optimizer.lr': expected key=value"),
        ("", "expected key=value"),
        ("optimizer.lr=fast", "optimizer.lr: 'fast' has the wrong type, expected a number"),
        ("optimizer.lr=", "optimizer.lr: '' has the wrong type, expected a number"),
        ("budget.epochs=2.5", "budget.epochs: '2.5' has the wrong type, expected a whole number"),
        ("budget.epochs=1e3", "budget.epochs: '1e3' has the wrong type, expected a whole number"),
        ("seed=none", "seed: 'none' has the wrong type, expected a whole number"),
        ("input.resize=squash", "input.resize: 'squash' has the wrong type or value, expected stretch, center_crop"),
        (
            "loss.name=triplet",
            "^loss.name: 'triplet' has the wrong type or value, expected softmax, .*, circle_triplets",
        ),
        ("loss.branch=steep", "loss.branch: 'steep' has the wrong type or value, expected penalty, continuous"),
        ("loss.prefixes=a,128", "loss.prefixes: 'a' has the wrong type, expected a whole number"),
        ("loss.prefixes=64.5,128", "loss.prefixes: '64.5' has the wrong type, expected a whole number"),
        ("loss.prefix_weights=1", r"loss\.prefixes must be strictly increasing"),
        (
            "loss.scale=fast",
            r"^loss\.scale: 'fast' is neither a number nor a schedule: use a form such as 0\.4, or 0 to",
        ),
        ("loss.scale=", r"^loss\.scale: '' is neither a number nor a schedule"),
        ("loss.scale=nan", r"^loss\.scale: 'nan' is not a valid schedule"),
        ("loss.margin_rad=0 to 3 over 0.3", r"loss\.margin_rad must be in \[0, 2\.33\], not 3"),
        ("loss.margin_rad=3 to 0 over 0.3", r"loss\.margin_rad must be in \[0, 2\.33\], not 3"),
        ("mining.mode=sometimes", "mining.mode: 'sometimes' has the wrong type or value, expected online, offline"),
        ("mining.skip=0.6", r"mining\.skip must be in \[0, 0\.5\], not 0\.6"),
        ("mining.every_steps=0", r"mining\.every_steps must be in"),
        ("mining.subset=-1", r"mining\.subset must be in"),
        ("optimizer.lr=11", r"optimizer\.lr must be in \[0, 10\], not 11"),
        ("optimizer.lr=nan", r"^optimizer\.lr: nan is not a finite number$"),
        ("optimizer.lr=inf", r"^optimizer\.lr: inf is not a finite number$"),
        ("optimizer.final_lr=-1", r"optimizer\.final_lr must be in"),
        ("optimizer.final_lr=nan", r"^optimizer\.final_lr: nan is not a finite number$"),
        ("budget.epochs=0", r"budget\.epochs must be in"),
        (f"budget.epochs={10**400}", r"budget\.epochs must be in"),
        ("seed=-1", "seed must be in"),
        (f"seed={2**70}", "seed must be in"),
        ("loss.margin_rad=2.4", r"loss\.margin_rad must be in"),
        ("augmentation.flip_p=1.5", r"augmentation\.flip_p must be in \[0, 1\], not 1\.5"),
        ("input.margin=3", r"input\.margin lies in"),
        ("input.margin=nan", r"^input\.margin: nan is not a finite number$"),
        ("input.size_px=15", r"input\.size_px lies in"),
        ("sampler.batch_size=1", r"sampler\.batch_size must be in"),
    ],
)
def test_invalid_setting_error_names_key(setting, message):
    with pytest.raises(BadRecipe, match=message):
        DEFAULT.with_settings([setting])


def test_rejects_conflicting_settings():
    with pytest.raises(BadRecipe, match=r"input\.resize_px 112 is smaller than the crop of 224"):
        DEFAULT.with_settings(["input.resize=center_crop", "input.resize_px=112"])
    with pytest.raises(BadRecipe, match=r"split\.validation and test leave no identity to train on"):
        DEFAULT.with_settings(["split.validation=0.5", "split.test=0.5"])
    small = DEFAULT.with_settings(["input.resize=center_crop", "input.resize_px=128", "input.size_px=112"])
    assert small.input.size_px == 112


@pytest.mark.parametrize("text", ["1", "yes", "", "none"])
def test_bias_rejects_non_boolean_text(text):
    with pytest.raises(BadRecipe, match=f"^loss.bias: '{text}' has the wrong type, expected true or false$"):
        DEFAULT.with_settings(["loss.name=softmax", f"loss.bias={text}"])


def test_value_may_contain_equals_sign_and_last_setting_wins():
    changed = DEFAULT.with_settings(["model.initial_weights=a=b.npz", "seed=1", "seed=2"])
    assert changed.model.initial_weights == "a=b.npz"
    assert changed.seed == 2
    assert DEFAULT.with_settings([]) == DEFAULT


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[]", r"a recipe: expected an object, got \[\]"),
        ("3", "a recipe: expected an object"),
        ("{}", "name"),
        ('{"name": "x", "optimizer": 3}', "optimizer: expected an object, got 3"),
        ('{"name": "x", "optimizer": {"learning_rate": 1}}', r"'optimizer\.learning_rate'; did you mean"),
        ('{"name": "x", "optimiser": {"lr": 1}}', "'optimiser'; did you mean"),
        ('{"name": "x", "optimizer": {"lr": "1"}}', r"optimizer\.lr: '1' has the wrong type"),
        ('{"name": "x", "optimizer": {"lr": true}}', r"optimizer\.lr: True has the wrong type"),
        ('{"name": "x", "optimizer": {"lr": null}}', r"optimizer\.lr: None has the wrong type"),
        ('{"name": "x", "optimizer": {"lr": NaN}}', r"^optimizer\.lr: nan is not a finite number$"),
        ('{"name": "x", "budget": {"epochs": 2.0}}', r"budget\.epochs: 2\.0 has the wrong type"),
        ('{"name": "x", "seed": -1}', "seed must be in"),
        ('{"name": 3}', "name: 3 has the wrong type"),
        ('{"name": "x", "input": {"resize": "squash"}}', r"input\.resize: 'squash' has the wrong type"),
        ('{"name": "x", "input": {"resize": []}}', r"input\.resize: \[\] has the wrong type"),
        ('{"name": "x", "loss": {"scale": 0}}', r"loss\.scale must be in"),
        ('{"name": "x", "loss": {"scale": NaN}}', r"loss\.scale: 'nan' is not a valid schedule"),
        ('{"name": "x", "loss": {"scale": "fast"}}', r"loss\.scale: 'fast' is neither a number nor a schedule"),
        ('{"name": "x", "loss": {"scale": true}}', r"loss\.scale: True has the wrong type"),
        ('{"name": "x", "loss": {"scale": null}}', r"loss\.scale: None has the wrong type"),
        ('{"name": "x", "loss": {"scale": [1]}}', r"loss\.scale: \[1\] has the wrong type"),
        ('{"name": "x", "loss": {"scale": {"start": 1}}}', r"loss\.scale: \{'start': 1\} has the wrong type"),
        ('{"name": "x", "loss": {"name": "triplet"}}', r"loss\.name: 'triplet' has the wrong type"),
        ('{"name": "x", "loss": {"name": []}}', r"loss\.name: \[\] has the wrong type"),
        ('{"name": "x", "loss": {"name": "softmax", "bias": 1}}', r"loss\.bias: 1 has the wrong type"),
        ('{"name": "x", "loss": {"prefixes": "64,128"}}', r"loss\.prefixes: '64,128' has the wrong type"),
        ('{"name": "x", "loss": {"prefixes": [64.0, 128]}}', r"loss\.prefixes: 64\.0 has the wrong type"),
        ('{"name": "x", "loss": {"prefixes": 128}}', r"loss\.prefixes: 128 has the wrong type"),
        (
            '{"name": "x", "loss": {"prefix_weights": [NaN], "prefixes": [128]}}',
            r"^loss\.prefix_weights: nan is not a finite number$",
        ),
    ],
)
def test_rejects_invalid_recipe_json(text, message):
    marked = text.replace("{", f'{{"format": "{FORMAT}", ', 1).replace(", }", "}")
    with pytest.raises(BadRecipe, match=message):
        Recipe.from_json(marked)


def test_missing_json_keys_take_defaults():
    stored = {"format": FORMAT, "name": "default", "optimizer": {"lr": 1}}
    expected = dataclasses.replace(DEFAULT, optimizer=OptimizerSettings(lr=1.0))
    assert Recipe.from_json(json.dumps(stored)) == expected


@pytest.mark.parametrize("name", LOSSES)
def test_missing_loss_settings_take_published_values(name):
    stored = {"format": FORMAT, "name": "default", "loss": {"compatible_weight": 0.3, "name": name}}
    expected = dataclasses.replace(LOSSES[name](), compatible_weight=Schedule(0.3))
    assert Recipe.from_json(json.dumps(stored)) == dataclasses.replace(DEFAULT, loss=expected)


@pytest.mark.parametrize(
    ("normalization", "mean", "std"),
    [("imagenet", IMAGENET_MEAN_RGB, IMAGENET_STD_RGB), ("symmetric", (0.5,) * 3, (0.5,) * 3)],
)
def test_preprocessing_matches_input_settings(normalization, mean, std):
    preprocessing = InputSettings(112, "center_crop", 128, 0.2, normalization).preprocessing()
    assert (preprocessing.size_px, preprocessing.resize, preprocessing.resize_px, preprocessing.margin) == (
        112,
        "center_crop",
        128,
        0.2,
    )
    assert (preprocessing.mean, preprocessing.std, preprocessing.color_order) == (mean, std, "RGB")


def test_symmetric_normalization_matches_keras():
    preprocessing = InputSettings(normalization="symmetric").preprocessing()
    assert (200 / 255 - preprocessing.mean[0]) / preprocessing.std[0] == pytest.approx(200 / 127.5 - 1)


def test_preprocessing_rejects_auto_normalization():
    with pytest.raises(BadRecipe, match="depends on the initial weights"):
        InputSettings().preprocessing()


@pytest.mark.parametrize(
    "make",
    [
        lambda: ModelSettings(dropout=math.nan),
        lambda: loss_named("arcface", label_smoothing=1.0),
        lambda: MiningSettings(skip=0.51),
        lambda: SplitSettings(validation=0.0),
        lambda: ValidationSettings(pairs=1),
        lambda: InputSettings(margin=-0.1),
    ],
)
def test_settings_reject_values_out_of_range(make):
    with pytest.raises(ValueError, match=r"must be in|lies in"):
        make()


def test_named_augmentation_can_be_selected_and_changed():
    circle = DEFAULT.with_settings(["augmentation.flip_p=0.25", "augmentation=circle"])
    assert circle.augmentation == dataclasses.replace(AUGMENTATIONS["circle"], flip_p=0.25)
    assert circle.with_settings(["augmentation=pet"]) == DEFAULT
    assert DEFAULT.with_settings(["augmentation=none"]).augmentation == AUGMENTATIONS["none"]
    with pytest.raises(BadRecipe, match=r"^augmentation must be one of pet, circle, none, not 'all'$"):
        DEFAULT.with_settings(["augmentation=all"])


def test_commands_page_lists_every_loss_and_valid_settings():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "commands.md").read_text()
    assert [name for name in LOSSES if f"`{name}`" not in page] == []
    examples = [quoted or bare for quoted, bare in re.findall(r"--set (?:'([^']+)'|([^\s`']+))", page)]
    assert len(examples) > 6
    for setting in examples:
        loss = ["loss.name=cosface"] if setting.startswith("loss.margin=") else []
        DEFAULT.with_settings([*loss, setting])
