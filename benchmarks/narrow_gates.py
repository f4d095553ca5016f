"""Initial weights for `nano_deep`: those of MobileNetV3-Small, with narrow gates for its squeeze-and-excitation.

    narrow_gates.py IMAGENET PHOTOS --output narrow.safetensors
    familiar train ... --recipe pet-lite-nano --set model.initial_weights=narrow.safetensors

IMAGENET are the weights of the whole network, as a file; PHOTOS are some hundred photos of what it will look at. Block
by block, the narrow gate is fitted to what the whole gate computes before its sigmoid (reduced-rank regression: Izenman
1975, https://doi.org/10.1016/0047-259X(75)90042-1), then the projection after it, by least squares, to what the whole
block computes. Batch norms get the statistics of the photos.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from jaxtyping import Float
from safetensors.torch import save_file
from torch import Tensor, nn

from familiar import find_photos, load_photo
from familiar.models.backbones import (
    MobileNetV3Trunk,
    NarrowGate,
    NarrowGateMobileNetV3Trunk,
)
from familiar.models.weights import load_weights_file, reinflate_batch_norm

NETWORK = "mobilenetv3_small_100"
PHOTOS, BATCH_SIZE, SIDE_PX = 512, 32, 224
POSITIONS = 49  # of a photo's map, at most, that a projection is fitted to
GATE_PENALTY = 1e-2  # of a gate's weights, in units of its inputs' mean variance
SATURATED = 3.5  # beyond it a hard sigmoid, which is 0 or 1 from 3 on, need not be fitted
PENALTY = 1e-3  # of changes of the projection, in units of its inputs' mean square


class GatedMobileNetV3Trunk(MobileNetV3Trunk):
    """The whole network up to the same map: without `conv_head`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        network = self.backbone
        del network.conv_head, network.norm_head, network.act2
        self.channels = network.blocks[-1][-1].conv.out_channels

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n c k k"]:
        """Compute the feature maps of images."""
        return self.backbone.forward_features(images)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("imagenet", type=Path)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    images = images_of(options.photos)
    gated, narrow = GatedMobileNetV3Trunk(NETWORK).eval(), NarrowGateMobileNetV3Trunk(NETWORK).eval()
    load_weights_file(gated, options.imagenet)
    shared = {key: value for key, value in gated.state_dict().items() if key in narrow.state_dict()}
    narrow.load_state_dict(shared, strict=False)  # all but the gates
    narrow.batch_norm_eps = gated.batch_norm_eps
    for number, (model, block) in enumerate(zip(blocks(gated), blocks(narrow), strict=True)):
        if isinstance(getattr(block, "se", None), NarrowGate):
            explained = fit_gate(gated, narrow, model.se, block.se, images)
            before, after = fit_projection(gated, narrow, model, block, images)
            print(
                f"block {number}: its gate explains {explained:.3f} of the variance; relative error of its projection "
                f"{before:.3f} without fitting, {after:.3f} with"
            )
    reinflate_batch_norm(narrow, images)
    save_file({key: value.contiguous() for key, value in narrow.backbone.state_dict().items()}, options.output)


def blocks(trunk: MobileNetV3Trunk) -> list[Any]:
    """Return all blocks, in order."""
    return [block for stage in trunk.backbone.blocks for block in stage]


@torch.no_grad()
def fit_gate(gated: nn.Module, narrow: nn.Module, model: Any, gate: NarrowGate, images: list[Tensor]) -> float:
    """Fit a narrow gate to the whole one, and return the share of the variance before the sigmoid that it explains."""
    x = torch.cat([captured(narrow, gate, batch, lambda arguments, _: arguments[0].mean((2, 3))) for batch in images])
    y = torch.cat([captured(gated, model.conv_expand, batch, lambda _, output: output.flatten(1)) for batch in images])
    x, y = x.double(), y.double().clamp(-SATURATED, SATURATED)
    mean_x, mean_y = x.mean(0), y.mean(0)
    x, y = x - mean_x, y - mean_y
    weight = damped_least_squares(x, y, GATE_PENALTY)
    _, _, directions = torch.linalg.svd(x @ weight, full_matrices=False)
    directions = directions[: gate.reduce.out_channels]
    reduce, expand = directions @ weight.T, directions.T
    scale = (x @ reduce.T).std(0)  # what is between both matrices has a variance of 1, unless the gate is constant
    scale[scale == 0] = 1
    gate.reduce.weight.copy_((reduce / scale[:, None])[:, :, None, None])
    gate.reduce.bias.copy_(-(reduce @ mean_x) / scale)
    gate.expand.weight.copy_((expand * scale)[:, :, None, None])
    gate.expand.bias.copy_(mean_y)
    variance = y.square().sum()
    return float(1 - (y - x @ reduce.T @ expand.T).square().sum() / variance) if variance else 1.0


@torch.no_grad()
def fit_projection(
    gated: nn.Module, narrow: nn.Module, model: Any, block: Any, images: list[Tensor]
) -> tuple[float, float]:
    """Fit the projection of `block` to the outputs of `model`'s; the relative squared errors before and after."""
    layer, target = (getattr(each, "conv_pwl", None) or each.conv_pw for each in (block, model))
    generator = torch.Generator().manual_seed(0)
    inputs, outputs = [], []
    for batch in images:
        x = captured(narrow, layer, batch, lambda arguments, _output: arguments[0])
        y = captured(gated, target, batch, lambda _arguments, output: output)
        positions = torch.randperm(x.shape[2] * x.shape[3], generator=generator)[:POSITIONS]
        inputs.append(x.flatten(2)[:, :, positions].transpose(1, 2).flatten(0, 1).double())
        outputs.append(y.flatten(2)[:, :, positions].transpose(1, 2).flatten(0, 1).double())
    x, y = torch.cat(inputs), torch.cat(outputs)
    weight = layer.weight.flatten(1).double()
    change = damped_least_squares(x, y - x @ weight.T, PENALTY).T
    layer.weight.copy_((weight + change).reshape(layer.weight.shape))
    errors = ((y - x @ each.T).square().sum() / y.square().sum() for each in (weight, weight + change))
    before, after = map(float, errors)
    return before, after


def damped_least_squares(x: Float[Tensor, "n i"], y: Float[Tensor, "n o"], penalty: float) -> Float[Tensor, "i o"]:
    """Return the weights with which `x` gives `y`, their size penalized in units of the inputs' mean square."""
    moments = x.T @ x
    damped = moments + torch.eye(len(moments)) * penalty * moments.diagonal().mean()
    return torch.linalg.solve(damped, x.T @ y)


def captured(
    network: nn.Module, layer: nn.Module, images: Tensor, choose: Callable[[Any, Any], Tensor]
) -> Float[Tensor, "n c h w"]:
    """Return what `choose` takes of a layer's arguments and output."""
    tensors: list[Tensor] = []
    hook = layer.register_forward_hook(lambda _layer, arguments, output: tensors.append(choose(arguments, output)))
    network(images)
    hook.remove()
    return tensors[0]


def images_of(folder: Path) -> list[Tensor]:
    """Return batches of photos as Keras's weights take them: from -1 to 1."""
    paths = find_photos(folder)
    rows = np.random.default_rng(0).permutation(len(paths))[:PHOTOS]
    pixels = [
        cv2.resize(load_photo(paths[row]).rgb_u8, (SIDE_PX, SIDE_PX), interpolation=cv2.INTER_AREA) for row in rows
    ]
    images = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).float() / 127.5 - 1
    return list(images.split(BATCH_SIZE))


if __name__ == "__main__":
    main()
