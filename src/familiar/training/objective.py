"""What a recipe's network is trained towards: its loss, whose hyper-parameters follow their schedules."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor, nn

from familiar.core.errors import BadRecipe
from familiar.losses import (
    ArcFace,
    BatchAll,
    BatchHard,
    CenterLoss,
    CirclePairs,
    CircleTriplets,
    CombinedMargin,
    CompatibleLoss,
    Contrastive,
    CosFace,
    HardNegative,
    HarmonicLoss,
    NormFace,
    PartialFC,
    SemiHard,
    Softmax,
    SubCenterArcFace,
    TripletLoss,
    active_fraction,
    distillation_loss,
)
from familiar.models.network import unit_length
from familiar.training.loss_settings import BESIDE_A_CLASSIFIER, CLASSIFIERS, MINED, SCHEDULED, LossSettings

# From (settings, embedding_dim, classes, values), these being the loss's scheduled hyper-parameters.
LOSS_BUILDERS: dict[str, Callable[[LossSettings, int, int, dict[str, Any]], Any]] = {
    "softmax": lambda s, d, classes, values: Softmax(d, classes, s.bias, **values),
    "normface": lambda _, d, classes, values: NormFace(d, classes, **values),
    "arcface": lambda s, d, classes, values: ArcFace(d, classes, branch=s.branch, **values),
    "cosface": lambda _, d, classes, values: CosFace(d, classes, **values),
    "combined_margin": lambda s, d, classes, values: CombinedMargin(d, classes, branch=s.branch, **values),
    "subcenter_arcface": lambda s, d, classes, values: SubCenterArcFace(
        d, classes, s.centers_per_class, branch=s.branch, **values
    ),
    "partial_fc": lambda s, d, classes, values: PartialFC(d, classes, s.rate, branch=s.branch, **values),
    "batch_all": lambda s, _, __, values: BatchAll(reduction=s.reduction, **values),
    "semi_hard": lambda s, _, __, values: SemiHard(reduction=s.reduction, select=s.select, **values),
    "batch_hard": lambda s, _, __, values: BatchHard(reduction=s.reduction, soft_margin=s.soft_margin, **values),
    "hard_negative": lambda s, _, __, values: HardNegative(reduction=s.reduction, **values),
    "contrastive": lambda s, _, __, values: Contrastive(reduction=s.reduction, **values),
    "circle": lambda s, _, __, values: CirclePairs(detach_weights=s.detach_weights, **values),
    "circle_triplets": lambda s, _, __, values: CircleTriplets(
        mining=s.mining, mining_margin=s.mining_margin, detach_weights=s.detach_weights, **values
    ),
}
# Scheduled, but not the loss's own.
AROUND_THE_LOSS = (*BESIDE_A_CLASSIFIER, "compatible_weight")


def check_loss(settings: LossSettings) -> None:
    """BadRecipe where the loss refuses what its schedules reach, or the old bundle is missing.

    What a setting may be depends on the others.
    """
    for extreme in (0, -1):
        values = {name: getattr(settings, name).extremes[extreme] for name in _scheduled(settings)}
        try:
            LOSS_BUILDERS[settings.name](settings, 1, 1, values)
        except ValueError as error:
            raise BadRecipe(f"loss.{error}") from error
    if settings.compatible_with and not Path(settings.compatible_with).is_file():
        raise BadRecipe(
            f"{settings.compatible_with}: no such file; name the old bundle with --set loss.compatible_with=FILE"
        )


def validation_loss(settings: LossSettings) -> Any | None:
    """What a run's validation is asked, the same in every epoch, by hyper-parameters as the run began.

    Triplet losses as the mean hinge of all triplets, whichever they mine; circle on triplets likewise of all;
    circle and contrastive as they are. None for classifiers, which know no other identities than their own.
    """
    values = {name: getattr(settings, name).start for name in _scheduled(settings)}
    if settings.name in CLASSIFIERS:
        return None
    if settings.name == "circle_triplets":
        return LOSS_BUILDERS[settings.name](replace(settings, mining="batch_all"), 1, 1, values)
    if settings.name in MINED:
        return BatchAll(values["margin"], reduction="all")
    return LOSS_BUILDERS[settings.name](settings, 1, 1, values)


def _scheduled(settings: LossSettings) -> list[str]:
    """Hyper-parameters of the loss itself that may move."""
    return [name for name in settings.settings if name in SCHEDULED and name not in AROUND_THE_LOSS]


class Objective(nn.Module):
    """The loss of a recipe: `start_epoch` before each epoch, then called with each batch.

    `old`: for each photo of the dataset the vector an old bundle gives it, where the network is to be compatible.
    `taught`: likewise what teachers give it, where it is to learn from them too.
    """

    old: Tensor | None
    taught: Tensor | None

    def __init__(
        self,
        settings: LossSettings,
        embedding_dim: int,
        classes: int,
        old: Float32[np.ndarray, "photos k"] | None = None,
        taught: Float32[np.ndarray, "photos t"] | None = None,
        distill_weight: float = 0.0,
    ) -> None:
        super().__init__()
        self.settings = settings
        self.distill_weight = distill_weight
        values = {name: getattr(settings, name).start for name in _scheduled(settings)}
        loss = whole = LOSS_BUILDERS[settings.name](settings, embedding_dim, classes, values)
        if settings.prefixes:
            whole = HarmonicLoss(whole, settings.prefixes, settings.prefix_weights, settings.mined_on)
        if old is not None:
            whole = CompatibleLoss(whole)
        self.of_batch = whole
        self.center = CenterLoss(embedding_dim, classes) if "center_weight" in settings.settings else None
        self.triplets = SemiHard()
        for name, vectors in (("old", old), ("taught", taught)):
            self.register_buffer(name, None if vectors is None else torch.from_numpy(vectors), persistent=False)
        self._inner = (loss,)  # in a tuple, or it would be registered, and saved, twice
        self._newest: tuple[Tensor, Tensor] | None = None
        self.hyperparameters: dict[str, float] = {}
        self.start_epoch(0, 1)

    @property
    def loss(self) -> Any:
        """The loss itself, without what is wrapped around it."""
        return self._inner[0]

    def start_epoch(self, epoch: int, epochs: int) -> None:
        """Every hyper-parameter as its schedule has it in `epoch`, counted from 0, of `epochs`."""
        self.hyperparameters = {
            name: getattr(self.settings, name).at(epoch, epochs) for name in SCHEDULED if name in self.settings.settings
        }
        for name in _scheduled(self.settings):
            setattr(self.loss, name, self.hyperparameters[name])
        if isinstance(self.of_batch, CompatibleLoss):
            self.of_batch.weight = self.hyperparameters["compatible_weight"]

    def forward(
        self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], rows: Int64[Tensor, " n"]
    ) -> Float[Tensor, ""]:
        """`rows` say which photos of the dataset these are."""
        self._newest = embeddings.detach(), labels
        old = () if self.old is None else (self.old[rows],)
        value = self.of_batch(embeddings, labels, *old)
        if self.center is not None and (weight := self.hyperparameters["center_weight"]):
            value = value + weight * self.center(embeddings, labels)
        if weight := self.hyperparameters.get("triplet_weight"):
            value = value + weight * self.triplets(unit_length(embeddings), labels)
        if self.taught is not None:
            value = value + self.distill_weight * distillation_loss(embeddings, self.taught[rows])
        return value

    @property
    def mining_margin(self) -> float:
        """In squared distance, of a loss that mines triplets."""
        return getattr(self.loss, "mining_margin", self.loss.margin)

    def active_triplets(self) -> float | None:
        """Share of the newest batch's triplets that still cost something; None for other losses."""
        if self._newest is None or not isinstance(self.loss, TripletLoss):
            return None
        share = active_fraction(*self._newest, self.loss.margin)
        return None if math.isnan(share) else share
