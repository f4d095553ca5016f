"""Gradient caching: gradients of a batch too large for memory (Gao et al. 2021, arXiv 2101.06983).

A loss that compares all photos of a batch with each other needs all embeddings at once, but not what the network
computed on the way to them. So the batch is embedded in chunks, of which only the embeddings stay in memory; when the
gradient of the loss comes back, each chunk is embedded again, with the same random numbers, and its part of the
gradient goes through the network (`torch.utils.checkpoint`).

If the embedding of a photo does not depend on the other photos (batch norms in evaluation mode), the gradients equal
those of one pass over the whole batch. In training mode batch norms normalize each chunk by its own statistics, so the
gradients differ from those; running statistics move once a batch, towards the mean statistics of the chunks.

Chunks have equal sizes, give or take one photo, and take photos from all over the batch: samplers place an identity's
photos next to each other, and a batch norm over one identity would remove what its photos have in common.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint


def embed_in_chunks(
    network: nn.Module, embed: Callable[[Tensor], Tensor], images: Float[Tensor, "n 3 s s"], count: int
) -> Float[Tensor, "n d"]:
    """Embed a batch in chunks, each of which the backward pass embeds again.

    Args:
        network: the network to train.
        embed: `network`, or a function that calls it.
        images: the batch, or this rank's part of it.
        count: number of chunks.

    Returns:
        The embeddings, in float32 or float64.
    """
    rows = torch.arange(len(images), device=images.device)
    parts: list[Tensor] = []
    done = 0
    with _batch_norm_momenta(network) as momenta:
        for first in range(count):
            chunk = images[first::count]
            done += len(chunk)
            for norm, momentum in momenta.items():  # all chunks together then weigh as one batch
                norm.momentum = momentum * len(chunk) / (len(images) - momentum * (len(images) - done))
            part = checkpoint(
                embed, chunk, use_reentrant=False, context_fn=lambda: (nullcontext(), _unchanged_statistics(network))
            )
            parts.append(part.to(torch.promote_types(part.dtype, torch.float32)))
    return torch.cat(parts)[torch.cat([rows[first::count] for first in range(count)]).argsort()]


@contextmanager
def _unchanged_statistics(network: nn.Module) -> Iterator[None]:
    """Keep batch norms from moving their running statistics."""
    with _batch_norm_momenta(network) as momenta:
        for norm in momenta:
            norm.momentum = 0.0
        yield


@contextmanager
def _batch_norm_momenta(network: nn.Module) -> Iterator[dict[_BatchNorm, float]]:
    """Yield the momentum of each batch norm, and restore it afterwards."""
    norms = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    momenta = {norm: norm.momentum for norm in norms if norm.momentum is not None}
    try:
        yield momenta
    finally:
        for norm, momentum in momenta.items():
            norm.momentum = momentum
