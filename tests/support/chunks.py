"""Gradient caching as a step of training does it."""

from collections.abc import Callable

from torch import Tensor, nn

from familiar.training.gradient_caching import backward_chunks, embed_chunks


def backward_in_chunks(
    network: nn.Module,
    embed: Callable[[Tensor], Tensor],
    loss: Callable[[Tensor], Tensor],
    images: Tensor,
    chunk_size: int,
) -> float:
    """Return the loss of a batch, and accumulate its gradients."""
    embeddings, states = embed_chunks(network, embed, images, -(-len(images) // chunk_size))
    value = loss(embeddings.requires_grad_())
    value.backward()
    assert embeddings.grad is not None
    backward_chunks(network, embed, images, embeddings.grad, states)
    return value.item()
