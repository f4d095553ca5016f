"""Vectors of a new network that compare with the stored ones of an old one: FaceNet's harmonic embeddings."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from familiar.losses.blockwise import unit_prefix
from familiar.losses.triplet import BatchAll


class CompatibleLoss(nn.Module):
    """`loss` on the new vectors, plus `weight` times a loss in which they meet the old ones.

    In `across` anchors are new, positives and negatives new or old (arXiv 1503.03832, appendix): a loss of pairs that
    takes `anchors=`, by default the triplet loss over all triplets. Old vectors are constants. Where they are shorter
    than the new ones, it is a prefix of these, scaled to unit length, that compares with them.
    """

    def __init__(
        self, loss: Callable[..., Tensor], across: Callable[..., Tensor] | None = None, weight: float = 1.0
    ) -> None:
        super().__init__()
        self.loss = loss
        self.across = across or BatchAll()
        self.weight = weight

    def forward(
        self,
        embeddings: Float[Tensor, "n d"],
        labels: Int64[Tensor, " n"],
        old_embeddings: Float[Tensor, "m k"],
        old_labels: Int64[Tensor, " m"] | None = None,
    ) -> Float[Tensor, ""]:
        """`old_labels` None: the old vectors are those of the same photos, row by row.

        ValueError where the old vectors are longer than the new ones.
        """
        length = old_embeddings.shape[1]
        if length > embeddings.shape[1]:
            raise ValueError(
                f"old vectors of {length} components cannot compare with {embeddings.shape[1]} new ones; "
                "train with at least as many"
            )
        new = unit_prefix(embeddings, length)
        joined = torch.cat([new, old_embeddings.detach().to(new.dtype)])
        joined_labels = torch.cat([labels, labels if old_labels is None else old_labels])
        return self.loss(embeddings, labels) + self.weight * self.across(joined, joined_labels, anchors=len(labels))
