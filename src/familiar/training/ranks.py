"""The processes of a training that torchrun started, called ranks: what torch.distributed lacks to train with them.

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
from torch import Tensor

from familiar.core.errors import BadDataset, FailedOnMain, FamiliarError, TrainingFailed

T = TypeVar("T")

# Ranks wait for each other while one of them reads all photos. One that died is noticed by torchrun, not by this.
TIMEOUT = timedelta(hours=24)


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
        result, error = None, None
        try:
            result = work() if self.is_main else None
        except FamiliarError as raised:
            error = raised
        result, message = self.gather((result, error and str(error)))[0]
        if message is not None:
            raise error or FailedOnMain(f"rank 0: {message}")
        return result

    def joint(self, error: FamiliarError) -> FamiliarError:
        """Return the error to raise where all ranks meet the same one, which only rank 0 reports."""
        return error if self.is_main else FailedOnMain(f"rank 0: {error}")

    @contextmanager
    def first_on_machine(self) -> Iterator[None]:
        """Let one rank of each machine go first, such as to write a cache that the others then read."""
        if self.local_rank:
            self.wait()
        yield
        if not self.local_rank:
            self.wait()

    def check_same(self, value: str, what: str) -> None:
        """Raise BadDataset if a value, such as the hash of all photos, differs between ranks."""
        values = self.gather(value)
        if different := [rank for rank, other in enumerate(values) if other != values[0]]:
            raise BadDataset(
                f"rank {different[0]} has other {what} than rank 0; every machine needs the same files at the same path"
            )

    def gather(self, part: Any) -> list[Any]:
        """Collect what can be pickled, in the order of the ranks, on all of them."""
        parts: list[Any] = [part] * self.size
        if self.size > 1:
            dist.all_gather_object(parts, part)
        return parts

    def average_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Replace gradients that all ranks computed of the same batch by their mean: rounding must not add up."""
        for parameter in parameters:
            if self.size > 1 and parameter.grad is not None:
                dist.all_reduce(parameter.grad)
                parameter.grad /= self.size

    def wait(self) -> None:
        """Wait until all ranks have come this far."""
        if self.size > 1:
            dist.barrier()


ONE_RANK = Ranks()


@contextmanager
def join_ranks() -> Iterator[Ranks]:
    """Join the processes that torchrun started, unless this process has joined them already.

    Yields:
        This process among them; the only one without torchrun.

    Raises:
        TrainingFailed: there are GPUs, but fewer than processes on this machine.
    """
    joined = dist.is_available() and dist.is_initialized()
    if not joined and not (started_by_torchrun() and int(os.environ["WORLD_SIZE"]) > 1):
        yield ONE_RANK
        return
    if not joined:
        if torch.cuda.is_available():
            _choose_gpu(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=TIMEOUT)
    rank, size = dist.get_rank(), dist.get_world_size()
    local_rank, on_machine = os.environ.get("LOCAL_RANK", rank), os.environ.get("LOCAL_WORLD_SIZE", size)
    yield Ranks(rank, size, int(local_rank), int(on_machine))
    if not joined:
        dist.destroy_process_group()  # not after an error, when the others may no longer answer


def started_by_torchrun() -> bool:
    """Whether torchrun started this process."""
    return dist.is_available() and dist.is_torchelastic_launched()


def restarted_by_torchrun() -> bool:
    """Whether torchrun started this process after one of the first ones had failed (`--max-restarts`)."""
    return started_by_torchrun() and int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def _choose_gpu(local_rank: int) -> None:
    if local_rank >= (gpus := torch.cuda.device_count()):
        raise TrainingFailed(
            f"torchrun started more processes than this machine has GPUs ({gpus}): use --nproc-per-node {gpus}, or "
            'CUDA_VISIBLE_DEVICES="" to train on the CPU'
        )
    torch.cuda.set_device(local_rank)
