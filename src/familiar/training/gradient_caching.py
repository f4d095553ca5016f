"""Gradient caching: gradients of a batch too large for memory (Gao et al. 2021, arXiv 2101.06983).

A loss that compares all photos of a batch with each other needs all embeddings at once, but not what the network
computed on the way to them. So the batch is embedded in chunks without a graph (`embed_chunks`); the loss is computed
once on all embeddings; then each chunk is embedded again, with the same random numbers, and its part of the gradient is
propagated backward (`backward_chunks`).

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
from torch.nn.parallel import DistributedDataParallel

RandomStates = list[dict[str, Tensor]]  # one before each chunk


@torch.no_grad()
def embed_chunks(
    network: nn.Module, embed: Callable[[Tensor], Tensor], images: Float[Tensor, "n 3 s s"], count: int
) -> tuple[Float[Tensor, "n d"], RandomStates]:
    """Embed a batch without a graph.

    Args:
        network: the network to train.
        embed: `network`, or a function that calls it.
        images: the batch, or this rank's part of it.
        count: number of chunks.

    Returns:
        The embeddings, in float32 or float64, and the random states for `backward_chunks`.
    """
    parts: list[Tensor] = []
    states: RandomStates = []
    done = 0
    with _batch_norm_momenta(network) as momenta:
        for chunk in _chunks(images, count):
            done += len(chunk)
            for norm, momentum in momenta.items():  # all chunks together then weigh as one batch
                norm.momentum = momentum * len(chunk) / (len(images) - momentum * (len(images) - done))
            states.append(random_states(images.device))
            part = embed(chunk)
            parts.append(part.to(torch.promote_types(part.dtype, torch.float32)))
    embeddings = parts[0].new_empty(len(images), parts[0].shape[1])
    for chunk_rows, part in zip(_chunks(embeddings, count), parts, strict=True):
        chunk_rows.copy_(part)
    return embeddings, states


def backward_chunks(
    network: nn.Module,
    embed: Callable[[Tensor], Tensor],
    images: Float[Tensor, "n 3 s s"],
    gradient: Float[Tensor, "n d"],
    states: RandomStates,
) -> None:
    """Embed a batch again, and accumulate the gradients of the network's parameters in their `.grad`.

    Args:
        network: the network to train.
        embed: `network`, a function that calls it, or a `DistributedDataParallel`, whose ranks must have equal numbers
            of chunks and are synchronized with the last one.
        images: the batch, or this rank's part of it.
        gradient: of the loss with respect to the embeddings.
        states: from `embed_chunks`.
    """
    after = random_states(images.device)
    distributed = embed if isinstance(embed, DistributedDataParallel) else None
    chunks = zip(_chunks(images, len(states)), _chunks(gradient, len(states)), states, strict=True)
    with _batch_norm_momenta(network) as momenta:
        for norm in momenta:
            norm.momentum = 0.0
        for number, (chunk, chunk_gradient, state) in enumerate(chunks, start=1):
            set_random_states(state, images.device)
            with distributed.no_sync() if distributed and number < len(states) else nullcontext():
                embeddings = embed(chunk)
                embeddings.backward(chunk_gradient.to(embeddings.dtype))
    set_random_states(after, images.device)


def random_states(device: torch.device) -> dict[str, Tensor]:
    """Return the states of the random number generators: the CPU's, and the GPU's if `device` is one."""
    on_gpu = {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {}
    return {"cpu": torch.get_rng_state(), **on_gpu}


def set_random_states(states: dict[str, Tensor], device: torch.device) -> None:
    """Go back to the states that `random_states` returned."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


def _chunks(rows: Tensor, count: int) -> list[Tensor]:
    return [rows[first::count] for first in range(count)]


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
