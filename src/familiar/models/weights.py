"""Initial weights, published by a library or from a local file, and the statistics of their batch norms."""

import logging
import re
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from huggingface_hub import constants
from huggingface_hub.utils import get_session
from jaxtyping import Float
from timm.models.efficientnet import EfficientNet
from torch import Tensor, nn

from familiar.core.errors import BadWeights
from familiar.models.backbones import BackboneTrunk, MobileNetV3Trunk
from familiar.models.network import EmbeddingNetwork

MAX_EXPANSION = 20  # weights hardly become smaller when they are compressed
CONNECTION_SECONDS = 5  # to wait for the hub's first answer
SMALL_BYTES = 64 * 2**20  # of what may expand more
TORCHVISION_BATCH_NORM_EPS = 1e-3  # torchvision's MobileNetV3; timm builds it with 1e-5
RUN_PREFIX = "network."  # of the keys of an embedding network's tensors in a run's files
TENSOR_ORDER = ("weight", "bias", "running_mean", "running_var")  # within a layer, in torch's state_dict
# Layers of a block of EfficientNet in efficientnet-pytorch, and their names in timm.
_SQUEEZE = {"_se_reduce": "se.conv_reduce", "_se_expand": "se.conv_expand"}
PLAIN_BLOCK = _SQUEEZE | {
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn1",
    "_project_conv": "conv_pw",
    "_bn2": "bn2",
}
EXPANDED_BLOCK = _SQUEEZE | {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}
_TRUNK_TENSOR = re.compile(rf"(features\..+|classifier\.0)\.({'|'.join(TENSOR_ORDER)})")


def load_published_weights(trunk: nn.Module) -> None:
    """Load the ImageNet weights that the trunk's library publishes; they are downloaded once.

    Raises:
        BadWeights: there is no connection, or there are no published weights of this trunk.
    """
    if not isinstance(trunk, BackboneTrunk):
        raise BadWeights("there are no published ImageNet weights of this network; set model.initial_weights=none")
    # The hub's client logs each of its many attempts; the one error below is enough.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        with _hub_offline_unless_reached():
            published = trunk.download()
    except BadWeights:
        raise
    except Exception as error:  # the hub's client raises many kinds
        raise BadWeights(
            f"the weights of {trunk.name} could not be downloaded ({type(error).__name__}). Without a connection, give "
            "a local file (--set model.initial_weights=FILE) or start from random weights (model.initial_weights=none)"
        ) from error
    trunk.backbone.load_state_dict(published)


@contextmanager
def _hub_offline_unless_reached() -> Iterator[None]:
    """Let the hub's client read its cache only, unless a first request succeeds: it repeats failed ones for minutes."""
    before = constants.HF_HUB_OFFLINE
    try:
        get_session().head(constants.ENDPOINT, timeout=CONNECTION_SECONDS)
    except Exception:  # the session's library has its own kinds
        constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def load_weights_file(trunk: nn.Module, path: Path) -> None:
    """Load a trunk's weights from a file.

    Args:
        trunk: is changed in place.
        path: a .safetensors, .npz, .pt or .pth file with the trunk's own key names; for a MobileNetV3 also with
            torchvision's, for an EfficientNet of timm also with those of the package efficientnet-pytorch. A classifier
            in the file is ignored.

    Raises:
        BadWeights: names the first tensor that is missing or has another shape (or, with torchvision's names, how many
            tensors there are).
    """
    stored = read_tensors(path)
    network = trunk.backbone if isinstance(trunk, BackboneTrunk) else trunk
    from_torchvision = any(key.startswith("features.") for key in stored)
    if isinstance(trunk, MobileNetV3Trunk) and from_torchvision:
        stored = _from_torchvision(stored, trunk, path)
    elif isinstance(network, EfficientNet) and "_conv_stem.weight" in stored:
        stored = _from_efficientnet_pytorch(stored, network)
    expected = network.state_dict()
    for key, tensor in expected.items():
        if key.endswith("num_batches_tracked"):
            stored.setdefault(key, tensor)
        if key not in stored:
            raise BadWeights(f"{path}: contains no tensor {key}, so it is not for this network")
        if stored[key].shape != tensor.shape:
            raise BadWeights(
                f"{path}: {key} has the shape {tuple(stored[key].shape)}, this network needs {tuple(tensor.shape)}"
            )
    network.load_state_dict({key: stored[key] for key in expected})
    if isinstance(trunk, MobileNetV3Trunk) and from_torchvision:
        trunk.batch_norm_eps = TORCHVISION_BATCH_NORM_EPS


