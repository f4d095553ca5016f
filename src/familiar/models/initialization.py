"""Random weights to start from, as Keras draws them."""

import math

import torch
from torch import Tensor, nn

CUT_DEVIATION = 0.87962566103423978  # of a standard normal cut at two deviations


@torch.no_grad()
def variance_scaling_(weight: Tensor, scale: float) -> None:
    """Keras's VarianceScaling: a normal cut at two deviations, of variance scale / fan-in after the cut.

    A depthwise weight has the fan-in of one filter; Keras counts that of all its filters together.
    """
    deviation = math.sqrt(scale / weight[0].numel()) / CUT_DEVIATION
    nn.init.trunc_normal_(weight, std=deviation, a=-2 * deviation, b=2 * deviation)


def scale_convolutions_(network: nn.Module, scale: float) -> None:
    """`variance_scaling_` for every convolution; biases of 0."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            variance_scaling_(module.weight, scale)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
