"""Which loss a recipe trains with and its hyper-parameters, as data: every loss by name, in one place."""

import math
from dataclasses import dataclass, fields
from typing import Literal, get_args

from familiar.training.schedule import Schedule

LossName = Literal[
    "softmax",
    "normface",
    "arcface",
    "cosface",
    "combined_margin",
    "subcenter_arcface",
    "partial_fc",
    "batch_all",
    "semi_hard",
    "batch_hard",
    "hard_negative",
    "contrastive",
    "circle",
    "circle_triplets",
]
Miner = Literal["batch_all", "semi_hard", "batch_hard", "hard_negative"]


def _bounds(value: "Schedule | float") -> tuple[float, ...]:
    return value.extremes if isinstance(value, Schedule) else (value,)


def _check_range(name: str, value: float) -> None:
    low, high = _RANGES[name]
    if not low <= value <= high:
        raise ValueError(f"{name} lies in [{low:g}, {high:g}], not {value}")


def _listed(values: tuple[float, ...]) -> str:
    return ",".join(map(str, values)) or "none"


@dataclass(frozen=True)
class LossSettings:
    """A loss by name; of the other settings it has those that `LOSSES` lists.

    Hyper-parameters are schedules, so each may move with the epochs. `margin` is in the loss's own unit: squared
    distance for triplets and contrastive, cosine for cosface, combined_margin and circle. `center_weight` adds center
    loss to a classifier, `triplet_weight` semi-hard triplets of the batch. `raw_embeddings`: softmax sees them before
    they are brought to unit length, as published. `prefixes` train the first so many components as embeddings too, with
    `prefix_weights`; `mined_on` says whether each finds its own triplets or all take those of the full length.
    `compatible_with` is a bundle whose vectors the new ones are to compare with.
    """

    name: LossName = "arcface"
    scale: Schedule = Schedule(32.0)
    margin_rad: Schedule = Schedule(0.0, 0.4, over=1 / 3)
    margin: Schedule = Schedule(0.2)
    margin_factor: Schedule = Schedule(1.0)
    gamma: Schedule = Schedule(64.0)
    label_smoothing: Schedule = Schedule(0.1)
    branch: Literal["penalty", "continuous"] = "penalty"
    bias: bool = True
    raw_embeddings: bool = True
    centers_per_class: int = 3
    rate: float = 0.1
    reduction: Literal["active", "all"] = "active"
    select: Literal["all", "hardest", "random"] = "all"
    soft_margin: bool = False
    mining: Miner = "batch_hard"
    mining_margin: float = 0.2
    detach_weights: bool = True
    center_weight: Schedule = Schedule(0.0)
    triplet_weight: Schedule = Schedule(0.0)
    prefixes: tuple[int, ...] = ()
    prefix_weights: tuple[float, ...] = ()
    mined_on: Literal["own", "full"] = "own"
    compatible_with: str = ""
    compatible_weight: Schedule = Schedule(20.0)

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is Schedule and not isinstance(value, Schedule):  # a number, for short
                object.__setattr__(self, field.name, Schedule.parse(str(value)))
        for name in _RANGES:
            for value in _bounds(getattr(self, name)):
                _check_range(name, value)
        if self.prefixes:
            if sorted(set(self.prefixes)) != list(self.prefixes) or self.prefixes[0] < 1:
                raise ValueError(f"prefixes rise, such as 64,128,256, unlike {_listed(self.prefixes)}")
            weights = self.prefix_weights
            if len(weights) != len(self.prefixes) or not all(0 <= weight < math.inf for weight in weights):
                raise ValueError(
                    f"prefix_weights has one weight, 0 or more, for each of the prefixes {_listed(self.prefixes)}, "
                    f"unlike {_listed(weights)}"
                )
        elif self.prefix_weights:
            raise ValueError("prefix_weights stand beside prefixes, and there are none")
        if self.mined_on == "full" and self.prefixes and self.name not in MINED:
            raise ValueError(f"mined_on=full needs a loss that mines triplets, not {self.name}")

    def check_run_of(self, epochs: int) -> None:
        """ValueError where steps without an end leave their range in so many epochs."""
        for name in SCHEDULED:
            _check_range(name, getattr(self, name).at(epochs - 1, epochs))

    @property
    def compares_photos(self) -> bool:
        """Whether it compares a batch's photos with each other, so that identities must meet themselves there."""
        return self.name not in CLASSIFIERS or self.triplet_weight != Schedule(0.0)

    @property
    def on_raw_embeddings(self) -> bool:
        """Whether it is of embeddings as the head gives them, of any length; prefixes are of unit length anyway."""
        return self.name == "softmax" and self.raw_embeddings and not self.prefixes and not self.compatible_with

    @property
    def settings(self) -> tuple[str, ...]:
        """Those of the fields that this loss has."""
        return ("name", *LOSSES[self.name][1], *OF_EVERY_LOSS)


