"""A network that computes as it will in 8-bit integers, so that training makes up for the rounding.

Quantization-aware training (Jacob et al. 2017, arXiv 1712.05877): values and weights are rounded on the way forward,
and gradients pass back as if they were not. What is added or multiplied is rounded by the layer behind it alone.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear

from familiar.models.heads import Maxout

LARGEST_UINT8, LARGEST_INT8 = 255, 127  # no weight is -128, so that the sign of a channel does not matter
SMALLEST_STEP = torch.finfo(torch.float32).tiny  # where all values are 0
# A convolution and the ReLU behind it are one kernel; in front of any other activation its sums become 8 bits.
ROUNDING = (nn.Conv2d, nn.Linear, nn.Hardswish, nn.SiLU, nn.Hardsigmoid, nn.Sigmoid)


def rounded_values(values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """To the nearest of 256 evenly spaced values between the smallest and the largest, one of which is 0.

    The range is the batch's own and always holds 0, so that none is off by more than half a step and there is no state
    to keep. What is not finite makes all of them NaN.
    """
    exact = values.detach().float()  # a bfloat16 cannot tell 256 steps apart
    low, high = torch.aminmax(exact)
    low, high = low.clamp_max(0), high.clamp_min(0)
    step = (high / LARGEST_UINT8 - low / LARGEST_UINT8).clamp_min(SMALLEST_STEP)
    zero = (-low / step).round()
    stored = ((exact / step).round() + zero).clamp(0, LARGEST_UINT8)
    return _straight_through((stored - zero) * step, values)


def rounded_weights(weights: Float[Tensor, "o i *k"]) -> Float[Tensor, "o i *k"]:
    """To the nearest of 255 evenly spaced values, symmetric about 0; each output channel has steps of its own.

    So a factor on a whole channel does not matter, and the batch norm behind it need not be folded into it first.
    """
    exact = weights.detach().float()
    largest = exact.abs().amax(tuple(range(1, exact.ndim)), keepdim=True)
    step = (largest / LARGEST_INT8).clamp_min(SMALLEST_STEP)
    return _straight_through((exact / step).round() * step, weights)


def _straight_through(rounded: Tensor, values: Tensor) -> Tensor:
    """`rounded`, bit for bit, with the gradient of `values`: what is added is 0."""
    return rounded.to(values.dtype) + (values - values.detach())


class RoundedConv2d(nn.Conv2d):
    """Its bias is left as it is: integer kernels add it to sums of 32 bits."""

    def forward(self, input: Float[Tensor, "n i h w"]) -> Float[Tensor, "n o h2 w2"]:  # noqa: A002 (nn.Conv2d's name)
        return self._conv_forward(input, rounded_weights(self.weight), self.bias)


class RoundedLinear(nn.Linear):
    def forward(self, input: Float[Tensor, "n i"]) -> Float[Tensor, "n o"]:  # noqa: A002 (nn.Linear's name)
        return linear(input, rounded_weights(self.weight), self.bias)


class RoundedMaxout(Maxout, RoundedLinear):
    """The layer of which Maxout takes the largest is the next in this order."""


ROUNDED: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv2d: RoundedConv2d,
    nn.Linear: RoundedLinear,
    Maxout: RoundedMaxout,
}


def round_to_8_bits(network: nn.Module) -> None:
    """From here on the layers of `network` round what they are given, and their weights.

    Its parameters stay the same, under the same names: what is saved of it loads into a network that does not round.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.__class__ = ROUNDED[type(module)]  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(module, ROUNDING):
            module.register_forward_pre_hook(_round_input)


def _round_input(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    return (rounded_values(inputs[0]),)
