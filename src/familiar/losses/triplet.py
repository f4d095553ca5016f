"""Triplet losses over unit embeddings (FaceNet, arXiv 1503.03832, Eq. 2; Hermans et al., arXiv 1703.07737).

Distances are squared Euclidean, `2 - 2 cos` on the unit sphere, in [0, 4]. A triplet is an anchor, a positive
(another photo of its identity) and a negative (a photo of another identity); it costs `[d(a,p) - d(a,n) + margin]_+`.

The batch losses do not list their triplets. A hinge is linear where it is active, so what a pair contributes to loss
and gradient depends only on the *number* of active triplets it belongs to, which follows from one sort of each
anchor's positives.
"""

import math
from abc import ABC, abstractmethod
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
    distance_blocks,
    to_float32,
)
from familiar.losses.mining import (
    Select,
    Triplets,
    mine_batch_all,
    mine_hard_negative,
    mine_semi_hard,
)
from familiar.losses.validation import check_batch, check_rows


def triplet_gaps(
    anchors: Float[Tensor, "t d"], positives: Float[Tensor, "t d"], negatives: Float[Tensor, "t d"]
) -> Float[Tensor, " t"]:
    """Compute d(a,p) - d(a,n) of each triplet, accurately also if both are nearly equal."""
    check_rows(anchors=anchors, positives=positives, negatives=negatives)
    anchors, positives, negatives = to_float32(anchors), to_float32(positives), to_float32(negatives)
    return ((positives - negatives) * (positives + negatives - 2 * anchors)).sum(dim=-1)


def triplet_loss(
    anchors: Float[Tensor, "t d"],
    positives: Float[Tensor, "t d"],
    negatives: Float[Tensor, "t d"],
    margin: float = 0.2,
) -> Float[Tensor, ""]:
    """Compute the mean hinge loss over triplets of unit vectors (FaceNet, arXiv 1503.03832, Eq. 2).

    The mean of `[d(a,p) - d(a,n) + margin]_+`.

    Args:
        anchors: unit rows, one triplet per row.
        positives: another photo of each anchor's identity.
        negatives: a photo of another identity for each.
        margin: in squared Euclidean distance, which lies in [0, 4] on the unit sphere.

    Returns:
        A scalar; 0 for no triplets.

    Raises:
        ValueError: a row has another length than 1, or a shape is another.
    """
    check_rows(unit=True, anchors=anchors, positives=positives, negatives=negatives)
    costs = relu(triplet_gaps(anchors, positives, negatives) + margin)
    return costs.sum() / max(len(costs), 1)


