"""Gradient caching as a step of training does it."""

from collections.abc import Callable

from torch import Tensor, nn

from familiar.training.gradient_caching import embed_in_chunks


def backward_in_chunks(
    network: nn.Module,
    embed: Callable[[Tensor], Tensor],
    loss: Callable[[Tensor], Tensor],
    images: Tensor,
    chunk_size: int,
) -> float:
    """Return the loss of a batch, and accumulate its gradients."""
    value = loss(embed_in_chunks(network, embed, images, -(-len(images) // chunk_size)))
    value.backward()
    return value.item()
