"""Contrastive loss: mates together, strangers at least a margin apart."""

from dataclasses import dataclass
from typing import get_args

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import relu

from familiar.losses.blockwise import FAR, Block, PairLoss, Reduction, Weighed, widened
from familiar.losses.validation import check_range


@dataclass
class _Strangers(PairLoss):
    margin: float
    reduction: Reduction

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
        strangers = _Strangers(self.margin, self.reduction)(embeddings, labels, anchors)
        return strangers + _mean_distance_of_mates(widened(embeddings), labels, anchors)


def _mean_distance_of_mates(rows: Tensor, labels: Tensor, anchors: int | None) -> Tensor:
    """Over all (anchor, mate). A row's k - 1 squared distances sum to k |x - c|^2 + sum_j |x_j - c|^2, c the center."""
    ordered = labels.sort().values
    identity = torch.searchsorted(ordered, labels)  # by the place of its first photo
    photos = torch.searchsorted(ordered, labels, right=True) - identity
    centers = torch.zeros_like(rows).index_add(0, identity, rows).index_select(0, identity) / photos[:, None]
    spread = (rows - centers).square().sum(dim=1)
    spreads = torch.zeros_like(spread).index_add(0, identity, spread).index_select(0, identity)
    return (photos * spread + spreads)[:anchors].sum() / (photos[:anchors] - 1).sum().clamp_min(1)


def contrastive_loss(
    embeddings: Float[Tensor, "n d"],
    labels: Int64[Tensor, " n"],
    margin: float = 1.0,
    *,
    reduction: Reduction = "active",
) -> Float[Tensor, ""]:
    """Mean squared distance of mates, plus the mean of `[margin - d]_+` over strangers, d their squared distance.

    `margin` in [0, 4] on the unit sphere. `reduction` is that of strangers: the mean over those that cost something
    ("active"), or over "all". That of mates is over all: only identical vectors cost nothing, and rounding hides which
    those are. A kind without pairs adds nothing.

    Hadsell, Chopra and LeCun (CVPR 2006) take `[margin - sqrt(d)]_+^2` for strangers, whose pull grows as they come
    nearer. Ours stays linear, as pytorch-metric-learning's does with `LpDistance(power=2)`, which it equals
    but for mates that coincide.
    """
    return Contrastive(margin, reduction)(embeddings, labels)
