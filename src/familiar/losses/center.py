"""Center loss (Wen et al., ECCV 2016): pulls each row towards the mean of its class. To stand beside a classifier."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.functional import embedding

from familiar.losses.blockwise import widened
from familiar.losses.validation import check_classifier, check_range


class CenterLoss(nn.Module):
    """Half the mean squared distance of the rows to their class's center: `softmax(x, y) + weight * center(x, y)`.

    The centers are buffers, zero at first. In training mode each forward moves those of the classes present
    after the loss is taken, by `rate` times `sum(x_i - c) / (1 + n)` over the n rows of the class (Eq. 4, where
    the 1 keeps a class of few rows from jumping). `rate` in [0, 1], the paper's alpha.
    """

    centers: Tensor

    def __init__(self, embedding_dim: int, classes: int, rate: float = 0.5) -> None:
        super().__init__()
        check_classifier(embedding_dim, classes, 1.0, 0.0)
        check_range("rate", rate, 0 <= rate <= 1, "[0, 1]")
        self.rate = rate
        self.register_buffer("centers", torch.zeros(classes, embedding_dim))

    def forward(self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """The loss against the centers as they were; zero for no rows. The gradient goes to the rows alone."""
        offsets = widened(embeddings) - embedding(labels, self.centers)
        if self.training:
            self._move(offsets.detach(), labels)
        return 0.5 * offsets.square().sum() / max(len(labels), 1)

    def _move(self, offsets: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> None:
        counts = offsets.new_zeros(len(self.centers)).scatter_add_(0, labels, offsets.new_ones(len(labels)))
        steps = self.rate * offsets / (1.0 + counts[labels])[:, None]
        self.centers.index_add_(0, labels, steps.to(self.centers.dtype))
