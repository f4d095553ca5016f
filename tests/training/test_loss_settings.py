from collections.abc import Iterator
from dataclasses import fields, replace

import jaxtyping
import pytest

from familiar.training.loss_settings import (
    CLASSIFIERS,
    COMMON_SETTINGS,
    LOSSES,
    MINING_LOSSES,
    SCHEDULED,
    LossSettings,
)
from familiar.training.schedule import Schedule

FIELDS = [field.name for field in fields(LossSettings)]


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_lists_existing_settings(name):
    published, own_settings = LOSSES[name]
    assert published.name == name
    assert published.setting_names == ("name", *own_settings, *COMMON_SETTINGS)
    assert set(published.setting_names) <= set(FIELDS)
    assert len(set(published.setting_names)) == len(published.setting_names)
    others = set(FIELDS) - set(published.setting_names)
    assert all(getattr(published, other) == getattr(LossSettings(), other) for other in others)


def test_every_setting_belongs_to_a_loss():
    assert {name for published, _ in LOSSES.values() for name in published.setting_names} == set(FIELDS)
    assert LOSSES["arcface"][0] == LossSettings()


def test_loss_categories_are_complete_and_disjoint():
    assert set(CLASSIFIERS) | set(MINING_LOSSES) | {"contrastive", "circle"} == set(LOSSES)
    assert not set(CLASSIFIERS) & set(MINING_LOSSES)
    comparing = [name for name, (published, _) in LOSSES.items() if published.compares_photos]
    assert comparing == [
        "batch_all",
        "semi_hard",
        "batch_hard",
        "hard_negative",
        "contrastive",
        "circle",
        "circle_triplets",
    ]


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("softmax", {"bias": True, "label_smoothing": 0}),
        ("normface", {"scale": 16, "label_smoothing": 0}),  # FACTS 4
        ("arcface", {"scale": 32, "label_smoothing": 0.1, "branch": "penalty"}),  # FACTS 5, the pet embedder
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
    for setting, value in published.items():
        assert setting in LOSSES[name][0].setting_names
        expected = Schedule(float(value)) if setting in SCHEDULED else value
        assert getattr(LOSSES[name][0], setting) == expected


RANGES = {
    "scale": (0.1, 1000),
    "margin_rad": (0, 2.33),
    "margin": (0, 4),
    "margin_factor": (1, 4),
    "gamma": (0.1, 100_000),
    "label_smoothing": (0, 0.99),
    "center_weight": (0, 1000),
    "triplet_weight": (0, 1000),
    "compatible_weight": (0, 1000),
}


@pytest.fixture
def unchecked_signatures() -> Iterator[None]:
    """Without type checks, as in use: jaxtyping would refuse a number in place of a schedule."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize("name", SCHEDULED)
def test_number_or_text_becomes_schedule(name):
    low, high = RANGES[name]
    assert LossSettings(**{name: high}) == LossSettings(**{name: Schedule(float(high))})
    assert getattr(LossSettings(**{name: high / 2}), name) == Schedule(high / 2)
    moving = LossSettings(**{name: f"{low} to {high} over 0.5"})
    assert getattr(moving, name) == Schedule(float(low), float(high), over=0.5)
    with pytest.raises(ValueError, match="'fast' is neither a number nor a schedule"):
        LossSettings(**{name: "fast"})


def test_every_scheduled_setting_has_range():
    assert set(RANGES) == set(SCHEDULED)


@pytest.mark.parametrize("name", SCHEDULED)
def test_rejects_schedule_outside_range(name):
    low, high = map(float, RANGES[name])
    for start, end in ((low, high), (high, low)):
        for inside in (
            Schedule(start),
            Schedule(start, end, over=0.5),
            Schedule(start, end, step=end - start, every=2),
        ):
            assert getattr(LossSettings(**{name: inside}), name) == inside
    for outside in (low - 0.01, high * 1.01, float("nan"), float("inf"), float("-inf")):
        for schedule in (
            Schedule(outside),
            Schedule(outside, high, over=0.5),
            Schedule(low, outside, over=0.5),
            Schedule(low, outside, step=1.0, every=2),
            Schedule(outside, low, step=-1.0, every=2),
        ):
            with pytest.raises(ValueError, match=rf"^{name} must be in \[{low:g}, {high:g}\], not"):
                LossSettings(**{name: schedule})


def test_check_schedules_rejects_steps_that_leave_range():
    settings = LossSettings(scale=Schedule(3.0, step=-1.0, every=2))
    settings.check_schedules(6)
    with pytest.raises(ValueError, match=r"^scale must be in \[0\.1, 1000\], not 0\.0$"):
        settings.check_schedules(7)
    LossSettings(margin_rad=Schedule(0.0, 0.4, step=0.1, every=1)).check_schedules(100_000)


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("centers_per_class", (1, 3, 100), (0, 101, -1)),
        ("rate", (1e-6, 0.1, 1.0), (0.0, 1.1, float("nan"))),
        ("mining_margin", (0.0, 0.2, 4.0), (-0.1, 4.1, float("inf"))),
    ],
)
def test_rejects_constant_setting_outside_range(name, inside, outside):
    for value in inside:
        assert getattr(LossSettings(**{name: value}), name) == value
    for value in outside:
        with pytest.raises(ValueError, match=f"^{name} must be in"):
            LossSettings(**{name: value})


@pytest.mark.parametrize("prefixes", [(64, 64), (128, 64), (0, 64), (-1, 64), (64, 128, 64)])
def test_rejects_prefixes_that_do_not_increase(prefixes):
    with pytest.raises(ValueError, match=r"^prefixes must be strictly increasing, such as 64,128,256, not"):
        LossSettings(prefixes=prefixes, prefix_weights=(1.0,) * len(prefixes))


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
    with pytest.raises(ValueError, match=r"^prefix_weights needs one weight, .*, for each of the prefixes 64,128"):
        LossSettings(prefixes=(64, 128), prefix_weights=weights)


def test_rejects_prefix_weights_without_prefixes():
    assert LossSettings(prefixes=(128,), prefix_weights=(0.0,)).prefixes == (128,)
    with pytest.raises(ValueError, match=r"^prefix_weights given without prefixes"):
        LossSettings(prefix_weights=(1.0,))


@pytest.mark.parametrize("name", LOSSES)
def test_only_mined_losses_accept_mined_on_full(name):
    nested = replace(LOSSES[name][0], prefixes=(64, 128), prefix_weights=(0.5, 0.5))
    if name in MINING_LOSSES:
        assert replace(nested, mined_on="full").mined_on == "full"
    else:
        with pytest.raises(ValueError, match=f"^mined_on=full needs a loss that mines triplets, not {name}$"):
            replace(nested, mined_on="full")
    assert nested.mined_on == "own"
