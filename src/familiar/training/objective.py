"""Training objective: a recipe's loss, its scheduled hyper-parameters, and the losses added to it."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor, nn

from familiar.core.errors import BadRecipe
from familiar.loading.blends import NO_LABEL
from familiar.losses import (
    BatchAll,
    CenterLoss,
    CircleTriplets,
    CompatibleLoss,
    HarmonicLoss,
    PartialFC,
    SemiHard,
    TripletLoss,
    active_fraction,
    distillation_loss,
    relation_loss,
)
from familiar.models.network import unit_length
from familiar.training.loss_settings import ClassifierSettings, LossSettings
from familiar.training.settings import DistillSettings


def validation_loss(settings: LossSettings) -> Any | None:
    """Return the validation loss, with the hyper-parameters of epoch 0 so that epochs are comparable.

    Triplet losses give the mean hinge over all triplets, whichever they mine; circle_triplets covers all triplets too;
    circle and contrastive stay as they are. None for classifiers, which know only the training identities.
    """
    if isinstance(settings, ClassifierSettings):  # building it would draw random numbers
        return None
    loss = settings.build(1, 1)
    if isinstance(loss, TripletLoss):
        return BatchAll(loss.margin, "all")
    return replace(loss, mining="batch_all") if isinstance(loss, CircleTriplets) else loss


class Objective(nn.Module):
    """The loss of a recipe: call `start_epoch` before each epoch, then the module with each batch.

    Args:
        settings: the loss.
        embedding_dim: length of the network's embeddings.
        classes: number of training identities.
        reference_embeddings: by an old bundle, a row for each photo of the dataset, if the network must be compatible.
        teacher_embeddings: likewise by teachers, if the network learns from any, with more rows for blended faces.
        distill: weights of what is learned from teachers.

    Attributes:
        batch_loss: the loss with what is wrapped around it for prefixes and compatibility.
        draws: whether it draws random numbers.
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
        distill: DistillSettings | None = None,
    ) -> None:
        super().__init__()
        self.settings = settings
        self.distill = distill or DistillSettings()
        loss = batch_loss = settings.build(embedding_dim, classes)
        if settings.prefixes:
            batch_loss = HarmonicLoss(batch_loss, settings.prefixes, settings.prefix_weights, settings.mined_on)
        if reference_embeddings is not None:
            batch_loss = CompatibleLoss(batch_loss)
        self.batch_loss: Any = batch_loss
        pulls_to_centers = isinstance(settings, ClassifierSettings) and any(settings.center_weight.extremes)
        self.center = CenterLoss(embedding_dim, classes) if pulls_to_centers else None
        self.triplets = SemiHard()
        self.draws = isinstance(loss, PartialFC) or getattr(loss, "select", None) == "random"
        bundles = {"reference_embeddings": reference_embeddings, "teacher_embeddings": teacher_embeddings}
        for name, vectors in bundles.items():
            self.register_buffer(name, None if vectors is None else torch.from_numpy(vectors), persistent=False)
        self._inner_loss = (loss,)  # in a tuple, or it would be registered, and saved, twice
        self._last_batch: tuple[Tensor, Tensor] | None = None
        self.hyperparameters: dict[str, float] = {}
        self.start_epoch(0, 1)

    @property
    def loss(self) -> Any:
        """The loss itself, without what is wrapped around it."""
        return self._inner_loss[0]

    def start_epoch(self, epoch: int, epochs: int) -> None:
        """Set every hyper-parameter to its scheduled value in `epoch`, counted from 0, of `epochs`."""
        self.hyperparameters = self.settings.numbers_at(epoch, epochs)
        for name in self.hyperparameters.keys() & self.settings.arguments():
            setattr(self.loss, name, self.hyperparameters[name])
        if isinstance(self.batch_loss, CompatibleLoss):
            self.batch_loss.weight = self.hyperparameters["compatible_weight"]

    def forward(
        self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], rows: Int64[Tensor, " n"]
    ) -> Float[Tensor, ""]:
        """Compute the loss of a batch.

        Args:
            embeddings: as the loss takes them (`LossSettings.uses_raw_embeddings`).
            labels: classes of the photos; `NO_LABEL` for blended faces, which only the teachers' losses see.
            rows: indices of the photos in the training dataset, to look up their reference and teacher embeddings.
        """
        if self.teacher_embeddings is None:
            return self._label_loss(embeddings, labels, rows)
        distill, teacher = self.distill, self.teacher_embeddings[rows]
        value = distill.weight * distillation_loss(embeddings, teacher)
        if distill.relation_weight:
            value = value + distill.relation_weight * relation_loss(embeddings, teacher)
        if distill.blends:
            labeled = labels != NO_LABEL
            embeddings, labels, rows = embeddings[labeled], labels[labeled], rows[labeled]
        if distill.label_weight and len(labels):
            value = value + distill.label_weight * self._label_loss(embeddings, labels, rows)
        return value

    def _label_loss(
        self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], rows: Int64[Tensor, " n"]
    ) -> Float[Tensor, ""]:
        self._last_batch = embeddings.detach(), labels
        reference = () if self.reference_embeddings is None else (self.reference_embeddings[rows],)
        value = self.batch_loss(embeddings, labels, *reference)
        if self.center is not None and (weight := self.hyperparameters["center_weight"]):
            value = value + weight * self.center(embeddings, labels)
        if weight := self.hyperparameters.get("triplet_weight"):
            value = value + weight * self.triplets(unit_length(embeddings), labels)
        return value

    @torch.no_grad()
    def set_class_centers(self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> None:
        """Set each class center of the loss to the direction of the mean of its rows, at unit length.

        Args:
            embeddings: unit rows.
            labels: their classes; each class has a row or more.

        Raises:
            BadRecipe: the loss has no class centers, or several for a class.
        """
        centers = getattr(self.loss, "centers", None)
        shard = getattr(self.loss, "shard", None)
        if shard is not None:  # the centers of the other classes are on other ranks
            here = (labels >= shard.start) & (labels < shard.stop)
            embeddings, labels = embeddings[here], labels[here] - shard.start
        if centers is None or centers.ndim != 2 or (len(labels) and len(centers) <= int(labels.max())):
            raise BadRecipe(f"loss.start=means: {self.settings.name} does not have one center for each class")
        sums = torch.zeros_like(centers).index_add_(0, labels, embeddings.to(centers))
        centers.copy_(unit_length(sums))

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
