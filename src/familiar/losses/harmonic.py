"""One embedding that is several: its first components are embeddings too, at any of the trained lengths.

The nested prefixes of seed 000, elsewhere "Matryoshka" (arXiv 2205.13147). What FaceNet calls harmonic - vectors of
different networks that compare - is `CompatibleLoss`.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from familiar.losses.blockwise import PairLoss, unit_prefix

MinedOn = Literal["own", "full"]


class HarmonicLoss(nn.Module):
    """`sum_k weight_k loss(first k components, scaled back to unit length)`.

    `loss`: any of this package's, called with (embeddings, labels). Classifiers take the first components of their
    centers. Losses of pairs reuse the inner products of a shorter prefix for the longer ones.

    `mined_on`: with "own" each prefix chooses its triplets by its own distances; with "full" all take those that the
    whole embedding chooses, which needs a loss with `mine` and `of_triplets`, as the triplet losses are.

    ValueError where the prefixes do not rise or the weights are not one for each, 0 or more.
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
            raise ValueError(f"prefixes rise from 1 or more, unlike {list(prefixes)}")
        if len(weights) != len(prefixes) or min(weights) < 0:
            raise ValueError(f"weights {list(weights)} are not one, 0 or more, for each of {list(prefixes)}")
        if mined_on == "full" and not hasattr(loss, "of_triplets"):
            raise ValueError(f"{loss} lists no triplets that all prefixes could share")
        self.loss: Any = loss
        self.prefixes = tuple(prefixes)
        self.weights = tuple(weights)
        self.mined_on: MinedOn = mined_on

    def forward(self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """ValueError where the embeddings are shorter than the longest prefix."""
        if embeddings.shape[1] < self.prefixes[-1]:
            raise ValueError(f"no prefix of {self.prefixes[-1]} in embeddings of {embeddings.shape[1]}")
        if self.mined_on == "full":
            triplets = self.loss.mine(unit_prefix(embeddings, self.prefixes[-1]), labels)
            values = [self.loss.of_triplets(*triplets.of(unit_prefix(embeddings, k))) for k in self.prefixes]
        elif isinstance(self.loss, PairLoss):
            values = self.loss.of_prefixes(embeddings, labels, self.prefixes).unbind()
        else:
            values = [self.loss(unit_prefix(embeddings, k), labels) for k in self.prefixes]
        return torch.stack([weight * value for weight, value in zip(self.weights, values, strict=True)]).sum()