@dataclass
class TripletLoss(Checked, ABC):
    """Base of the batch losses.

    Attributes:
        margin: in squared distance, in [0, 4].
        reduction: the mean over the triplets whose loss is above zero ("active"), or over "all" that are selected.
    """

    margin: float = setting(0.2, *SQUARED_DISTANCE)
    reduction: Reduction = setting("active", meaning=REDUCTION)

    @abstractmethod
    def mine_triplets(self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Triplets:
        """List the triplets that this loss selects.

        Args:
            embeddings: unit rows.
            labels: the identity of each row.

        Returns:
            Their row numbers, ordered by anchor, then positive, then negative.
        """

    def triplet_loss_from(
        self, anchors: Float[Tensor, "t d"], positives: Float[Tensor, "t d"], negatives: Float[Tensor, "t d"]
    ) -> Float[Tensor, ""]:
        """Compute the loss of listed triplets.

        Args:
            anchors: unit rows, one triplet per row.
            positives: another photo of each anchor's identity.
            negatives: a photo of another identity for each.

        Returns:
            A scalar, the mean according to `reduction`; 0 for no triplets.
        """
        costs = relu(triplet_gaps(anchors, positives, negatives) + self.margin)
        terms = (costs > 0).sum() if self.reduction == "active" else len(costs)
        return costs.sum() / max(int(terms), 1)


@dataclass
class BatchAll(TripletLoss, PairLoss):
    """All triplets of the batch (FaceNet, arXiv 1503.03832).

    Exact, in O(n^2 log k) time for k photos per identity (Hermans et al., arXiv 1703.07737, Eq. 6).

    Attributes:
        margin: in squared distance, in [0, 4].
        reduction: the mean over the triplets whose loss is above zero ("active"), or over "all".
    """

    def mine_triplets(self, embeddings: Tensor, labels: Tensor) -> Triplets:
        """List all valid triplets."""
        return mine_batch_all(embeddings, labels)

    def block_loss(self, block: Block) -> BlockLoss:
        """Compute the cost of a block and its derivative."""
        positives, negatives = block.positive_values(pad=0.0), block.negative_values(fill=FINITE_INF)
        bounds, sorting = (positives + self.margin).masked_fill_(~block.positive_mask, -FINITE_INF).sort(dim=1)
        # A negative is active with every positive whose bound it does not reach.
        reached = torch.searchsorted(bounds, negatives, right=True, out_int32=True)
        positive_counts = _undo_sort(_cumulative_counts(reached, bounds.shape[1]), sorting) * block.positive_mask
        negative_counts = bounds.shape[1] - reached
        return self._hinge_loss(block, positives, negatives, positive_counts, negative_counts)

    def _hinge_loss(
        self, block: Block, positives: Tensor, negatives: Tensor, positive_counts: Tensor, negative_counts: Tensor
    ) -> BlockLoss:
        """Compute the cost of a block from the number of active triplets of each positive and each negative."""
        active = positive_counts.sum()
        pulls, pushes = positive_counts.to(positives.dtype), negative_counts.to(positives.dtype)
        total = (pulls * positives).sum(dtype=torch.float64) + self.margin * active.double()
        total -= (pushes * negatives).sum(dtype=torch.float64)
        if self.reduction == "active":
            terms = active
        else:
            photos = block.positive_mask.sum(dim=1)
            terms = (photos * (negatives.shape[1] - 1 - photos)).sum()
        return BlockLoss(total, terms, pushes.neg_().scatter_(1, block.positive_cols, pulls))


@dataclass
class SemiHard(BatchAll):
    """Triplets in the right order, but with less than the margin (FaceNet, arXiv 1503.03832).

    Those with `d(a,p) < d(a,n) < d(a,p) + margin`. There is no fallback: a pair whose band is empty costs nothing.

    Attributes:
        margin: in squared distance, in [0, 4].
        reduction: has no effect, since all selected triplets are active.
        select: "all" negatives with `d(a,p) < d(a,n) < d(a,p) + margin`, or for each anchor and positive the nearest of
            these ("hardest") or one drawn at "random". All of them are active.
        generator: of the random draws; by default torch's global one.
    """

    select: Select = setting("all", meaning="which of the semi-hard negatives of a pair are used")
    generator: torch.Generator | None = None

    def mine_triplets(self, embeddings: Tensor, labels: Tensor) -> Triplets:
        """List the semi-hard triplets."""
        return mine_semi_hard(embeddings, labels, self.margin, select=self.select, generator=self.generator)

    def value_and_gradient(
        self, labels: Tensor, anchors: int | None, rows: Tensor, needs_gradient: bool
    ) -> tuple[Tensor, Tensor]:
        """Compute the loss of unit rows and, if it is needed, its gradient with respect to them."""
        if self.select == "all":
            return super().value_and_gradient(labels, anchors, rows, needs_gradient)
        triplets = self.mine_triplets(rows, labels).first_anchors(anchors)  # one per pair: few enough to list them
        with torch.enable_grad():
            leaf = rows.detach().requires_grad_()
            value = self.triplet_loss_from(*triplets.select_rows(leaf))
            return value.detach(), torch.autograd.grad(value, leaf)[0]

    def block_loss(self, block: Block) -> BlockLoss:
        """Compute the cost of a block and its derivative."""
        positives, negatives = block.positive_values(pad=0.0), block.negative_values(fill=FINITE_INF)
        nearer, sorting = positives.masked_fill(~block.positive_mask, -FINITE_INF).sort(dim=1)
        k = nearer.shape[1]
        passed = torch.searchsorted(nearer, negatives, out_int32=True)
        reached = torch.searchsorted(nearer + self.margin, negatives, right=True, out_int32=True)
        # If the margin is lost to rounding, the band is empty; its count must not be negative.
        sorted_counts = (_cumulative_counts(reached, k) - _cumulative_counts(passed, k)).clamp_min_(0)
        negative_counts = (passed - reached).clamp_min_(0)
        positive_counts = _undo_sort(sorted_counts, sorting) * block.positive_mask
        cost = self._hinge_loss(block, positives, negatives, positive_counts, negative_counts)
        return cost._replace(terms=positive_counts.sum())


@dataclass
class HardNegative(TripletLoss, PairLoss):
    """The nearest negative of each pair: one triplet for each anchor and positive.

    Attributes:
        margin: in squared distance, in [0, 4].
        reduction: the mean over the triplets whose loss is above zero ("active"), or over "all".
    """

    def mine_triplets(self, embeddings: Tensor, labels: Tensor) -> Triplets:
        """List for each anchor and positive the triplet with the nearest negative."""
        return mine_hard_negative(embeddings, labels)

    def block_loss(self, block: Block) -> BlockLoss:
        """Compute the cost of a block and its derivative."""
        positives = block.positive_values(pad=-FINITE_INF)
        nearest, column = block.negative_values(fill=FINITE_INF).min(dim=1, keepdim=True)
        gaps = positives - nearest
        costs = relu(gaps + self.margin)
        active = costs > 0
        pulls = active.to(costs.dtype)
        grad = block.values.zero_().scatter_(1, block.positive_cols, pulls)
        return BlockLoss(
            costs.sum(dtype=torch.float64),
            (active if self.reduction == "active" else gaps > -FINITE_INF / 2).sum(),
            grad.scatter_(1, column, -pulls.sum(dim=1, keepdim=True)),
        )


def active_fraction(
    embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], margin: float = TripletLoss.margin
) -> float:
    """Compute the share of all valid triplets with `d(a,p) + margin > d(a,n)`, which are not yet learned.

    Args:
        embeddings: unit rows.
        labels: the identity of each row.
        margin: in squared distance, [0, 4].

    Returns:
        A share in [0, 1]; NaN if there are no triplets.

    Raises:
        ValueError: the margin is below 0, or the number of labels is not the number of rows.

    >>> active_fraction(torch.eye(2).repeat_interleave(2, 0), torch.tensor([0, 0, 1, 1]))
    0.0
    """
    check_batch(embeddings, labels, unit=True)
    active = [BatchAll(margin).block_loss(block).terms for _, block in distance_blocks(embeddings, labels)]
    photos = torch.bincount(torch.searchsorted(labels.sort().values, labels))  # by an identity's first photo
    valid = int((photos * (photos - 1) * (len(labels) - photos)).sum())
    return sum(map(int, active)) / valid if valid else math.nan


def _cumulative_counts(reached: Tensor, k: int) -> Tensor:
    """Count, for each j < k, how many values of a row of `reached`, in [0, k], are at most j."""
    rows = torch.arange(len(reached), dtype=torch.int32, device=reached.device)[:, None]
    counts = torch.bincount((reached + rows * (k + 1)).flatten(), minlength=len(reached) * (k + 1))
    return counts.view(len(reached), k + 1)[:, :k].cumsum(dim=1)


def _undo_sort(counts: Tensor, sorting: Tensor) -> Tensor:
    return torch.empty_like(counts).scatter_(1, sorting, counts)
