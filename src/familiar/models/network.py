"""What every network of the catalog is: a trunk, a head, and an embedding of unit length."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize


class EmbeddingNetwork(nn.Module):
    """Crop tensor to unit embedding: `trunk` makes a feature map, `head` an embedding of it.

    The two are apart because initial weights are the trunk's, and so is the lower learning rate. A frozen trunk is
    not trained and stays in evaluation mode, its batch norms with it.
    """

    def __init__(self, trunk: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = head
        self.frozen_trunk = False

    def freeze_trunk(self) -> None:
        """For good: only the head is trained from here on."""
        self.frozen_trunk = True
        self.trunk.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> "EmbeddingNetwork":
        super().train(mode)
        if self.frozen_trunk:
            self.trunk.eval()
        return self

    def raw(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n d"]:
        """The embedding as the head gives it, of any length: what plain softmax is trained on."""
        return self.head(self.trunk(images))

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n d"]:
        return unit_length(self.raw(images))


def unit_length(embeddings: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Rows of length 1, in float32 or wider: a norm in float16 can overflow, and autocast leaves it as it is."""
    half = embeddings.dtype in (torch.float16, torch.bfloat16)
    return normalize(embeddings.float() if half else embeddings)


@contextmanager
def evaluating(model: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Evaluation mode; afterwards, also after an error, every module is in its own mode again."""
    modes = {module: module.training for module in model.modules()} if isinstance(model, nn.Module) else {}
    for module in modes:
        module.training = False
    try:
        yield
    finally:
        for module, training in modes.items():  # one by one, since some may be frozen
            module.training = training
