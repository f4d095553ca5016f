"""Gradient caching: gradients of a batch too large for memory (Gao et al. 2021, arXiv 2101.06983).

A loss that compares all photos of a batch with each other needs all embeddings at once, but not what the network
computed on the way to them. So the batch is embedded in chunks without a graph; the loss is computed once on all
embeddings; then each chunk is embedded again, with the same random numbers, and its part of the gradient is propagated
backward.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from familiar.training.ranks import ONE_RANK, Ranks

Embed = Callable[[Float[Tensor, "_ 3 s s"]], Float[Tensor, "_ d"]]
Loss = Callable[[Float[Tensor, "n d"]], Float[Tensor, ""]]


def backward(
    network: nn.Module,
    embed: Embed,
    loss: Loss,
    images: Float[Tensor, "n 3 s s"],
    chunk_size: int = 0,
    ranks: Ranks = ONE_RANK,
) -> float:
    """Compute the loss of a batch and accumulate its gradients in the parameters' `.grad`.

    If the embedding of a photo does not depend on the other photos (batch norms in evaluation mode), the gradients
    equal those of one pass over the whole batch. In training mode batch norms normalize each chunk by its own
    statistics, so the gradients differ from those; running statistics are updated once a batch, with the mean
    statistics of the chunks.

    Chunks have equal sizes, give or take one photo, and take photos from all over the batch: samplers place an
    identity's photos next to each other, and a batch norm over one identity would remove what its photos have in
    common.

    Args:
        network: the network to train.
        embed: `network`, or a function that calls it.
        loss: from the embeddings of the whole batch.
        images: the batch, or this rank's part of it.
        chunk_size: how many photos go through the network at a time; 0 for all of them.
        ranks: that compute the batch together; all have the same number of chunks.

    Returns:
        The loss.
    """
    count = -(-ranks.largest(len(images)) // chunk_size) if chunk_size else 1
    if count < 2:
        value = loss(embed(images))
        value.backward()
        return value.item()
    chunks = [images[first::count] for first in range(count)]
    sizes = ranks.sums(len(chunk) for chunk in chunks)
    states: list[list[Tensor]] = []
    parts: list[Tensor] = []
    with torch.no_grad(), _update_statistics_once(network, sizes) as next_chunk:
        for chunk in chunks:
            next_chunk()
            states.append(_random_state(images.device))
            part = embed(chunk)
            parts.append(part.to(torch.promote_types(part.dtype, torch.float32)))
        embeddings = torch.empty(len(images), parts[0].shape[1], device=images.device, dtype=parts[0].dtype)
        for first, part in enumerate(parts):
            embeddings[first::count] = part
    value = loss(embeddings.requires_grad_())
    value.backward()
    assert embeddings.grad is not None
    after = _random_state(images.device)
    with _freeze_statistics(network):
        for first, (chunk, state) in enumerate(zip(chunks, states, strict=True)):
            _set_random_state(images.device, state)
            chunk_embeddings = embed(chunk)
            chunk_embeddings.backward(embeddings.grad[first::count].to(chunk_embeddings.dtype))
    _set_random_state(images.device, after)
    return value.item()


def _updating_batch_norms(network: nn.Module) -> list[_BatchNorm]:
    """Return the batch norms whose running statistics a forward pass would update."""
    return [
        module
        for module in network.modules()
        if isinstance(module, _BatchNorm) and module.training and module.running_mean is not None
    ]


@contextmanager
def _update_statistics_once(network: nn.Module, sizes: Iterable[int]) -> Iterator[Callable[[], None]]:
    """Update running statistics once for all chunks: towards the mean over them, by each norm's own momentum.

    Args:
        network: the network in training mode.
        sizes: number of photos in each chunk, of all ranks.

    Yields:
        A function to call before each chunk.
    """
    norms = _updating_batch_norms(network)
    before = [(norm.momentum, *(value.clone() for value in _running_statistics(norm))) for norm in norms]
    remaining, seen = iter(sizes), 0

    def next_chunk() -> None:
        nonlocal seen
        size = next(remaining)
        seen += size
        for norm in norms:
            norm.momentum = size / seen

    try:
        yield next_chunk
    finally:
        for norm, (momentum, old_mean, old_variance, old_count) in zip(norms, before, strict=True):
            mean, variance, count = _running_statistics(norm)
            count.copy_(old_count + 1)
            # Without a momentum, torch averages over all steps equally.
            share = 1 / count.item() if momentum is None else momentum
            mean.copy_(torch.lerp(old_mean, mean, share))
            variance.copy_(torch.lerp(old_variance, variance, share))
            norm.momentum = momentum


@contextmanager
def _freeze_statistics(network: nn.Module) -> Iterator[None]:
    """Keep running statistics unchanged during forward passes in training mode."""
    norms = _updating_batch_norms(network)
    before = [(norm.momentum, _running_statistics(norm)[2].clone()) for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, (momentum, count) in zip(norms, before, strict=True):
            norm.momentum = momentum
            _running_statistics(norm)[2].copy_(count)


def _running_statistics(norm: _BatchNorm) -> tuple[Tensor, Tensor, Tensor]:
    """Return running mean, running variance and number of steps."""
    mean, variance, count = norm.running_mean, norm.running_var, norm.num_batches_tracked
    assert mean is not None
    assert variance is not None
    assert count is not None
    return mean, variance, count


def _random_state(device: torch.device) -> list[Tensor]:
    """Return the states of the random number generators: the CPU's, and the GPU's if `device` is one."""
    gpu_states = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *gpu_states]


def _set_random_state(device: torch.device, state: list[Tensor]) -> None:
    torch.set_rng_state(state[0])
    for gpu_state in state[1:]:
        torch.cuda.set_rng_state(gpu_state, device)
