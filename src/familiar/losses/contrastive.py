"""Contrastive loss: pulls positive pairs together and pushes negative pairs at least a margin apart."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import relu

from familiar.core.settings import Checked, setting
from familiar.losses.blockwise import (
    FINITE_INF,
    REDUCTION,
    SQUARED_DISTANCE,
    Block,
    BlockLoss,
    PairLoss,
    Reduction,
    to_float32,
)


@dataclass
class _NegativePairs(PairLoss):
    margin: float
    reduction: Reduction

    def block_loss(self, block: Block) -> BlockLoss:
        costs = relu(self.margin - block.negative_values(fill=FINITE_INF))
        active = costs > 0
        terms = active if self.reduction == "active" else block.values < FINITE_INF
        return BlockLoss(costs.sum(dtype=torch.float64), terms.sum(), active.to(costs.dtype).neg_())


@dataclass
class Contrastive(Checked):
    """Pairs: positives to one point, negatives beyond the margin (Hadsell et al., CVPR 2006).

    The mean squared distance d of positive pairs plus the mean of `[margin - d]_+` over negative pairs. Hadsell, Chopra
    and LeCun (Eq. 4) take `[margin - sqrt(d)]_+^2` for negative pairs, whose push grows as they come nearer. This one
    is linear in d, like pytorch-metric-learning's with `LpDistance(power=2)`, which it equals except where the two
    photos of a positive pair have the same embedding.

    Attributes:
        margin: smallest squared distance at which a negative pair costs nothing, in [0, 4].
        reduction: of negative pairs: the mean over those that cost something ("active"), or over "all". That of
            positive pairs is over all: only identical vectors cost nothing, and rounding hides which those are.
    """

    margin: float = setting(1.0, *SQUARED_DISTANCE)
    reduction: Reduction = setting("active", meaning=REDUCTION)

    def __call__(
        self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], anchors: int | None = None
    ) -> Float[Tensor, ""]:
        """Compute the loss of a batch, or of its first `anchors` rows with all others.

        A batch without positive (or without negative) pairs adds nothing for them.
        """
        negative_cost = _NegativePairs(self.margin, self.reduction)(embeddings, labels, anchors)
        return negative_cost + _mean_positive_distance(to_float32(embeddings), labels, anchors)


def _mean_positive_distance(rows: Tensor, labels: Tensor, anchors: int | None) -> Tensor:
    """Compute the mean squared distance over all (anchor, positive) pairs.

    The k - 1 squared distances of a row sum to k |x - c|^2 + sum_j |x_j - c|^2, c the center of its identity.
    """
    sorted_labels = labels.sort().values
    identity = torch.searchsorted(sorted_labels, labels)  # numbered by the index of its first photo
    photos = torch.searchsorted(sorted_labels, labels, right=True) - identity
    centers = torch.zeros_like(rows).index_add(0, identity, rows).index_select(0, identity) / photos[:, None]
    spread = (rows - centers).square().sum(dim=1)
    spreads = torch.zeros_like(spread).index_add(0, identity, spread).index_select(0, identity)
    return (photos * spread + spreads)[:anchors].sum() / (photos[:anchors] - 1).sum().clamp_min(1)
