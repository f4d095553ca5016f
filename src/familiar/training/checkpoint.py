"""Checkpoints: a run's weights and the state it resumes from, written atomically (a crash keeps the previous file)."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from familiar.core.errors import BadRun
from familiar.core.files import write_atomically
from familiar.models.weights import check_expansion


def save_weights(path: Path, **modules: nn.Module) -> None:
    """Save the tensors of each module under its keyword: `network.trunk...`, `objective.centers`."""
    tensors = {
        f"{name}.{key}": tensor.detach().cpu().contiguous()
        for name, module in modules.items()
        for key, tensor in module.state_dict().items()
    }
    write_atomically(path, safetensors.torch.save(tensors))


def load_weights(path: Path, **modules: nn.Module) -> None:
    """Load into each module the tensors saved under its keyword.

    Raises:
        BadRun: the file is missing or damaged, or its tensors do not fit a module.
    """
    try:
        tensors = safetensors.torch.load(path.read_bytes())
    except (OSError, safetensors.SafetensorError) as error:
        raise BadRun(f"{path}: cannot read weights ({error})") from error
    for name, module in modules.items():
        try:
            module.load_state_dict(_tensors_of_module(name, tensors))
        except RuntimeError as error:
            raise BadRun(f"{path}: the weights belong to another network ({error})") from error


@torch.no_grad()
def mix_weights(module: nn.Module, path: Path, name: str, share: float) -> None:
    """Replace a module's weights by `(1 - share)` of them and `share` of those saved in a file.

    Between a pretrained network and the same network fine-tuned, the way is one of good networks: some of them are
    better than the fine-tuned one on photos unlike those it was trained on, and hardly worse on these (WiSE-FT, arXiv
    2109.01903).

    Args:
        module: changed in place. Integers, such as counts of batches, stay.
        path: a file that `save_weights` wrote.
        name: the keyword under which the module was saved.
        share: in [0, 1].

    Raises:
        BadRun: as for `load_weights`.
    """
    trained = {key: tensor.clone() for key, tensor in module.state_dict().items()}
    load_weights(path, **{name: module})
    for key, tensor in module.state_dict().items():
        tensor.copy_(tensor.lerp(trained[key], 1 - share) if tensor.is_floating_point() else trained[key])


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Save tensors, numbers, strings and containers of them, to be read back with `weights_only=True`."""
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    write_atomically(path, buffer.getvalue())


def load_state(path: Path) -> dict[str, Any]:
    """Load what `save_state` saved. BadRun if the file is missing or damaged."""
    try:
        check_expansion(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise BadRun(
            f"{path.parent}: nothing to resume: {path.name} is missing, so the run ended before its first epoch did. "
            "Remove the folder and start again"
        ) from error
    except Exception as error:  # torch raises many types of exception for a damaged file
        raise BadRun(f"{path}: cannot resume from this file ({error})") from error


def _tensors_of_module(name: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    prefix = f"{name}."
    return {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}
