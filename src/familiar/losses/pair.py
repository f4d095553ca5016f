"""Contrastive loss: mates together, strangers at least a margin apart."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import relu

from familiar.losses.pairwise import FAR, Block, PairLoss, Weighed

Reduction = Literal["active", "all"]


@dataclass
class _Mates(PairLoss):
    reduction: Reduction
    sees: ClassVar[Literal["distance", "similarity"]] = "distance"

    def weigh(self, block: Block) -> Weighed:
        costs = relu(block.positives(pad=0.0))
        active = costs > 0
        slopes = block.values.zero_().scatter_(1, block.places, active.to(costs.dtype))
        return Weighed(
            costs.sum(dtype=torch.float64),
            (active if self.reduction == "active" else block.real).sum(),
            slopes,
        )


@dataclass
class _Strangers(PairLoss):
    margin: float
    reduction: Reduction
    sees: ClassVar[Literal["distance", "similarity"]] = "distance"

    def weigh(self, block: Block) -> Weighed:
        costs = relu(self.margin - block.negatives(fill=FAR))
        active = costs > 0
        terms = active if self.reduction == "active" else block.values < FAR
        return Weighed(costs.sum(dtype=torch.float64), terms.sum(), active.to(costs.dtype).neg_())


@dataclass
class Contrastive:
    margin: float = 1.0
    reduction: Reduction = "active"

    def __call__(
        self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], anchors: int | None = None
    ) -> Float[Tensor, ""]:
        mates, strangers = _Mates(self.reduction), _Strangers(self.margin, self.reduction)
        return mates(embeddings, labels, anchors) + strangers(embeddings, labels, anchors)


def contrastive_loss(
    embeddings: Float[Tensor, "n d"],
    labels: Int64[Tensor, " n"],
    margin: float = 1.0,
    *,
    reduction: Reduction = "active",
) -> Float[Tensor, ""]:
    return Contrastive(margin, reduction)(embeddings, labels)
