"""Center loss: an auxiliary loss that pulls each row towards the mean of its class (Wen et al., ECCV 2016)."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.functional import embedding

from familiar.core.settings import check_settings, setting
from familiar.losses.blockwise import to_float32
from familiar.losses.classifiers import SIZE
from familiar.losses.validation import check_batch


@dataclass(eq=False)
class CenterLoss(nn.Module):
    """Half the mean squared distance of the rows to the centers of their classes (Wen et al., Eq. 2).

    To be added to a classifier's loss: `softmax(x, y) + weight * center(x, y)`. The centers are buffers and begin at
    zero. In training mode each forward pass moves those of the classes in the batch, after computing the loss, by
    `rate` times `sum(x_i - c) / (1 + n)` over the n rows of the class (Eq. 4, in which the 1 keeps a class with few
    rows from jumping).

    Args:
        embedding_dim: length of the rows.
        classes: number of classes.
        rate: in [0, 1], the paper's alpha.

    Attributes:
        centers: a buffer, classes x embedding_dim.
    """

    embedding_dim: int = field(metadata=SIZE)
    classes: int = field(metadata=SIZE)
    rate: float = setting(0.5, 0, 1)
    centers: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__init__()
        check_settings(self)
        self.register_buffer("centers", torch.zeros(self.classes, self.embedding_dim))

    def forward(self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """Compute the loss against the centers before their update; zero for no rows. Only the rows get a gradient."""
        check_batch(embeddings, labels, classes=len(self.centers))
        if embeddings.shape[1] != self.centers.shape[1]:
            raise ValueError(
                f"embeddings have {embeddings.shape[1]} components, but the centers {self.centers.shape[1]}; "
                "build the loss with this embedding_dim"
            )
        offsets = to_float32(embeddings) - embedding(labels, self.centers)
        loss = 0.5 * offsets.square().sum() / max(len(labels), 1)
        if self.training:
            self._move(offsets.detach(), labels)
        return loss

    def _move(self, offsets: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> None:
        offsets = offsets.nan_to_num(0.0, 0.0, 0.0)  # on a GPU it is not checked, and a NaN would stay for ever
        counts = offsets.new_zeros(len(self.centers)).scatter_add_(0, labels, offsets.new_ones(len(labels)))
        steps = self.rate * offsets / (1.0 + counts[labels])[:, None]
        self.centers.index_add_(0, labels, steps.to(self.centers.dtype))
