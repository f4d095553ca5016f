"""One loss over the rows of all ranks (torch.distributed, started by torchrun), whatever the loss is.

Without a process group, or with one rank, nothing is gathered and nothing changes.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float, Int64
from torch import Tensor, nn

from familiar.losses.validation import check_batch


def gather_batch(
    embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]
) -> tuple[Float[Tensor, "m d"], Int64[Tensor, " m"]]:
    """Gather all ranks' rows in the order of the ranks, differentiably.

    Every rank must call this, and then `backward` of a loss of the result; each waits for the others.

    How gradients are scaled: every rank computes the same loss L of the m joined rows. A rank's own rows then
    receive the sum of their gradients over the ranks, `world_size * dL/d(embeddings)`, as from torch's all-gather.
    DistributedDataParallel averages the network's gradients over the ranks, which leaves exactly the gradient of
    one process with the joined batch. So neither loss nor learning rate is to be scaled by the number of
    ranks; a caller that sums the ranks' gradients instead divides them by it. Parameters of the loss itself (class
    centers) receive the whole gradient, unscaled and the same on every rank: they stay equal if they begin equal,
    and averaging does not change them.

    Args:
        embeddings: this rank's rows; ranks may have different numbers of rows, or none.
        labels: their identities.

    Returns:
        (embeddings, labels) of all ranks.

    Raises:
        ValueError: dimensions or dtypes differ between ranks; raised on every rank.
    """
    embeddings, labels = gather_tensors((embeddings, labels))
    check_batch(embeddings, labels)  # now, so that all ranks raise
    return embeddings, labels


class AcrossRanks(nn.Module):
    """A loss over every rank's rows: `AcrossRanks(loss)(embeddings, labels)`.

    The result is the same number on every rank; see `gather_batch` for its gradient and who must call it. Random
    choices inside the loss, such as the classes that Partial FC samples, are the same on every rank, even with
    different seeds. Make this the outermost wrapper: `AcrossRanks(HarmonicLoss(...))`.

    Args:
        loss: a function or a module, called with the (embeddings, labels) of all ranks, and with the further arguments
            of a call.

    Attributes:
        loss: the wrapped loss, with its settings and parameters.
    """

    def __init__(self, loss: Callable[..., Tensor]) -> None:
        super().__init__()
        self.loss = loss

    def forward(
        self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], *others: Tensor
    ) -> Float[Tensor, ""]:
        """Compute the loss; `others`, further arguments of it, are rows (an old network's vectors) and gathered too."""
        if world_size() == 1:
            return self.loss(embeddings, labels, *others)
        joined = gather_tensors((embeddings, labels, *others))
        with shared_random_stream(embeddings.device):
            return self.loss(*joined)


def gather_tensors(tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """Gather the rows of several tensors as `gather_batch` does; each rank passes the same number of tensors."""
    if world_size() == 1:
        return list(tensors)
    differentiable = [torch.is_grad_enabled() and rows.requires_grad for rows in tensors]
    described = [
        (len(rows), f"{list(rows.shape[1:])} of {rows.dtype}", needs_grad)
        for rows, needs_grad in zip(tensors, differentiable, strict=True)
    ]
    by_rank: list[Any] = [None] * world_size()
    dist.all_gather_object(by_rank, described)
    joined: list[Tensor] = []
    for rows, needs_grad, by_tensor in zip(tensors, differentiable, zip(*by_rank, strict=True), strict=True):
        counts, formats, grads_needed = zip(*by_tensor, strict=True)
        if len(set(formats)) > 1:
            raise ValueError(f"the ranks' rows have different dimensions or dtypes: {', '.join(formats)}")
        # A rank whose rows need no gradient (it may have none) still has to take part in the others' backward.
        participant = rows if needs_grad or not any(grads_needed) else rows.detach().requires_grad_()
        joined.append(_Gather.apply(participant, counts))
    return joined


class _Gather(torch.autograd.Function):
    """All-gather of uneven shapes.

    torch.distributed.nn.functional.all_gather takes equal shapes only, and is deprecated in newer torch.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: tuple[int, ...]) -> Tensor:
        ctx.counts = counts
        # Not every backend gathers uneven lengths.
        padded = rows.new_zeros(max(counts), *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # pyright: ignore
        # Half precision would round every partial sum.
        compute_dtype = torch.promote_types(gradients[0].dtype, torch.float32)
        summed = gradients[0].to(compute_dtype, copy=True, memory_format=torch.contiguous_format)
        dist.all_reduce(summed)
        rank = dist.get_rank()
        return summed.narrow(0, sum(ctx.counts[:rank]), ctx.counts[rank]), None


@contextmanager
def shared_random_stream(device: torch.device) -> Generator[None]:
    """Draw random numbers from a stream that rank 0 seeds with its next number.

    Each rank's stream goes on afterwards, since dropout should differ between ranks.
    """
    seed = torch.randint(2**62, (1,), device=device if world_size() > 1 else "cpu")  # a GPU would be waited for
    if world_size() > 1:
        dist.broadcast(seed, src=0)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):  # pyright: ignore
        torch.manual_seed(int(seed))  # pyright: ignore
        yield


def world_size() -> int:
    """Return the number of ranks; 1 without a process group."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
