"""Quantization-aware training (Jacob et al. 2017, arXiv 1712.05877).

The network computes as it will in 8-bit integers, so that training compensates for the rounding: values and weights are
rounded in the forward pass, and gradients pass back as if they were not (fake quantization, straight-through
estimator). Results of additions and multiplications are rounded only by the layer that follows.
"""

from typing import Any, cast

import torch
from jaxtyping import Float
from timm.layers.conv2d_same import Conv2dSame, conv2d_same
from torch import Tensor, nn
from torch.nn.functional import linear

from familiar.models.heads import Maxout

MAX_UINT8, MAX_INT8 = 255, 127  # no weight is -128, so that the sign of a channel does not matter
MIN_STEP = torch.finfo(torch.float32).tiny  # used if all values are 0
# Layers that round their input. A convolution and the ReLU after it run as one kernel; before any other activation the
# convolution's sums are rounded to 8 bits.
ROUNDED_INPUT_LAYERS = (nn.Conv2d, nn.Linear, nn.Hardswish, nn.SiLU, nn.Hardsigmoid, nn.Sigmoid)


def fake_quantize_values(values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Round to the nearest of 256 evenly spaced values between the smallest and the largest, one of which is 0.

    The range is that of the batch, extended to 0, so that no value is off by more than half a step and there is no
    state. If any value is not finite, all become NaN.
    """
    exact = values.detach().float()  # a bfloat16 cannot tell 256 steps apart
    low, high = torch.aminmax(exact)
    low, high = low.clamp_max(0), high.clamp_min(0)
    step = (high / MAX_UINT8 - low / MAX_UINT8).clamp_min(MIN_STEP)
    zero = (-low / step).round()
    stored = ((exact / step).round() + zero).clamp(0, MAX_UINT8)
    return _straight_through((stored - zero) * step, values)


def fake_quantize_weights(weights: Float[Tensor, "o i *k"]) -> Float[Tensor, "o i *k"]:
    """Round to the nearest of 255 evenly spaced values, symmetric about 0, with a step size per output channel.

    So a factor on a whole channel does not matter, and the batch norm after it need not be folded into it first.
    """
    exact = weights.detach().float()
    largest = exact.abs().amax(tuple(range(1, exact.ndim)), keepdim=True)
    step = (largest / MAX_INT8).clamp_min(MIN_STEP)
    return _straight_through((exact / step).round() * step, weights)


def _straight_through(rounded: Tensor, values: Tensor) -> Tensor:
    """Return `rounded`, bit for bit, with the gradient of `values`: the term added to it is 0."""
    return rounded.to(values.dtype) + (values - values.detach())


class RoundedConv2d(nn.Conv2d):
    """A convolution with rounded weights; its bias is not rounded, since integer kernels add it to 32-bit sums."""

    def forward(self, input: Float[Tensor, "n i h w"]) -> Float[Tensor, "n o h2 w2"]:  # noqa: A002 (nn.Conv2d's name)
        """Compute the layer's output."""
        return self._conv_forward(input, fake_quantize_weights(self.weight), self.bias)


class RoundedConv2dSame(Conv2dSame):
    """A convolution that pads as TensorFlow does, with rounded weights: EfficientNet-Lite's."""

    def forward(self, x: Float[Tensor, "n i h w"]) -> Float[Tensor, "n o h2 w2"]:
        """Compute the layer's output."""
        layer = cast("Any", self)  # timm's decorator hides its type
        weights = fake_quantize_weights(layer.weight)
        return conv2d_same(x, weights, layer.bias, layer.stride, layer.padding, layer.dilation, layer.groups)


class RoundedLinear(nn.Linear):
    """A linear layer with rounded weights."""

    def forward(self, input: Float[Tensor, "n i"]) -> Float[Tensor, "n o"]:  # noqa: A002 (nn.Linear's name)
        """Compute the layer's output."""
        return linear(input, fake_quantize_weights(self.weight), self.bias)


class RoundedMaxout(Maxout, RoundedLinear):
    """Maxout with rounded weights: in the method resolution order, Maxout's `super()` is `RoundedLinear`."""


ROUNDED_CLASSES: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv2d: RoundedConv2d,
    Conv2dSame: RoundedConv2dSame,
    nn.Linear: RoundedLinear,
    Maxout: RoundedMaxout,
}


def round_to_8_bits(network: nn.Module) -> None:
    """Make the layers of `network` round their inputs and weights from now on, in place.

    Parameters stay the same, under the same names: a saved state loads into a network that does not round.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.__class__ = ROUNDED_CLASSES[type(module)]  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(module, ROUNDED_INPUT_LAYERS):
            module.register_forward_pre_hook(_round_input)


def _round_input(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    return (fake_quantize_values(inputs[0]),)
