"""Training objective: a recipe's loss, its scheduled hyper-parameters, and the losses added to it."""

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
from familiar.training.loss_settings import AUXILIARY_WEIGHTS, CLASSIFIERS, MINING_LOSSES, SCHEDULED, LossSettings

# The loss of each name, built from: settings, embedding dimension, number of classes, and the values of those
# hyper-parameters that are scheduled, as keyword arguments.
LOSS_BUILDERS: dict[str, Callable[[LossSettings, int, int, dict[str, Any]], Any]] = {
    "softmax": lambda settings, dim, classes, scheduled: Softmax(dim, classes, settings.bias, **scheduled),
    "normface": lambda _, dim, classes, scheduled: NormFace(dim, classes, **scheduled),
    "arcface": lambda settings, dim, classes, scheduled: ArcFace(dim, classes, branch=settings.branch, **scheduled),
    "cosface": lambda _, dim, classes, scheduled: CosFace(dim, classes, **scheduled),
    "combined_margin": lambda settings, dim, classes, scheduled: CombinedMargin(
        dim, classes, branch=settings.branch, **scheduled
    ),
    "subcenter_arcface": lambda settings, dim, classes, scheduled: SubCenterArcFace(
        dim, classes, settings.centers_per_class, branch=settings.branch, **scheduled
    ),
    "partial_fc": lambda settings, dim, classes, scheduled: PartialFC(
        dim, classes, settings.rate, branch=settings.branch, **scheduled
    ),
    "batch_all": lambda settings, _dim, _classes, scheduled: BatchAll(reduction=settings.reduction, **scheduled),
    "semi_hard": lambda settings, _dim, _classes, scheduled: SemiHard(
        reduction=settings.reduction, select=settings.select, **scheduled
    ),
    "batch_hard": lambda settings, _dim, _classes, scheduled: BatchHard(
        reduction=settings.reduction, soft_margin=settings.soft_margin, **scheduled
    ),
    "hard_negative": lambda settings, _dim, _classes, scheduled: HardNegative(
        reduction=settings.reduction, **scheduled
    ),
    "contrastive": lambda settings, _dim, _classes, scheduled: Contrastive(reduction=settings.reduction, **scheduled),
    "circle": lambda settings, _dim, _classes, scheduled: CirclePairs(
        detach_weights=settings.detach_weights, **scheduled
    ),
    "circle_triplets": lambda settings, _dim, _classes, scheduled: CircleTriplets(
        mining=settings.mining,
        mining_margin=settings.mining_margin,
        detach_weights=settings.detach_weights,
        **scheduled,
    ),
}
# Scheduled settings that `Objective` uses itself: they are not arguments of the loss.
WRAPPER_SETTINGS = (*AUXILIARY_WEIGHTS, "compatible_weight")


def check_loss(settings: LossSettings) -> None:
    """Check settings whose allowed values depend on each other, at both ends of their schedules.

    Raises:
        BadRecipe: the loss rejects a combination of values, or the old bundle is missing.
    """
    for extreme in (0, -1):
        scheduled = {name: getattr(settings, name).extremes[extreme] for name in _scheduled_names(settings)}
        try:
            LOSS_BUILDERS[settings.name](settings, 1, 1, scheduled)
        except ValueError as error:
            raise BadRecipe(f"loss.{error}") from error
    if settings.compatible_with and not Path(settings.compatible_with).is_file():
        raise BadRecipe(
            f"{settings.compatible_with}: no such file; name the old bundle with --set loss.compatible_with=FILE"
        )


def validation_loss(settings: LossSettings) -> Any | None:
    """Return the validation loss, with the hyper-parameters of epoch 0 so that epochs are comparable.

    Triplet losses give the mean hinge over all triplets, whichever they mine; circle_triplets covers all triplets too;
    circle and contrastive stay as they are. None for classifiers, which know only the training identities.
    """
    if settings.name in CLASSIFIERS:
        return None
    scheduled = _start_values(settings)
    if settings.name == "circle_triplets":
        return LOSS_BUILDERS[settings.name](replace(settings, mining="batch_all"), 1, 1, scheduled)
    if settings.name in MINING_LOSSES:
        return BatchAll(scheduled["margin"], reduction="all")
    return LOSS_BUILDERS[settings.name](settings, 1, 1, scheduled)


def _scheduled_names(settings: LossSettings) -> list[str]:
    """Return the scheduled hyper-parameters of the loss itself."""
    return [name for name in settings.setting_names if name in SCHEDULED and name not in WRAPPER_SETTINGS]


