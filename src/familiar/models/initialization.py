"""Random initial weights as Keras draws them."""

import math

import torch
from torch import Tensor, nn

TRUNCATED_NORMAL_STD = 0.87962566103423978  # of a standard normal truncated at two deviations


@torch.no_grad()
def variance_scaling_(weight: Tensor, scale: float) -> None:
    """Draw a weight in place, like Keras's VarianceScaling.

    From a normal truncated at two deviations, of variance scale / fan-in after the truncation. The fan-in of a
    depthwise weight is that of one filter; Keras counts all its filters together.
    """
    deviation = math.sqrt(scale / weight[0].numel()) / TRUNCATED_NORMAL_STD
    nn.init.trunc_normal_(weight, std=deviation, a=-2 * deviation, b=2 * deviation)


def scale_convolutions_(network: nn.Module, scale: float) -> None:
    """Draw the weights of every convolution with `variance_scaling_`, and set biases to 0."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            variance_scaling_(module.weight, scale)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
