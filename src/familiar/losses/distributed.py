"""One loss over the rows of all ranks (torch.distributed, run by torchrun). Knows nothing of what the loss is.

Without a process group, or with one rank, nothing is gathered and nothing changes.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float, Int64
from torch import Tensor, nn

KINDS = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64)


def gather_batch(
    embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]
) -> tuple[Float[Tensor, "m d"], Int64[Tensor, " m"]]:
    """All ranks' rows in the order of the ranks, differentiable. Ranks may hold different numbers of rows, or none.

    Every rank must call this, and then `backward` of a loss of what it returns; each waits for the others.

    What gradients are scaled by: every rank computes the same loss L of the m joined rows. A rank's own rows then
    receive the sum of their gradients over the ranks, `world_size * dL/d(embeddings)`, as from torch's all-gather.
    DistributedDataParallel averages the network's gradients over the ranks, which leaves exactly the gradient of
    one process with the joined batch. So neither loss nor learning rate is to be scaled by the number of
    ranks; whoever sums the ranks' gradients instead divides them by it. Parameters of the loss itself (class
    centers) receive the whole gradient, unscaled and the same on every rank: they stay equal if they begin equal,
    and averaging does not change them.

    ValueError, on every rank, where dimensions or dtypes differ.
    """
    embeddings, labels = _gather((embeddings, labels))
    return embeddings, labels


def across_ranks(loss: Callable[..., Tensor]) -> "AcrossRanks":
    """`loss`, a function or a module, of the joined batch: `across_ranks(loss)(embeddings, labels)`.

    The result is the same number on every rank; for its gradient, and who must call, see `gather_batch`. What `loss`
    draws at random (Partial FC its classes) it draws alike on every rank, whatever their seeds. This wrapper goes
    around all others: `across_ranks(HarmonicLoss(...))`.
    """
    return AcrossRanks(loss)


class AcrossRanks(nn.Module):
    """A loss that sees every rank's rows. `loss` is what it wraps: its settings, parameters and state."""

    def __init__(self, loss: Callable[..., Tensor]) -> None:
        super().__init__()
        self.loss = loss

    def forward(
        self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], *others: Tensor
    ) -> Float[Tensor, ""]:
        """`others`, if the loss takes more, are rows as well (an old network's vectors) and gathered too."""
        joined = _gather((embeddings, labels, *others))
        with _drawing_alike(embeddings.device):
            return self.loss(*joined)


def _gather(tensors: tuple[Tensor, ...]) -> list[Tensor]:
    if _ranks() == 1:
        return list(tensors)
    differentiable = [torch.is_grad_enabled() and rows.requires_grad for rows in tensors]
    own = [
        [len(rows), rows.shape[1:].numel(), KINDS.index(rows.dtype), int(wants)]
        for rows, wants in zip(tensors, differentiable, strict=True)
    ]
    gathered = torch.stack(_all_gather(torch.tensor(own, device=tensors[0].device)))
    headers: list[list[list[int]]] = gathered.tolist()  # pyright: ignore - of ranks, of tensors
    joined: list[Tensor] = []
    for rows, wants, header in zip(tensors, differentiable, zip(*headers, strict=True), strict=True):
        counts, dims, kinds, wanted = zip(*header, strict=True)
        if len(set(dims)) > 1 or len(set(kinds)) > 1:
            raise ValueError(f"ranks hold rows of different dimensions or dtypes: {dims}, {[KINDS[k] for k in kinds]}")
        # A rank whose rows need no gradient (it may have none) still has to take part in the others' backward.
        taking_part = rows if wants or not any(wanted) else rows.detach().requires_grad_()
        joined.append(_Gather.apply(taking_part, list(counts)))
    return joined


class _Gather(torch.autograd.Function):
    """torch.distributed.nn.functional.all_gather takes equal shapes only, and is deprecated in newer torch."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: list[int]) -> Tensor:
        ctx.counts = counts
        # Not every backend gathers uneven lengths.
        padded = rows.new_zeros(max(counts), *rows.shape[1:])
        padded[: len(rows)] = rows
        return torch.cat([part[:count] for part, count in zip(_all_gather(padded), counts, strict=True)])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # pyright: ignore
        # Half precision would round every partial sum.
        wide = torch.promote_types(gradients[0].dtype, torch.float32)
        summed = gradients[0].to(wide, copy=True, memory_format=torch.contiguous_format)
        dist.all_reduce(summed)
        rank = dist.get_rank()
        return summed.narrow(0, sum(ctx.counts[:rank]), ctx.counts[rank]), None


@contextmanager
def _drawing_alike(device: torch.device) -> Generator[None, None, None]:
    """Random numbers of a stream that rank 0 chooses. Each rank's own goes on afterwards: dropout is to differ."""
    if _ranks() == 1:
        yield
        return
    seed = torch.randint(2**62, (1,), device=device)
    dist.broadcast(seed, src=0)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):  # pyright: ignore
        torch.manual_seed(int(seed))  # pyright: ignore
        yield


def _ranks() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _all_gather(tensor: Tensor) -> list[Tensor]:
    parts = [torch.empty_like(tensor) for _ in range(_ranks())]
    dist.all_gather(parts, tensor)
    return parts
