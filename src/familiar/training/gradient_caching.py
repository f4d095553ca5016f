"""Gradients of a batch too large for memory, chunk by chunk (Gao et al. 2021, arXiv 2101.06983).

A loss that compares all photos of a batch with each other needs all embeddings at once, but not what the network
computed on the way to them. So the batch is embedded in chunks without a graph; the loss is computed once on all
embeddings; then each chunk is embedded again, with the same random numbers, and given its share of the gradient.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

Embed = Callable[[Float[Tensor, "_ 3 s s"]], Float[Tensor, "_ d"]]
Loss = Callable[[Float[Tensor, "n d"]], Float[Tensor, ""]]


def backward(
    network: nn.Module, embed: Embed, loss: Loss, images: Float[Tensor, "n 3 s s"], chunk_size: int = 0
) -> float:
    """The loss's value; its gradients are added to the parameters. `embed` is `network` or some use of it.

    With a `chunk_size` no more photos than that are in the network at a time; 0: all of them. The gradients are the
    whole batch's where every photo is embedded on its own, as with batch norms in evaluation mode. Batch norms in
    training mode take the statistics of each chunk, so that the gradients are those of a batch embedded in chunks,
    kept whole; their running statistics move once, by their own momentum, towards the chunks' mean. Chunks are of
    equal size, but for one photo. Each takes photos from all over the batch: samplers put an identity's photos side by
    side, and a batch norm that saw one identity would take away what its photos have in common.
    """
    if not 0 < chunk_size < len(images):
        value = loss(embed(images))
        value.backward()
        return value.item()
    count = -(-len(images) // chunk_size)
    chunks = [images[first::count] for first in range(count)]
    states: list[list[Tensor]] = []
    parts: list[Tensor] = []
    with torch.no_grad(), _statistics_move_once(network, [len(chunk) for chunk in chunks]) as next_chunk:
        for chunk in chunks:
            next_chunk()
            states.append(_random_state(images.device))
            parts.append(embed(chunk).float())
        embeddings = torch.empty(len(images), parts[0].shape[1], device=images.device, dtype=parts[0].dtype)
        for first, part in enumerate(parts):
            embeddings[first::count] = part
    value = loss(embeddings.requires_grad_())
    value.backward()
    assert embeddings.grad is not None
    after = _random_state(images.device)
    with _statistics_stay(network):
        for first, (chunk, state) in enumerate(zip(chunks, states, strict=True)):
            _set_random_state(images.device, state)
            again = embed(chunk)
            again.backward(embeddings.grad[first::count].to(again.dtype))
    _set_random_state(images.device, after)
    return value.item()


def _moving_norms(network: nn.Module) -> list[_BatchNorm]:
    """Batch norms whose running statistics a forward pass would move."""
    return [
        module
        for module in network.modules()
        if isinstance(module, _BatchNorm) and module.training and module.running_mean is not None
    ]


@contextmanager
def _statistics_move_once(network: nn.Module, sizes: Iterable[int]) -> Iterator[Callable[[], None]]:
    """Running statistics take the plain mean over the chunks, then move towards it by each norm's own momentum."""
    norms = _moving_norms(network)
    before = [(norm.momentum, *(value.clone() for value in _statistics(norm))) for norm in norms]
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
            mean, variance, count = _statistics(norm)
            count.copy_(old_count + 1)
            # Without a momentum torch takes the plain average over steps.
            share = 1 / count.item() if momentum is None else momentum
            mean.copy_(torch.lerp(old_mean, mean, share))
            variance.copy_(torch.lerp(old_variance, variance, share))
            norm.momentum = momentum


@contextmanager
def _statistics_stay(network: nn.Module) -> Iterator[None]:
    norms = _moving_norms(network)
    before = [(norm.momentum, _statistics(norm)[2].clone()) for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, (momentum, count) in zip(norms, before, strict=True):
            norm.momentum = momentum
            _statistics(norm)[2].copy_(count)


def _statistics(norm: _BatchNorm) -> tuple[Tensor, Tensor, Tensor]:
    """Running mean, running variance, number of steps."""
    mean, variance, count = norm.running_mean, norm.running_var, norm.num_batches_tracked
    assert mean is not None
    assert variance is not None
    assert count is not None
    return mean, variance, count


def _random_state(device: torch.device) -> list[Tensor]:
    of_device = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *of_device]


def _set_random_state(device: torch.device, state: list[Tensor]) -> None:
    torch.set_rng_state(state[0])
    for of_device in state[1:]:
        torch.cuda.set_rng_state(of_device, device)
