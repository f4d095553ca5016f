"""Initial weights: as a library publishes them, or a local file, and batch norms that were folded away, made whole."""

import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from jaxtyping import Float
from torch import Tensor, nn

from familiar.core.errors import BadWeights
from familiar.models.backbones import BackboneTrunk, MobileNetV3Trunk, ShortMobileNetV3Trunk
from familiar.models.network import EmbeddingNetwork

TORCHVISION_BATCH_NORM_EPS = 1e-3  # torchvision's MobileNetV3; timm builds it with 1e-5
RUN_PREFIX = "network."  # of an embedding network's tensors in a run's files
TENSOR_ORDER = ("weight", "bias", "running_mean", "running_var")  # within a layer, in torch's state_dict
_TRUNK_TENSOR = re.compile(rf"(features\..+|classifier\.0)\.({'|'.join(TENSOR_ORDER)})")


def load_published_weights(trunk: nn.Module) -> None:
    """ImageNet weights as the trunk's library publishes them; downloads them once.

    BadWeights without a connection, or where nobody publishes weights of this trunk.
    """
    if not isinstance(trunk, BackboneTrunk):
        raise BadWeights("nobody publishes ImageNet weights of this network: set model.initial_weights=none")
    # The hub's client logs each of its many tries; the one error below says it all.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        published = trunk.download()
    except Exception as error:  # the hub's client raises many kinds
        raise BadWeights(
            f"the weights of {trunk.name} could not be fetched ({type(error).__name__}). Without a network, name a "
            "local file (--set model.initial_weights=FILE) or start from none (model.initial_weights=none)"
        ) from error
    trunk.backbone.load_state_dict(published)


def load_weights_file(trunk: nn.Module, path: Path) -> None:
    """Weights from a .safetensors, .npz, .pt or .pth file under the trunk's own key names.

    A MobileNetV3 may have torchvision's. A classifier in the file is passed over. BadWeights names the first tensor
    that is missing or of another shape (or says how many there are, under torchvision's names).
    """
    stored = read_tensors(path)
    own = trunk.backbone if isinstance(trunk, BackboneTrunk) else trunk
    from_torchvision = any(key.startswith("features.") for key in stored)
    if isinstance(trunk, MobileNetV3Trunk) and from_torchvision:
        stored = _from_torchvision(stored, trunk, path)
    wanted = own.state_dict()
    for key, tensor in wanted.items():
        if key.endswith("num_batches_tracked"):
            stored.setdefault(key, tensor)
        if key not in stored:
            raise BadWeights(f"{path}: holds no {key}, so it is not for this network")
        if stored[key].shape != tensor.shape:
            raise BadWeights(f"{path}: {key} is {tuple(stored[key].shape)}, wanted {tuple(tensor.shape)}")
    own.load_state_dict({key: stored[key] for key in wanted})
    if isinstance(trunk, MobileNetV3Trunk) and from_torchvision:
        trunk.batch_norm_eps = TORCHVISION_BATCH_NORM_EPS


def holds_whole_network(path: Path) -> bool:
    """Whether the file is a run's: trunk and head in one. False also for one that cannot be read."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return any(key.startswith(RUN_PREFIX) for key in file.keys())  # noqa: SIM118 (it is no mapping)
    except (OSError, safetensors.SafetensorError):
        return False


def load_network_file(network: EmbeddingNetwork, path: Path) -> None:
    """Trunk and head from a run's file. BadWeights names the first tensor that differs."""
    tensors = read_tensors(path).items()
    stored = {key.removeprefix(RUN_PREFIX): tensor for key, tensor in tensors if key.startswith(RUN_PREFIX)}
    wanted = network.state_dict()
    ours, theirs = ({key: tuple(tensor.shape) for key, tensor in each.items()} for each in (wanted, stored))
    differing = [key for key in wanted | stored if ours.get(key) != theirs.get(key)]
    if not differing:
        network.load_state_dict(stored)
        return
    key = differing[0]
    why = "it is of another network"
    if all(each.startswith("head.") for each in differing):
        why = "its trunk fits, but it was trained with another model.embedding_dim, model.head or input.size_px"
    raise BadWeights(f"{path}: {key} is {theirs.get(key, 'missing')}, wanted {ours.get(key, 'none')}; {why}")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """A file of named tensors; nothing in it is ever executed."""
    if path.suffix not in (".safetensors", ".npz", ".pt", ".pth"):
        raise BadWeights(f"{path}: weights come as .safetensors, .npz, .pt or .pth")
    try:
        stored = _read(path)
    except FileNotFoundError as error:
        raise BadWeights(f"{path}: no such file") from error
    except Exception as error:  # each format has its own errors for a damaged file
        raise BadWeights(f"{path}: cannot be read as weights ({error})") from error
    if not isinstance(stored, dict) or not all(
        isinstance(key, str) and isinstance(tensor, Tensor) for key, tensor in stored.items()
    ):
        raise BadWeights(f"{path}: wanted tensors by name, as `torch.save(network.state_dict(), ...)` writes")
    return stored


