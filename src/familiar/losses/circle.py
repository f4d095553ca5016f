"""Circle loss (Sun et al. 2020, arXiv 2002.10857): similarities far from where they should be are pulled hardest.

On triplets, as in seed 002, and on a whole batch, as in the paper.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import relu, softplus

from familiar.losses.blockwise import FAR, Block, PairLoss, Weighed, widened
from familiar.losses.mining import MINERS, Triplets
from familiar.losses.validation import check_range

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
    s_p, s_n = widened(s_p), widened(s_n)
    costs = _softplus(gamma * (alpha_n * (s_n - delta_n) - alpha_p * (s_p - delta_p))) / gamma
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
    cosines_p, cosines_n = (anchors * positives).sum(dim=1), (anchors * negatives).sum(dim=1)
    return _circle_of_cosines(cosines_p, cosines_n, margin, gamma, detach_weights)


def _circle_of_cosines(
    cosines_p: Tensor, cosines_n: Tensor, margin: float, gamma: float, detach_weights: bool
) -> Tensor:
    s_p, s_n = (cosines_p + 1) / 2, (cosines_n + 1) / 2
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

    def __post_init__(self) -> None:
        _check_circle(self.margin, self.gamma)

    def mine(self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Triplets:
        return MINERS[self.mining](embeddings, labels, self.mining_margin)

    def of_triplets(
        self, anchors: Float[Tensor, "t d"], positives: Float[Tensor, "t d"], negatives: Float[Tensor, "t d"]
    ) -> Float[Tensor, ""]:
        return circle_loss(anchors, positives, negatives, self.margin, self.gamma, detach_weights=self.detach_weights)

    def __call__(
        self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], anchors: int | None = None
    ) -> Float[Tensor, ""]:
        triplets = self.mine(embeddings, labels).of_first(anchors)
        n = len(embeddings)
        if len(triplets) <= n:
            return self.of_triplets(*triplets.of(embeddings))
        # Many triplets share few pairs: each cosine once, and picked from the matrix.
        with torch.autocast(embeddings.device.type, enabled=False):
            rows = widened(embeddings)
            cosines = (rows @ rows.T).flatten()
        cosines_p = cosines.index_select(0, triplets.anchors * n + triplets.positives)
        cosines_n = cosines.index_select(0, triplets.anchors * n + triplets.negatives)
        return _circle_of_cosines(cosines_p, cosines_n, self.margin, self.gamma, self.detach_weights)


@dataclass
class CirclePairs(PairLoss):
    """The paper's, on a whole batch of unit rows: raw cosines, the mean over anchors that have both kinds of pairs."""

    margin: float = 0.25
    gamma: float = 256.0
    detach_weights: bool = True
    sees: ClassVar[Literal["distance", "similarity"]] = "similarity"

    def __post_init__(self) -> None:
        _check_circle(self.margin, self.gamma)

    def weigh(self, block: Block) -> Weighed:
        m, gamma = self.margin, self.gamma
        # alpha_n (s_n - m) = s_n^2 - m^2 where the weight is not 0, and likewise for 1 - s_p: one formula for both.
        gaps_p = (1 - block.values.gather(1, block.places)).clamp_min_(-m)
        gaps_n = block.values.clamp_min_(-m)
        logits_p = gaps_p.square().mul_(gamma).masked_fill_(~block.real, -FAR)
        logits_n = gaps_n.square().mul_(gamma).scatter_(1, block.places, -FAR)
        shares_p, shares_n = logits_p.softmax(dim=1), logits_n.softmax(dim=1)
        # The logarithm of a sum of exponentials is the largest logit less the logarithm of its share.
        z = logits_p.amax(1, keepdim=True) + logits_n.amax(1, keepdim=True) - 2 * gamma * m * m
        z -= (shares_p.amax(1, keepdim=True) * shares_n.amax(1, keepdim=True)).log_()
        pull = z.sigmoid() * gamma  # 0 where either kind is missing: z is about -FAR there
        if self.detach_weights:
            slopes_p, slopes_n = shares_p * (gaps_p + m), shares_n.mul_(gaps_n.add_(m))
        else:
            slopes_p, slopes_n = (
                2 * shares * gaps * (gaps > -m) for shares, gaps in ((shares_p, gaps_p), (shares_n, gaps_n))
            )
        return Weighed(
            _softplus(z).sum(dtype=torch.float64),
            (z > -FAR / 2).sum(),
            slopes_n.mul_(pull).scatter_(1, block.places, slopes_p.mul_(-pull)),
        )


def circle_pair_loss(
    embeddings: Float[Tensor, "n d"],
    labels: Int64[Tensor, " n"],
    margin: float = 0.25,
    gamma: float = 256.0,
    *,
    detach_weights: bool = True,
) -> Float[Tensor, ""]:
    """Per anchor `log[1 + sum_n exp(gamma alpha_n (s_n - m)) sum_p exp(-gamma alpha_p (s_p - 1 + m))]`; their mean.

    Of unit rows and raw cosines, weights as in `circle_loss`; `margin` m in [0, 1], `gamma` above 0. The mean is over
    all anchors with both kinds of pairs; pytorch-metric-learning leaves out those whose loss rounds to 0.
    """
    return CirclePairs(margin, gamma, detach_weights)(embeddings, labels)


def _softplus(z: Tensor) -> Tensor:
    """Torch's takes it for the identity from 20 on, which is off by 2e-9."""
    return softplus(z, threshold=40)


def _check_circle(margin: float, gamma: float) -> None:
    check_range("margin", margin, 0 <= margin <= 1, "[0, 1]")
    check_range("gamma", gamma, gamma > 0, "above 0")
