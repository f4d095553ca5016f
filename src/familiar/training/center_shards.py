"""Checkpoints of class centers that are divided among the ranks: each writes its rows, any number of ranks reads them.

The files belong to one moment of the training. The state that names them is written after them, so it never names a
missing one.
"""

from collections.abc import Mapping
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
MOMENTS = ("exp_avg", "exp_avg_sq")  # of SparseAdam, a row for each center


def sharded_centers(objective: nn.Module) -> dict[str, PartialFC]:
    """Return the losses whose centers are divided among the ranks, by their centers' name in `objective`'s state."""
    return {f"{name}.centers": loss for name, loss in objective.named_modules() if isinstance(loss, PartialFC)}


def save_rows(
    folder: Path, epoch: int, step: int, state: Mapping[str, Any], names: list[str], ranks: Ranks
) -> dict[str, Any]:
    """Write this rank's rows of centers and moments to a file of its own.

    Args:
        folder: of the run.
        epoch: the number of complete ones.
        step: the number of steps since.
        state: of "objective" and "optimizer"; not changed.
        names: of the centers, in the order of the sparse optimizer's parameters.
        ranks: the processes that train together; all of them must call this.

    Returns:
        The state without these rows, and under "shards" the names of all ranks' files.
    """
    objective, optimizer, moments = _copy(state)
    rows: dict[str, Tensor] = {}
    for index, name in enumerate(names):
        rows[name] = objective.pop(name)
        rows |= {f"{name} {key}": moments[index].pop(key) for key in MOMENTS if key in moments.get(index, {})}
    moment = f"{epoch:05d}.{step}" if step else f"{epoch:05d}"
    files = [f"centers-{moment}-{rank}-of-{ranks.size}.safetensors" for rank in range(ranks.size)]
    content = safetensors.torch.save({name: tensor.detach().cpu().contiguous() for name, tensor in rows.items()})
    write_atomically(folder / files[ranks.rank], content)
    ranks.wait()
    return {**state, "objective": objective, "optimizer": optimizer, "shards": files}


def load_rows(folder: Path, state: Mapping[str, Any], shards: Mapping[str, range]) -> dict[str, Any]:
    """Return a state with this rank's rows, whether it was saved by one rank or by any number of them.

    Args:
        folder: of the run.
        state: as `save_rows` returned it, or that of a single rank.
        shards: the rows of this rank, by the name of the centers, in the order of the sparse optimizer's parameters.

    Raises:
        BadRun: a file is missing or damaged.
    """
    objective, optimizer, moments = _copy(state)
    for index, (name, rows) in enumerate(shards.items()):
        if "shards" not in state:
            objective[name] = objective[name][rows.start : rows.stop].clone()
            moments[index] |= {key: moments[index][key][rows.start : rows.stop].clone() for key in MOMENTS}
            continue
        files = [folder / file for file in state["shards"]]
        objective[name] = _read(files, name, rows)
        moments[index] |= {key: _read(files, f"{name} {key}", rows) for key in MOMENTS}
    return {**state, "objective": objective, "optimizer": optimizer}


def remove_other_shards(folder: Path, names: list[str]) -> None:
    """Remove the files of earlier moments, and of those whose state was not written."""
    for path in folder.glob(PATTERN):
        if path.name not in names:
            path.unlink(missing_ok=True)


def _copy(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[int, dict[str, Any]]]:
    """Copy the dictionaries that rows are taken from or added to, which may be those of the optimizer itself."""
    sparse = state["optimizer"]["sparse"]
    moments = {index: dict(values) for index, values in sparse["state"].items()}
    optimizer = {**state["optimizer"], "sparse": {**sparse, "state": moments}}
    return dict(state["objective"]), optimizer, moments


def _read(files: list[Path], name: str, rows: range) -> Tensor:
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
