import math
import re
from dataclasses import dataclass, fields, replace

import pytest
import torch

from familiar import losses
from familiar.core.settings import setting
from familiar.training.loss_catalog import CLASSIFIERS, LOSSES, MINING_LOSSES, loss_named
from familiar.training.loss_settings import ClassifierSettings, LossSettings, settings_class
from familiar.training.schedule import Schedule

SETTINGS_WITH_RANGE = [
    (loss, name)
    for loss, declared in LOSSES.items()
    for name, field in declared.settings().items()
    if field.metadata["range"] is not None
]
SCHEDULED = [(loss, name) for loss, name in SETTINGS_WITH_RANGE if name in LOSSES[loss]().schedules()]


def range_of(loss, name):
    """Return the range of a setting where all others are as published: the penalty's margin ends at 2.33."""
    low, high = LOSSES[loss].settings()[name].metadata["range"]
    if name == "margin_factor":
        return low, 3.5
    return low, 2.33 if name == "margin_rad" else high


@pytest.mark.parametrize("name", LOSSES)
def test_settings_are_what_the_class_declares_and_what_training_adds(name):
    loss = LOSSES[name]
    assert loss.name == name
    assert loss.loss_class.__name__ in losses.__all__
    declared = {field.name: field for field in fields(loss.loss_class) if field.metadata.get("meaning")}
    added = ClassifierSettings if name in CLASSIFIERS else LossSettings
    assert set(loss.settings()) == set(declared) | set(added.settings())
    assert tuple(loss.settings())[: len(declared)] == tuple(declared)
    for field in loss.settings().values():
        assert field.metadata["meaning"]
        assert (field.metadata["range"] is not None) == (field.type in (Schedule, int, float))


@pytest.mark.parametrize("name", LOSSES)
def test_published_values_are_the_defaults_of_the_class(name):
    settings, loss_class = LOSSES[name](), LOSSES[name].loss_class
    built = loss_class(4, 3) if name in CLASSIFIERS else loss_class()
    for argument in settings.arguments():
        value = getattr(settings, argument)
        assert (value.extremes[-1] if isinstance(value, Schedule) else value) == getattr(built, argument)
    ramps = {argument for argument in settings.schedules() if getattr(settings, argument).varies}
    assert ramps == ({"margin_rad"} if name in ("arcface", "subcenter_arcface", "partial_fc") else set())


@pytest.mark.parametrize("name", LOSSES)
def test_built_loss_is_the_declared_class_with_its_settings_as_attributes(name):
    settings = LOSSES[name]()
    attributes = settings.schedules().keys() & settings.arguments()
    values = {attribute: 1.0 if attribute != "label_smoothing" else 0.5 for attribute in attributes}
    built = settings.build(4, 3, values)
    assert type(built) is settings.loss_class
    assert {attribute: getattr(built, attribute) for attribute in values} == values
    with_start_values = settings.build(4, 3)
    for attribute in attributes:
        assert getattr(with_start_values, attribute) == getattr(settings, attribute).start


def test_new_loss_needs_one_declaration(monkeypatch: pytest.MonkeyPatch):
    @dataclass(eq=False, kw_only=True)
    class Example(losses.CosineClassifier):
        """An example."""

        margin: float = setting(0.25, 0, 2, "cosine")

        def apply_margin(self, cosines):
            return cosines - self.margin

    from familiar.training.recipe import Recipe

    monkeypatch.setitem(LOSSES, "example", settings_class("example", Example))
    recipe = Recipe("any").with_settings(["loss.name=example", "loss.margin=0.5"])
    assert recipe.loss == loss_named("example", margin=0.5)
    assert Recipe.from_json(recipe.to_json()) == recipe
    assert recipe.loss.build(4, 3).margin == 0.5


def test_settings_draw_no_random_numbers():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    LOSSES["arcface"]()
    assert torch.equal(torch.rand(2), expected)


