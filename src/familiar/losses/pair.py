"""Contrastive loss: mates together, strangers at least a margin apart."""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import relu

from familiar.losses.pairwise import FAR, Block, PairLoss, Weighed
from familiar.losses.settings import check_range

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
    """`contrastive_loss` as a value, with `anchors` as `PairLoss` has it."""

    margin: float = 1.0
    reduction: Reduction = "active"

    def __post_init__(self) -> None:
        check_range("margin", self.margin, self.margin >= 0, "0 or more")
        check_range("reduction", self.reduction, self.reduction in get_args(Reduction), '"active" or "all"')

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
    """Mean squared distance of mates, plus the mean of `[margin - d]_+` over strangers, d their squared distance.

    `margin` in [0, 4] on the unit sphere. `reduction` "active": each mean is over the pairs that cost something; "all":
    over all pairs of the kind. A kind without pairs adds nothing.

    Hadsell, Chopra and LeCun (CVPR 2006) take `[margin - sqrt(d)]_+^2` for strangers, whose pull grows as they come
    nearer. Ours stays linear, as pytorch-metric-learning's does with `LpDistance(power=2)`, which it equals.
    """
    return Contrastive(margin, reduction)(embeddings, labels)
