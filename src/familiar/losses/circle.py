"""Circle loss (Sun et al. 2020, arXiv 2002.10857): the further a similarity is from its optimum, the harder the pull.

Over triplets, as in the circle-loss project, and over a whole batch, as in the paper.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import relu, softplus

from familiar.core.settings import Checked, setting
from familiar.losses.blockwise import FINITE_INF, Block, BlockLoss, PairLoss, to_float32
from familiar.losses.mining import MINERS, Triplets
from familiar.losses.validation import check_batch, check_finite, check_rows

Miner = Literal["batch_all", "semi_hard", "batch_hard", "hard_negative"]
GAMMA = (0.1, 100_000, "scale of the loss")
DETACH_WEIGHTS = "whether its weights are constants for the gradient"


def circle_from_similarities(
    s_p: Float[Tensor, "*t"],
    s_n: Float[Tensor, "*t"],
    alpha_p: Tensor | float,
    alpha_n: Tensor | float,
    delta_p: Tensor | float,
    delta_n: Tensor | float,
    gamma: float,
) -> Float[Tensor, ""]:
    """Compute circle loss over triplets from their similarities (arXiv 2002.10857, Eq. 4, one pair of each kind).

    The mean of `(1/gamma) log(1 + exp(gamma (alpha_n (s_n - delta_n) - alpha_p (s_p - delta_p))))`. With s = -d,
    alpha = 1 and delta_p - delta_n = margin it is the triplet loss as gamma grows, within ln 2 / gamma.

    Args:
        s_p: similarity of each anchor to its positive.
        s_n: similarity of each anchor to its negative.
        alpha_p: weight of each positive.
        alpha_n: weight of each negative.
        delta_p: margin of the positives.
        delta_n: margin of the negatives.
        gamma: scale, above 0.

    Returns:
        A scalar; 0 for no triplets.
    """
    if s_p.shape != s_n.shape or not (s_p.is_floating_point() and s_n.is_floating_point()):
        raise ValueError(
            "s_p and s_n must be floats, one of each for each triplet, got "
            f"{s_p.dtype} {tuple(s_p.shape)} and {s_n.dtype} {tuple(s_n.shape)}"
        )
    s_p, s_n = to_float32(s_p), to_float32(s_n)
    if not s_p.is_cuda:
        check_finite("s_p", s_p)
        check_finite("s_n", s_n)
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
    """Compute circle loss over triplets of unit vectors, with the cosine scaled to [0, 1] (arXiv 2002.10857, Eq. 5-8).

    Args:
        anchors: unit rows, one triplet per row.
        positives: another photo of each anchor's identity.
        negatives: a photo of another identity for each.
        margin: in [0, 1].
        gamma: scale, above 0.
        detach_weights: treat the weights alpha as constants in the backward pass, as the paper does; False
            differentiates through them, as the circle-loss project does.

    Returns:
        A scalar; 0 for no triplets.

    Raises:
        ValueError: a row has another length than 1, or a shape is another.
    """
    check_rows(unit=True, anchors=anchors, positives=positives, negatives=negatives)
    return _loss_of_triplets(anchors, positives, negatives, margin, gamma, detach_weights)


def _loss_of_triplets(
    anchors: Tensor, positives: Tensor, negatives: Tensor, margin: float, gamma: float, detach_weights: bool
) -> Tensor:
    anchors, positives, negatives = to_float32(anchors), to_float32(positives), to_float32(negatives)
    cosines_p, cosines_n = (anchors * positives).sum(dim=1), (anchors * negatives).sum(dim=1)
    return _loss_from_cosines(cosines_p, cosines_n, margin, gamma, detach_weights)


def _loss_from_cosines(
    cosines_p: Tensor, cosines_n: Tensor, margin: float, gamma: float, detach_weights: bool
) -> Tensor:
    s_p, s_n = (cosines_p + 1) / 2, (cosines_n + 1) / 2
    alpha_p, alpha_n = relu(1 + margin - s_p), relu(s_n + margin)
    if detach_weights:
        alpha_p, alpha_n = alpha_p.detach(), alpha_n.detach()
    return circle_from_similarities(s_p, s_n, alpha_p, alpha_n, 1 - margin, margin, gamma)


@dataclass
class CircleTriplets(Checked):
    """Circle loss of mined triplets (the circle-loss project).

    See `circle_loss`.

    Attributes:
        margin: in [0, 1], of similarities in [0, 1].
        gamma: scale, in [.1, 100,000].
        mining: name of the miner.
        mining_margin: margin of semi-hard mining, in squared distance.
        detach_weights: treat the weights alpha as constants in the backward pass, see `circle_loss`.
    """

    margin: float = setting(0.25, 0, 1, "(1 + cosine) / 2")
    gamma: float = setting(64.0, *GAMMA)
    mining: Miner = setting("batch_hard", meaning="how triplets are picked")
    mining_margin: float = setting(0.2, 0, 4, "margin of the semi_hard miner, in squared distance")
    detach_weights: bool = setting(True, meaning=DETACH_WEIGHTS)

    def mine_triplets(self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Triplets:
        """List the triplets that this loss selects.

        Args:
            embeddings: unit rows.
            labels: the identity of each row.

        Returns:
            Their row numbers, ordered by anchor, then positive, then negative.
        """
        return MINERS[self.mining](embeddings, labels, self.mining_margin)

    def triplet_loss_from(
        self, anchors: Float[Tensor, "t d"], positives: Float[Tensor, "t d"], negatives: Float[Tensor, "t d"]
    ) -> Float[Tensor, ""]:
        """Compute the loss of listed triplets.

        Args:
            anchors: unit rows, one triplet per row.
            positives: another photo of each anchor's identity.
            negatives: a photo of another identity for each.

        Returns:
            A scalar; 0 for no triplets.
        """
        return circle_loss(anchors, positives, negatives, self.margin, self.gamma, detach_weights=self.detach_weights)

    def __call__(
        self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], anchors: int | None = None
    ) -> Float[Tensor, ""]:
        """Compute the loss of a batch of unit rows; `anchors` as in `PairLoss`."""
        check_batch(embeddings, labels, anchors, wait=True, unit=True)
        triplets = self.mine_triplets(embeddings, labels).first_anchors(anchors)
        n = len(embeddings)
        if len(triplets) <= n:
            rows = triplets.select_rows(embeddings)
            return _loss_of_triplets(*rows, self.margin, self.gamma, self.detach_weights)
        # Many triplets share few pairs: compute each cosine once and look it up in the matrix.
        with torch.autocast(embeddings.device.type, enabled=False):
            rows = to_float32(embeddings)
            cosines = (rows @ rows.T).flatten()
        cosines_p = cosines.index_select(0, triplets.anchors * n + triplets.positives)
        cosines_n = cosines.index_select(0, triplets.anchors * n + triplets.negatives)
        return _loss_from_cosines(cosines_p, cosines_n, self.margin, self.gamma, self.detach_weights)


@dataclass
class CirclePairs(Checked, PairLoss):
    """Circle loss over all pairs of the batch (arXiv 2002.10857, Eq. 4-8).

    Per anchor `log[1 + sum_n exp(gamma alpha_n (s_n - m)) sum_p exp(-gamma alpha_p (s_p - 1 + m))]`, and the mean over
    all anchors that have positive and negative pairs; pytorch-metric-learning leaves out those whose loss rounds to 0.

    Attributes:
        margin: m, in [0, 1], of cosines in [-1, 1].
        gamma: scale, in [.1, 100,000].
        detach_weights: treat the weights alpha as constants in the backward pass, see `circle_loss`.
    """

    margin: float = setting(0.25, 0, 1, "cosine")
    gamma: float = setting(256.0, *GAMMA)
    detach_weights: bool = setting(True, meaning=DETACH_WEIGHTS)
    uses: ClassVar[Literal["distance", "similarity"]] = "similarity"

    def block_loss(self, block: Block) -> BlockLoss:
        """Compute the cost of a block and its derivative."""
        m, gamma = self.margin, self.gamma
        # alpha_n (s_n - m) = s_n^2 - m^2 where the weight is not 0, and likewise for 1 - s_p: one formula for both.
        gaps_p = (1 - block.values.gather(1, block.positive_cols)).clamp_min_(-m)
        gaps_n = block.values.clamp_min_(-m)
        logits_p = gaps_p.square().mul_(gamma).masked_fill_(~block.positive_mask, -FINITE_INF)
        logits_n = gaps_n.square().mul_(gamma).scatter_(1, block.positive_cols, -FINITE_INF)
        shares_p, shares_n = logits_p.softmax(dim=1), logits_n.softmax(dim=1)
        # The logarithm of a sum of exponentials is the largest logit less the logarithm of its share.
        z = logits_p.amax(1, keepdim=True) + logits_n.amax(1, keepdim=True) - 2 * gamma * m * m
        z -= (shares_p.amax(1, keepdim=True) * shares_n.amax(1, keepdim=True)).log_()
        pull = z.sigmoid() * gamma  # 0 for an anchor without positives or negatives: its z is about -1e30
        if self.detach_weights:
            grad_p, grad_n = shares_p * (gaps_p + m), shares_n.mul_(gaps_n.add_(m))
        else:
            grad_p, grad_n = (
                2 * shares * gaps * (gaps > -m) for shares, gaps in ((shares_p, gaps_p), (shares_n, gaps_n))
            )
        return BlockLoss(
            _softplus(z).sum(dtype=torch.float64),
            (z > -FINITE_INF / 2).sum(),
            grad_n.mul_(pull).scatter_(1, block.positive_cols, grad_p.mul_(-pull)),
        )


def _softplus(z: Tensor) -> Tensor:
    """Compute softplus exactly: torch's default returns z itself from 20 on, which is off by 2e-9."""
    return softplus(z, threshold=40)