def test_loss_categories_are_complete_and_disjoint():
    neither = {"contrastive", "circle"}  # they compare all pairs
    assert set(CLASSIFIERS) | set(MINING_LOSSES) | neither == set(LOSSES)
    assert not set(CLASSIFIERS) & set(MINING_LOSSES)
    assert [name for name, loss in LOSSES.items() if not loss().compares_photos] == list(CLASSIFIERS)
    assert loss_named("arcface", triplet_weight=0.1).compares_photos


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("softmax", {"bias": True, "label_smoothing": 0}),
        ("normface", {"scale": 16, "label_smoothing": 0}),  # FACTS 4
        ("arcface", {"scale": 32, "label_smoothing": 0, "branch": "penalty"}),  # FACTS 5
        ("cosface", {"scale": 64, "margin": 0.35}),  # arXiv 1801.09414
        ("combined_margin", {"scale": 64, "margin_factor": 1, "margin_rad": 0.3, "margin": 0.2}),
        ("subcenter_arcface", {"centers_per_class": 3}),  # FACTS 4
        ("partial_fc", {"rate": 0.1}),
        ("batch_all", {"margin": 0.2}),  # FaceNet, arXiv 1503.03832
        ("semi_hard", {"margin": 0.2, "select": "all"}),
        ("batch_hard", {"margin": 0.2, "soft_margin": False}),
        ("hard_negative", {"margin": 0.2}),
        ("circle", {"margin": 0.25, "gamma": 256, "detach_weights": True}),  # arXiv 2002.10857
        ("circle_triplets", {"gamma": 64, "mining": "batch_hard"}),  # the circle-loss coursework's first epochs
    ],
)
def test_defaults_match_published_settings(name, published):
    for key, value in published.items():
        expected = Schedule(float(value)) if key in LOSSES[name]().schedules() else value
        assert getattr(LOSSES[name](), key) == expected


@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize(("loss", "name"), SCHEDULED)
def test_number_or_text_becomes_schedule(loss, name):
    low, high = range_of(loss, name)
    assert LOSSES[loss](**{name: high}) == LOSSES[loss](**{name: Schedule(float(high))})
    assert getattr(LOSSES[loss](**{name: high / 2}), name) == Schedule(high / 2)
    moving = LOSSES[loss](**{name: f"{low} to {high} over 0.5"})
    assert getattr(moving, name) == Schedule(float(low), float(high), over=0.5)
    with pytest.raises(ValueError, match="'fast' is neither a number nor a schedule"):
        LOSSES[loss](**{name: "fast"})


@pytest.mark.parametrize(("loss", "name"), SCHEDULED)
def test_rejects_schedule_outside_range(loss, name):
    low, high = map(float, range_of(loss, name))
    for start, end in ((low, high), (high, low)):
        for inside in (
            Schedule(start),
            Schedule(start, end, over=0.5),
            Schedule(start, end, step=end - start, every=2),
        ):
            assert getattr(LOSSES[loss](**{name: inside}), name) == inside
    for outside in (low - 0.01, high * 1.01, float("nan"), float("inf"), float("-inf")):
        for schedule in (
            Schedule(outside),
            Schedule(outside, high, over=0.5),
            Schedule(low, outside, over=0.5),
            Schedule(low, outside, step=1.0, every=2),
            Schedule(outside, low, step=-1.0, every=2),
        ):
            with pytest.raises(ValueError, match=rf"^{name} must be in \[{low:g}, .*\], not"):
                LOSSES[loss](**{name: schedule})


def test_check_schedules_rejects_steps_that_leave_range():
    settings = loss_named("arcface", scale=Schedule(3.0, step=-1.0, every=2))
    settings.check_schedules(6)
    with pytest.raises(ValueError, match=r"^scale must be in \[0\.1, 1000\], not 0\.0$"):
        settings.check_schedules(7)
    loss_named("arcface", margin_rad=Schedule(0.0, 0.4, step=0.1, every=1)).check_schedules(100_000)


