"""Triplet losses over unit embeddings (FaceNet, arXiv 1503.03832, Eq. 2; Hermans et al., arXiv 1703.07737).

Distances are squared Euclidean, `2 - 2 cos` on the unit sphere, in [0, 4]. A triplet is an anchor, a positive
(another photo of its identity) and a negative (a photo of another one); it costs `[d(a,p) - d(a,n) + margin]_+`.

The batch losses never list the triplets they stand for. A hinge is linear where it is active, so all that a pair
adds to loss and gradient is the *number* of active triplets it takes part in, and one sort of each anchor's
positives gives it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import relu, softplus

from familiar.losses.blockwise import (
    FAR,
    Block,
    PairLoss,
    Reduction,
    Weighed,
    check_batch,
    count_terms,
    unit_prefix,
    widened,
)
from familiar.losses.mining import (
    Select,
    Triplets,
    hardest_of_each,
    mine_batch_all,
    mine_batch_hard,
    mine_hard_negative,
    mine_semi_hard,
)
from familiar.losses.validation import check_range


def triplet_gaps(
    anchors: Float[Tensor, "t d"], positives: Float[Tensor, "t d"], negatives: Float[Tensor, "t d"]
) -> Float[Tensor, " t"]:
    """d(a,p) - d(a,n), exact also where both are nearly the same."""
    anchors, positives, negatives = widened(anchors), widened(positives), widened(negatives)
    return ((positives - negatives) * (positives + negatives - 2 * anchors)).sum(dim=-1)


def triplet_loss(
    anchors: Float[Tensor, "t d"],
    positives: Float[Tensor, "t d"],
    negatives: Float[Tensor, "t d"],
    margin: float = 0.2,
) -> Float[Tensor, ""]:
    """Mean of `[d(a,p) - d(a,n) + margin]_+` over t triplets of unit rows; 0 where there are none.

    `margin` is in squared Euclidean distance, [0, 4] on the unit sphere.
    """
    costs = relu(triplet_gaps(anchors, positives, negatives) + margin)
    return costs.sum() / max(len(costs), 1)


@dataclass
class TripletLoss(ABC):
    """What the batch losses share: how they choose, a margin in squared distance, and what the mean is over.

    `reduction` "active": the triplets that cost something; "all": every one that was chosen.
    """

    margin: float = 0.2
    reduction: Reduction = "active"

    def __post_init__(self) -> None:
        check_range("margin", self.margin, self.margin >= 0, "0 or more")
        check_range("reduction", self.reduction, self.reduction in get_args(Reduction), '"active" or "all"')

    @abstractmethod
    def mine(self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Triplets:
        """The triplets this loss chooses, listed."""

    def of_triplets(
        self, anchors: Float[Tensor, "t d"], positives: Float[Tensor, "t d"], negatives: Float[Tensor, "t d"]
    ) -> Float[Tensor, ""]:
        """The loss of listed triplets."""
        costs = relu(triplet_gaps(anchors, positives, negatives) + self.margin)
        chosen = (costs > 0).sum() if self.reduction == "active" else len(costs)
        return costs.sum() / max(int(chosen), 1)


@dataclass
class BatchAll(TripletLoss, PairLoss):
    """All valid triplets of a batch."""

    def mine(self, embeddings: Tensor, labels: Tensor) -> Triplets:
        return mine_batch_all(embeddings, labels)

    def weigh(self, block: Block) -> Weighed:
        positives, negatives = block.positives(pad=0.0), block.negatives(fill=FAR)
        bounds, sorting = (positives + self.margin).masked_fill_(~block.real, -FAR).sort(dim=1)
        # A negative is active with every positive whose bound it does not reach.
        reached = torch.searchsorted(bounds, negatives, right=True, out_int32=True)
        of_positives = _unsorted(_up_to_each(reached, bounds.shape[1]), sorting) * block.real
        of_negatives = bounds.shape[1] - reached
        return self._hinges(block, positives, negatives, of_positives, of_negatives)

    def _hinges(
        self, block: Block, positives: Tensor, negatives: Tensor, of_positives: Tensor, of_negatives: Tensor
    ) -> Weighed:
        """From the numbers of active triplets that each positive and each negative takes part in."""
        active = of_positives.sum()
        pulls, pushes = of_positives.to(positives.dtype), of_negatives.to(positives.dtype)
        total = (pulls * positives).sum(dtype=torch.float64) + self.margin * active.double()
        total -= (pushes * negatives).sum(dtype=torch.float64)
        if self.reduction == "active":
            terms = active
        else:
            mates = block.real.sum(dim=1)
            terms = (mates * (negatives.shape[1] - 1 - mates)).sum()
        return Weighed(total, terms, pushes.neg_().scatter_(1, block.places, pulls))


@dataclass
class SemiHard(BatchAll):
    """FaceNet's triplets: every negative with `d(a,p) < d(a,n) < d(a,p) + margin`. All of them are active.

    `select`: all of these, or for each anchor and positive the nearest ("hardest") or one drawn at "random".
    """

    select: Select = "all"
    generator: torch.Generator | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("select", self.select, self.select in get_args(Select), ", ".join(get_args(Select)))

    def mine(self, embeddings: Tensor, labels: Tensor) -> Triplets:
        return mine_semi_hard(embeddings, labels, self.margin, select=self.select, generator=self.generator)

    def __call__(self, embeddings: Tensor, labels: Tensor, anchors: int | None = None) -> Tensor:
        if self.select == "all":
            return super().__call__(embeddings, labels, anchors)
        # One a pair is few enough to be listed.
        check_batch(embeddings, labels, anchors)
        triplets = self.mine(embeddings, labels)
        return self.of_triplets(*triplets.of_first(anchors).of(widened(embeddings)))

    def of_prefixes(self, embeddings: Tensor, labels: Tensor, lengths: Sequence[int]) -> Tensor:
        if self.select == "all":
            return super().of_prefixes(embeddings, labels, lengths)
        return torch.stack([self(unit_prefix(embeddings, length), labels) for length in lengths])

    def weigh(self, block: Block) -> Weighed:
        positives, negatives = block.positives(pad=0.0), block.negatives(fill=FAR)
        nearer, sorting = positives.masked_fill(~block.real, -FAR).sort(dim=1)
        k = nearer.shape[1]
        passed = torch.searchsorted(nearer, negatives, out_int32=True)
        reached = torch.searchsorted(nearer + self.margin, negatives, right=True, out_int32=True)
        # Where rounding swallows the margin the band is empty, not less.
        of_positives = (_up_to_each(reached, k) - _up_to_each(passed, k)).clamp_min_(0)
        of_negatives = (passed - reached).clamp_min_(0)
        chosen = _unsorted(of_positives, sorting) * block.real
        return self._hinges(block, positives, negatives, chosen, of_negatives)._replace(terms=chosen.sum())


@dataclass
class BatchHard(TripletLoss):
    """For each anchor its farthest positive and its nearest negative (Hermans et al., arXiv 1703.07737).

    `soft_margin`: `log(1 + exp(d(a,p) - d(a,n)))` in place of the hinge; the margin is not used, and every triplet is
    active.
    """

    soft_margin: bool = False

    def mine(self, embeddings: Tensor, labels: Tensor) -> Triplets:
        return mine_batch_hard(embeddings, labels)

    def of_triplets(self, anchors: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        if not self.soft_margin:
            return super().of_triplets(anchors, positives, negatives)
        costs = softplus(triplet_gaps(anchors, positives, negatives))
        return costs.sum() / max(len(costs), 1)

    def __call__(
        self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], anchors: int | None = None
    ) -> Float[Tensor, ""]:
        """As of `PairLoss`; one triplet an anchor is few enough to be gathered."""
        check_batch(embeddings, labels, anchors)
        value: Tensor = _OfHardest.apply(embeddings, labels, self, anchors)  # pyright: ignore
        return value


class _OfHardest(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, embeddings: Tensor, labels: Tensor, loss: BatchHard, count: int | None) -> Tensor:
        positives, negatives, found = hardest_of_each(embeddings, labels, count)
        rows = widened(embeddings)
        anchors = rows[: len(found)]
        pull = rows.index_select(0, positives) - anchors
        push = anchors - rows.index_select(0, negatives)
        gaps = ((pull + push) * (pull - push)).sum(dim=1)  # as in triplet_gaps
        if loss.soft_margin:
            costs, slopes = softplus(gaps) * found, gaps.sigmoid() * found
            chosen = found
        else:
            costs = relu(gaps + loss.margin) * found
            slopes = costs > 0
            chosen = slopes if loss.reduction == "active" else found
        terms = chosen.sum().clamp_min(1)
        if ctx.needs_input_grad[0]:
            factors = (slopes.to(rows.dtype) * 2 / terms)[:, None]
            pull *= factors
            push *= factors
            gradient = torch.zeros_like(rows)
            gradient[: len(found)] -= pull + push
            gradient.index_add_(0, positives, pull).index_add_(0, negatives, push)
            ctx.dtype = embeddings.dtype
            ctx.save_for_backward(gradient)
        return costs.sum() / terms

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *value_gradients: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        return (ctx.saved_tensors[0] * value_gradients[0]).to(ctx.dtype), None, None, None


@dataclass
class HardNegative(TripletLoss, PairLoss):
    """For each anchor and positive the nearest negative of the anchor."""

    def mine(self, embeddings: Tensor, labels: Tensor) -> Triplets:
        return mine_hard_negative(embeddings, labels)

    def weigh(self, block: Block) -> Weighed:
        positives = block.positives(pad=-FAR)
        nearest, column = block.negatives(fill=FAR).min(dim=1, keepdim=True)
        gaps = positives - nearest
        costs = relu(gaps + self.margin)
        active = costs > 0
        pulls = active.to(costs.dtype)
        slopes = block.values.zero_().scatter_(1, block.places, pulls)
        return Weighed(
            costs.sum(dtype=torch.float64),
            (active if self.reduction == "active" else gaps > -FAR / 2).sum(),
            slopes.scatter_(1, column, -pulls.sum(dim=1, keepdim=True)),
        )


def batch_all_triplet_loss(
    embeddings: Float[Tensor, "n d"],
    labels: Int64[Tensor, " n"],
    margin: float = 0.2,
    *,
    reduction: Reduction = "active",
) -> Float[Tensor, ""]:
    """Triplet loss over all valid triplets of a batch, exact, in O(n^2 log k) time for k photos an identity.

    `margin` in squared distance, [0, 4]. `reduction` "active": mean over the triplets that cost something; "all": over
    all. A batch without triplets gives a differentiable zero. Differentiable once.
    """
    return BatchAll(margin, reduction)(embeddings, labels)


def semi_hard_triplet_loss(
    embeddings: Float[Tensor, "n d"],
    labels: Int64[Tensor, " n"],
    margin: float = 0.2,
    *,
    reduction: Reduction = "active",
    select: Select = "all",
    generator: torch.Generator | None = None,
) -> Float[Tensor, ""]:
    """Triplet loss over FaceNet's semi-hard triplets, `d(a,p) < d(a,n) < d(a,p) + margin`.

    `select` "all" of the band, for each anchor and positive its nearest ("hardest"), or one at "random" (by
    `generator`). There is no fallback: a pair whose band is empty costs nothing. All chosen triplets are active, so
    both reductions are the same mean.
    """
    return SemiHard(margin, reduction, select, generator)(embeddings, labels)


def batch_hard_triplet_loss(
    embeddings: Float[Tensor, "n d"],
    labels: Int64[Tensor, " n"],
    margin: float = 0.2,
    *,
    reduction: Reduction = "active",
    soft_margin: bool = False,
) -> Float[Tensor, ""]:
    """Triplet loss of each anchor with its farthest positive and nearest negative (arXiv 1703.07737).

    `soft_margin`: `log(1 + exp(d(a,p) - d(a,n)))` instead of the hinge, without a margin.
    """
    return BatchHard(margin, reduction, soft_margin)(embeddings, labels)


def hard_negative_triplet_loss(
    embeddings: Float[Tensor, "n d"],
    labels: Int64[Tensor, " n"],
    margin: float = 0.2,
    *,
    reduction: Reduction = "active",
) -> Float[Tensor, ""]:
    """Triplet loss of each anchor and positive with the anchor's nearest negative."""
    return HardNegative(margin, reduction)(embeddings, labels)


def active_fraction(embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], margin: float = 0.2) -> float:
    """Share of all valid triplets with `d(a,p) + margin > d(a,n)`: what is left to learn. NaN where there are none.

    >>> active_fraction(torch.eye(2).repeat_interleave(2, 0), torch.tensor([0, 0, 1, 1]))
    0.0
    """
    active = count_terms(BatchAll(margin), embeddings, labels)
    photos = torch.bincount(torch.searchsorted(labels.sort().values, labels))  # by the place of an identity's first
    valid = (photos * (photos - 1) * (len(labels) - photos)).sum()
    return (active.double() / valid).item()


def _up_to_each(reached: Tensor, k: int) -> Tensor:
    """For each j < k how many of a row's `reached`, in [0, k], are at most j."""
    rows = torch.arange(len(reached), dtype=torch.int32, device=reached.device)[:, None]
    counts = torch.bincount((reached + rows * (k + 1)).flatten(), minlength=len(reached) * (k + 1))
    return counts.view(len(reached), k + 1)[:, :k].cumsum(dim=1)


def _unsorted(counts: Tensor, sorting: Tensor) -> Tensor:
    return torch.empty_like(counts).scatter_(1, sorting, counts)
