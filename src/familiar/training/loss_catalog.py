"""Every loss of a recipe, declared once: its name, its settings with their published values and ranges, and its class.

To add a loss, write its class in `familiar.losses` and its declaration here.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from familiar.training.loss_settings import ClassifierSettings, LossSettings, setting
from familiar.training.schedule import Schedule

Branch = Literal["penalty", "continuous"]
Reduction = Literal["active", "all"]
Miner = Literal["batch_all", "semi_hard", "batch_hard", "hard_negative"]

NO_SMOOTHING = Schedule(0.0)
_RAMP = Schedule(0.0, 0.4, over=1 / 3)


def _scale(default: float) -> Any:
    return setting(Schedule(default), "factor of the cosines: logits for each 1 of cosine", 0.1, 1000)


def _angle(default: Schedule = _RAMP) -> Any:
    return setting(default, "angle added between an embedding and its class center, in radians", 0, 2.33)


def _smoothing(default: float = 0.0) -> Any:
    meaning = "share of the target probability that is spread over all classes"
    return setting(Schedule(default), meaning, 0, 0.99)


def _branch() -> Any:
    return setting("penalty", "the formula where angle and margin add up to more than pi")


def _squared_distance(default: float = 0.2) -> Any:
    return setting(Schedule(default), "squared distance", 0, 4)


def _reduction() -> Any:
    return setting("active", "the mean over the triplets or pairs whose loss is above zero, or over `all`")


@dataclass(frozen=True)
class SoftmaxSettings(ClassifierSettings):
    """Cross-entropy of a linear classifier."""

    name = "softmax"
    builds = "Softmax"

    bias: bool = setting(True, "whether there is a bias for each class")
    raw_embeddings: bool = setting(
        True, "whether it takes the embeddings before they are normalized, as published", argument=False
    )
    label_smoothing: Schedule = _smoothing()

    @property
    def uses_raw_embeddings(self) -> bool:
        """Whether the loss takes embeddings that are not normalized."""
        return self.raw_embeddings and not self.prefixes and not self.compatible_with


@dataclass(frozen=True)
class NormFaceSettings(ClassifierSettings):
    """Softmax over scaled cosines (arXiv 1704.06369)."""

    name = "normface"
    builds = "NormFace"

    scale: Schedule = _scale(16.0)
    label_smoothing: Schedule = _smoothing()


@dataclass(frozen=True)
class ArcFaceSettings(ClassifierSettings):
    """Additive angular margin (arXiv 1801.07698, Eq. 3), with the pet embedder's settings."""

    name = "arcface"
    builds = "ArcFace"

    scale: Schedule = _scale(32.0)
    margin_rad: Schedule = _angle()
    label_smoothing: Schedule = _smoothing(0.1)
    branch: Branch = _branch()


@dataclass(frozen=True)
class CosFaceSettings(ClassifierSettings):
    """Additive cosine margin (arXiv 1801.09414, Eq. 4)."""

    name = "cosface"
    builds = "CosFace"

    scale: Schedule = _scale(64.0)
    margin: Schedule = setting(Schedule(0.35), "cosine", 0, 2)
    label_smoothing: Schedule = _smoothing()


@dataclass(frozen=True)
class CombinedMarginSettings(ClassifierSettings):
    """All three margins (arXiv 1801.07698, Eq. 4)."""

    name = "combined_margin"
    builds = "CombinedMargin"

    scale: Schedule = _scale(64.0)
    margin_factor: Schedule = setting(Schedule(1.0), "factor of the angle", 1, 4)
    margin_rad: Schedule = _angle(Schedule(0.3))
    margin: Schedule = setting(Schedule(0.2), "cosine", 0, 2)
    label_smoothing: Schedule = _smoothing()
    branch: Branch = _branch()


@dataclass(frozen=True)
class SubCenterArcFaceSettings(ClassifierSettings):
    """ArcFace with several centers per class (Deng et al., ECCV 2020)."""

    name = "subcenter_arcface"
    builds = "SubCenterArcFace"

    scale: Schedule = _scale(32.0)
    margin_rad: Schedule = _angle()
    centers_per_class: int = setting(3, "number of centers", 1, 100)
    label_smoothing: Schedule = _smoothing()
    branch: Branch = _branch()


