"""Circle loss (Sun et al. 2020, arXiv 2002.10857): similarities far from where they should be are pulled hardest.

On triplets, as in seed 002, and on a whole batch, as in the paper.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import relu, softplus

from familiar.losses.mining import (
    Triplets,
    mine_batch_all,
    mine_batch_hard,
    mine_hard_negative,
    mine_semi_hard,
)
from familiar.losses.pairwise import Block, PairLoss, Weighed, widened

Miner = Literal["batch_all", "semi_hard", "batch_hard", "hard_negative"]


def circle_from_similarities(
    s_p: Float[Tensor, "*t"],
    s_n: Float[Tensor, "*t"],
    alpha_p: Tensor | float,
    alpha_n: Tensor | float,
    delta_p: Tensor | float,
    delta_n: Tensor | float,
    gamma: float,
) -> Float[Tensor, ""]:
    """Mean of `(1/gamma) log(1 + exp(gamma (alpha_n (s_n - delta_n) - alpha_p (s_p - delta_p))))`; 0 for no triplets.

    With s = -d, alpha = 1 and delta_p - delta_n = margin it is the triplet loss as gamma grows, within ln 2 / gamma.
    """
    costs = softplus(gamma * (alpha_n * (s_n - delta_n) - alpha_p * (s_p - delta_p))) / gamma
    return costs.sum() / max(costs.numel(), 1)


def circle_loss(
    anchors: Float[Tensor, "t d"],
    positives: Float[Tensor, "t d"],
    negatives: Float[Tensor, "t d"],
    margin: float = 0.25,
    gamma: float = 64.0,
    *,
    detach_weights: bool = True,
) -> Float[Tensor, ""]:
    """On t triplets of unit rows, with the cosine scaled to [0, 1].

    `detach_weights`: the paper's, whose weights are constants in the backward pass; False differentiates through them,
    as seed 002 does.
    """
    anchors, positives, negatives = widened(anchors), widened(positives), widened(negatives)
    s_p = ((anchors * positives).sum(dim=1) + 1) / 2
    s_n = ((anchors * negatives).sum(dim=1) + 1) / 2
    alpha_p, alpha_n = relu(1 + margin - s_p), relu(s_n + margin)
    if detach_weights:
        alpha_p, alpha_n = alpha_p.detach(), alpha_n.detach()
    return circle_from_similarities(s_p, s_n, alpha_p, alpha_n, 1 - margin, margin, gamma)


@dataclass
class CircleTriplets:
    """`circle_loss` of the triplets that a miner chooses; `mining_margin`, in squared distance, is semi-hard's."""

    margin: float = 0.25
    gamma: float = 64.0
    mining: Miner = "batch_hard"
    mining_margin: float = 0.2
    detach_weights: bool = True

    def mine(self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Triplets:
        if self.mining == "semi_hard":
            return mine_semi_hard(embeddings, labels, self.mining_margin)
        return MINERS[self.mining](embeddings, labels)

    def of_triplets(
        self, anchors: Float[Tensor, "t d"], positives: Float[Tensor, "t d"], negatives: Float[Tensor, "t d"]
    ) -> Float[Tensor, ""]:
        return circle_loss(
            anchors, positives, negatives, self.margin, self.gamma, detach_weights=self.detach_weights
        )

    def __call__(
        self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], anchors: int | None = None
    ) -> Float[Tensor, ""]:
        return self.of_triplets(*self.mine(embeddings, labels).of_first(anchors).of(embeddings))


MINERS = {"batch_all": mine_batch_all, "batch_hard": mine_batch_hard, "hard_negative": mine_hard_negative}


@dataclass
class CirclePairs(PairLoss):
    """The paper's, on a whole batch of unit rows: raw cosines, the mean over anchors that have both kinds of pairs."""

    margin: float = 0.25
    gamma: float = 256.0
    detach_weights: bool = True
    sees: ClassVar[Literal["distance", "similarity"]] = "similarity"

    def weigh(self, block: Block) -> Weighed:
        m, gamma = self.margin, self.gamma
        s_p, s_n = block.positives(pad=0.0), block.values
        alpha_p, alpha_n = relu(1 + m - s_p), relu(s_n + m)
        from_p, from_n = s_p - (1 - m), s_n - m
        logits_p = (alpha_p * from_p).mul_(-gamma).masked_fill_(~block.real, -math.inf)
        logits_n = (alpha_n * from_n).mul_(gamma).scatter_(1, block.places, -math.inf)
        total_p, total_n = logits_p.logsumexp(dim=1, keepdim=True), logits_n.logsumexp(dim=1, keepdim=True)
        both = (total_p > -math.inf) & (total_n > -math.inf)
        z = (total_p + total_n).masked_fill(~both, -math.inf)
        pull = z.sigmoid()
        if not self.detach_weights:
            alpha_p = alpha_p - from_p * (alpha_p > 0)
            alpha_n = alpha_n + from_n * (alpha_n > 0)
        slopes_p = (logits_p - total_p).exp_().mul_(alpha_p).mul_(-gamma * pull)
        slopes_n = (logits_n - total_n).exp_().mul_(alpha_n).mul_(gamma * pull)
        slopes_p, slopes_n = (torch.where(both, slopes, 0.0) for slopes in (slopes_p, slopes_n))
        return Weighed(
            softplus(z).sum(dtype=torch.float64),
            both.sum(),
            slopes_n.scatter_(1, block.places, slopes_p),
        )


def circle_pair_loss(
    embeddings: Float[Tensor, "n d"],
    labels: Int64[Tensor, " n"],
    margin: float = 0.25,
    gamma: float = 256.0,
    *,
    detach_weights: bool = True,
) -> Float[Tensor, ""]:
    """Per anchor `log[1 + sum_n exp(gamma alpha_n (s_n - m)) sum_p exp(-gamma alpha_p (s_p - 1 + m))]`; their mean."""
    return CirclePairs(margin, gamma, detach_weights)(embeddings, labels)
