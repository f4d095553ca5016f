"""The form of every network of the catalog: a trunk, a head, and an embedding of unit length."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize


class EmbeddingNetwork(nn.Module):
    """A network from crops to unit embeddings: a trunk followed by a head.

    They are separate because initial weights and the lower learning rate apply to the trunk only. A frozen trunk is
    not trained and stays in evaluation mode, including its batch norms.

    Args:
        trunk: computes feature maps, "n c k k", from standardized crops, "n 3 s s".
        head: computes embeddings of any norm, "n d", from feature maps.
    """

    def __init__(self, trunk: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = head
        self.frozen_trunk = False

    def freeze_trunk(self) -> None:
        """Train only the head from now on; this cannot be undone."""
        self.frozen_trunk = True
        self.trunk.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> "EmbeddingNetwork":
        """Set training or evaluation mode; a frozen trunk stays in evaluation mode."""
        super().train(mode)
        if self.frozen_trunk:
            self.trunk.eval()
        return self

    def raw(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n d"]:
        """Compute the embedding before normalization, of any norm, on which plain softmax is trained.

        Args:
            images: standardized crops (see `Preprocessing`).
        """
        return self.head(self.trunk(images))

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n d"]:
        """Compute the layer's output."""
        return unit_length(self.raw(images))


def unit_length(embeddings: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Normalize rows to length 1, in float32 or float64: in float16 a norm can overflow, and autocast does not help."""
    half = embeddings.dtype in (torch.float16, torch.bfloat16)
    return normalize(embeddings.float() if half else embeddings)


@contextmanager
def eval_mode(model: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Set evaluation mode; afterwards, also after an error, restore every module's own mode."""
    modes = {module: module.training for module in model.modules()} if isinstance(model, nn.Module) else {}
    for module in modes:
        module.training = False
    try:
        yield
    finally:
        for module, training in modes.items():  # each by itself, since some may be frozen
            module.training = training
