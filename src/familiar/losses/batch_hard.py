"""Batch-hard triplet loss (Hermans et al., arXiv 1703.07737, Eq. 5): one triplet per anchor, its hardest."""

from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import relu, softplus

from familiar.core.settings import setting
from familiar.losses.blockwise import loss_with_gradient
from familiar.losses.mining import Triplets, hardest_pairs, mine_batch_hard
from familiar.losses.triplet import TripletLoss, triplet_gaps
from familiar.losses.validation import check_batch


@dataclass
class BatchHard(TripletLoss):
    """The farthest positive and the nearest negative of each anchor (Hermans et al., arXiv 1703.07737, Eq. 5).

    Attributes:
        margin: in squared distance, [0, 4].
        reduction: the mean over the triplets that cost something ("active"), or over "all".
        soft_margin: use `log(1 + exp(d(a,p) - d(a,n)))` instead of the hinge; the margin is not used, and every triplet
            is active.
    """

    soft_margin: bool = setting(False, meaning="softplus instead of the hinge")

    def mine_triplets(self, embeddings: Tensor, labels: Tensor) -> Triplets:
        """List the hardest triplet of each anchor."""
        return mine_batch_hard(embeddings, labels)

    def triplet_loss_from(self, anchors: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        """Compute the loss of listed triplets."""
        if not self.soft_margin:
            return super().triplet_loss_from(anchors, positives, negatives)
        costs = softplus(triplet_gaps(anchors, positives, negatives))
        return costs.sum() / max(len(costs), 1)

    def __call__(
        self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], anchors: int | None = None
    ) -> Float[Tensor, ""]:
        """Compute the loss of a batch, as `PairLoss` does. The rows of one triplet per anchor fit into memory."""
        check_batch(embeddings, labels, anchors, unit=True)
        return loss_with_gradient(embeddings, partial(self.value_and_gradient, labels, anchors))

    def value_and_gradient(
        self, labels: Tensor, anchors: int | None, rows: Tensor, needs_gradient: bool
    ) -> tuple[Tensor, Tensor]:
        """Compute the loss of unit rows and its gradient with respect to them.

        Args:
            labels: int64 identities, one for each row.
            anchors: how many rows, from the first, are anchors; None: all.
            rows: unit rows, n x d.
            needs_gradient: otherwise the gradient is zeros.
        """
        positives, negatives, has_both = hardest_pairs(rows, labels, anchors)
        anchor_rows = rows[: len(has_both)]
        pull = rows.index_select(0, positives) - anchor_rows
        push = anchor_rows - rows.index_select(0, negatives)
        gaps = ((pull + push) * (pull - push)).sum(dim=1)  # as in triplet_gaps
        if self.soft_margin:
            costs, slopes = softplus(gaps) * has_both, gaps.sigmoid() * has_both
            counted = has_both
        else:
            costs = relu(gaps + self.margin) * has_both
            slopes = costs > 0
            counted = slopes if self.reduction == "active" else has_both
        terms = counted.sum().clamp_min(1)
        gradient = torch.zeros_like(rows)
        if needs_gradient:
            factors = (slopes.to(rows.dtype) * 2 / terms)[:, None]
            pull *= factors
            push *= factors
            gradient[: len(has_both)] -= pull + push
            gradient.index_add_(0, positives, pull).index_add_(0, negatives, push)
        return costs.sum() / terms, gradient