@dataclass(frozen=True)
class PartialFCSettings(ClassifierSettings):
    """ArcFace over a random share of the classes in each step (arXiv 2203.15565)."""

    name = "partial_fc"
    builds = "PartialFC"

    scale: Schedule = _scale(32.0)
    margin_rad: Schedule = _angle()
    rate: float = setting(0.1, "share of the class centers in each step", 1e-6, 1)
    label_smoothing: Schedule = _smoothing()
    branch: Branch = _branch()


@dataclass(frozen=True)
class _TripletSettings(LossSettings):
    """A triplet loss: it validates as the mean over all triplets, whichever it mines."""

    mines_triplets = True

    margin: Schedule = _squared_distance()
    reduction: Reduction = _reduction()

    def for_validation(self) -> "BatchAllSettings":
        return BatchAllSettings(margin=self.margin, reduction="all")


@dataclass(frozen=True)
class BatchAllSettings(_TripletSettings):
    """All triplets of the batch (FaceNet, arXiv 1503.03832)."""

    name = "batch_all"
    builds = "BatchAll"


@dataclass(frozen=True)
class SemiHardSettings(_TripletSettings):
    """Triplets in the right order, but with less than the margin (FaceNet, arXiv 1503.03832)."""

    name = "semi_hard"
    builds = "SemiHard"

    select: Literal["all", "hardest", "random"] = setting("all", "which of the semi-hard negatives of a pair are used")


@dataclass(frozen=True)
class BatchHardSettings(_TripletSettings):
    """The farthest positive and the nearest negative of each anchor (Hermans et al., arXiv 1703.07737)."""

    name = "batch_hard"
    builds = "BatchHard"

    soft_margin: bool = setting(False, "softplus instead of the hinge")


@dataclass(frozen=True)
class HardNegativeSettings(_TripletSettings):
    """The nearest negative of each pair."""

    name = "hard_negative"
    builds = "HardNegative"


@dataclass(frozen=True)
class ContrastiveSettings(LossSettings):
    """Pairs: positives to one point, negatives beyond the margin (Hadsell et al., CVPR 2006)."""

    name = "contrastive"
    builds = "Contrastive"

    margin: Schedule = _squared_distance(1.0)
    reduction: Reduction = _reduction()


@dataclass(frozen=True)
class CircleSettings(LossSettings):
    """Circle loss over all pairs of the batch (arXiv 2002.10857)."""

    name = "circle"
    builds = "CirclePairs"

    margin: Schedule = setting(Schedule(0.25), "cosine", 0, 1)
    gamma: Schedule = setting(Schedule(256.0), "scale of the loss", 0.1, 100_000)
    detach_weights: bool = setting(True, "whether its weights are constants for the gradient")


@dataclass(frozen=True)
class CircleTripletsSettings(LossSettings):
    """Circle loss of mined triplets (the circle-loss project)."""

    name = "circle_triplets"
    builds = "CircleTriplets"
    mines_triplets = True

    margin: Schedule = setting(Schedule(0.25), "(1 + cosine) / 2", 0, 1)
    gamma: Schedule = setting(Schedule(64.0), "scale of the loss", 0.1, 100_000)
    mining: Miner = setting("batch_hard", "how triplets are picked")
    mining_margin: float = setting(0.2, "margin of the semi_hard miner, in squared distance", 0, 4)
    detach_weights: bool = setting(True, "whether its weights are constants for the gradient")

    def for_validation(self) -> "CircleTripletsSettings":
        """Return the loss to validate with, or None."""
        return replace(self, mining="batch_all")


LOSSES: dict[str, type[LossSettings]] = {
    loss.name: loss
    for loss in (
        SoftmaxSettings,
        NormFaceSettings,
        ArcFaceSettings,
        CosFaceSettings,
        CombinedMarginSettings,
        SubCenterArcFaceSettings,
        PartialFCSettings,
        BatchAllSettings,
        SemiHardSettings,
        BatchHardSettings,
        HardNegativeSettings,
        ContrastiveSettings,
        CircleSettings,
        CircleTripletsSettings,
    )
}
CLASSIFIERS = tuple(name for name, loss in LOSSES.items() if issubclass(loss, ClassifierSettings))
MINING_LOSSES = tuple(name for name, loss in LOSSES.items() if loss.mines_triplets)
assert set(get_args(Miner)) < set(MINING_LOSSES)
