"""Backward-compatible training: new vectors compare with those of an old network (FaceNet's harmonic embeddings)."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from familiar.losses.blockwise import unit_prefix
from familiar.losses.triplet import BatchAll
from familiar.losses.validation import check_batch


class CompatibleLoss(nn.Module):
    """A loss of the new vectors, plus `weight` times a loss that compares them with old ones.

    In the second term anchors are new, and positives and negatives new or old (arXiv 1503.03832, appendix). Old
    vectors are constants. If they are shorter than the new ones, they are compared with a prefix of the new ones,
    scaled to unit length.

    Args:
        loss: called with (embeddings, labels).
        across: a loss of pairs that takes `anchors=`; by default the triplet loss over all triplets.
        weight: of `across`.
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
        """Compute the loss of a batch.

        Args:
            embeddings: the new network's.
            labels: their identities.
            old_embeddings: the old network's, unit rows, k <= d.
            old_labels: their identities; by default those of `labels`, the same photos row by row.

        Raises:
            ValueError: the old vectors are longer than the new ones, or no unit rows.
        """
        check_batch(embeddings, labels)
        check_batch(old_embeddings, labels if old_labels is None else old_labels, name="old_embeddings", unit=True)
        length = old_embeddings.shape[1]
        if length > embeddings.shape[1]:
            raise ValueError(
                f"old vectors of {length} components cannot be compared with new ones of {embeddings.shape[1]}; "
                "train with at least as many"
            )
        new = unit_prefix(embeddings, length)
        joined = torch.cat([new, old_embeddings.detach().to(new.dtype)])
        joined_labels = torch.cat([labels, labels if old_labels is None else old_labels])
        return self.loss(embeddings, labels) + self.weight * self.across(joined, joined_labels, anchors=len(labels))
