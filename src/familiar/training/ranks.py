"""The processes of a training that torchrun started, called ranks, and what they decide together.

Without torchrun there is one rank, and nothing is sent.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from familiar.core.errors import BadDataset, FailedOnMain, FamiliarError, TrainingFailed

T = TypeVar("T")

# Ranks wait for each other while one of them reads all photos. One that died is noticed by torchrun, not by this.
TIMEOUT = timedelta(hours=24)
BUCKET_VALUES = 2**24  # gradients sent at a time: 64 MB


@dataclass(frozen=True)
class Ranks:
    """This process among all that train together.

    Attributes:
        rank: its number, from 0; rank 0 writes the run's files and reports.
        size: number of processes.
        local_rank: its number among the processes of this machine.
        on_machine: number of processes of this machine.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    on_machine: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and reports."""
        return self.rank == 0

    def device(self) -> torch.device:
        """Return the GPU of this process, or the CPU if there is none."""
        return torch.device("cuda", self.local_rank) if torch.cuda.is_available() else torch.device("cpu")

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """Return this rank's part of `items`: neighbors, so that all parts in the order of the ranks are the whole."""
        return items[len(items) * self.rank // self.size : len(items) * (self.rank + 1) // self.size]

    def on_main(self, work: Callable[[], T]) -> T:
        """Call a function in rank 0 and return its result, which can be pickled, on all ranks.

        Raises:
            FailedOnMain: on the other ranks, if it raised a FamiliarError on rank 0.
        """
        if self.size == 1:
            return work()
        outcome: list[Any] = [None, None]
        error: FamiliarError | None = None
        if self.is_main:
            try:
                outcome[0] = work()
            except FamiliarError as raised:
                error, outcome[1] = raised, str(raised)
        dist.broadcast_object_list(outcome, src=0)
        if error is not None:
            raise error
        if outcome[1] is not None:
            raise FailedOnMain(f"rank 0: {outcome[1]}")
        return outcome[0]

    def joint(self, error: FamiliarError) -> FamiliarError:
        """Return the error to raise where all ranks meet the same one, which only rank 0 reports."""
        return error if self.is_main else FailedOnMain(f"rank 0: {error}")

    @contextmanager
    def first_on_machine(self) -> Iterator[None]:
        """Let one rank of each machine go first, such as to write a cache that the others then read."""
        if self.size > 1 and self.local_rank:
            dist.barrier()
        yield
        if self.size > 1 and not self.local_rank:
            dist.barrier()

    def check_same(self, value: str, what: str) -> None:
        """Raise BadDataset if a value, such as the hash of all photos, differs between ranks."""
        if self.size == 1:
            return
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        if different := [rank for rank, other in enumerate(values) if other != values[0]]:
            raise BadDataset(
                f"rank {different[0]} has other {what} than rank 0; every machine needs the same files at the same path"
            )

    def largest(self, number: int) -> int:
        """Return the largest of all ranks' numbers."""
        return number if self.size == 1 else int(self._reduced(torch.tensor(number), dist.ReduceOp.MAX))

    def sums(self, numbers: Iterable[int]) -> list[int]:
        """Add up lists of the same length."""
        summands = list(numbers)
        return summands if self.size == 1 else self._reduced(torch.tensor(summands), dist.ReduceOp.SUM).tolist()

    def average_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Replace each parameter's gradient by its mean over the ranks; None counts as zero."""
        if self.size == 1:
            return
        by_kind: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
        for parameter in parameters:
            if parameter.requires_grad:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                by_kind.setdefault((parameter.dtype, parameter.device), []).append(parameter.grad)
        for gradients in by_kind.values():
            for bucket in _buckets(gradients):
                joined = torch.cat([gradient.reshape(-1) for gradient in bucket])
                dist.all_reduce(joined)
                parts = (joined / self.size).split([gradient.numel() for gradient in bucket])
                for gradient, part in zip(bucket, parts, strict=True):
                    gradient.copy_(part.view_as(gradient))

    def copy_from_main(self, module: nn.Module) -> None:
        """Give a module on all ranks the parameters and buffers it has on rank 0."""
        if self.size > 1:
            for tensor in module.state_dict().values():
                dist.broadcast(tensor, src=0)

    def gather(self, part: Any) -> list[Any]:
        """Collect what can be pickled, in the order of the ranks, on all of them."""
        if self.size == 1:
            return [part]
        parts: list[Any] = [None] * self.size
        dist.all_gather_object(parts, part)
        return parts

    def wait(self) -> None:
        """Wait until all ranks have come this far."""
        if self.size > 1:
            dist.barrier()

    def _reduced(self, numbers: Tensor, operation: Any) -> Tensor:
        dist.all_reduce(numbers, operation)
        return numbers


ONE_RANK = Ranks()


@contextmanager
def join_ranks() -> Iterator[Ranks]:
    """Join the processes that torchrun started, unless this process has joined them already.

    Yields:
        This process among them; the only one without torchrun.

    Raises:
        TrainingFailed: there are GPUs, but fewer than processes on this machine.
    """
    if dist.is_available() and dist.is_initialized():
        yield _current()
    elif started_by_torchrun() and int(os.environ["WORLD_SIZE"]) > 1:
        if torch.cuda.is_available():
            _use_own_gpu()
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=TIMEOUT)
        yield _current()
        dist.destroy_process_group()  # after an error the others may no longer answer
    else:
        yield ONE_RANK


def started_by_torchrun() -> bool:
    """Whether torchrun started this process."""
    return dist.is_available() and dist.is_torchelastic_launched()


def restarted_by_torchrun() -> bool:
    """Whether torchrun started this process after one of the first ones had failed (`--max-restarts`)."""
    return started_by_torchrun() and int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def _use_own_gpu() -> None:
    local_rank, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if local_rank >= gpus:
        raise TrainingFailed(
            f"torchrun started more processes than this machine has GPUs ({gpus}): use --nproc-per-node {gpus}, or "
            'CUDA_VISIBLE_DEVICES="" to train on the CPU'
        )
    torch.cuda.set_device(local_rank)


def _current() -> Ranks:
    rank, size = dist.get_rank(), dist.get_world_size()
    local_rank, on_machine = os.environ.get("LOCAL_RANK", rank), os.environ.get("LOCAL_WORLD_SIZE", size)
    return Ranks(rank, size, int(local_rank), int(on_machine))


def _buckets(gradients: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Divide gradients into groups of a size that is sent at once."""
    bucket: list[Tensor] = []
    for gradient in gradients:
        if bucket and sum(other.numel() for other in bucket) + gradient.numel() > BUCKET_VALUES:
            yield bucket
            bucket = []
        bucket.append(gradient)
    if bucket:
        yield bucket