def is_network_file(path: Path) -> bool:
    """Return whether the file is a run's, with trunk and head; False also for a file that cannot be read."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return any(key.startswith(RUN_PREFIX) for key in file.keys())  # noqa: SIM118 (it is no mapping)
    except (OSError, safetensors.SafetensorError):
        return False


def load_network_file(network: EmbeddingNetwork, path: Path) -> None:
    """Load trunk and head from a file of a training run.

    Args:
        network: is changed in place.
        path: a .safetensors, .npz, .pt or .pth file; tensors whose keys do not begin with "network." are ignored.

    Raises:
        BadWeights: the file cannot be read, or tensors do not fit; the message names the first of these.
    """
    tensors = read_tensors(path).items()
    stored = {key.removeprefix(RUN_PREFIX): tensor for key, tensor in tensors if key.startswith(RUN_PREFIX)}
    expected = network.state_dict()
    expected_shapes, stored_shapes = (
        {key: tuple(tensor.shape) for key, tensor in state.items()} for state in (expected, stored)
    )
    differing = [key for key in expected | stored if expected_shapes.get(key) != stored_shapes.get(key)]
    if not differing:
        network.load_state_dict(stored)
        return
    key = differing[0]
    cause = "it is of another network"
    if all(name.startswith("head.") for name in differing):
        cause = "its trunk fits, but it was trained with another model.embedding_dim, model.head or input.size_px"
    raise BadWeights(
        f"{path}: {key} is {stored_shapes.get(key, 'missing')}, expected {expected_shapes.get(key, 'none')}; {cause}"
    )


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a file of named tensors, without executing anything in it."""
    if path.suffix not in (".safetensors", ".npz", ".pt", ".pth"):
        raise BadWeights(f"{path}: weights must be a .safetensors, .npz, .pt or .pth file")
    try:
        check_expansion(path)
        stored = _read(path)
    except FileNotFoundError as error:
        raise BadWeights(f"{path}: no such file") from error
    except Exception as error:  # each format has its own errors for a damaged file
        raise BadWeights(f"{path}: cannot be read as weights ({error})") from error
    if not isinstance(stored, dict) or not all(
        isinstance(key, str) and isinstance(tensor, Tensor) for key, tensor in stored.items()
    ):
        raise BadWeights(f"{path}: is not a dict of tensors by name, as `torch.save(network.state_dict(), ...)` writes")
    for key, tensor in stored.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise BadWeights(
                f"{path}: {key} contains NaN or infinite values, as after a training that failed; take weights from "
                "before that"
            )
    return stored


def check_expansion(path: Path) -> None:
    """Check that a compressed file does not become far larger when it is read; other files are small enough.

    Args:
        path: a file of NumPy or PyTorch, which are zip files.

    Raises:
        ValueError: its content has more than `MAX_EXPANSION` times the bytes of the file.
        OSError, zipfile.BadZipFile: it cannot be read.
    """
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        content_bytes = sum(member.file_size for member in archive.infolist())
    if content_bytes > MAX_EXPANSION * path.stat().st_size + SMALL_BYTES:
        raise ValueError(f"its content has {content_bytes:,} bytes, far more than the file")


def _read(path: Path) -> Any:
    match path.suffix:
        case ".safetensors":
            return safetensors.torch.load_file(path)
        case ".npz":
            # Opened here, since NumPy does not close a damaged file.
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return {key: torch.from_numpy(arrays[key]) for key in arrays.files}
        case _:
            return torch.load(path, map_location="cpu", weights_only=True)


def has_folded_batch_norm(network: nn.Module) -> bool:
    """Return whether the batch norms only add a bias, as after a conversion for inference."""
    norms = _batch_norms(network)
    return (
        bool(norms)
        and all(
            torch.allclose(norm.running_var + norm.eps, norm.weight.square(), atol=1e-6) and not norm.running_mean.any()
            for norm in norms
            if norm.running_var is not None and norm.running_mean is not None
        )
        and any(norm.bias.any() for norm in norms)
    )


def has_untrained_batch_norm(network: nn.Module) -> bool:
    """Return whether there are batch norms and all have their initial statistics."""
    norms = _batch_norms(network)
    return bool(norms) and all(
        not norm.running_mean.any() and bool((norm.running_var == 1).all())
        for norm in norms
        if norm.running_var is not None and norm.running_mean is not None
    )


