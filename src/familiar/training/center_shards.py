"""Class centers that are divided among the ranks: a checkpoint has all of them, so any number of ranks resumes it."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from familiar.losses import PartialFC
from familiar.training.ranks import Ranks

SPARSE = 1  # its place in the optimizer's state
MOMENTS = ("exp_avg", "exp_avg_sq")  # of SparseAdam, a row for each center


def sharded_centers(objective: nn.Module) -> dict[str, PartialFC]:
    """Return the losses whose centers are divided among the ranks, by their centers' name in `objective`'s state."""
    return {f"{name}.centers": loss for name, loss in objective.named_modules() if isinstance(loss, PartialFC)}


def join_centers(state: dict[str, Any], objective: nn.Module, ranks: Ranks) -> None:
    """Replace this rank's rows of centers and moments in a state by those of all ranks, on rank 0.

    Args:
        state: of "objective" and "optimizer".
        objective: whose state it is.
        ranks: the processes that train together; all of them must call this.
    """
    for part, key, _ in _rows_of_centers(state, objective):
        rows: list[Tensor] | None = [part[key]] * ranks.size if ranks.is_main else None
        dist.gather_object(part[key].detach().cpu(), rows, dst=0)
        part[key] = part[key] if rows is None else torch.cat(rows)


def split_centers(state: dict[str, Any], objective: nn.Module) -> None:
    """Replace all rows of centers and moments in a state by those of this rank; arguments as for `join_centers`."""
    for part, key, shard in _rows_of_centers(state, objective):
        part[key] = part[key][shard.start : shard.stop].clone()


def _rows_of_centers(state: dict[str, Any], objective: nn.Module) -> Iterator[tuple[dict[str, Any], str, range]]:
    """Yield the place in a state of each tensor with a row for each center, and the classes of this rank."""
    optimizer = state["optimizer"][SPARSE]["state"] if sharded_centers(objective) else {}
    for index, (name, loss) in enumerate(sharded_centers(objective).items()):
        yield state["objective"], name, loss.shard
        moments = optimizer[index] = {**optimizer.get(index, {})}  # a copy: the optimizer goes on with the other
        for key in [each for each in MOMENTS if each in moments]:  # in the same order on all ranks
            yield moments, key, loss.shard
