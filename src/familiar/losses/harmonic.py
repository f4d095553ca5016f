"""Nested embeddings: the first components of a vector are an embedding too, at each of the trained lengths.

These are the nested prefixes of the harmonic-embeddings proposal, elsewhere called "Matryoshka" (arXiv 2205.13147).
What FaceNet calls harmonic, vectors of different networks that can be compared, is `CompatibleLoss`.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.functional import normalize

from familiar.losses.blockwise import loss_with_gradient, to_float32
from familiar.losses.cross_entropy import MIN_NORM
from familiar.losses.validation import check_batch, row_lengths

MinedOn = Literal["own", "full"]


class HarmonicLoss(nn.Module):
    """`sum_k weight_k loss(first k components, scaled to unit length)` (Matryoshka, arXiv 2205.13147, Eq. 1).

    Classifiers take the first components of their centers.

    Args:
        loss: any of this package's, called with (embeddings, labels).
        prefixes: their lengths, strictly increasing.
        weights: one for each prefix, 0 or more.
        mined_on: with "own", each prefix selects its triplets by its own distances; with "full", all prefixes take the
            triplets that the longest one selects, which needs a loss with `mine_triplets` and `triplet_loss_from`, like
            the triplet losses.

    Raises:
        ValueError: the prefixes do not increase, the weights do not fit them, or the loss has no triplets to share.
    """

    def __init__(
        self,
        loss: Callable[..., Tensor],
        prefixes: Sequence[int] = (64, 128, 256),
        weights: Sequence[float] = (0.2, 0.3, 0.5),
        mined_on: MinedOn = "own",
    ) -> None:
        super().__init__()
        if not prefixes or prefixes[0] < 1 or sorted(set(prefixes)) != list(prefixes):
            raise ValueError(f"prefixes must be strictly increasing, such as 64, 128, 256, not {list(prefixes)}")
        if len(weights) != len(prefixes) or not all(0 <= weight < math.inf for weight in weights):
            raise ValueError(f"prefixes {list(prefixes)} need a weight each, 0 or more, not {list(weights)}")
        if mined_on == "full" and not hasattr(loss, "triplet_loss_from"):
            name = getattr(loss, "__name__", type(loss).__name__)
            raise ValueError(f"mined_on=full needs a loss that mines triplets, not {name}")
        self.loss: Any = loss
        self.prefixes = tuple(prefixes)
        self.weights = tuple(weights)
        self.mined_on: MinedOn = mined_on

    def forward(self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """Compute the weighted sum of the prefixes' losses.

        Raises:
            ValueError: the embeddings are shorter than the longest prefix.
        """
        check_batch(embeddings, labels)
        if embeddings.shape[1] < self.prefixes[-1]:
            raise ValueError(
                f"embeddings of {embeddings.shape[1]} components have no prefix of {self.prefixes[-1]}; "
                "shorten the prefixes or lengthen the embedding"
            )
        if self.mined_on == "own" and hasattr(self.loss, "value_and_gradient"):
            return loss_with_gradient(embeddings, partial(self._value_and_gradient, labels))
        embeddings = to_float32(embeddings)  # once, so that the sum of the prefixes' gradients is rounded once
        prefixes = [normalize(embeddings[:, :length], dim=1) for length in self.prefixes]
        if self.mined_on == "full":
            triplets = self.loss.mine_triplets(prefixes[-1], labels)
            values = [self.loss.triplet_loss_from(*triplets.select_rows(prefix)) for prefix in prefixes]
        else:
            values = [self.loss(prefix, labels) for prefix in prefixes]
        return torch.stack([weight * value for weight, value in zip(self.weights, values, strict=True)]).sum()

    def _value_and_gradient(self, labels: Tensor, rows: Tensor, needs_gradient: bool) -> tuple[Tensor, Tensor]:
        """Compute what autograd would through the prefixes and their lengths, in half of its time."""
        total, gradient = rows.new_zeros(()), torch.zeros_like(rows)
        for length, weight in zip(self.prefixes, self.weights, strict=True):
            norms = row_lengths(rows[:, :length]).clamp_min(MIN_NORM)[:, None]
            unit = rows[:, :length] / norms
            value, slopes = self.loss.value_and_gradient(labels, None, unit, needs_gradient)
            total += weight * value
            if needs_gradient:  # what points along a row does not change its direction
                slopes -= (slopes * unit).sum(dim=1, keepdim=True) * unit
                gradient[:, :length] += slopes.mul_(weight / norms)
        return total, gradient
