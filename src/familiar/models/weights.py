"""Initial weights: timm's download, or a local file, and batch norms that were folded away, made whole."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import safetensors.torch
import timm
import torch
from jaxtyping import Float
from torch import Tensor, nn

from familiar.core.errors import BadWeights
from familiar.models.mobile import MobileNetV3Trunk

TORCHVISION_BATCH_NORM_EPS = 1e-3  # torchvision's MobileNetV3; timm builds it with 1e-5


def load_timm_weights(trunk: MobileNetV3Trunk, name: str) -> None:
    """ImageNet weights as timm publishes them; downloads them once. BadWeights without a network."""
    try:
        pretrained = timm.create_model(name, pretrained=True, num_classes=0)
    except Exception as error:  # the hub's client raises many kinds
        raise BadWeights(
            f"timm could not fetch the weights of {name} ({type(error).__name__}). Without a network, name a "
            "local file (--set model.initial_weights=FILE) or start from none (model.initial_weights=none)"
        ) from error
    trunk.backbone.load_state_dict(pretrained.state_dict())


def load_weights_file(trunk: MobileNetV3Trunk, path: Path) -> None:
    """Weights under timm's or torchvision's key names from .safetensors, .npz, .pt or .pth.

    A classifier in the file is passed over. BadWeights names the first tensor that is missing or of
    another shape.
    """
    stored = read_tensors(path)
    if any(key.startswith("features.") for key in stored):
        stored = _from_torchvision(stored, trunk, path)
        for module in trunk.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eps = TORCHVISION_BATCH_NORM_EPS
    wanted = trunk.backbone.state_dict()
    for key, tensor in wanted.items():
        if key.endswith("num_batches_tracked"):
            stored.setdefault(key, tensor)
        if key not in stored:
            raise BadWeights(f"{path}: holds no {key}, so it is not for this network")
        if stored[key].shape != tensor.shape:
            raise BadWeights(f"{path}: {key} is {tuple(stored[key].shape)}, wanted {tuple(tensor.shape)}")
    trunk.backbone.load_state_dict({key: stored[key] for key in wanted})


def read_tensors(path: Path) -> dict[str, Tensor]:
    """A file of named tensors; nothing in it is ever executed."""
    try:
        match path.suffix:
            case ".safetensors":
                return safetensors.torch.load_file(path)
            case ".npz":
                with np.load(path, allow_pickle=False) as arrays:
                    return {key: torch.from_numpy(arrays[key]) for key in arrays.files}
            case ".pt" | ".pth":
                return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise BadWeights(f"{path}: no such file") from error
    except Exception as error:  # each format has its own errors for a damaged file
        raise BadWeights(f"{path}: cannot be read as weights ({error})") from error
    raise BadWeights(f"{path}: weights come as .safetensors, .npz, .pt or .pth")


def has_folded_batch_norm(network: nn.Module) -> bool:
    """Whether the batch norms only add a bias, as after a conversion for inference."""
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    return (
        bool(norms)
        and all(
            torch.allclose(norm.running_var + norm.eps, norm.weight.square(), atol=1e-6)
            and not norm.running_mean.any()
            for norm in norms
            if norm.running_var is not None and norm.running_mean is not None
        )
        and any(norm.bias.any() for norm in norms)
    )


@torch.no_grad()
def reinflate_batch_norm(network: nn.Module, batches: Iterable[Float[Tensor, "n 3 s s"]]) -> None:
    """Give folded batch norms the statistics of `batches` without changing the function.

    In training mode a folded norm would divide by statistics its weights know nothing of and destroy the
    features. Afterwards: running mean and variance are those of its input, weight = sqrt(var + eps),
    bias = bias + mean. One pass is enough, since no norm's input changes.
    """
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
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


def _from_torchvision(stored: dict[str, Tensor], trunk: MobileNetV3Trunk, path: Path) -> dict[str, Tensor]:
    """torchvision's MobileNetV3 holds the same tensors in the same order under other names.

    Only the layer timm calls conv_head differs: there it is linear, since torchvision pools before it.
    """
    theirs = [(key, tensor) for key, tensor in stored.items() if not key.endswith("num_batches_tracked")]
    ours = [key for key in trunk.backbone.state_dict() if not key.endswith("num_batches_tracked")]
    if len(theirs) < len(ours):
        raise BadWeights(f"{path}: holds {len(theirs)} tensors, wanted {len(ours)}")
    shapes = trunk.backbone.state_dict()
    renamed: dict[str, Tensor] = {}
    for key, (their_key, tensor) in zip(ours, theirs, strict=False):
        if tensor.numel() != shapes[key].numel():
            raise BadWeights(
                f"{path}: {their_key} is {tuple(tensor.shape)}, {key} wants {tuple(shapes[key].shape)}"
            )
        renamed[key] = tensor.reshape(shapes[key].shape)
    return renamed
