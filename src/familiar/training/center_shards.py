"""Checkpoints of class centers that are divided among the ranks: each writes its rows, any number of ranks reads them.

The files belong to one moment of the training. The state that names them is written after them, so it never names a
missing one.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from familiar.core.errors import BadRun
from familiar.core.files import write_atomically
from familiar.losses import PartialFC
from familiar.training.ranks import Ranks

PATTERN = "centers-*.safetensors"
SPARSE = 1  # its place in the optimizer's state
MOMENTS = ("exp_avg", "exp_avg_sq")  # of SparseAdam, a row for each center


def sharded_centers(objective: nn.Module) -> dict[str, PartialFC]:
    """Return the losses whose centers are divided among the ranks, by their centers' name in `objective`'s state."""
    return {f"{name}.centers": loss for name, loss in objective.named_modules() if isinstance(loss, PartialFC)}


def save_rows(folder: Path, moment: str, state: dict[str, Any], names: Sequence[str], ranks: Ranks) -> None:
    """Move this rank's rows of centers and moments from a state to a file of its own.

    Args:
        folder: of the run.
        moment: of the training, for the files' names.
        state: of "objective" and "optimizer"; the names of all ranks' files are added under "shards".
        names: of the centers, in the order of the sparse optimizer's parameters.
        ranks: the processes that train together; all of them must call this.
    """
    rows: dict[str, Tensor] = {}
    optimizer = state["optimizer"][SPARSE]["state"]
    for index, name in enumerate(names):
        moments = optimizer[index] = {**optimizer.get(index, {})}  # a copy: the optimizer goes on with the other
        rows[name] = state["objective"].pop(name)
        rows |= {f"{name} {key}": moments.pop(key) for key in MOMENTS if key in moments}
    state["shards"] = [f"centers-{moment}-{rank}-of-{ranks.size}.safetensors" for rank in range(ranks.size)]
    content = safetensors.torch.save({name: tensor.detach().cpu().contiguous() for name, tensor in rows.items()})
    write_atomically(folder / state["shards"][ranks.rank], content)
    ranks.wait()


def load_rows(folder: Path, state: dict[str, Any], losses: dict[str, PartialFC]) -> None:
    """Add this rank's rows to a state, whether it was saved by one rank or by any number of them.

    Args:
        folder: of the run.
        state: as `save_rows` left it, or that of a single rank.
        losses: from `sharded_centers`.

    Raises:
        BadRun: a file is missing or damaged.
    """
    files = [folder / file for file in state.get("shards", [])]
    for index, (name, loss) in enumerate(losses.items()):
        moments = state["optimizer"][SPARSE]["state"].get(index)
        tensors = [(state["objective"], name, name)]
        tensors += [(moments, key, f"{name} {key}") for key in MOMENTS] if moments else []
        rows = loss.shard
        for part, key, stored in tensors:
            part[key] = _read(files, stored, rows) if files else part[key][rows.start : rows.stop].clone()


def remove_other_shards(folder: Path, names: Sequence[str]) -> None:
    """Remove the files of earlier moments, and of those whose state was not written."""
    for path in folder.glob(PATTERN):
        if path.name not in names:
            path.unlink(missing_ok=True)


def _read(files: Sequence[Path], name: str, rows: range) -> Tensor:
    """Read some rows of a tensor whose rows are spread over files in their order."""
    parts: list[Tensor] = []
    first = 0
    for file in files:
        try:
            with safetensors.safe_open(file, framework="pt") as opened:
                stored = opened.get_slice(name)
                count = stored.get_shape()[0]
                start, stop = max(rows.start - first, 0), min(rows.stop - first, count)
                if start < stop:
                    parts.append(stored[start:stop])
        except (OSError, safetensors.SafetensorError) as error:
            raise BadRun(f"{file}: cannot resume without these class centers ({error})") from error
        first += count
    if sum(map(len, parts)) != len(rows):
        raise BadRun(f"{files[0].parent}: its files of class centers have {first} rows, which is not all")
    return torch.cat(parts)
