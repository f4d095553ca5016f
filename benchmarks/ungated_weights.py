"""Initial weights for `nano_deep`: those of MobileNetV3-Small without its squeeze-and-excitation.

    ungated_weights.py IMAGENET PHOTOS --output ungated.safetensors
    familiar train ... --recipe pet-nano --set model.initial_weights=ungated.safetensors

IMAGENET are the weights of the whole network, as a file; PHOTOS are some hundred photos of what it will look at. Block
by block, the projection after a gate is fitted by least squares, so that without the gate it computes what it computed
with it. Batch norms get the statistics of the photos.
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
    STAGES_TO_STRIDE_16,
    FineMobileNetV3Trunk,
    MobileNetV3Trunk,
    UngatedMobileNetV3Trunk,
)
from familiar.models.weights import load_weights_file, reinflate_batch_norm

NETWORK = "mobilenetv3_small_100"
PHOTOS, BATCH_SIZE, SIDE_PX = 512, 32, 224
POSITIONS = 49  # of a photo's map, at most, that a projection is fitted to
PENALTY = 1e-3  # of changes of the projection, in units of its inputs' mean square


class GatedMobileNetV3Trunk(FineMobileNetV3Trunk):
    """The whole network up to the same map, with its last stride."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.backbone.blocks[STAGES_TO_STRIDE_16][0].conv_dw.stride = (2, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("imagenet", type=Path)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    images = images_of(options.photos)
    gated, ungated = GatedMobileNetV3Trunk(NETWORK).eval(), UngatedMobileNetV3Trunk(NETWORK).eval()
    load_weights_file(gated, options.imagenet)
    ungated.load_state_dict({key: value for key, value in gated.state_dict().items() if key in ungated.state_dict()})
    ungated.batch_norm_eps = gated.batch_norm_eps
    for number, (model, block) in enumerate(zip(blocks(gated), blocks(ungated), strict=True)):
        if not isinstance(getattr(model, "se", nn.Identity()), nn.Identity):
            before, after = fit_projection(gated, ungated, model, block, images)
            print(f"block {number}: relative error of its projection {before:.3f} without fitting, {after:.3f} with")
    reinflate_batch_norm(ungated, images)
    save_file({key: value.contiguous() for key, value in ungated.backbone.state_dict().items()}, options.output)


def blocks(trunk: MobileNetV3Trunk) -> list[Any]:
    """Return all blocks, in order."""
    return [block for stage in trunk.backbone.blocks for block in stage]


@torch.no_grad()
def fit_projection(
    gated: nn.Module, ungated: nn.Module, model: Any, block: Any, images: list[Tensor]
) -> tuple[float, float]:
    """Fit the projection of `block` to the outputs of `model`'s; the relative squared errors before and after."""
    layer, target = (getattr(each, "conv_pwl", None) or each.conv_pw for each in (block, model))
    generator = torch.Generator().manual_seed(0)
    inputs, outputs = [], []
    for batch in images:
        x = captured(ungated, layer, batch, lambda arguments, _output: arguments[0])
        y = captured(gated, target, batch, lambda _arguments, output: output)
        positions = torch.randperm(x.shape[2] * x.shape[3], generator=generator)[:POSITIONS]
        inputs.append(x.flatten(2)[:, :, positions].transpose(1, 2).flatten(0, 1).double())
        outputs.append(y.flatten(2)[:, :, positions].transpose(1, 2).flatten(0, 1).double())
    x, y = torch.cat(inputs), torch.cat(outputs)
    weight = layer.weight.flatten(1).double()
    moments = x.T @ x
    damped = moments + torch.eye(len(moments)) * PENALTY * moments.diagonal().mean()
    change = torch.linalg.solve(damped, x.T @ (y - x @ weight.T)).T
    layer.weight.copy_((weight + change).reshape(layer.weight.shape))
    errors = ((y - x @ each.T).square().sum() / y.square().sum() for each in (weight, weight + change))
    before, after = map(float, errors)
    return before, after


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
