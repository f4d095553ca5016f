"""The form of every network of the catalog: a trunk, a head, and an embedding of unit length."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.modules.batchnorm import _BatchNorm

from familiar.core.errors import BadRecipe
from familiar.models.views import View


class EmbeddingNetwork(nn.Module):
    """A network from crops to unit embeddings: a trunk followed by a head.

    They are separate because initial weights and the lower learning rate apply to the trunk only. A frozen trunk is
    not trained and stays in evaluation mode, including its batch norms.

    Args:
        trunk: computes feature maps, "n c k k", from standardized crops, "n 3 s s".
        head: computes embeddings of any norm, "n d", from feature maps.
        views: in evaluation mode, the embedding is the mean of those of these views; none: that of the whole crop.
    """

    def __init__(self, trunk: nn.Module, head: nn.Module, views: Sequence[View] = ()) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = head
        self.views = tuple(views)
        self.frozen_trunk = False
        self._in_evaluation: tuple[nn.Module, ...] = ()  # whatever the mode

    def freeze_trunk(self) -> None:
        """Train only the head from now on; this cannot be undone."""
        self.frozen_trunk = True
        self._freeze(self.trunk)

    def freeze_stages(self, count: int) -> None:
        """Train only the trunk's later stages and the head from now on; this cannot be undone.

        Args:
            count: number of the trunk's first stages; what comes before the first is frozen with it.

        Raises:
            BadRecipe: the trunk has fewer stages, or is not made of stages.
        """
        first_stages = getattr(self.trunk, "first_stages", None)
        if first_stages is None:
            raise BadRecipe("model.frozen_stages: this network is not made of stages; set it to 0")
        self._freeze(*first_stages(count))

    def freeze_statistics(self) -> None:
        """Keep the running means and variances of the trunk's batch norms from now on; this cannot be undone."""
        self._keep_in_evaluation(module for module in self.trunk.modules() if isinstance(module, _BatchNorm))

    def _freeze(self, *modules: nn.Module) -> None:
        for module in modules:
            module.requires_grad_(False)
        self._keep_in_evaluation(modules)

    def _keep_in_evaluation(self, modules: Iterable[nn.Module]) -> None:
        self._in_evaluation = (*self._in_evaluation, *modules)
        self.train(self.training)

    def train(self, mode: bool = True) -> "EmbeddingNetwork":
        """Set training or evaluation mode; what is frozen stays in evaluation mode."""
        super().train(mode)
        for module in self._in_evaluation:
            module.eval()
        return self

    def raw(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n d"]:
        """Compute the embedding before normalization, of any norm, on which plain softmax is trained.

        Args:
            images: standardized crops (see `Preprocessing`).
        """
        return self.head(self.trunk(images))

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n d"]:
        """Compute the layer's output."""
        if self.training or not self.views:
            return unit_length(self.raw(images))
        # Views of one size run as one batch: a bundle then has the layers once for each size, not for each view.
        by_size: dict[int, list[View]] = {}
        for view in self.views:
            by_size.setdefault(view.size_px, []).append(view)
        sums = [self._sum_of_views(images, views) for views in by_size.values()]
        return unit_length(torch.stack(sums).sum(0))

    def _sum_of_views(self, images: Float[Tensor, "n 3 s s"], views: Sequence[View]) -> Float[Tensor, "n d"]:
        embeddings = unit_length(self.raw(torch.cat([view.apply(images) for view in views])))
        return embeddings.unflatten(0, (len(views), -1)).sum(0)


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