@torch.no_grad()
def reinflate_batch_norm(network: nn.Module, batches: Iterable[Float[Tensor, "_ 3 s s"]]) -> None:
    """Give folded batch norms the statistics of `batches` without changing the function of the network.

    In training mode a folded norm would divide by the batch's statistics, for which its weights do not compensate, and
    destroy the features. Afterwards running mean and variance are those of its input, weight = sqrt(var + eps), and
    bias = bias + mean. One pass is enough, since no norm's input changes.
    """
    norms = _batch_norms(network)
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
            raise ValueError("there are no photos to compute the statistics of batch norm from; pass some batches")
        mean = total / count
        variance = (squares / count - mean.square()).clamp_min(0.0)
        assert norm.running_mean is not None
        assert norm.running_var is not None
        norm.running_mean.copy_(mean)
        norm.running_var.copy_(variance)
        norm.weight.copy_((variance + norm.eps).sqrt())
        norm.bias.add_(mean.to(norm.bias))


@torch.no_grad()
def initialize_batch_norm(network: nn.Module, batches: Iterable[Float[Tensor, "_ 3 s s"]]) -> None:
    """Give the batch norms of random weights the statistics of `batches`, each computed with those before it in place.

    For a trunk that is frozen without having been trained: with its initial statistics the features fade layer by
    layer, until those of all photos are the same.
    """
    norms = _batch_norms(network)
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


def _batch_norms(network: nn.Module) -> list[nn.BatchNorm2d]:
    return [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]


def _from_torchvision(stored: dict[str, Tensor], trunk: MobileNetV3Trunk, path: Path) -> dict[str, Tensor]:
    """Rename the tensors of torchvision's MobileNetV3, which are timm's in the same order under other names.

    Only the layer that timm calls conv_head differs: torchvision's is linear, since it pools before it. A trunk that
    ends earlier takes the first tensors.
    """
    torchvision_keys = sorted((key for key in stored if _TRUNK_TENSOR.fullmatch(key)), key=_network_order)
    expected = trunk.backbone.state_dict()
    timm_keys = [key for key in expected if not key.endswith("num_batches_tracked")]
    if not hasattr(trunk.backbone, "conv_head"):
        torchvision_keys = torchvision_keys[: len(timm_keys)]
    if len(torchvision_keys) != len(timm_keys):
        raise BadWeights(
            f"{path}: has {len(torchvision_keys)} tensors of a trunk, but this network has {len(timm_keys)}"
        )
    renamed: dict[str, Tensor] = {}
    for timm_key, torchvision_key in zip(timm_keys, torchvision_keys, strict=True):
        tensor, shape = stored[torchvision_key], expected[timm_key].shape
        if tensor.shape not in (shape, shape[:2]):
            raise BadWeights(
                f"{path}: {torchvision_key} has the shape {tuple(tensor.shape)}, but {timm_key} of this network needs "
                f"{tuple(shape)}"
            )
        renamed[timm_key] = tensor.reshape(shape)
    return renamed


def _from_efficientnet_pytorch(stored: dict[str, Tensor], network: EfficientNet) -> dict[str, Tensor]:
    """Rename the tensors of efficientnet-pytorch and efficientnet-lite-pytorch as timm does, block by block."""
    renamed = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2"}
    blocks = [
        (f"blocks.{stage}.{index}", block)
        for stage, blocks in enumerate(network.blocks.children())
        for index, block in enumerate(blocks.children())
    ]
    for number, (name, block) in enumerate(blocks):
        layers = EXPANDED_BLOCK if hasattr(block, "conv_pwl") else PLAIN_BLOCK
        renamed |= {f"_blocks.{number}.{layer}": f"{name}.{timm_layer}" for layer, timm_layer in layers.items()}
    tensors: dict[str, Tensor] = {}
    for key, tensor in stored.items():
        layer, _, parameter = key.rpartition(".")
        if layer in renamed:
            tensors[f"{renamed[layer]}.{parameter}"] = tensor
    return tensors


def _network_order(torchvision_key: str) -> tuple[bool, str, int]:
    """Return a sort key: the position of a tensor in the network.

    Files do not preserve the order: .safetensors sorts 10 before 2, and bias before weight.
    """
    layer, _, name = torchvision_key.rpartition(".")
    padded = re.sub("[0-9]+", lambda number: number[0].zfill(3), layer)
    return layer.startswith("classifier"), padded, TENSOR_ORDER.index(name)