def _start_values(settings: LossSettings) -> dict[str, float]:
    return {name: getattr(settings, name).start for name in _scheduled_names(settings)}


class Objective(nn.Module):
    """The loss of a recipe: call `start_epoch` before each epoch, then the module with each batch.

    Args:
        settings: the loss.
        embedding_dim: length of the network's embeddings.
        classes: number of training identities.
        reference_embeddings: by an old bundle, a row for each photo of the dataset, if the network must be compatible.
        teacher_embeddings: likewise by teachers, if the network learns from any.
        distill_weight: weight of the distillation loss.
    """

    reference_embeddings: Tensor | None
    teacher_embeddings: Tensor | None

    def __init__(
        self,
        settings: LossSettings,
        embedding_dim: int,
        classes: int,
        reference_embeddings: Float32[np.ndarray, "photos k"] | None = None,
        teacher_embeddings: Float32[np.ndarray, "photos t"] | None = None,
        distill_weight: float = 0.0,
    ) -> None:
        super().__init__()
        self.settings = settings
        self.distill_weight = distill_weight
        loss = batch_loss = LOSS_BUILDERS[settings.name](settings, embedding_dim, classes, _start_values(settings))
        if settings.prefixes:
            batch_loss = HarmonicLoss(batch_loss, settings.prefixes, settings.prefix_weights, settings.mined_on)
        if reference_embeddings is not None:
            batch_loss = CompatibleLoss(batch_loss)
        # Checkpoints hold the class centers under this name; in Python it is `batch_loss`.
        setattr(self, "of_batch", batch_loss)  # noqa: B010
        self.center = CenterLoss(embedding_dim, classes) if "center_weight" in settings.setting_names else None
        self.triplets = SemiHard()
        for name, vectors in (
            ("reference_embeddings", reference_embeddings),
            ("teacher_embeddings", teacher_embeddings),
        ):
            self.register_buffer(name, None if vectors is None else torch.from_numpy(vectors), persistent=False)
        self._inner_loss = (loss,)  # in a tuple, or it would be registered, and saved, twice
        self._last_batch: tuple[Tensor, Tensor] | None = None
        self.hyperparameters: dict[str, float] = {}
        self.start_epoch(0, 1)

    @property
    def batch_loss(self) -> Any:
        """The loss with what is wrapped around it for prefixes and compatibility."""
        return self.of_batch

    @property
    def loss(self) -> Any:
        """The loss itself, without what is wrapped around it."""
        return self._inner_loss[0]

    def start_epoch(self, epoch: int, epochs: int) -> None:
        """Set every hyper-parameter to its scheduled value in `epoch`, counted from 0, of `epochs`."""
        self.hyperparameters = {
            name: getattr(self.settings, name).value_at(epoch, epochs)
            for name in SCHEDULED
            if name in self.settings.setting_names
        }
        for name in _scheduled_names(self.settings):
            setattr(self.loss, name, self.hyperparameters[name])
        if isinstance(self.batch_loss, CompatibleLoss):
            self.batch_loss.weight = self.hyperparameters["compatible_weight"]

    def forward(
        self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], rows: Int64[Tensor, " n"]
    ) -> Float[Tensor, ""]:
        """Compute the loss of a batch.

        Args:
            embeddings: as the loss takes them (`LossSettings.uses_raw_embeddings`).
            labels: classes of the photos.
            rows: indices of the photos in the training dataset, to look up their reference and teacher embeddings.
        """
        self._last_batch = embeddings.detach(), labels
        reference = () if self.reference_embeddings is None else (self.reference_embeddings[rows],)
        value = self.batch_loss(embeddings, labels, *reference)
        if self.center is not None and (weight := self.hyperparameters["center_weight"]):
            value = value + weight * self.center(embeddings, labels)
        if weight := self.hyperparameters.get("triplet_weight"):
            value = value + weight * self.triplets(unit_length(embeddings), labels)
        if self.teacher_embeddings is not None:
            value = value + self.distill_weight * distillation_loss(embeddings, self.teacher_embeddings[rows])
        return value

    @property
    def mining_margin(self) -> float:
        """The margin of a loss that mines triplets, in squared distance."""
        return getattr(self.loss, "mining_margin", self.loss.margin)

    def active_triplets(self) -> float | None:
        """Return the share of the last batch's triplets whose loss is above zero; None for losses without triplets."""
        if self._last_batch is None or not isinstance(self.loss, TripletLoss):
            return None
        share = active_fraction(*self._last_batch, self.loss.margin)
        return None if math.isnan(share) else share