@pytest.mark.parametrize(("loss", "name"), [pair for pair in SETTINGS_WITH_RANGE if pair not in SCHEDULED])
def test_rejects_constant_setting_outside_range(loss, name):
    low, high = range_of(loss, name)
    for value in (low, high):
        assert getattr(LOSSES[loss](**{name: value}), name) == value
    for value in (low - 1, high + 1):
        with pytest.raises(ValueError, match=rf"^{name} must be in {re.escape(f'[{low:g}, {high:g}]')}, not"):
            LOSSES[loss](**{name: value})


def test_ranges_of_integers_and_shares():
    ranges = {(loss, name): LOSSES[loss].settings()[name].metadata["range"] for loss, name in SETTINGS_WITH_RANGE}
    assert ranges["subcenter_arcface", "centers_per_class"] == (1, 100)
    assert ranges["partial_fc", "rate"] == (1e-6, 1)
    assert ranges["circle_triplets", "mining_margin"] == (0, 4)
    assert ranges["arcface", "margin_rad"] == (0, math.pi)


def test_settings_must_fit_each_other():
    assert loss_named("arcface", margin_rad=3, branch="continuous").margin_rad == Schedule(3.0)
    with pytest.raises(ValueError, match=r"^margin_rad must be in \[0, 2\.33\], not 3\.0; branch=continuous allows"):
        loss_named("arcface", margin_rad="0 to 3 over 0.5")
    with pytest.raises(ValueError, match=r"^margin_factor must be in \[1, 3\.501\], not 4\.0; branch=cont"):
        loss_named("combined_margin", margin_factor="1 to 4 over 0.5")


def test_softmax_takes_raw_embeddings_unless_prefixes_or_an_old_bundle_need_unit_ones():
    assert loss_named("softmax").uses_raw_embeddings
    assert not loss_named("softmax", raw_embeddings=False).uses_raw_embeddings
    assert not loss_named("softmax", prefixes=(4,), prefix_weights=(1.0,)).uses_raw_embeddings
    assert not loss_named("softmax", compatible_with="old.onnx").uses_raw_embeddings
    assert not loss_named("arcface").uses_raw_embeddings


@pytest.mark.parametrize("prefixes", [(64, 64), (128, 64), (0, 64), (-1, 64), (64, 128, 64)])
def test_rejects_prefixes_that_do_not_increase(prefixes):
    with pytest.raises(ValueError, match=r"^prefixes must be strictly increasing, such as 64, 128, 256, not"):
        loss_named("arcface", prefixes=prefixes, prefix_weights=(1.0,) * len(prefixes))


@pytest.mark.parametrize(
    "weights",
    [
        (),
        (1.0,),
        (1.0, 1.0, 1.0),
        (-0.1, 1.0),
        (float("nan"), 1.0),
        (1.0, float("nan")),
        (1.0, float("inf")),
    ],
)
def test_rejects_invalid_prefix_weights(weights):
    with pytest.raises(ValueError, match=r"^prefixes \[64, 128\] need a weight each, 0 or more, not"):
        loss_named("arcface", prefixes=(64, 128), prefix_weights=weights)


def test_rejects_prefix_weights_without_prefixes():
    assert loss_named("arcface", prefixes=(128,), prefix_weights=(0.0,)).prefixes == (128,)
    with pytest.raises(ValueError, match=r"^prefixes must be strictly increasing, such as 64, 128, 256, not \[\]"):
        loss_named("arcface", prefix_weights=(1.0,))


@pytest.mark.parametrize("name", LOSSES)
def test_only_mined_losses_accept_mined_on_full(name):
    nested = replace(LOSSES[name](), prefixes=(64, 128), prefix_weights=(0.5, 0.5))
    if name in MINING_LOSSES:
        assert replace(nested, mined_on="full").mined_on == "full"
    else:
        with pytest.raises(ValueError, match=r"^mined_on=full needs a loss that mines triplets, not "):
            replace(nested, mined_on="full")
    assert nested.mined_on == "own"