def _read(path: Path) -> Any:
    match path.suffix:
        case ".safetensors":
            return safetensors.torch.load_file(path)
        case ".npz":
            # Opened here, since NumPy leaves a damaged file open.
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return {key: torch.from_numpy(arrays[key]) for key in arrays.files}
        case _:
            return torch.load(path, map_location="cpu", weights_only=True)


def has_folded_batch_norm(network: nn.Module) -> bool:
    """Whether the batch norms only add a bias, as after a conversion for inference."""
    norms = _norms(network)
    return (
        bool(norms)
        and all(
            torch.allclose(norm.running_var + norm.eps, norm.weight.square(), atol=1e-6) and not norm.running_mean.any()
            for norm in norms
            if norm.running_var is not None and norm.running_mean is not None
        )
        and any(norm.bias.any() for norm in norms)
    )


def has_fresh_batch_norm(network: nn.Module) -> bool:
    """Whether there are batch norms and none has seen a photo yet."""
    norms = _norms(network)
    return bool(norms) and all(
        not norm.running_mean.any() and bool((norm.running_var == 1).all())
        for norm in norms
        if norm.running_var is not None and norm.running_mean is not None
    )


@torch.no_grad()
def reinflate_batch_norm(network: nn.Module, batches: Iterable[Float[Tensor, "_ 3 s s"]]) -> None:
    """Give folded batch norms the statistics of `batches` without changing the function.

    In training mode a folded norm would divide by statistics its weights know nothing of and destroy the
    features. Afterwards: running mean and variance are those of its input, weight = sqrt(var + eps),
    bias = bias + mean. One pass is enough, since no norm's input changes.
    """
    norms = _norms(network)
    sums = {norm: torch.zeros(3, norm.num_features, dtype=torch.float64) for norm in norms}

    def observe(norm: nn.Module, inputs: tuple[Tensor]) -> None:
        values = inputs[0].double().transpose(0, 1).flatten(1)
        sums[norm] += torch.stack(  # pyright: ignore[reportArgumentType]
            [
                torch.full((values.shape[0],), values.shape[1]),
                values.sum(1).cpu(),
                values.square().sum(1).cpu(),
            ]
        )

    hooks = [norm.register_forward_pre_hook(observe) for norm in norms]
    was_training = network.training
    network.eval()
    for images in batches:
        network(images)
    network.train(was_training)
    for hook in hooks:
        hook.remove()
    for norm, (count, total, squares) in sums.items():
        if not count[0]:
            raise ValueError("no photos to take the statistics from")
        mean = total / count
        variance = (squares / count - mean.square()).clamp_min(0.0)
        assert norm.running_mean is not None
        assert norm.running_var is not None
        norm.running_mean.copy_(mean)
        norm.running_var.copy_(variance)
        norm.weight.copy_((variance + norm.eps).sqrt())
        norm.bias.add_(mean.to(norm.bias))


@torch.no_grad()
def settle_batch_norm(network: nn.Module, batches: Iterable[Float[Tensor, "_ 3 s s"]]) -> None:
    """Give the batch norms of random weights the statistics of `batches`, each norm after those before it.

    For a trunk that is frozen without ever having been trained: with statistics that fit nothing its features fade
    layer by layer, until all photos look alike.
    """
    norms = _norms(network)
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain average of all batches
        norm.train()
    for images in batches:
        network(images)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()


def _norms(network: nn.Module) -> list[nn.BatchNorm2d]:
    return [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]


def _from_torchvision(stored: dict[str, Tensor], trunk: MobileNetV3Trunk, path: Path) -> dict[str, Tensor]:
    """torchvision's MobileNetV3 holds the same tensors in the same order under other names.

    Only the layer timm calls conv_head differs: there it is linear, since torchvision pools before it. A short trunk
    takes the first of them.
    """
    theirs = sorted((key for key in stored if _TRUNK_TENSOR.fullmatch(key)), key=_place)
    wanted = trunk.backbone.state_dict()
    ours = [key for key in wanted if not key.endswith("num_batches_tracked")]
    if isinstance(trunk, ShortMobileNetV3Trunk):
        theirs = theirs[: len(ours)]
    if len(theirs) != len(ours):
        raise BadWeights(f"{path}: holds {len(theirs)} tensors of a trunk, wanted {len(ours)}")
    renamed: dict[str, Tensor] = {}
    for key, their_key in zip(ours, theirs, strict=True):
        tensor, shape = stored[their_key], wanted[key].shape
        if tensor.shape not in (shape, shape[:2]):
            raise BadWeights(f"{path}: {their_key} is {tuple(tensor.shape)}, {key} wants {tuple(shape)}")
        renamed[key] = tensor.reshape(shape)
    return renamed


def _place(torchvision_key: str) -> tuple[bool, str, int]:
    """A key's place in the network. Files do not keep it: .safetensors sorts 10 before 2, bias before weight."""
    layer, _, name = torchvision_key.rpartition(".")
    counted = re.sub("[0-9]+", lambda number: number[0].zfill(3), layer)
    return layer.startswith("classifier"), counted, TENSOR_ORDER.index(name)