CLASSIFIERS = (
    "softmax",
    "normface",
    "arcface",
    "cosface",
    "combined_margin",
    "subcenter_arcface",
    "partial_fc",
)
MINED = ("batch_all", "semi_hard", "batch_hard", "hard_negative", "circle_triplets")
OF_EVERY_LOSS = (
    "prefixes",
    "prefix_weights",
    "mined_on",
    "compatible_with",
    "compatible_weight",
)

_RANGES = {
    "scale": (0.1, 1000),
    "margin_rad": (0, 2.33),
    "margin": (0, 4),
    "margin_factor": (1, 4),
    "gamma": (0.1, 100_000),
    "label_smoothing": (0, 0.99),
    "centers_per_class": (1, 100),
    "rate": (1e-6, 1),
    "mining_margin": (0, 4),
    "center_weight": (0, 1000),
    "triplet_weight": (0, 1000),
    "compatible_weight": (0, 1000),
}

UNSMOOTHED = Schedule(0.0)
BESIDE_A_CLASSIFIER = ("center_weight", "triplet_weight")

# Every loss with its published settings, and which settings it has.
LOSSES: dict[str, tuple[LossSettings, tuple[str, ...]]] = {
    "softmax": (
        LossSettings("softmax", label_smoothing=UNSMOOTHED),
        ("bias", "raw_embeddings", "label_smoothing", *BESIDE_A_CLASSIFIER),
    ),
    "normface": (
        LossSettings("normface", scale=Schedule(16.0), label_smoothing=UNSMOOTHED),
        ("scale", "label_smoothing", *BESIDE_A_CLASSIFIER),
    ),
    "arcface": (
        LossSettings("arcface"),
        ("scale", "margin_rad", "label_smoothing", "branch", *BESIDE_A_CLASSIFIER),
    ),
    "cosface": (
        LossSettings("cosface", scale=Schedule(64.0), margin=Schedule(0.35), label_smoothing=UNSMOOTHED),
        ("scale", "margin", "label_smoothing", *BESIDE_A_CLASSIFIER),
    ),
    "combined_margin": (
        LossSettings(
            "combined_margin",
            scale=Schedule(64.0),
            margin_rad=Schedule(0.3),
            label_smoothing=UNSMOOTHED,
        ),
        (
            "scale",
            "margin_factor",
            "margin_rad",
            "margin",
            "label_smoothing",
            "branch",
            *BESIDE_A_CLASSIFIER,
        ),
    ),
    "subcenter_arcface": (
        LossSettings("subcenter_arcface", label_smoothing=UNSMOOTHED),
        (
            "scale",
            "margin_rad",
            "centers_per_class",
            "label_smoothing",
            "branch",
            *BESIDE_A_CLASSIFIER,
        ),
    ),
    "partial_fc": (
        LossSettings("partial_fc", label_smoothing=UNSMOOTHED),
        ("scale", "margin_rad", "rate", "label_smoothing", "branch", *BESIDE_A_CLASSIFIER),
    ),
    "batch_all": (LossSettings("batch_all"), ("margin", "reduction")),
    "semi_hard": (LossSettings("semi_hard"), ("margin", "reduction", "select")),
    "batch_hard": (LossSettings("batch_hard"), ("margin", "reduction", "soft_margin")),
    "hard_negative": (LossSettings("hard_negative"), ("margin", "reduction")),
    "contrastive": (LossSettings("contrastive", margin=Schedule(1.0)), ("margin", "reduction")),
    "circle": (
        LossSettings("circle", margin=Schedule(0.25), gamma=Schedule(256.0)),
        ("margin", "gamma", "detach_weights"),
    ),
    "circle_triplets": (
        LossSettings("circle_triplets", margin=Schedule(0.25)),
        ("margin", "gamma", "mining", "mining_margin", "detach_weights"),
    ),
}
assert tuple(LOSSES) == get_args(LossName)
SCHEDULED = tuple(field.name for field in fields(LossSettings) if field.type is Schedule)
