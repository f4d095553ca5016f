"""The loss of a recipe and its hyper-parameters, as data: every loss with its published settings, by name."""

import math
from dataclasses import dataclass, fields
from typing import Literal, NamedTuple, get_args

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
MINING_LOSSES = (*get_args(Miner), "circle_triplets")

# Settings that every loss has, in addition to its own.
COMMON_SETTINGS = ("prefixes", "prefix_weights", "mined_on", "compatible_with", "compatible_weight")
# Weights of losses that can be added to a classifier.
AUXILIARY_WEIGHTS = ("center_weight", "triplet_weight")


@dataclass(frozen=True)
class LossSettings:
    """A loss by name, and its settings. A loss uses only the settings in its `setting_names`.

    Numbers that are schedules may change with the epochs.

    Attributes:
        name: the loss.
        scale: factor of the cosines in a classifier's softmax.
        margin_rad: angle added between an embedding and its class center.
        margin: in the loss's own unit: squared distance for triplets and contrastive, cosine for cosface,
            combined_margin and circle, (1 + cosine) / 2 for circle_triplets.
        margin_factor: factor of the angle between an embedding and its class center, for combined_margin.
        gamma: scale of circle loss.
        label_smoothing: share of the target probability that is spread over all classes.
        branch: the formula where angle and margin add up to more than pi.
        bias: whether softmax has a bias for each class.
        raw_embeddings: whether softmax takes the embeddings before they are normalized, as published.
        centers_per_class: for subcenter_arcface.
        rate: share of the class centers in each step, for partial_fc.
        reduction: mean over the triplets or pairs whose loss is above zero, or over all.
        select: which of the semi-hard negatives of a pair are used.
        soft_margin: softplus instead of the hinge, for batch_hard.
        mining: how circle_triplets picks its triplets.
        mining_margin: margin of that miner, in squared distance; only semi_hard uses it.
        detach_weights: whether the weights of circle loss are constants for the gradient.
        center_weight: weight of center loss, added to a classifier; 0 for none.
        triplet_weight: weight of the batch's semi-hard triplets, added to a classifier; 0 for none.
        prefixes: lengths of embedding prefixes that are trained as embeddings too.
        prefix_weights: the weight of each prefix's loss.
        mined_on: whether each prefix mines its own triplets or all take those of the full length.
        compatible_with: file of a bundle whose embeddings the new ones must be comparable with.
        compatible_weight: weight of the loss against that bundle's embeddings.
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
            if field.type is Schedule and not isinstance(value, Schedule):  # a number is accepted for convenience
                object.__setattr__(self, field.name, Schedule.parse(str(value)))
        for name in _RANGES:
            for value in _extremes(getattr(self, name)):
                _check_range(name, value)
        self._check_prefixes()
        if self.mined_on == "full" and self.prefixes and self.name not in MINING_LOSSES:
            raise ValueError(f"mined_on=full needs a loss that mines triplets, not {self.name}")

    def _check_prefixes(self) -> None:
        prefixes, weights = self.prefixes, self.prefix_weights
        if not prefixes:
            if weights:
                raise ValueError("prefix_weights given without prefixes; set prefixes too")
            return
        if sorted(set(prefixes)) != list(prefixes) or prefixes[0] < 1:
            raise ValueError(f"prefixes must be strictly increasing, such as 64,128,256, not {_join(prefixes)}")
        if len(weights) != len(prefixes) or not all(0 <= weight < math.inf for weight in weights):
            raise ValueError(
                f"prefix_weights needs one weight, 0 or more, for each of the prefixes {_join(prefixes)}, "
                f"not {_join(weights)}"
            )

    def check_schedules(self, epochs: int) -> None:
        """Raise ValueError if an open-ended step schedule leaves its range within `epochs`."""
        for name in SCHEDULED:
            _check_range(name, getattr(self, name).value_at(epochs - 1, epochs))

    @property
    def compares_photos(self) -> bool:
        """Whether the loss compares the photos of a batch, so that each identity needs several of them in it."""
        return self.name not in CLASSIFIERS or self.triplet_weight != Schedule(0.0)

    @property
    def uses_raw_embeddings(self) -> bool:
        """Whether the loss takes embeddings that are not normalized. Prefixes are normalized in any case."""
        return self.name == "softmax" and self.raw_embeddings and not self.prefixes and not self.compatible_with

    @property
    def setting_names(self) -> tuple[str, ...]:
        """The names of the fields that this loss uses."""
        return ("name", *LOSSES[self.name].own_settings, *COMMON_SETTINGS)


def _extremes(value: Schedule | float) -> tuple[float, ...]:
    return value.extremes if isinstance(value, Schedule) else (value,)


def _check_range(name: str, value: float) -> None:
    low, high = _RANGES[name]
    if not low <= value <= high:
        raise ValueError(f"{name} must be in [{low:g}, {high:g}], not {value}")


def _join(values: tuple[float, ...]) -> str:
    return ",".join(map(str, values)) or "none"


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
SCHEDULED = tuple(field.name for field in fields(LossSettings) if field.type is Schedule)


class PublishedLoss(NamedTuple):
    """A loss with its published settings, and the names of the settings that it has in addition to
    `COMMON_SETTINGS`."""

    published: LossSettings
    own_settings: tuple[str, ...]


NO_SMOOTHING = Schedule(0.0)
# Every loss, with the settings of its publication.
LOSSES: dict[str, PublishedLoss] = {
    "softmax": PublishedLoss(
        LossSettings("softmax", label_smoothing=NO_SMOOTHING),
        ("bias", "raw_embeddings", "label_smoothing", *AUXILIARY_WEIGHTS),
    ),
    "normface": PublishedLoss(
        LossSettings("normface", scale=Schedule(16.0), label_smoothing=NO_SMOOTHING),
        ("scale", "label_smoothing", *AUXILIARY_WEIGHTS),
    ),
    "arcface": PublishedLoss(
        LossSettings("arcface"),
        ("scale", "margin_rad", "label_smoothing", "branch", *AUXILIARY_WEIGHTS),
    ),
    "cosface": PublishedLoss(
        LossSettings("cosface", scale=Schedule(64.0), margin=Schedule(0.35), label_smoothing=NO_SMOOTHING),
        ("scale", "margin", "label_smoothing", *AUXILIARY_WEIGHTS),
    ),
    "combined_margin": PublishedLoss(
        LossSettings("combined_margin", scale=Schedule(64.0), margin_rad=Schedule(0.3), label_smoothing=NO_SMOOTHING),
        ("scale", "margin_factor", "margin_rad", "margin", "label_smoothing", "branch", *AUXILIARY_WEIGHTS),
    ),
    "subcenter_arcface": PublishedLoss(
        LossSettings("subcenter_arcface", label_smoothing=NO_SMOOTHING),
        ("scale", "margin_rad", "centers_per_class", "label_smoothing", "branch", *AUXILIARY_WEIGHTS),
    ),
    "partial_fc": PublishedLoss(
        LossSettings("partial_fc", label_smoothing=NO_SMOOTHING),
        ("scale", "margin_rad", "rate", "label_smoothing", "branch", *AUXILIARY_WEIGHTS),
    ),
    "batch_all": PublishedLoss(LossSettings("batch_all"), ("margin", "reduction")),
    "semi_hard": PublishedLoss(LossSettings("semi_hard"), ("margin", "reduction", "select")),
    "batch_hard": PublishedLoss(LossSettings("batch_hard"), ("margin", "reduction", "soft_margin")),
    "hard_negative": PublishedLoss(LossSettings("hard_negative"), ("margin", "reduction")),
    "contrastive": PublishedLoss(LossSettings("contrastive", margin=Schedule(1.0)), ("margin", "reduction")),
    "circle": PublishedLoss(
        LossSettings("circle", margin=Schedule(0.25), gamma=Schedule(256.0)),
        ("margin", "gamma", "detach_weights"),
    ),
    "circle_triplets": PublishedLoss(
        LossSettings("circle_triplets", margin=Schedule(0.25)),
        ("margin", "gamma", "mining", "mining_margin", "detach_weights"),
    ),
}
assert tuple(LOSSES) == get_args(LossName)
# Losses over class centers are recognized by `AUXILIARY_WEIGHTS` among their settings: do not forget these in a new
# one.
CLASSIFIERS = tuple(name for name, loss in LOSSES.items() if set(AUXILIARY_WEIGHTS) <= set(loss.own_settings))
